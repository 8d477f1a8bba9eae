package main

import (
	"context"
	"io"

	"github.com/slipway-cloud/slipway/internal/devstack/toolcache"
)

// ensureTool makes bin/NAME of the checkout a link to the pinned tool, and builds it when the
// user's cache does not have it.
func ensureTool(ctx context.Context, name string, progress io.Writer) error {
	tool, err := toolcache.Find(name)
	if err != nil {
		return err
	}
	_, err = toolcache.Ensure(ctx, tool, progress)
	return err
}

// vetDevModule runs go vet on the dev module, unless it passed for the same sources and versions
// before. The module holds the Temporal server, so that vet takes minutes where nothing is cached.
func (s *session) vetDevModule(ctx context.Context) (cost, error) {
	return s.checked("vet of the dev module", func() (cost, error) {
		return s.child(ctx, "dev module", []string{"go", "-C", "dev", "vet", "./..."}, nil)
	}, "dev")
}

// checked runs a check whose verdict follows from the files below the given paths alone, unless it
// passed for the same files before.
func (s *session) checked(label string, check func() (cost, error), paths ...string) (cost, error) {
	hash, err := toolcache.Hash(s.root, label, paths...)
	if err != nil {
		return cost{}, err
	}
	if toolcache.Checked(hash) {
		s.board.printf("%s: passed before for the same files\n", label)
		return cost{}, nil
	}
	used, err := check()
	if err != nil {
		return used, err
	}
	return used, toolcache.MarkChecked(hash)
}

func (s *session) realHost(context.Context) bool { return true }
