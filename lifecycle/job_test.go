package lifecycle_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/lifecycle"
)

// TestARefusalListsOnceWhatIsAllowed: problem documents carry the list beside
// the sentence; a Temporal error and an audit row have the sentence alone.
func TestARefusalListsOnceWhatIsAllowed(t *testing.T) {
	t.Parallel()
	e := &lifecycle.ActionRefusedError{
		Action: lifecycle.ActionRerun, Status: lifecycle.JobRunning, Reason: "it has not failed",
		Allowed: []lifecycle.Action{lifecycle.ActionResume, lifecycle.ActionCancel},
	}
	require.EqualError(t, e, "rerun is refused while the job is running: it has not failed")
	require.Equal(t, "rerun is refused while the job is running: it has not failed; allowed now: resume, cancel", e.WithAllowed())
	e.Allowed = nil
	require.Equal(t, "rerun is refused while the job is running: it has not failed; no action is allowed now", e.WithAllowed())
}

// TestEveryRefusalHasAReason, and an allowed action none.
func TestEveryRefusalHasAReason(t *testing.T) {
	t.Parallel()
	for _, s := range lifecycle.Job.States {
		for _, a := range lifecycle.Actions {
			for _, f := range []lifecycle.JobFacts{{}, {WaitingOutside: true}, {WorkflowLost: true}} {
				v := lifecycle.Decide(a, s.State, f)
				require.Equal(t, v.Allowed, v.Reason == "", "%s in %s", a, s.State)
				require.Equal(t, v.Allowed, v.Effect != lifecycle.EffectRefuse, "%s in %s", a, s.State)
			}
		}
	}
	require.False(t, lifecycle.Decide("explode", lifecycle.JobRunning, lifecycle.JobFacts{}).Allowed)
	require.False(t, lifecycle.Decide(lifecycle.ActionCancel, "molten", lifecycle.JobFacts{}).Allowed)
}

// A listed action is allowed, and an allowed action is listed, except for a job that has ended: it
// lists none.
func TestWhatIsListedIsAllowed(t *testing.T) {
	t.Parallel()
	for _, s := range lifecycle.Job.States {
		for _, f := range []lifecycle.JobFacts{{}, {WaitingOutside: true}, {WorkflowLost: true}} {
			listed := lifecycle.AllowedActions(s.State, f)
			for _, a := range lifecycle.Actions {
				require.Equal(t, lifecycle.Decide(a, s.State, f).Allowed && !s.Terminal, slices.Contains(listed, a), "%s in %s", a, s.State)
			}
		}
	}
}

func TestWhoFroze(t *testing.T) {
	t.Parallel()
	require.Equal(t, "frozen by anna", lifecycle.FrozenBy("anna", ""))
	require.Equal(t, "frozen by anna: smoke", lifecycle.FrozenBy("anna", "smoke"))
}

// An adoption that the stage would refuse is not among the allowed actions.
func TestAllowedActions_OfAStageWithoutOutside(t *testing.T) {
	t.Parallel()
	for _, f := range []lifecycle.JobFacts{{}, {WaitingOutside: true}} {
		for _, s := range []lifecycle.JobStatus{lifecycle.JobRunning, lifecycle.JobFailedRetryable, lifecycle.JobFailedManual} {
			f.Unobserved = lifecycle.UnobservedStage(lifecycle.StageLoadSiteConfig)
			require.NotContains(t, lifecycle.AllowedActions(s, f), lifecycle.ActionAdopt)
		}
		f.Unobserved = lifecycle.UnobservedStage(lifecycle.StageWaitReady)
		require.Contains(t, lifecycle.AllowedActions(lifecycle.JobFailedManual, f), lifecycle.ActionAdopt)
	}
	require.Equal(t, "stage load_site_config has no outside state to observe",
		lifecycle.Decide(lifecycle.ActionAdopt, lifecycle.JobFailedManual, lifecycle.JobFacts{Unobserved: "load_site_config"}).Reason)
}
