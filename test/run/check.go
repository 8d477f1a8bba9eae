package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/slipway-cloud/slipway/assembly/devserver/toolcache"
)

// runFile holds what `make test` leaves for `make check`, and countsFile the line of counts.
const (
	runFile    = workFolder + "/run.json"
	countsFile = workFolder + "/counts"
)

// record is what `make test` measured. The cost of each test binary is in usageFile.
type record struct {
	Tree      string        `json:"tree"`
	Whole     bool          `json:"whole"`
	Quietness quietness     `json:"quietness"`
	CPU       float64       `json:"cpu"` // factor by which CPU seconds are longer than on the reference machine
	Demo      time.Duration `json:"demo_ns"`
	Passed    int           `json:"passed"`
	Failed    int           `json:"failed"`
	Skipped   int           `json:"skipped"`
}

func (r record) counts() string {
	return fmt.Sprintf("%d passed, %d failed, %d skipped\n", r.Passed, r.Failed, r.Skipped)
}

// save writes the record and the line of counts.
func (r record) save(root string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(filepath.Join(root, runFile), append(text, '\n'), 0o644),
		os.WriteFile(filepath.Join(root, countsFile), []byte(r.counts()), 0o644))
}

// readRecord returns the record of a run of the tests of this tree, and false when there is none.
func readRecord(root, tree string) (record, bool, error) {
	text, err := os.ReadFile(filepath.Join(root, runFile))
	if errors.Is(err, fs.ErrNotExist) {
		return record{}, false, nil
	}
	if err != nil {
		return record{}, false, err
	}
	var r record
	if err := json.Unmarshal(text, &r); err != nil {
		return record{}, false, fmt.Errorf("%s: %w", runFile, err)
	}
	return r, r.Tree == tree, nil
}

// checkAll is `make check`: what the code must be, besides passing its tests.
func checkAll(ctx context.Context, stdout io.Writer) error {
	s, err := newSession(ctx, stdout)
	if err != nil {
		return err
	}
	defer s.close()
	ctx, ended := s.begin(ctx)
	s.checks(ctx)
	err = context.Cause(ctx)
	ended()
	return s.finishCheck(err)
}

func (s *session) checks(ctx context.Context) {
	s.board.step(ctx, "CPU budget", func(context.Context) (cost, error) { return cost{}, s.checkBudget() })
	if s.ensureTools(ctx, "linters", "golangci-lint", "workflowcheck") {
		s.run(ctx, "lint", s.tools["golangci-lint"], "run", "./...")
		s.board.step(ctx, "workflowcheck", s.workflowcheck)
	}
	if s.ensureTools(ctx, "generators", "buf", "sqlc", "oapi-codegen", "protoc-gen-go", "protoc-gen-connect-go") {
		s.board.step(ctx, "proto", s.checkProto)
		s.board.step(ctx, "generated code", s.verifyGenerated)
	}
	s.board.step(ctx, "dev module", s.vetDevModule)
}

// checkBudget fails when the tests of this tree took more CPU time than their steps may, on a
// machine that was quiet meanwhile.
func (s *session) checkBudget() error {
	r, found, err := readRecord(s.root, s.tree)
	if err != nil {
		return err
	}
	if !found || !r.Whole {
		s.board.printf("no whole run of the tests of this tree is known: make test measures one\n")
		return nil
	}
	usage, err := readUsage(filepath.Join(s.root, usageFile), s.root)
	if err != nil {
		return err
	}
	over, err := s.tellBudget(usage, r)
	if err != nil {
		return err
	}
	if over != nil && !r.Quietness.quiet() {
		s.board.printf("no verdict on the budget: the machine was %s\n", r.Quietness)
		return nil
	}
	return over
}

// finishCheck prints the table and the verdict. Its last line is that of the tests of this tree,
// where they have run: a failed check counts in it as one that failed.
func (s *session) finishCheck(err error) error {
	failed := s.board.failed()
	if len(failed) > 0 {
		err = errors.Join(err, fmt.Errorf("failed checks: %s", strings.Join(failed, ", ")))
	}
	s.board.printf("\n%s\n", s.board.table(childrenCPU()))
	if err != nil {
		s.board.printf("make check FAILED: %v\n", err)
	} else {
		s.board.printf("make check passed\n")
	}
	r, found, rerr := readRecord(s.root, s.tree)
	if rerr != nil || !found {
		return errors.Join(err, rerr)
	}
	if err != nil {
		r.Failed += max(1, len(failed))
	}
	s.board.printf("%s", r.counts())
	return errors.Join(err, os.WriteFile(filepath.Join(s.root, countsFile), []byte(r.counts()), 0o644))
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
		return s.child(ctx, "proto", []string{"scripts/proto.sh"}, nil)
	}, "proto", "buf.yaml", "scripts/proto.sh", "tools/proto")
}

// verifyGenerated generates all code and pages again, unless that changed nothing before in the
// same tree.
func (s *session) verifyGenerated(ctx context.Context) (cost, error) {
	return s.checkedHash("generated code", hashOf("generated code", s.tree), func() (cost, error) {
		return s.child(ctx, "generated code", []string{"scripts/verify.sh"}, nil)
	})
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

// checked runs a check whose verdict follows from the files below the given paths alone, unless it
// passed for the same files before.
func (s *session) checked(label string, check func() (cost, error), paths ...string) (cost, error) {
	hash, err := toolcache.Hash(s.root, label, paths...)
	if err != nil {
		return cost{}, err
	}
	return s.checkedHash(label, hash, check)
}

// checkedHash runs a check, unless it passed before for inputs with the same hash.
func (s *session) checkedHash(label, hash string, check func() (cost, error)) (cost, error) {
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
