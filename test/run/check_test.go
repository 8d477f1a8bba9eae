package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// newCheckFixture is a session after a whole run of the tests in which one package used an hour.
func newCheckFixture(t *testing.T, out *bytes.Buffer, r record) *session {
	t.Helper()
	s := newSessionFixture(t, out)
	r.Tree, r.CPU, r.Passed, r.Skipped = s.tree, 1, 41, 3
	require.NoError(t, r.save(s.root))
	require.NoError(t, os.WriteFile(filepath.Join(s.root, budgetFile), []byte(`[{"capability": "all", "cpu_seconds": {"raced packages": 600}}]`), 0o600))
	row, err := json.Marshal(binaryCost{Package: filepath.Join(s.root, "db"), Step: racedStep, cost: cost{CPU: time.Hour}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(s.root, usageFile), append(row, '\n'), 0o600))
	return s
}

// TestCheckBudget_FailsOnlyAQuietMachine: a step over budget is named with its packages. It fails
// the check when the run was whole, of the same tree, and on a quiet machine.
func TestCheckBudget_FailsOnlyAQuietMachine(t *testing.T) {
	t.Parallel()
	quiet := quietness{Others: 0.02, Factor: 1.1}
	for name, tc := range map[string]struct {
		r     record
		tree  string
		fails bool
		says  string
	}{
		"a quiet machine":           {record{Whole: true, Quietness: quiet}, "", true, "raced packages"},
		"a busy machine":            {record{Whole: true, Quietness: quietness{Others: 0.4, Factor: 1}}, "", false, "no verdict on the budget"},
		"a throttled machine":       {record{Whole: true, Quietness: quietness{Others: 0, Factor: 2}}, "", false, "no verdict on the budget"},
		"nobody knows how busy":     {record{Whole: true, Quietness: quietness{Others: -1, Factor: 1}}, "", false, "an unknown share"},
		"a run of some packages":    {record{Quietness: quiet}, "", false, "no whole run"},
		"a run of another checkout": {record{Whole: true, Quietness: quiet}, "4567", false, "no whole run"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			s := newCheckFixture(t, &out, tc.r)
			if tc.tree != "" {
				s.tree = tc.tree
			}
			err := s.checkBudget()
			require.Contains(t, out.String(), tc.says)
			if !tc.fails {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, `step "raced packages" used 3600 CPU s`)
			require.ErrorContains(t, err, "db 3600 s")
		})
	}
}

// TestFinishCheck_EndsWithTheCounts: the last line holds the counts of the tests, and a failed
// check is one that failed.
func TestFinishCheck_EndsWithTheCounts(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"passed": {nil, `make check passed\n41 passed, 0 failed, 3 skipped\n$`},
		"failed": {errors.New("a finding"), `make check FAILED: failed checks: lint\n41 passed, 1 failed, 3 skipped\n$`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			s := newCheckFixture(t, &out, record{Whole: true})
			s.board.step(t.Context(), "lint", func(context.Context) (cost, error) { return cost{}, tc.err })
			err := s.finishCheck(nil)
			require.Equal(t, tc.err != nil, err != nil)
			require.Regexp(t, tc.want, out.String())
			counts, rerr := os.ReadFile(filepath.Join(s.root, countsFile))
			require.NoError(t, rerr)
			require.True(t, bytes.HasSuffix(out.Bytes(), counts))
		})
	}
}
