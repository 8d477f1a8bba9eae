package main

import (
	"context"
	"io"
	"os"

	"github.com/slipway-cloud/slipway/internal/devserver/toolcache"
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

// vetDevModule runs go vet on the dev module, unless it passed for the same sources and versions
// before. The module holds the Temporal server, so that vet takes minutes where nothing is cached.
func (s *session) vetDevModule(ctx context.Context) (cost, error) {
	return s.checked("vet of the dev module", func() (cost, error) {
		return s.child(ctx, "dev module", []string{"go", "-C", "dev", "vet", "./..."}, nil)
	}, "dev")
}

// checkProto runs buf on proto/, unless it passed for the same files before.
func (s *session) checkProto(ctx context.Context) (cost, error) {
	return s.checked("buf", func() (cost, error) {
		if _, err := ensureTool(ctx, "buf", &prefixed{b: s.board, prefix: "tools | "}); err != nil {
			return cost{}, err
		}
		return s.child(ctx, "buf", []string{"scripts/proto.sh"}, nil)
	}, "proto", "buf.yaml", "scripts/proto.sh", "tools/proto")
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
	if err := toolcache.MarkChecked(hash); err != nil {
		s.board.printf("%s: passed, and will run again next time: %v\n", label, err)
	}
	return used, nil
}

// workflowcheck looks for what is not deterministic in workflows, unless it passed for the same
// sources before.
func (s *session) workflowcheck(ctx context.Context) (cost, error) {
	const config = "tools/workflowcheck.yaml"
	sources, err := toolcache.Sources(ctx, s.root, "./workflows/...")
	if err != nil {
		return cost{}, err
	}
	return s.checked("workflowcheck", func() (cost, error) {
		return s.child(ctx, "workflowcheck", []string{s.tools["workflowcheck"], "-test=false", "-config", config, "./workflows/..."}, nil)
	}, append(sources, config, "tools/go.mod", "tools/go.sum")...)
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
