package sweep_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/activities/sweep"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/internal/temporalx"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// engine is a Temporal whose workflows a test sets out.
type engine struct {
	mu      sync.Mutex
	flows   map[string]temporalx.Execution
	hidden  map[string]bool // from the list, which is behind
	down    error           // of the list
	lookErr error           // of a look
	failure string
	asked   []string
	did     []string
}

func (e *engine) OpenWorkflows(context.Context, int) ([]temporalx.Open, bool, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []temporalx.Open
	for id, x := range e.flows {
		if x.Running && !e.hidden[id] {
			out = append(out, temporalx.Open{WorkflowID: id, RunID: x.RunID, Started: x.Started})
		}
	}
	return out, true, e.down
}

func (e *engine) Look(_ context.Context, id string) (temporalx.Execution, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.asked = append(e.asked, id)
	return e.flows[id], e.lookErr
}

func (e *engine) Ending(context.Context, string, string) (string, error) {
	return "was terminated by somebody: a reason", nil
}

func (e *engine) TaskFailure(context.Context, string, string) (string, error) { return e.failure, nil }

func (e *engine) Cancel(_ context.Context, id, _ string) error { return e.act("cancel "+id, id, false) }

func (e *engine) Terminate(_ context.Context, id, _, _ string) error {
	return e.act("terminate "+id, id, true)
}

func (e *engine) act(what, id string, ends bool) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.did = append(e.did, what)
	if ends {
		delete(e.flows, id)
	}
	return nil
}

// world is a sweeper on a database of its own, whose clock a test moves.
type world struct {
	*sweep.Activities
	t      *testing.T
	engine *engine
	ahead  time.Duration
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, engine: &engine{flows: map[string]temporalx.Execution{}, hidden: map[string]bool{}}}
	w.Activities = &sweep.Activities{
		Store: dbtest.Store(t), Engine: w.engine, Log: slog.New(slog.DiscardHandler), Lease: 30 * time.Second,
		Ahead: func() time.Duration { return w.ahead },
	}
	return w
}

// job makes a job whose start was sent.
func (w *world) job(s lifecycle.JobStatus) db.Job {
	w.t.Helper()
	j := dbtest.Job(w.t, w.Store, dbtest.JobStatus(s))
	rows, err := w.Store.ClaimOutbox(w.t.Context(), "test", 100, time.Minute)
	require.NoError(w.t, err)
	for _, r := range rows {
		require.NoError(w.t, w.Store.CompleteOutbox(w.t.Context(), r.ID))
	}
	return j
}

func (w *world) runs(id string, e temporalx.Execution) {
	e.Found, e.Running, e.RunID, e.Started = true, true, "run", time.Now()
	w.engine.flows[id] = e
}

func (w *world) ended(id string, at time.Duration) {
	w.engine.flows[id] = temporalx.Execution{Found: true, RunID: "run", Status: "Terminated", Closed: time.Now().Add(at)}
}

// sweep runs a pass, some time after now.
func (w *world) sweep(ahead time.Duration) sweep.JobsReport {
	w.t.Helper()
	w.ahead = ahead
	r, err := w.SweepJobs(w.t.Context())
	require.NoError(w.t, err)
	require.NoError(w.t, w.SweepDone(w.t.Context(), sweep.Outcome{Problem: r.Problem()}))
	return r
}

func (w *world) read(id string) db.Job {
	w.t.Helper()
	j, err := w.Store.Job(w.t.Context(), id)
	require.NoError(w.t, err)
	return j
}

func (w *world) kinds() []string {
	w.t.Helper()
	rows, err := w.Store.Attention(w.t.Context(), db.AttentionFilter{}, db.AttentionPlace{}, 100)
	require.NoError(w.t, err)
	out := []string{}
	for _, a := range rows {
		out = append(out, a.Kind)
	}
	return out
}

