package machinerun_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	machineact "github.com/slipway-cloud/slipway/activities/machine"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/runplan"
	"github.com/slipway-cloud/slipway/workflows/stage/stagetest"
)

// TestRun_RetriesWaitLonger: the run waits before each retry of a step, each time twice as long.
func TestRun_RetriesWaitLonger(t *testing.T) {
	t.Parallel()
	f := setup(t, step("work", runplan.KindSSH, 3))
	var at []time.Time
	f.Answer("RunCommand", func() (any, error) {
		at = append(at, f.Env.Now())
		return nil, machineact.MarkEnd(stagetest.Failure(lifecycle.FailBMCUnreachable), machineact.CommandEnded)
	})
	f.Run()
	require.Len(t, at, 4)
	for i, least := range []time.Duration{2 * time.Second, 4 * time.Second, 8 * time.Second} {
		require.InDelta(t, least, at[i+1].Sub(at[i]), float64(time.Second), "before retry %d", i+1)
	}
}
