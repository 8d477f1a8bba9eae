package chaos

import (
	"testing"

	"github.com/stretchr/testify/require"

	machinesdb "github.com/slipway-cloud/slipway/db/machines"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/runplan"
)

// TestStepsAgree_FindsImpossibleRuns: states that no run may end with, and commands that ran
// otherwise than their step says, are found.
func TestStepsAgree_FindsImpossibleRuns(t *testing.T) {
	t.Parallel()
	const done, failed, waits, runs = lifecycle.StageSucceeded, lifecycle.StageFailed, lifecycle.StagePending, lifecycle.StageRunning
	steps := runSteps{stepFirst, stepRestart, stepLast}
	for name, tc := range map[string]struct {
		phase  lifecycle.RunPhase
		states []lifecycle.StageState
		ran    map[string]int
		found  int
	}{
		"succeeded":                  {lifecycle.RunSucceeded, []lifecycle.StageState{done, done, done}, map[string]int{stepFirst: 1, stepLast: 1}, 0},
		"cancelled in the middle":    {lifecycle.RunCanceled, []lifecycle.StageState{done, failed, waits}, map[string]int{stepFirst: 1}, 0},
		"cancelled at the beginning": {lifecycle.RunCanceled, []lifecycle.StageState{waits, waits, waits}, nil, 0},
		"a step ran twice":           {lifecycle.RunSucceeded, []lifecycle.StageState{done, done, done}, map[string]int{stepFirst: 2, stepLast: 1}, 1},
		"a step never ran":           {lifecycle.RunSucceeded, []lifecycle.StageState{done, done, done}, map[string]int{stepFirst: 1}, 1},
		"a step runs at the end":     {lifecycle.RunCanceled, []lifecycle.StageState{done, runs, waits}, map[string]int{stepFirst: 1}, 1},
		"one after a failed one":     {lifecycle.RunCanceled, []lifecycle.StageState{failed, done, waits}, nil, 1},
		"two failed":                 {lifecycle.RunFailed, []lifecycle.StageState{done, failed, failed}, map[string]int{stepFirst: 1}, 1},
		"succeeded with a waiting":   {lifecycle.RunSucceeded, []lifecycle.StageState{done, done, waits}, map[string]int{stepFirst: 1}, 1},
	} {
		run := machinesdb.Run{Status: tc.phase}
		for i, s := range steps {
			run.Steps = append(run.Steps, runplan.Step{Name: s})
			run.Stages = append(run.Stages, lifecycle.StageRow{Ordinal: i + 1, Name: s, State: tc.states[i]})
		}
		f := &findings{}
		f.stepsAgree(run, steps, tc.ran)
		require.Len(t, f.list, tc.found, "%s: %v", name, f.list)
	}
}
