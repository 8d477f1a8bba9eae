package grpc

import (
	"compress/gzip"
	"errors"
	"io"
	"strings"

	"connectrpc.com/connect"

	"github.com/slipway-cloud/slipway/proto/gen/slipway/v1/slipwayv1connect"
)

// These constants bound the size of a message before and after decompression. While its buffer
// grows, the library holds up to three times the size of a decompressed message. So only
// CreatePlan, which requires an admin, accepts large messages, and calls that require no role
// accept only small ones.
const (
	maxPlan     = 4 << 20 // a plan may have 32 commands of 64 KiB
	maxRequest  = 256 << 10
	maxQuestion = 4 << 10 // for health checks and reflection
)

// maxMessage returns the maximum size of a message of a call.
func maxMessage(procedure string) int {
	switch {
	case procedure == slipwayv1connect.PlanServiceCreatePlanProcedure:
		return maxPlan
	case strings.HasPrefix(procedure, "/grpc."):
		return maxQuestion
	default:
		return maxRequest
	}
}

// withMaxMessage returns the option that bounds the size of messages. Every handler has it,
// including those that require no sign-in.
func withMaxMessage() connect.HandlerOption {
	return connect.WithConditionalHandlerOptions(func(call connect.Spec) []connect.HandlerOption {
		most := maxMessage(call.Procedure)
		return []connect.HandlerOption{
			connect.WithReadMaxBytes(most),
			connect.WithCompression("gzip", func() connect.Decompressor { return &boundedGzip{most: int64(most)} }, func() connect.Compressor { return gzip.NewWriter(io.Discard) }),
		}
	})
}

// boundedGzip decompresses at most the maximum size of a message. Without it, the library
// decompresses all of a message that is too large, to name its size in the error.
type boundedGzip struct {
	gzip.Reader

	most, left int64
}

var errUnpacked = errors.New("the message is too large when it is unpacked")

// Reset implements connect.Decompressor.
func (b *boundedGzip) Reset(r io.Reader) error {
	b.left = b.most + 2 // the library reads one byte more than the maximum before it returns its own error
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
