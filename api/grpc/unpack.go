package grpc

import (
	"compress/gzip"
	"errors"
	"io"
	"strings"

	"connectrpc.com/connect"

	"github.com/slipway-cloud/slipway/proto/gen/slipway/v1/slipwayv1connect"
)

// The largest message of each call, as it is sent and unpacked. What a message unpacks to, the library
// holds up to three times while its buffer grows. So only the one call that an admin alone makes may
// send a large one, and those that need no token or any token take hardly anything.
const (
	maxPlan     = 4 << 20 // a plan may have 32 commands of 64 KiB
	maxRequest  = 256 << 10
	maxQuestion = 4 << 10 // whether a service is healthy, and which services there are
)

// mostOf is the largest message of a call.
func mostOf(procedure string) int {
	switch {
	case procedure == slipwayv1connect.PlanServiceCreatePlanProcedure:
		return maxPlan
	case strings.HasPrefix(procedure, "/grpc."):
		return maxQuestion
	default:
		return maxRequest
	}
}

// bounded is an option of every handler, also of those that need no sign-in: how large a message may be.
func bounded() connect.HandlerOption {
	return connect.WithConditionalHandlerOptions(func(call connect.Spec) []connect.HandlerOption {
		most := mostOf(call.Procedure)
		return []connect.HandlerOption{
			connect.WithReadMaxBytes(most),
			connect.WithCompression("gzip", func() connect.Decompressor { return &boundedGzip{most: int64(most)} }, func() connect.Compressor { return gzip.NewWriter(io.Discard) }),
		}
	})
}

// boundedGzip unpacks a message until it is larger than it may be. By itself the library unpacks the rest
// of one that is too large, only to say its size.
type boundedGzip struct {
	gzip.Reader

	most, left int64
}

var errUnpacked = errors.New("the message is too large when it is unpacked")

// Reset implements connect.Decompressor.
func (b *boundedGzip) Reset(r io.Reader) error {
	b.left = b.most + 2 // one byte more than the library reads before it sees that there is too much
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
