package stage_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/stage/stagetest"
)

// TestTheSameActionOfTwoIsOne: anna and bert ask for the same at the same time;
// it is done once and both get its answer.
func TestTheSameActionOfTwoIsOne(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		column string
		action lifecycle.Action
		effect lifecycle.Effect
		calls  map[string]int
	}{
		"retry_stage":      {"failed_manual_intervention", "retry_stage", "retry_stage", map[string]int{"wait": 2, "one": 1}},
		"resume":           {"failed_manual_intervention", "resume", "continue", map[string]int{"wait": 2, "look:wait": 1}},
		"rerun":            {"failed_manual_intervention", "rerun", "from_top", map[string]int{"wait": 2, "one": 2, "look:one": 1}},
		"restart_clean":    {"failed_manual_intervention", "restart_clean", "compensate_then_from_top", map[string]int{"undo-one": 1, "undo-two": 1, "one": 2}},
		"cancel":           {"failed_manual_intervention", "cancel", "cancel", map[string]int{"undo-one": 1, "undo-two": 1, "one": 1}},
		"adopt":            {"failed_manual_intervention", "adopt_observed_state", "adopt", map[string]int{"look:wait": 1, "wait": 1}},
		"freeze":           {"failed_retryable", "mark_manual_intervention_required", "freeze", map[string]int{"wait": 2}},
		"freeze waiting":   {"waiting", "mark_manual_intervention_required", "freeze", map[string]int{"wait": 1}},
		"cancel waiting":   {"waiting", "cancel", "cancel", map[string]int{"undo-one": 1, "wait": 1}},
		"adopt waiting":    {"waiting", "adopt_observed_state", "adopt", map[string]int{"look:wait": 1, "wait": 1}},
		"cancel unstarted": {"pending", "cancel", "cancel", map[string]int{"one": 0, "undo-one": 0}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, col := setup(t), columns[c.column]
			b.out.found["wait"] = "Deploying"
			col.prepare(b)
			anna := b.at(col.when, c.action, contract.ActionRequest{Actor: "anna"})
			bert := b.at(col.when, c.action, contract.ActionRequest{Actor: "bert"})
			b.after(col.end, b.out.release)
			b.at(col.end, lifecycle.ActionCancel, contract.ActionRequest{Actor: "end"})
			b.Run()
			require.NoError(t, anna.Err)
			require.NoError(t, bert.Err)
			want := contract.ActionResult{Action: c.action, Effect: c.effect, Status: leadsTo[c.effect], Stage: anna.Result.Stage}
			require.Equal(t, want, anna.Result)
			want.Effect = lifecycle.EffectNoop
			require.Equal(t, want, bert.Result)
			for actor, effect := range map[string]lifecycle.Effect{"anna": c.effect, "bert": lifecycle.EffectNoop} {
				entries, _ := b.Store.AuditOf(actor)
				require.Len(t, entries, 1)
				require.Equal(t, effect, entries[0].Effect)
			}
			for call, n := range c.calls {
				require.Len(t, exactly(b.out.made(call), call), n, "%s in %v", call, b.out.calls)
			}
		})
	}
}

func exactly(calls []string, name string) (out []string) {
	for _, c := range calls {
		if c == name {
			out = append(out, c)
		}
	}
	return out
}

