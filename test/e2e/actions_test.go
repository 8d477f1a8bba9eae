package e2e_test

import (
	"errors"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/slipway-cloud/slipway/api/op"
	slipway "github.com/slipway-cloud/slipway/client"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/maas"
	simhw "github.com/slipway-cloud/slipway/sim/hw"
	maassim "github.com/slipway-cloud/slipway/sim/maas"
	"github.com/slipway-cloud/slipway/test/runenv"
	"github.com/slipway-cloud/slipway/test/stack"
)

// TestOperatorActions acts on real jobs over REST and straight through Temporal.
func TestOperatorActions(t *testing.T) {
	t.Parallel()
	w := newWorld(t, stack.Options{Count: 5, Speed: 600, Durations: maassim.Durations{Commission: 20 * time.Minute}})
	machines := w.Sims.Fleet.All()
	for i, run := range []struct {
		name string
		do   func(*testing.T, *world, *simhw.Machine)
	}{
		{"two operators at once", twoAtOnce},
		{"restart clean proves it", restartClean},
		{"a frozen job stands still", frozenStandsStill},
		{"a job whose workflow is gone", withoutWorkflow},
		{"what an operator did in MAAS is adopted", adoptsWhatWasDone},
	} {
		t.Run(run.name, func(t *testing.T) {
			t.Parallel()
			run.do(t, w, machines[i])
		})
	}
}

// told is the API's answer to an action.
type told struct {
	code    int
	Effect  lifecycle.Effect
	Status  lifecycle.JobStatus
	Detail  string
	Allowed []lifecycle.Action
}

// act sends an action as an operator of the test's own.
func (w *world) act(t *testing.T, who, jobID string, a lifecycle.Action, key string) told {
	t.Helper()
	token, err := op.CreateToken(t.Context(), w.App.Store, who, []string{"operator"}, time.Hour)
	require.NoError(t, err)
	return w.actAs(t, token, jobID, a, key)
}

func (w *world) actAs(t *testing.T, token, jobID string, a lifecycle.Action, key string) told {
	t.Helper()
	r, err := w.client(t, token).ActOnJob(t.Context(), jobID, string(a), slipway.ActionRequest{Reason: new("tested")}, slipway.WithKey(key))
	var refused *slipway.Refusal
	if errors.As(err, &refused) {
		got := told{code: refused.Status, Detail: refused.Detail}
		for _, allowed := range refused.Allowed {
			got.Allowed = append(got.Allowed, lifecycle.Action(allowed))
		}
		return got
	}
	require.NoError(t, err)
	got := decoded[told](t, r.Raw)
	got.code = http.StatusOK
	return got
}

// actionRows are the audit rows of a job's actions, oldest first.
func (w *world) actionRows(t *testing.T, jobID string) (out []db.AuditRow) {
	t.Helper()
	rows, err := w.App.Store.ResourceTimeline(t.Context(), "job", jobID, 0, 200)
	require.NoError(t, err)
	for _, r := range rows {
		if r.Kind == db.EntryAction {
			out = append(out, r)
		}
	}
	slices.Reverse(out)
	return out
}

// failNext makes the machine's next so many answers to an operation fail.
func (w *world) failNext(t *testing.T, m *simhw.Machine, f maassim.Fault) {
	t.Helper()
	f.Machine = m.Spec().NICs[0].MAC
	_, err := w.Sims.MAAS.AddFault(f)
	require.NoError(t, err)
}

// twoAtOnce: eight requests of two people for one parked job, four with one key.
// It is done once, everybody gets an answer that fits, and each request that is
// not a repetition is one row.
func twoAtOnce(t *testing.T, w *world, m *simhw.Machine) {
	w.failNext(t, m, maassim.Fault{Name: "image_missing", Count: 1})
	j := w.onboard(t, m)
	require.True(t, w.ends(t, j.ID, time.Minute).Status.Parked())
	tokens := map[string]string{}
	for _, who := range []string{"anna", "bert"} {
		token, err := op.CreateToken(t.Context(), w.App.Store, who, []string{"operator"}, time.Hour)
		require.NoError(t, err)
		tokens[who] = token
	}
	var wg sync.WaitGroup
	got := make([]told, 8)
	for i := range got {
		wg.Go(func() {
			token, key := tokens["anna"], "once"
			if i%2 == 1 {
				token, key = tokens["bert"], ""
			}
			got[i] = w.actAs(t, token, j.ID, lifecycle.ActionRestartClean, key)
		})
	}
	wg.Wait()
	done := map[string]int{}
	for i, g := range got {
		if i%2 == 0 {
			require.Equal(t, got[0], g, "one key, one answer")
			if i > 0 {
				continue
			}
		}
		if g.code == http.StatusConflict {
			require.Contains(t, g.Detail, "estart_clean is refused while the job is ", "%d", i)
			require.Contains(t, g.Allowed, lifecycle.ActionCancel)
			done["refused"]++
			continue
		}
		require.Equal(t, http.StatusOK, g.code, g.Detail)
		done[string(g.Effect)]++
	}
	require.Equal(t, 1, done[string(lifecycle.EffectRestart)], "%v", done)
	require.Equal(t, lifecycle.JobCompleted, w.ends(t, j.ID, time.Minute).Status)
	require.Len(t, w.actionRows(t, j.ID), 5, "anna's key is one, bert asked four times")
	require.Equal(t, 1, m.Counters().Installs)
}

