package temporal

import (
	"context"
	"io"

	"github.com/slipway-cloud/slipway/assembly/devserver/toolcache"
)

// EnsureBuilt returns the path of the program of the dev module. It builds the program when the
// user's cache of tools does not have it; see toolcache.Ensure.
func EnsureBuilt(ctx context.Context, progress io.Writer) (string, error) {
	server, err := toolcache.Find("devtemporal")
	if err != nil {
		return "", err
	}
	return toolcache.Ensure(ctx, server, progress)
}