// TestTheFirstOfTwoWinsAndTheSecondMeetsWhatItLeft: they want different things
// at the same time. The outcome does not depend on who is faster to be carried
// out: the second is checked against the state that the first leads to.
func TestTheFirstOfTwoWinsAndTheSecondMeetsWhatItLeft(t *testing.T) {
	t.Parallel()
	const manual, retryable = "failed_manual_intervention", "failed_retryable"
	for name, c := range map[string]struct {
		column        string
		first, second lifecycle.Action
		effect        lifecycle.Effect // of the second; refuse says in which state
		refusedIn     lifecycle.JobStatus
	}{
		"retry, cancel":           {manual, "retry_stage", "cancel", "cancel", ""},
		"cancel, retry":           {manual, "cancel", "retry_stage", "refuse", "compensating"},
		"retry, restart":          {manual, "retry_stage", "restart_clean", "refuse", "running"},
		"restart, retry":          {manual, "restart_clean", "retry_stage", "refuse", "compensating"},
		"restart, cancel":         {manual, "restart_clean", "cancel", "noop", ""},
		"cancel, restart":         {manual, "cancel", "restart_clean", "refuse", "compensating"},
		"rerun, freeze":           {manual, "rerun", "mark_manual_intervention_required", "freeze", ""},
		"freeze, resume":          {retryable, "mark_manual_intervention_required", "resume", "continue", ""},
		"resume, freeze":          {retryable, "resume", "mark_manual_intervention_required", "freeze", ""},
		"adopt, cancel":           {manual, "adopt_observed_state", "cancel", "cancel", ""},
		"cancel, adopt":           {manual, "cancel", "adopt_observed_state", "refuse", "compensating"},
		"adopt, retry":            {manual, "adopt_observed_state", "retry_stage", "refuse", "running"},
		"waiting: cancel, freeze": {"waiting", "cancel", "mark_manual_intervention_required", "refuse", "compensating"},
		"waiting: freeze, cancel": {"waiting", "mark_manual_intervention_required", "cancel", "cancel", ""},
		"waiting: freeze, resume": {"waiting", "mark_manual_intervention_required", "resume", "continue", ""},
		"waiting: freeze, retry":  {"waiting", "mark_manual_intervention_required", "retry_stage", "retry_stage", ""},
		"waiting: cancel, adopt":  {"waiting", "cancel", "adopt_observed_state", "refuse", "compensating"},
		"running: cancel, freeze": {"running", "cancel", "mark_manual_intervention_required", "refuse", "compensating"},
		"running: freeze, adopt":  {"running", "mark_manual_intervention_required", "adopt_observed_state", "adopt", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, col := setup(t), columns[c.column]
			b.out.found["wait"], b.out.found["two"] = "Deploying", "done"
			col.prepare(b)
			first := b.at(col.when, c.first, contract.ActionRequest{Actor: "anna"})
			second := b.at(col.when, c.second, contract.ActionRequest{Actor: "bert"})
			b.after(col.end, b.out.release)
			b.at(col.end, lifecycle.ActionCancel, contract.ActionRequest{Actor: "end"})
			b.Run()
			require.NoError(t, first.Err)
			_, rows := table(matrix)
			require.NotEmpty(t, rows[string(c.first)])
			entries, at := b.Store.AuditOf("bert")
			require.Len(t, entries, 1)
			require.Equal(t, c.effect, entries[0].Effect)
			_, before := b.Store.AuditOf("anna")
			require.Less(t, before[0], at[0], "the first is written down first")
			if c.refusedIn != "" {
				refused, ok := contract.RefusalOf(second.Err)
				require.True(t, ok, "%v", second.Err)
				require.Equal(t, c.refusedIn, refused.Status)
				return
			}
			require.NoError(t, second.Err)
			require.Equal(t, c.effect, second.Result.Effect)
			if name == "restart, cancel" {
				require.Equal(t, lifecycle.JobCancelled, b.Store.Last().Status, "what was answered with success is done")
				require.Equal(t, []string{"undo-two", "undo-one"}, b.out.made("undo"), "in one clean-up")
				require.Len(t, exactly(b.out.calls, "one"), 1, "and nothing was started after it")
			}
		})
	}
}

// TestCancelOfACleanUpThatWouldStartAgain: the clean-up goes on, nothing twice,
// and nothing is started after it.
func TestCancelOfACleanUpThatWouldStartAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.out.fail["wait"] = times(1, stagetest.Failure(lifecycle.FailMAASRejected))
	b.out.fail["undo-one"] = times(2, stagetest.Failure(lifecycle.FailMAASUnavailable))
	b.at(time.Hour, lifecycle.ActionRestartClean, contract.ActionRequest{})
	cancel := b.at(time.Hour+time.Second, lifecycle.ActionCancel, contract.ActionRequest{})
	require.Equal(t, lifecycle.JobCancelled, b.Run().Status)
	require.NoError(t, cancel.Err)
	require.Equal(t, lifecycle.EffectNoop, cancel.Result.Effect)
	require.Equal(t, []string{"undo-two", "undo-one", "undo-one", "undo-one"}, b.out.made("undo"))
	require.Len(t, exactly(b.out.calls, "one"), 1)
}