func TestJobsWithoutAWorkflow(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		status lifecycle.JobStatus
		set    func(w *world, id string)
		ahead  time.Duration
		lost   string // part of the message, "" when it is not lost
	}{
		"terminated":               {lifecycle.JobRunning, func(w *world, id string) { w.ended(id, 0) }, 20 * time.Second, "terminated by somebody: a reason"},
		"never there":              {lifecycle.JobRunning, func(*world, string) {}, 20 * time.Second, "not there"},
		"before its first step":    {lifecycle.JobPending, func(w *world, id string) { w.ended(id, 0) }, 20 * time.Second, "terminated"},
		"in clean-up":              {lifecycle.JobCompensating, func(w *world, id string) { w.ended(id, 0) }, 20 * time.Second, "terminated"},
		"the row has just moved":   {lifecycle.JobRunning, func(*world, string) {}, 5 * time.Second, ""},
		"ended just now":           {lifecycle.JobRunning, func(w *world, id string) { w.ended(id, 10*time.Second) }, 20 * time.Second, ""},
		"the list is behind":       {lifecycle.JobRunning, func(w *world, id string) { w.runs(id, temporalx.Execution{}); w.engine.hidden[id] = true }, 20 * time.Second, ""},
		"it runs":                  {lifecycle.JobRunning, func(w *world, id string) { w.runs(id, temporalx.Execution{}) }, 20 * time.Second, ""},
		"no answer about this one": {lifecycle.JobRunning, func(w *world, _ string) { w.engine.lookErr = errors.New("no answer") }, 20 * time.Second, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			j := w.job(tc.status)
			tc.set(w, j.WorkflowID)
			r := w.sweep(tc.ahead)
			got := w.read(j.ID)
			if tc.lost == "" {
				require.Empty(t, r.Lost)
				require.Equal(t, tc.status, got.Status)
				require.Equal(t, w.engine.lookErr != nil, len(r.Problems) == 1, "an unchecked job is reported")
				return
			}
			require.Equal(t, []string{j.ID}, r.Lost)
			require.Equal(t, lifecycle.JobFailedRetryable, got.Status)
			require.Equal(t, lifecycle.FailWorkflowLost, got.FailureClass)
			require.Contains(t, got.Message, tc.lost)
			require.Equal(t, []string{db.AttentionParkedJob}, w.kinds())
			require.Empty(t, w.sweep(tc.ahead).Lost, "once")
		})
	}
}

// A lost job and a workflow without a job are checked twice each, with a pace other than the
// default.
func TestPace_SkipsTooYoung(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Pace = sweep.NewPace(12*time.Minute, 4*time.Minute, 8*time.Minute)
	j := w.job(lifecycle.JobRunning)
	w.runs("onboarding/nobody", temporalx.Execution{})
	early := w.sweep(3 * time.Minute)
	require.Empty(t, early.Lost)
	require.Zero(t, early.Orphans)
	late := w.sweep(5 * time.Minute)
	require.Equal(t, []string{j.ID}, late.Lost)
	require.Equal(t, 1, late.Orphans)
	require.Empty(t, w.sweep(6*time.Minute).Ended, "the first look was less than two thirds of an interval ago")
	require.Equal(t, []string{"onboarding/nobody"}, w.sweep(9*time.Minute).Ended)
}

func TestJobs_PendingStartIsNotLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	j := dbtest.Job(t, w.Store)
	require.Empty(t, w.sweep(time.Hour).Lost)
	require.Equal(t, lifecycle.JobPending, w.read(j.ID).Status)
	require.Empty(t, w.engine.asked)
}

func TestAParkedJobWithoutAWorkflowKeepsItsFailure(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	j := w.job(lifecycle.JobFailedManual)
	before := w.read(j.ID)
	require.Equal(t, 1, w.sweep(20*time.Second).Gone)
	require.Equal(t, before, w.read(j.ID))
	rows, err := w.Store.Attention(t.Context(), db.AttentionFilter{}, db.AttentionPlace{}, 10)
	require.NoError(t, err)
	require.Len(t, rows, 1)
	require.True(t, rows[0].WorkflowGone)
	asked := len(w.engine.asked)
	w.sweep(25 * time.Second)
	require.Len(t, w.engine.asked, asked, "what is known is not asked again")
	w.runs(j.WorkflowID, temporalx.Execution{})
	w.sweep(25 * time.Second)
	rows, err = w.Store.Attention(t.Context(), db.AttentionFilter{}, db.AttentionPlace{}, 10)
	require.NoError(t, err)
	require.False(t, rows[0].WorkflowGone, "an action started it again")
}

func TestASilentWorkflowShowsUntilItGoesOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	j := w.job(lifecycle.JobRunning)
	w.engine.failure = "non-determinism: lookup failed"
	w.runs(j.WorkflowID, temporalx.Execution{Task: &temporalx.PendingTask{Attempt: 5, Scheduled: time.Now()}})
	require.Equal(t, 1, w.sweep(time.Minute).Silent)
	require.Equal(t, lifecycle.JobRunning, w.read(j.ID).Status, "what lives is not parked from outside")
	rows, err := w.Store.Attention(t.Context(), db.AttentionFilter{}, db.AttentionPlace{}, 10)
	require.NoError(t, err)
	require.Len(t, rows, 1)
	require.Equal(t, db.AttentionJobStuck, rows[0].Kind)
	require.Equal(t, "its workflow task failed 4 times: non-determinism: lookup failed", rows[0].Message)
	w.sweep(time.Minute)
	require.Len(t, w.kinds(), 1, "one line while it lasts")
	w.runs(j.WorkflowID, temporalx.Execution{})
	require.Zero(t, w.sweep(time.Minute).Silent)
	require.Empty(t, w.kinds())
	require.Empty(t, w.engine.did)
}