// restartClean: a deployment fails; the restart releases and deletes what was
// made before it begins again, each once, and proves it by looking.
func restartClean(t *testing.T, w *world, m *simhw.Machine) {
	w.failNext(t, m, maassim.Fault{Name: "deploy_curtin_fail", Count: 1})
	j := w.onboard(t, m)
	parked := w.ends(t, j.ID, time.Minute)
	require.Equal(t, lifecycle.FailDeploy, parked.FailureClass, parked.Message)
	first := w.systemID(t, m)

	// Refused straight in Temporal, where nobody but the workflow can write it down.
	h, err := w.App.Temporal.UpdateWorkflow(t.Context(), client.UpdateWorkflowOptions{
		WorkflowID: j.WorkflowID, UpdateName: string(lifecycle.ActionAdopt), WaitForStage: client.WorkflowUpdateStageCompleted,
		Args: []any{contract.ActionRequest{Actor: "carla", Reason: "looks well"}},
	})
	require.NoError(t, err)
	require.ErrorContains(t, h.Get(t.Context(), nil), "has no outside state to observe; allowed now: ")
	rows := w.actionRows(t, j.ID)
	require.Len(t, rows, 1)
	require.Equal(t, []string{"engine", "engine"}, []string{rows[0].Owner, *rows[0].ActorID}, "nothing proves that it was carla")
	require.Contains(t, string(rows[0].Metadata), `"claimed_actor": "carla"`)
	require.Contains(t, string(rows[0].Metadata), "has no outside state to observe")

	got := w.act(t, "anna", j.ID, lifecycle.ActionRestartClean, "")
	require.Equal(t, lifecycle.EffectRestart, got.Effect, got.Detail)
	end := w.ends(t, j.ID, time.Minute)
	require.Equal(t, lifecycle.JobCompleted, end.Status, "%s: %s", end.FailedStage, end.Message)
	second := w.systemID(t, m)
	require.NotEqual(t, first, second, "the record is a new one")
	counts := w.Sims.MAAS.Counters().Machines
	for effect, n := range map[string]int{"creates": 1, "deploys": 1, "releases": 1, "deletes": 1} {
		require.Equal(t, n, counts[first][effect], "%s of the first record", effect)
	}
	for effect, n := range map[string]int{"creates": 1, "commissions": 1, "deploys": 1, "releases": 0, "deletes": 0} {
		require.Equal(t, n, counts[second][effect], "%s of the second record", effect)
	}
	history := w.history(t, j)
	for _, proof := range []string{"CheckReleased", "CheckBootstrapRevoked", "CheckNotCommissioning", "CheckRecordRemoved"} {
		require.Contains(t, history, proof)
	}
}

// frozenStandsStill: frozen while MAAS commissions, the job asks MAAS nothing
// more and writes nothing, not in another run of its workflow either, until it
// is resumed.
func frozenStandsStill(t *testing.T, w *world, m *simhw.Machine) {
	j := w.onboard(t, m)
	w.reaches(t, j.ID, "MAAS commissions", func(j db.Job) bool { return j.Stage == lifecycle.StageWaitReady && j.WaitingOutside })
	got := w.act(t, "anna", j.ID, lifecycle.ActionMarkManual, "")
	require.Equal(t, lifecycle.EffectFreeze, got.Effect, got.Detail)
	still := func() {
		t.Helper()
		frozen := w.job(t, j.ID)
		require.True(t, frozen.Frozen)
		require.Equal(t, lifecycle.JobFailedManual, frozen.Status)
		pending, err := w.App.Temporal.DescribeWorkflowExecution(t.Context(), j.WorkflowID, "")
		require.NoError(t, err)
		require.Empty(t, pending.GetPendingActivities())
		require.Eventually(t, func() bool { // a job that is not frozen goes on now
			v, ok := w.Sims.MAAS.Machine(m.Spec().NICs[0].MAC)
			return ok && v.Status == maassim.Ready
		}, runenv.Patience(time.Minute), 50*time.Millisecond)
		require.Never(t, func() bool { now := w.job(t, j.ID); return now.Seq != frozen.Seq || now.Version != frozen.Version }, time.Second, 100*time.Millisecond)
	}
	still()
	w.terminate(t, j.WorkflowID)
	require.NoError(t, w.App.Store.EnqueueStart(t.Context(), j.ID))
	seq := w.job(t, j.ID).Seq
	w.reaches(t, j.ID, "taken up by another run", func(j db.Job) bool { return j.Seq > seq })
	still()
	noop := w.act(t, "bert", j.ID, lifecycle.ActionMarkManual, "")
	require.Equal(t, lifecycle.EffectNoop, noop.Effect, noop.Detail)
	require.Equal(t, lifecycle.EffectContinue, w.act(t, "bert", j.ID, lifecycle.ActionResume, "").Effect)
	require.Equal(t, lifecycle.JobCompleted, w.ends(t, j.ID, time.Minute).Status)
	require.False(t, w.job(t, j.ID).Frozen)
	require.Equal(t, 1, w.Sims.MAAS.Counters().Machines[w.systemID(t, m)]["commissions"])
}

