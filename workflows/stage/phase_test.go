package stage

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/workflow"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// inPhase makes a runner in a phase that takes actions, with a status that the phase can have.
func inPhase(phase lifecycle.RunnerPhase, status lifecycle.JobStatus, waits bool) *runner[struct{}] {
	r := &runner[struct{}]{phase: phase, position: position{status: status}}
	observe := func(workflow.Context, *struct{}) (Observation, error) { return Observation{}, nil }
	r.def.Stages = []Stage[struct{}]{{Name: "one", Waits: waits, Observe: observe}}
	return r
}

func statusesOf(phase lifecycle.RunnerPhase) (out []lifecycle.JobStatus) {
	for _, s := range lifecycle.Job.States {
		at := lifecycle.RunnerPhaseOf(s.State)
		isEnd := phase == lifecycle.RunnerEnding || phase == lifecycle.RunnerHandedOver
		continues := phase == lifecycle.RunnerContinuing && (at == lifecycle.RunnerRunning || at == lifecycle.RunnerParked)
		if at == phase || isEnd && at == lifecycle.RunnerEnded || continues {
			out = append(out, s.State)
		}
	}
	return out
}

// TestRule_EveryPhaseAndAction: the matrix decides an action at once, unless the phase or another
// action that is under way makes it wait.
func TestRule_EveryPhaseAndAction(t *testing.T) {
	t.Parallel()
	ask := contract.ActionRequest{Actor: "op", Reason: "why"}
	cells := 0
	for _, info := range lifecycle.Runner.States {
		if !info.State.TakesActions() {
			continue
		}
		for _, status := range statusesOf(info.State) {
			for _, waits := range []bool{false, true} {
				for _, a := range lifecycle.Actions {
					cells++
					r := inPhase(info.State, status, waits)
					v := lifecycle.Decide(a, status, lifecycle.JobFacts{WaitingOutside: waits && status == lifecycle.JobRunning})
					is := r.rule(a, ask, viaUpdate)
					switch {
					case info.State == lifecycle.RunnerEnding:
						require.NotNil(t, is.queued, "%s while the end is being stored", a)
					case !v.Allowed:
						require.ErrorContains(t, is.refused, v.Reason, "%s in %s", a, status)
					case v.Effect == lifecycle.EffectNoop:
						require.True(t, is.isNoop, "%s in %s", a, status)
					default:
						require.Equal(t, v.Effect, is.queued.effect, "%s in %s", a, status)
					}

					same := &request{action: a, ask: contract.ActionRequest{Actor: "other"}}
					r.inbox.current = same
					require.Same(t, same, r.rule(a, ask, viaUpdate).joins)
					for _, other := range lifecycle.Actions {
						if other != a {
							r.inbox.current = &request{action: other}
							require.NotNil(t, r.rule(a, ask, viaUpdate).queued, "%s waits for %s", a, other)
						}
					}
				}
			}
		}
	}
	require.Equal(t, 7*2*(2+2+1+4+3+3+3), cells)
}

// A repetition gets the answer of the first, in every phase; a malformed request none but a
// refusal.
func TestRule_RepeatedAndMalformed(t *testing.T) {
	t.Parallel()
	ask := contract.ActionRequest{Actor: "op", IdempotencyKey: "k"}
	r := inPhase(lifecycle.RunnerEnding, lifecycle.JobCancelled, false)
	r.keepAnswer(ask, answer{Result: contract.ActionResult{Action: lifecycle.ActionCancel, Effect: lifecycle.EffectCancel}})
	require.Equal(t, lifecycle.EffectCancel, r.rule(lifecycle.ActionCancel, ask, viaUpdate).known.Result.Effect)
	first := &request{action: lifecycle.ActionResume, ask: ask}
	r.inbox.queue = []*request{first}
	require.Same(t, first, r.rule(lifecycle.ActionResume, ask, viaUpdate).repeats)
	require.True(t, isRefusal(r.rule(lifecycle.ActionResume, contract.ActionRequest{}, viaSignal).refused))
}

// The run of a job that was overtaken is moved by nothing but its hand-over, and an edge that the
// machine does not have stops it.
func TestMove_Guards(t *testing.T) {
	t.Parallel()
	r := inPhase(lifecycle.RunnerRunning, lifecycle.JobRunning, false)
	r.move(lifecycle.RunnerOvertaken)
	r.enter(lifecycle.JobFailedRetryable)
	require.Equal(t, lifecycle.RunnerOvertaken, r.phase)
	r.move(lifecycle.RunnerHandedOver)
	require.Panics(t, func() { r.enter(lifecycle.JobRunning) })
	for _, s := range lifecycle.Runner.States {
		for _, to := range lifecycle.Runner.Reachable(s.State) {
			require.True(t, lifecycle.Runner.Has(lifecycle.RunnerPhase(to)))
		}
	}
}
