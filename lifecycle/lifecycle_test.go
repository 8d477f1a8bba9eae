package lifecycle_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/slipway-cloud/slipway/lifecycle"
)

// requiredEdges is the table of transitions that the code must equal, written by hand.
var requiredEdges = map[string][]string{
	"bootstrap_issued": {"enrolling"},
	"enrolling":        {"active", "quarantined"},
	"active":           {"offline", "quarantined", "draining"},
	"offline":          {"active", "quarantined", "draining"},
	"quarantined":      {"active", "draining"},
	"draining":         {"retired", "offline"},
	"retired":          {"offline", "removing"},
	"removing":         {"retired", "deleted"},
	"deleted":          {},
}

func TestNodeEdgesEqualTheSeed(t *testing.T) {
	t.Parallel()
	require.Len(t, lifecycle.NodeMAAS.States, len(requiredEdges))
	for _, s := range lifecycle.NodeMAAS.States {
		want, known := requiredEdges[string(s.State)]
		require.True(t, known, s.State)
		require.ElementsMatch(t, want, lifecycle.NodeMAAS.Reachable(s.State), "from %s", s.State)
	}
}

func TestEveryTransitionIsOwnedAndDocumented(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for _, tr := range lifecycle.NodeMAAS.Transitions {
		require.NotEmpty(t, tr.Owners, tr.Name)
		require.NotEmpty(t, tr.Doc, tr.Name)
		require.False(t, names[tr.Name], "two transitions are called %s", tr.Name)
		names[tr.Name] = true
	}
}

// TestFullMatrix walks every transition from every state by every owner, with
// and without proof.
func TestFullMatrix(t *testing.T) {
	t.Parallel()
	owners := []lifecycle.Owner{
		lifecycle.OwnerAdmin, lifecycle.OwnerOnboarding, lifecycle.OwnerDecommission, lifecycle.OwnerDrain, lifecycle.OwnerHeartbeat,
		lifecycle.OwnerReconciler, lifecycle.OwnerNodeReport, lifecycle.OwnerCustomer, lifecycle.OwnerJob, lifecycle.OwnerEngine, lifecycle.OwnerSystem,
	}
	for _, tr := range lifecycle.NodeMAAS.Transitions {
		for _, s := range lifecycle.NodeMAAS.States {
			for _, o := range owners {
				legal := slices.Contains(tr.From, s.State) && slices.Contains(tr.Owners, o)
				err := lifecycle.NodeMAAS.Check(tr, s.State, o, lifecycle.Proof(tr.Needs))
				if legal {
					require.NoError(t, err, "%s from %s by %s", tr.Name, s.State, o)
				} else {
					require.ErrorIs(t, err, lifecycle.ErrIllegalTransition)
				}
				if legal && len(tr.Needs) > 0 {
					require.ErrorIs(t, lifecycle.NodeMAAS.Check(tr, s.State, o, nil), lifecycle.ErrIllegalTransition,
						"%s without proof", tr.Name)
				}
			}
		}
	}
}

func TestDeletedNeverComesBack(t *testing.T) {
	t.Parallel()
	require.Empty(t, lifecycle.NodeMAAS.Reachable(lifecycle.NodeDeleted))
	require.True(t, lifecycle.NodeMAAS.Terminal(lifecycle.NodeDeleted))
}

// TestNothingActiveWithoutProof: whatever path is walked, a node becomes active
// only with its agent's enrolment or health proven.
func TestNothingActiveWithoutProof(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		state := lifecycle.NodeBootstrapIssued
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			tr := rapid.SampledFrom(lifecycle.NodeMAAS.Transitions).Draw(t, "transition")
			owner := rapid.SampledFrom(tr.Owners).Draw(t, "owner")
			var proof lifecycle.Proof
			for _, n := range tr.Needs {
				if n != lifecycle.NeedHealthy && rapid.Bool().Draw(t, "proof") {
					proof = append(proof, n)
				}
			}
			if lifecycle.NodeMAAS.Check(tr, state, owner, proof) == nil {
				state = tr.To
			}
			require.NotEqual(t, lifecycle.NodeActive, state)
		}
	})
}