// An action that joins a refused adoption is refused with it.
func TestJoinedAction_IsRefusedToo(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.out.fail["wait"] = times(1, stagetest.Failure(lifecycle.FailMAASRejected))
	b.out.found["wait"] = "Broken"
	anna := b.at(time.Hour, lifecycle.ActionAdopt, contract.ActionRequest{Actor: "anna"})
	bert := b.at(time.Hour, lifecycle.ActionAdopt, contract.ActionRequest{Actor: "bert"})
	b.at(2*time.Hour, lifecycle.ActionCancel, contract.ActionRequest{})
	b.Run()
	require.ErrorContains(t, anna.Err, "(wait, Broken) is not a pair that may be adopted; adoptable here: Deploying")
	require.Equal(t, anna.Err.Error(), bert.Err.Error())
	refused, ok := contract.RefusalOf(anna.Err)
	require.True(t, ok)
	require.Equal(t, []lifecycle.Action{"retry_stage", "resume", "rerun", "restart_clean", "cancel", "mark_manual_intervention_required"}, refused.Allowed,
		"what was just refused is not offered")
	require.Len(t, b.out.made("look"), 1)
	for _, who := range []string{"anna", "bert"} {
		entries, _ := b.Store.AuditOf(who)
		require.Len(t, entries, 1)
		require.Equal(t, lifecycle.EffectRefuse, entries[0].Effect)
	}
}

// TestAnActionThatTakesUpACleanUpSaysSo: a job that is parked in the middle of a
// clean-up goes on with it, whichever action sends it on, and answer and audit do
// not say that a stage was tried again; there is nothing to adopt until it ends.
func TestAnActionThatTakesUpACleanUpSaysSo(t *testing.T) {
	t.Parallel()
	for begun, want := range map[lifecycle.Action]lifecycle.Effect{lifecycle.ActionCancel: lifecycle.EffectCancel, lifecycle.ActionRestartClean: lifecycle.EffectRestart} {
		for _, a := range []lifecycle.Action{lifecycle.ActionRetryStage, lifecycle.ActionResume, lifecycle.ActionRerun} {
			t.Run(string(begun+", "+a), func(t *testing.T) {
				t.Parallel()
				b := setup(t)
				b.out.fail["last"] = times(1, stagetest.Failure(lifecycle.FailMAASRejected))
				b.out.fail["undo-two"] = times(4, stagetest.Failure(lifecycle.FailMAASUnavailable))
				b.at(time.Hour, begun, contract.ActionRequest{})
				var parked contract.Projection
				b.Env.RegisterDelayedCallback(func() { parked = b.Store.Last() }, 2*time.Hour)
				adopt := b.at(2*time.Hour, lifecycle.ActionAdopt, contract.ActionRequest{Actor: "bert"})
				got := b.at(3*time.Hour, a, contract.ActionRequest{Actor: "anna"})
				res := b.Run()
				require.Equal(t, lifecycle.FailCompensation, parked.Failure.Class)
				require.NoError(t, got.Err)
				require.Equal(t, want, got.Result.Effect)
				require.Equal(t, lifecycle.JobCompensating, got.Result.Status)
				entries, _ := b.Store.AuditOf("anna")
				require.Len(t, entries, 1)
				require.Equal(t, want, entries[0].Effect)
				require.Equal(t, begun == lifecycle.ActionCancel, res.Status == lifecycle.JobCancelled)
				refused, ok := contract.RefusalOf(adopt.Err)
				require.True(t, ok, "%v", adopt.Err)
				require.Contains(t, refused.Reason, "clean-up has begun and must end first")
				require.NotContains(t, refused.Allowed, lifecycle.ActionAdopt)
				require.Equal(t, lifecycle.AllowedActions(parked.Status, lifecycle.JobFacts{CleanUp: true}), refused.Allowed)
			})
		}
	}
}

// TestAdoptWhereNothingIsObservedIsNotOfferedAgain.
func TestAdoptWhereNothingIsObservedIsNotOfferedAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.out.fail["last"] = times(1, stagetest.Failure(lifecycle.FailMAASRejected))
	adopt := b.at(time.Hour, lifecycle.ActionAdopt, contract.ActionRequest{})
	b.at(2*time.Hour, lifecycle.ActionCancel, contract.ActionRequest{})
	b.Run()
	refused, ok := contract.RefusalOf(adopt.Err)
	require.True(t, ok, "%v", adopt.Err)
	require.Equal(t, "stage last has no outside state to observe", refused.Reason)
	require.NotContains(t, refused.Allowed, lifecycle.ActionAdopt)
}
