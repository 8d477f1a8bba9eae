package grpc

import (
	"compress/gzip"
	"errors"
	"io"

	"connectrpc.com/connect"
)

// bounded are the options of every handler, also of those that need no sign-in: how large a message may
// be, as it is sent and unpacked.
func bounded() []connect.HandlerOption {
	return []connect.HandlerOption{
		connect.WithReadMaxBytes(maxRequest),
		connect.WithCompression("gzip", func() connect.Decompressor { return &boundedGzip{} }, func() connect.Compressor { return gzip.NewWriter(io.Discard) }),
	}
}

// boundedGzip unpacks a message until it is larger than any may be. By itself the library unpacks the rest
// of one that is too large, only to say its size.
type boundedGzip struct {
	gzip.Reader

	left int64
}

var errUnpacked = errors.New("the message is too large when it is unpacked")

// Reset implements connect.Decompressor.
func (b *boundedGzip) Reset(r io.Reader) error {
	b.left = maxRequest + 2 // one byte more than the library reads before it sees that there is too much
	return b.Reader.Reset(r)
}

// Read implements io.Reader.
func (b *boundedGzip) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errUnpacked
	}
	n, err := b.Reader.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}