// matrix is the table of actions, written by hand; "." refuses.
var matrix = map[lifecycle.Action][8]string{
	//                                pending   running        completed retryable               manual                       cancelled compensating reconciled
	lifecycle.ActionRetryStage:   {".", ".", ".", "retry_stage", "retry_stage", ".", ".", "."},
	lifecycle.ActionResume:       {"noop", "noop", ".", "continue", "continue", ".", "noop", "."},
	lifecycle.ActionRerun:        {".", ".", ".", "from_top", "from_top", ".", ".", "."},
	lifecycle.ActionRestartClean: {".", ".", ".", "compensate_then_from_top", "compensate_then_from_top", ".", ".", "."},
	lifecycle.ActionCancel:       {"cancel", "cancel", "noop", "cancel", "cancel", "noop", "noop", "noop"},
	lifecycle.ActionAdopt:        {".", "?", ".", "adopt", "adopt", ".", ".", "."},
	lifecycle.ActionMarkManual:   {"freeze", "freeze", ".", "freeze", "noop", ".", ".", "."},
}

func TestActionMatrix(t *testing.T) {
	t.Parallel()
	for a, row := range matrix {
		for i, s := range lifecycle.Job.States {
			for _, waiting := range []bool{false, true} {
				v := lifecycle.Decide(a, s.State, lifecycle.JobFacts{WaitingOutside: waiting})
				want := row[i]
				if want == "?" {
					want = map[bool]string{true: "adopt", false: "."}[waiting]
				}
				if want == "." {
					require.False(t, v.Allowed, "%s in %s", a, s.State)
					require.NotEmpty(t, v.Reason)
					continue
				}
				require.True(t, v.Allowed, "%s in %s", a, s.State)
				require.Equal(t, want, string(v.Effect), "%s in %s", a, s.State)
			}
		}
	}
	require.Len(t, matrix, len(lifecycle.Actions))
}

func TestResumeBringsBackALostWorkflow(t *testing.T) {
	t.Parallel()
	v := lifecycle.Decide(lifecycle.ActionResume, lifecycle.JobRunning, lifecycle.JobFacts{WorkflowLost: true})
	require.Equal(t, lifecycle.EffectContinue, v.Effect)
}

// TestActionsFollowLegalJobEdges: what an allowed action does can be projected.
func TestActionsFollowLegalJobEdges(t *testing.T) {
	t.Parallel()
	to := map[lifecycle.Effect]lifecycle.JobStatus{
		lifecycle.EffectRetryStage: lifecycle.JobRunning, lifecycle.EffectContinue: lifecycle.JobRunning,
		lifecycle.EffectFromTop: lifecycle.JobRunning, lifecycle.EffectAdopt: lifecycle.JobRunning,
		lifecycle.EffectRestart: lifecycle.JobCompensating, lifecycle.EffectCancel: lifecycle.JobCompensating,
		lifecycle.EffectFreeze: lifecycle.JobFailedManual,
	}
	for _, a := range lifecycle.Actions {
		for _, s := range lifecycle.Job.States {
			v := lifecycle.Decide(a, s.State, lifecycle.JobFacts{})
			next, moves := to[v.Effect]
			if !v.Allowed || !moves || next == s.State {
				continue
			}
			_, err := lifecycle.JobTransition(s.State, next)
			require.NoError(t, err, "%s in %s", a, s.State)
		}
	}
}

func TestFailureClassesAreComplete(t *testing.T) {
	t.Parallel()
	seen := map[lifecycle.FailureClass]bool{}
	for _, f := range lifecycle.Failures() {
		require.False(t, seen[f.Class], f.Class)
		seen[f.Class] = true
		require.NotEmpty(t, f.Next, f.Class)
		require.Contains(t, lifecycle.Actions, f.Recommended, f.Class)
		require.Positive(t, f.AutoAttempts, f.Class)
		v := lifecycle.Decide(f.Recommended, f.ParkStatus(), lifecycle.JobFacts{})
		require.True(t, v.Allowed, "%s recommends %s, which is refused there", f.Class, f.Recommended)
		if f.Manual {
			require.Equal(t, 1, f.AutoAttempts, "%s is manual and must not be retried by itself", f.Class)
		}
	}
	require.Equal(t, lifecycle.FailInternal, lifecycle.Failure("no such class").Class)
}
