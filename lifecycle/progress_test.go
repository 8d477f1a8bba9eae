package lifecycle_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/slipway-cloud/slipway/lifecycle"
)

// TestProgress_AnyJob: whatever the stages declare and however the job goes, reached_percent never
// goes back within an attempt, and only success shows 100 for good.
func TestProgress_AnyJob(t *testing.T) {
	t.Parallel()
	states := []lifecycle.StageState{
		lifecycle.StagePending, lifecycle.StageRunning, lifecycle.StageSucceeded, lifecycle.StageFailed, lifecycle.StageSkipped,
		lifecycle.StageAdopted, lifecycle.StageCompensated,
	}
	rapid.Check(t, func(t *rapid.T) {
		stages := make([]lifecycle.StageShare, rapid.IntRange(1, 20).Draw(t, "stages"))
		for i := range stages {
			stages[i] = lifecycle.StageShare{State: lifecycle.StagePending, Weight: rapid.IntRange(-1, 50).Draw(t, "weight")}
			if rapid.Bool().Draw(t, "fixed") {
				stages[i].Percent = rapid.IntRange(-1, 120).Draw(t, "percent")
			}
		}
		reached := 0
		for range rapid.IntRange(0, 40).Draw(t, "steps") {
			stages[rapid.IntRange(0, len(stages)-1).Draw(t, "stage")].State = rapid.SampledFrom(states).Draw(t, "state")
			status := rapid.SampledFrom([]lifecycle.JobStatus{lifecycle.JobPending, lifecycle.JobRunning, lifecycle.JobFailedRetryable, lifecycle.JobFailedManual, lifecycle.JobCompensating, lifecycle.JobCancelled}).Draw(t, "status")
			shown, now := lifecycle.Progress(status, reached, stages)
			require.GreaterOrEqual(t, now, reached)
			require.LessOrEqual(t, now, 100)
			if status == lifecycle.JobPending || status == lifecycle.JobRunning {
				require.Equal(t, now, shown)
			} else {
				require.Zero(t, shown, status)
			}
			reached = now
		}
		for i := range stages {
			stages[i].State = rapid.SampledFrom([]lifecycle.StageState{lifecycle.StageSucceeded, lifecycle.StageSkipped, lifecycle.StageAdopted}).Draw(t, "end")
		}
		_, all := lifecycle.Progress(lifecycle.JobRunning, 0, stages)
		require.Equal(t, 100, all)
		shown, _ := lifecycle.Progress(lifecycle.JobCompleted, reached, stages)
		require.Equal(t, 100, shown)
	})
}

func TestProgress_FixedPercents(t *testing.T) {
	t.Parallel()
	const done, not, skip = lifecycle.StageSucceeded, lifecycle.StagePending, lifecycle.StageSkipped
	stages := func(states ...lifecycle.StageState) []lifecycle.StageShare {
		out := []lifecycle.StageShare{{Percent: 5}, {Percent: 20}, {Percent: 25}, {Weight: 1}, {Weight: 4}, {Percent: 50}, {Percent: 95}, {}}
		for i := range out {
			out[i].State = states[i]
		}
		return out
	}
	for want, s := range map[int][]lifecycle.StageShare{
		0:   stages(not, not, not, not, not, not, not, not),
		20:  stages(done, done, not, not, not, not, not, not),
		25:  stages(done, done, skip, not, not, not, not, not),
		29:  stages(done, done, skip, done, not, not, not, not),
		50:  stages(done, done, skip, done, done, done, not, not),
		95:  stages(done, done, skip, done, done, done, done, not),
		100: stages(done, done, skip, done, done, done, done, skip),
	} {
		_, got := lifecycle.Progress(lifecycle.JobRunning, 0, s)
		require.Equal(t, want, got)
	}
}
