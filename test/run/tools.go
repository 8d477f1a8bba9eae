package main

import (
	"context"
	"io"
	"os"

	"github.com/slipway-cloud/slipway/assembly/devserver/toolcache"
	"github.com/slipway-cloud/slipway/test/realhost"
)

// ensureTool returns the path of the pinned tool, and builds it when the user's cache does not have
// it. It makes bin/NAME of the checkout a link to it.
func ensureTool(ctx context.Context, name string, progress io.Writer) (string, error) {
	tool, err := toolcache.Find(name)
	if err != nil {
		return "", err
	}
	return toolcache.Ensure(ctx, tool, progress)
}

// realHost decides whether the tests of the scrub may act on this machine's own kernel. It fails
// where they must run and cannot.
func (s *session) realHost(ctx context.Context) bool {
	return s.board.step(ctx, "real host", func(context.Context) (cost, error) {
		run, line, err := realhost.Decide(os.Getenv)
		s.board.printf("%s\n", line)
		if run {
			s.env = append(s.env, realhost.Var+"=1")
		}
		return cost{}, err
	})
}
