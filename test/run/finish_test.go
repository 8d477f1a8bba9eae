package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// newSessionFixture is a session in an empty checkout whose tests wrote the given results.
func newSessionFixture(t *testing.T, out *bytes.Buffer, files ...string) *session {
	t.Helper()
	root := t.TempDir()
	s := &session{root: root, board: newBoard(out), speed: speed{Wall: 1, CPU: 1}, seed: 7}
	require.NoError(t, os.MkdirAll(filepath.Join(root, "test", "run"), 0o755))
	for i, events := range files {
		path := filepath.Join(root, string(rune('a'+i))+".jsonl")
		require.NoError(t, os.WriteFile(path, []byte(events), 0o600))
		s.files = append(s.files, path)
	}
	return s
}

func TestFinish_NamesAFlakeAndPasses(t *testing.T) {
	t.Parallel()
	const never = "    x_test.go:1: \n\tError Trace: x.go:1\n\tError: Condition never satisfied\n"
	var out bytes.Buffer
	s := newSessionFixture(t, &out,
		line(t, "pass", "Good", "")+line(t, "output", "Slow", never)+line(t, "fail", "Slow", "")+line(t, "fail", "", ""),
		line(t, "pass", "Slow", "")+line(t, "pass", "", ""))
	s.again = []testKey{{module + "/p", "Slow"}}
	require.NoError(t, s.finish(t.Context(), nil))
	require.Regexp(t, `FLAKE p Slow missed a deadline beside the others and passed alone \(seed 7, load [0-9.]+\)`, out.String())
	require.Regexp(t, `(?s)everything passed .*\n2 passed, 0 failed, 0 skipped\n$`, out.String())
	require.FileExists(t, filepath.Join(s.root, flakesFile))
}

func TestFinish_FailsTheRun(t *testing.T) {
	t.Parallel()
	good := line(t, "pass", "Good", "")
	for name, tc := range map[string]struct {
		events string
		step   error // of a step
		begin  error // that kept steps from beginning
		want   string
	}{
		"a failed test":     {good + line(t, "fail", "Bad", ""), nil, nil, "1 tests failed"},
		"no test at all":    {"", nil, nil, "no test ran"},
		"a failed step":     {good, errors.New("lint"), nil, "failed steps: x"},
		"nothing can begin": {good, nil, errors.New("no PostgreSQL"), "no PostgreSQL"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			s := newSessionFixture(t, &out, tc.events)
			s.board.step(t.Context(), "x", func(context.Context) (cost, error) { return cost{}, tc.step })
			require.ErrorContains(t, s.finish(t.Context(), tc.begin), tc.want)
			require.Regexp(t, `(?s)\nFAILED .*\n\d+ passed, 1 failed, 0 skipped\n$`, out.String())
		})
	}
}

// TestFinish_SaysWhatFailed checks that the end of the output, which may be all that is kept of a run, has
// a failed test's report, and of a long one its last part.
func TestFinish_SaysWhatFailed(t *testing.T) {
	t.Parallel()
	report := "noise\n    x_test.go:7: \n\tError: " + strings.Repeat("long ", 1000) + "\n\tMessages: the disk is not erased\n"
	var out bytes.Buffer
	s := newSessionFixture(t, &out, line(t, "output", "Bad", report)+line(t, "fail", "Bad", ""))
	require.Error(t, s.finish(t.Context(), nil))
	require.Regexp(t, `FAILED p Bad\n    \.\.\.\n[^\n]+long *\n    Messages: the disk is not erased\n`, out.String())
	require.Less(t, out.Len(), 4000)
	require.NotContains(t, out.String(), "noise")
}

func TestFinish_WatchdogSaysWhy(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	s := newSessionFixture(t, &out, line(t, "pass", "Good", ""))
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, errWatchdog)
	defer cancel()
	ok := s.board.step(ctx, "a step that hangs", func(ctx context.Context) (cost, error) {
		return s.child(ctx, "sleep", []string{"sleep", "600"}, nil)
	})
	require.False(t, ok)
	err := s.finish(ctx, nil)
	require.ErrorIs(t, err, errWatchdog)
	require.ErrorContains(t, err, "failed steps: a step that hangs")
	require.Contains(t, out.String(), "a step that hangs                  failed", "the table is printed")
}
