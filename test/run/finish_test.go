package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/internal/poll"
)

// newSessionFixture is a session in an empty checkout whose tests wrote the given results.
func newSessionFixture(t *testing.T, out *bytes.Buffer, files ...string) *session {
	t.Helper()
	root := t.TempDir()
	s := &session{root: root, board: newBoard(out), speed: speed{Wall: 1, CPU: 1}, seed: 7, tree: "0123", before: readBusyness()}
	require.NoError(t, os.MkdirAll(filepath.Join(root, "test", "run"), 0o755))
	require.NoError(t, os.MkdirAll(filepath.Join(root, workFolder), 0o755))
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
	require.NoError(t, s.finish(nil))
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
			require.ErrorContains(t, s.finish(tc.begin), tc.want)
			require.Regexp(t, `(?s)\nFAILED .*\n\d+ passed, 1 failed, 0 skipped\n$`, out.String())
		})
	}
}

// TestFinish_SaysWhatFailed checks that the end of the output, which may be all that is kept of a
// run, has a failed test's report, and of a long one its last part.
func TestFinish_SaysWhatFailed(t *testing.T) {
	t.Parallel()
	report := "noise\n    x_test.go:7: \n\tError: " + strings.Repeat("long ", 1000) + "\n\tMessages: the disk is not erased\n"
	var out bytes.Buffer
	s := newSessionFixture(t, &out, line(t, "output", "Bad", report)+line(t, "fail", "Bad", ""))
	require.Error(t, s.finish(nil))
	require.Regexp(t, `FAILED p Bad\n    \.\.\.\n[^\n]+long *\n    Messages: the disk is not erased\n`, out.String())
	require.Less(t, out.Len(), 4000)
	require.NotContains(t, out.String(), "noise")
}

// TestFinish_SaysWhyAStepFailed: of a program that failed, its last lines stand at the end of the
// output too.
func TestFinish_SaysWhyAStepFailed(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	s := newSessionFixture(t, &out, line(t, "pass", "Good", ""))
	s.board.step(t.Context(), "demo", func(ctx context.Context) (cost, error) {
		return s.child(ctx, "demo", []string{"sh", "-c", "for i in $(seq 20); do echo line $i; done; echo; printf 'carol was told twice'; exit 3"}, nil)
	})
	require.Error(t, s.finish(nil))
	_, end, _ := strings.Cut(out.String(), "slowest tests")
	require.Contains(t, end, "FAILED step demo after 0 s: exit status 3; its last lines:\n    line 14\n")
	require.Contains(t, end, "\n    line 20\n    carol was told twice\n\nFAILED")
}

// TestWatch_EndsAStalledRun: a run in which nothing says anything any more is ended, and the table
// says where. While it waits, the watch says what runs.
func TestWatch_EndsAStalledRun(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	s := newSessionFixture(t, &out, line(t, "pass", "Good", ""))
	ctx, end := context.WithCancelCause(t.Context())
	done := make(chan struct{})
	go func() {
		s.board.watch(ctx, 20*time.Millisecond, 200*time.Millisecond, end)
		close(done)
	}()
	ok := s.board.step(ctx, "a step that hangs", func(ctx context.Context) (cost, error) {
		s.board.counts("a step that hangs", 3)
		s.board.counted("a step that hangs")
		return s.child(ctx, "sleep", []string{"sleep", "600"}, nil)
	})
	<-done
	require.False(t, ok)
	err := s.finish(context.Cause(ctx))
	require.ErrorIs(t, err, errStalled)
	require.ErrorContains(t, err, "failed steps: a step that hangs")
	require.Contains(t, out.String(), "... a step that hangs: 0 s, 1 of 3 packages\n")
	require.Contains(t, out.String(), "a step that hangs                  failed", "the table is printed")
}

// TestWatch_LetsASlowRunGoOn: what says something is not ended, however long it takes.
func TestWatch_LetsASlowRunGoOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		b := newBoard(&out)
		ctx, end := context.WithCancelCause(t.Context())
		defer end(nil)
		go b.watch(ctx, time.Minute, 20*time.Minute, end)
		for range 10 {
			require.NoError(t, poll.Sleep(t.Context(), 15*time.Minute))
			b.printf("a line\n")
		}
		b.step(ctx, "programs", func(context.Context) (cost, error) {
			b.counts("programs", 20)
			for range 10 { // lines that are counted and not printed
				require.NoError(t, poll.Sleep(t.Context(), 15*time.Minute))
				b.counted("programs")
			}
			return cost{}, nil
		})
		require.NoError(t, ctx.Err())
		b.mu.Lock()
		said := out.String()
		b.mu.Unlock()
		require.Contains(t, said, "... programs: 4560 s, 5 of 20 packages\n", "while it compiles it says how far it is")
		require.NoError(t, poll.Sleep(t.Context(), 30*time.Minute))
		require.ErrorIs(t, context.Cause(ctx), errStalled)
	})
}

// TestFlakes_FailOnlyAQuietMachine: a test that missed its deadline for the third time is told, and
// fails the run on a quiet machine only.
func TestFlakes_FailOnlyAQuietMachine(t *testing.T) {
	t.Parallel()
	busy, quiet := quietness{Others: 0.5, Factor: 1}, quietness{Others: 0.01, Factor: 1.1}
	for _, q := range []quietness{busy, quiet} {
		var out bytes.Buffer
		s := newSessionFixture(t, &out)
		top := testKey{module + "/p", "Slow"}
		f := &flakes{path: filepath.Join(s.root, flakesFile)}
		f.add(top, 1, 0)
		f.add(top, 2, 0)
		require.NoError(t, f.save())
		s.again = []testKey{top}
		r := newResults()
		require.NoError(t, r.read(strings.NewReader(line(t, "pass", "Slow", ""))))
		err := s.tellFlakes(r, q)
		if q == quiet {
			require.ErrorContains(t, err, "p Slow missed a deadline 3 times")
			continue
		}
		require.NoError(t, err)
		require.Contains(t, out.String(), "no verdict on missed deadlines, because the machine was busy or slow: other programs had 50 %")
		require.Contains(t, out.String(), "p Slow missed a deadline 3 times", "it is told")
	}
}
