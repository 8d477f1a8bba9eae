package stage_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/stage/stagetest"
)

// TestReachedPercent_Attempts: a retry goes on from what was reached; a job that begins from the
// top begins at 0.
func TestReachedPercent_Attempts(t *testing.T) {
	t.Parallel()
	for action, want := range map[lifecycle.Action]int{
		lifecycle.ActionRetryStage: 30, lifecycle.ActionResume: 30, lifecycle.ActionRerun: 0, lifecycle.ActionRestartClean: 0,
	} {
		t.Run(string(action), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.out.fail["wait"] = times(1, stagetest.Failure(lifecycle.FailMAASRejected))
			b.at(time.Hour, action, contract.ActionRequest{})
			parked, again := false, -1
			b.Store.OnProject = func(p contract.Projection) {
				require.NotNil(t, p.At)
				require.NotEmpty(t, p.Metadata.CorrelationID)
				if p.Status.Parked() {
					parked = true
					require.Equal(t, []int{0, 30}, []int{p.Progress, p.Reached})
					require.Equal(t, lifecycle.FailMAASRejected, p.Stages[2].FailureClass)
				}
				if parked && again < 0 && p.Status == lifecycle.JobRunning {
					again = p.Reached
					require.Equal(t, p.Reached, p.Progress)
				}
			}
			require.Equal(t, lifecycle.JobCompleted, b.Run().Status)
			require.Equal(t, want, again)
			require.Equal(t, []int{100, 100}, []int{b.Store.Last().Progress, b.Store.Last().Reached})
		})
	}
}