// withoutWorkflow: a parked job whose workflow was terminated takes an action
// that is not resume: the workflow is started and does it. The answer is the
// same when the job is long over.
func withoutWorkflow(t *testing.T, w *world, m *simhw.Machine) {
	w.failNext(t, m, maassim.Fault{Name: "image_missing", Count: 1})
	j := w.onboard(t, m)
	require.True(t, w.ends(t, j.ID, time.Minute).Status.Parked())
	id := w.systemID(t, m)
	w.terminate(t, j.WorkflowID)
	token, err := op.CreateToken(t.Context(), w.App.Store, "dora", []string{"operator"}, time.Hour)
	require.NoError(t, err)
	got := w.actAs(t, token, j.ID, lifecycle.ActionCancel, "k")
	require.Equal(t, http.StatusOK, got.code, got.Detail)
	require.Equal(t, lifecycle.EffectCancel, got.Effect)
	require.Equal(t, lifecycle.JobCompensating, got.Status)
	w.reaches(t, j.ID, "cancelled", func(j db.Job) bool { return j.Status == lifecycle.JobCancelled })
	require.Equal(t, 1, w.Sims.MAAS.Counters().Machines[id]["deletes"])
	require.Equal(t, got, w.actAs(t, token, j.ID, lifecycle.ActionCancel, "k"), "the first answer, of a job that has ended since")
	require.Len(t, w.actionRows(t, j.ID), 1)
	require.Equal(t, lifecycle.EffectNoop, w.actAs(t, token, j.ID, lifecycle.ActionCancel, "").Effect)
	refused := w.actAs(t, token, j.ID, lifecycle.ActionResume, "")
	require.Equal(t, http.StatusConflict, refused.code)
	require.Empty(t, refused.Allowed, "nothing is to be done with a job that has ended")
	require.Len(t, w.actionRows(t, j.ID), 3)
}

// adoptsWhatWasDone: commissioning fails until the job parks, an operator commissions the machine
// in MAAS itself and adopts that. The job commissions no more, goes on to an active node and ends
// as reconciled.
func adoptsWhatWasDone(t *testing.T, w *world, m *simhw.Machine) {
	w.failNext(t, m, maassim.Fault{Name: "commission_fail", Count: lifecycle.Failure(lifecycle.FailCommissioning).AutoAttempts})
	j := w.onboard(t, m)
	parked := w.ends(t, j.ID, 2*time.Minute)
	require.Equal(t, lifecycle.FailCommissioning, parked.FailureClass, parked.Message)
	require.Equal(t, lifecycle.StageWaitReady, parked.FailedStage)
	refused := w.act(t, "anna", j.ID, lifecycle.ActionAdopt, "")
	require.Equal(t, http.StatusConflict, refused.code, "a failed commissioning is nothing to adopt")
	require.Contains(t, refused.Detail, "is not a pair that may be adopted")

	id := w.systemID(t, m)
	region, err := maas.Opener{}.OpenMAAS(providers.MAASSite{Rule: providers.SimulatedAddresses(), URL: w.Sims.URL, APIKey: providers.NewSecret(w.Sims.APIKey)})
	require.NoError(t, err)
	_, err = region.Commission(t.Context(), id, providers.MAASCommission{})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		v, ok := w.Sims.MAAS.Machine(m.Spec().NICs[0].MAC)
		return ok && v.Status == maassim.Ready
	}, runenv.Patience(time.Minute), 50*time.Millisecond)
	before := w.Sims.MAAS.Counters().Machines[id]["commissions"]

	got := w.act(t, "anna", j.ID, lifecycle.ActionAdopt, "")
	require.Equal(t, http.StatusOK, got.code, got.Detail)
	require.Equal(t, lifecycle.EffectAdopt, got.Effect)
	end := w.ends(t, j.ID, 2*time.Minute)
	require.Equal(t, lifecycle.JobReconciled, end.Status, "%s: %s", end.FailedStage, end.Message)
	node, err := w.App.Store.Node(t.Context(), *j.NodeID)
	require.NoError(t, err)
	require.Equal(t, lifecycle.NodeActive, node.Status)
	counts := w.Sims.MAAS.Counters().Machines[id]
	require.Equal(t, before, counts["commissions"], "what was adopted is not done again")
	require.Equal(t, 1, counts["deploys"])
	rows := w.actionRows(t, j.ID)
	require.Len(t, rows, 2)
	require.Contains(t, string(rows[1].Metadata), "adopt")
	stages, err := w.App.Store.JobStages(t.Context(), j.ID)
	require.NoError(t, err)
	at := slices.IndexFunc(stages, func(s lifecycle.StageRow) bool { return s.Name == lifecycle.StageWaitReady })
	require.Equal(t, lifecycle.StageAdopted, stages[at].State)
	require.Equal(t, "adopted: Ready", stages[at].Message)
}