func TestWorkflowsWithoutAJobAreEndedAtTheSecondLook(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.runs("onboarding/job_none", temporalx.Execution{})
	require.Zero(t, w.sweep(5*time.Second).Orphans, "too young to be checked")
	require.Equal(t, 1, w.sweep(20*time.Second).Orphans)
	require.Equal(t, []string{db.AttentionOrphanWorkflow}, w.kinds())
	require.Empty(t, w.engine.did)
	require.Equal(t, []string{"onboarding/job_none"}, w.sweep(40*time.Second).Ended)
	require.Empty(t, w.kinds())
	require.Equal(t, []string{"terminate onboarding/job_none"}, w.engine.did)
}

func TestAWorkflowWhoseJobHasEndedIsAskedAndThenMadeToEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	j := w.job(lifecycle.JobCancelled)
	w.runs(j.WorkflowID, temporalx.Execution{})
	require.Zero(t, w.sweep(20*time.Second).Orphans, "it may be ending")
	w.sweep(40 * time.Second)
	require.Empty(t, w.engine.did, "the first look")
	w.sweep(55 * time.Second)
	require.Equal(t, []string{"cancel " + j.WorkflowID}, w.engine.did)
	w.sweep(time.Minute)
	require.Len(t, w.engine.did, 1, "it is given time")
	require.Equal(t, []string{db.AttentionOrphanWorkflow}, w.kinds())
	w.sweep(5 * time.Minute)
	require.Equal(t, []string{"cancel " + j.WorkflowID, "terminate " + j.WorkflowID}, w.engine.did)
	w.sweep(5 * time.Minute)
	require.Empty(t, w.kinds())
	rows, err := w.Store.ResourceTimeline(t.Context(), "job", j.ID, 0, 10)
	require.NoError(t, err)
	require.Equal(t, "end_orphan", rows[0].Name)
	require.Equal(t, "end_orphan", rows[1].Name)
}

// TestManyWorkflowsWithoutAJobAreLeft: then the database is the wrong one.
func TestManyWorkflowsWithoutAJobAreLeft(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for range 11 {
		w.runs("onboarding/"+db.NewID("job"), temporalx.Execution{})
	}
	w.sweep(20 * time.Second)
	require.Equal(t, 11, w.sweep(time.Minute).Orphans)
	require.Empty(t, w.engine.did)
	rows, err := w.Store.Attention(t.Context(), db.AttentionFilter{}, db.AttentionPlace{}, 100)
	require.NoError(t, err)
	require.Len(t, rows, 11)
	require.Contains(t, rows[0].Message, "wrong database")
}

func TestAPassThatCannotReadTheListFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	j := w.job(lifecycle.JobRunning)
	w.engine.down = errors.New("temporal is away")
	w.ahead = time.Minute
	_, err := w.SweepJobs(t.Context())
	require.ErrorContains(t, err, "temporal is away")
	require.Equal(t, lifecycle.JobRunning, w.read(j.ID).Status, "no list is not an empty list")
}

func TestStartsAreSentAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	j := dbtest.Job(t, w.Store)
	_, err := w.Store.ClaimOutbox(t.Context(), "dead", 10, time.Hour)
	require.NoError(t, err)
	r, err := w.SweepStarts(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1, r.Released)
	rows, err := w.Store.ClaimOutbox(t.Context(), "alive", 10, 30*time.Second)
	require.NoError(t, err)
	require.Len(t, rows, 1)
	require.Equal(t, j.ID, rows[0].JobID)
	r, err = w.SweepStarts(t.Context())
	require.NoError(t, err)
	require.Equal(t, sweep.StartsReport{Missing: []string{}}, r, "a relay that lives keeps its claim")
}

func TestALongMessageIsKeptShort(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.NoError(t, w.SweepDone(t.Context(), sweep.Outcome{Problem: strings.Repeat("x", 100_000)}))
	last, err := w.Store.SweepPass(t.Context())
	require.NoError(t, err)
	require.Less(t, len(last.Problem), 10_000)
}
