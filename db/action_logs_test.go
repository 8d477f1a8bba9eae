package db_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// steps projects a job of the stages a and b, second by second.
type steps struct {
	t     *testing.T
	s     *db.Store
	job   db.Job
	begin time.Time
	seq   int64
}

func newSteps(t *testing.T, s *db.Store, opts ...dbtest.Option) *steps {
	return &steps{t: t, s: s, job: dbtest.Job(t, s, opts...), begin: time.Now().UTC().Truncate(time.Second).Add(-time.Hour)}
}

func (p *steps) at(second int) *time.Time {
	t := p.begin.Add(time.Duration(second) * time.Second)
	return &t
}

// row is a stage; -1 is no time.
func (p *steps) row(name string, state lifecycle.StageState, tries, started, finished int, class lifecycle.FailureClass) lifecycle.StageRow {
	r := lifecycle.StageRow{Ordinal: int(name[0]-'a') + 1, Name: name, State: state, Attempts: tries, FailureClass: class}
	if started >= 0 {
		r.StartedAt = p.at(started)
	}
	if finished >= 0 {
		r.FinishedAt = p.at(finished)
	}
	if class != "" {
		r.Message = "it broke"
	}
	return r
}

// project writes one step; the stage with the number is the current one.
func (p *steps) project(second int, status lifecycle.JobStatus, current int, rows ...lifecycle.StageRow) {
	p.t.Helper()
	p.seq++
	step := db.Projection{
		JobID: p.job.ID, Seq: p.seq, RunID: "run-1", Status: status, Stage: rows[current-1].Name, StageOrdinal: current, Stages: rows, At: p.at(second),
		Metadata: lifecycle.ActionMetadata{CorrelationID: "run-1"},
	}
	for _, want := range []bool{true, false} { // a repeated projection changes nothing
		applied, err := project(p.t, p.s, step)
		require.NoError(p.t, err)
		require.Equal(p.t, want, applied)
	}
}

// log is the action log, oldest first, as "stage/try status seconds class message".
func (p *steps) log() (out []string) {
	p.t.Helper()
	rows, err := p.s.ListActionLogs(p.t.Context(), db.ActionLogFilter{JobID: p.job.ID}, "", 100)
	require.NoError(p.t, err)
	for _, r := range rows {
		took := "-"
		if r.DurationMs != nil {
			took = (time.Duration(*r.DurationMs) * time.Millisecond).String()
		}
		require.Equal(p.t, lifecycle.ComponentOrchestrator, r.Component)
		line := strings.Join([]string{r.Stage, string(r.Status), took, string(r.FailureClass), r.ErrorMessage}, " ")
		out = append([]string{strings.TrimSpace(line)}, out...)
	}
	return out
}

const (
	running   = lifecycle.StageRunning
	pending   = lifecycle.StagePending
	succeeded = lifecycle.StageSucceeded
)

func TestActionLog_EveryTryHasOneRow(t *testing.T) {
	t.Parallel()
	p := newSteps(t, dbtest.Store(t))
	idle := p.row("b", pending, 0, -1, -1, "")
	p.project(0, lifecycle.JobRunning, 1, p.row("a", running, 1, 0, -1, ""), idle)
	require.Equal(t, []string{"a in_progress -"}, p.log())
	p.project(5, lifecycle.JobRunning, 1, p.row("a", running, 2, 0, -1, lifecycle.FailInternal), idle) // tried again
	p.project(9, lifecycle.JobRunning, 1, p.row("a", running, 2, 0, -1, lifecycle.FailInternal), idle) // nothing new
	done := p.row("a", succeeded, 2, 0, 12, "")
	p.project(12, lifecycle.JobRunning, 2, done, p.row("b", running, 1, 12, -1, ""))
	p.project(20, lifecycle.JobRunning, 2, done, p.row("b", pending, 1, 12, -1, "")) // interrupted in vain
	p.project(21, lifecycle.JobRunning, 2, done, p.row("b", running, 2, 12, -1, ""))
	p.project(30, lifecycle.JobFailedManual, 2, done, p.row("b", lifecycle.StageFailed, 2, 12, 30, lifecycle.FailMAASRejected))
	p.project(90, lifecycle.JobRunning, 2, done, p.row("b", running, 3, 90, -1, ""))
	p.project(95, lifecycle.JobCompensating, 2, done, p.row("b", pending, 3, 90, -1, "")) // cancelled
	require.Equal(t, []string{
		"a failed 5s internal it broke", "a success 7s", "b failed 18s maas_rejected it broke", "b failed 5s  an operator action interrupted it",
	}, p.log())
	rows, err := p.s.ListActionLogs(t.Context(), db.ActionLogFilter{NodeID: *p.job.NodeID, Status: lifecycle.ActionFailed, ActionType: "b"}, "", 1)
	require.NoError(t, err)
	require.Len(t, rows, 1)
	older, err := p.s.ListActionLogs(t.Context(), db.ActionLogFilter{NodeID: *p.job.NodeID, Status: lifecycle.ActionFailed, ActionType: "b"}, rows[0].ID, 9)
	require.NoError(t, err)
	require.Len(t, older, 1)
	require.Equal(t, 2, older[0].Attempt, "the try that went on after an interruption has the number of the last")
}

// TestActionLog_LostRuns: neither a lost workflow nor a stage that went back leaves a try open.
func TestActionLog_LostRuns(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	p := newSteps(t, s)
	sent(t, s)
	p.project(0, lifecycle.JobRunning, 1, p.row("a", running, 1, 0, -1, ""))
	p.project(7, lifecycle.JobRunning, 1, p.row("a", running, 2, 7, -1, ""))  // another run took the job up
	p.project(9, lifecycle.JobRunning, 1, p.row("a", pending, 2, -1, -1, "")) // went back
	p.project(9, lifecycle.JobRunning, 1, p.row("a", running, 3, 9, -1, ""))
	require.True(t, parkLost(t, s, liveJob(t, s, p.job.ID), "the workflow is gone"))
	log := p.log()
	require.Equal(t, []string{"a failed 7s  it ended without a result", "a success 2s"}, log[:2])
	require.Regexp(t, `^a failed .* workflow_lost the workflow is gone$`, log[2])
}

// TestActionLog_SaysWhatWasDone: the end of a try completes what its begin said, and what one try
// has done is not said of another.
func TestActionLog_SaysWhatWasDone(t *testing.T) {
	t.Parallel()
	p := newSteps(t, dbtest.Store(t))
	step := func(did lifecycle.ActionMetadata, rows ...lifecycle.StageRow) {
		p.seq++
		_, err := project(t, p.s, db.Projection{
			JobID: p.job.ID, Seq: p.seq, RunID: "run-1", Status: lifecycle.JobRunning, Stage: rows[len(rows)-1].Name, StageOrdinal: len(rows), Stages: rows, At: p.at(int(p.seq)),
			Metadata: lifecycle.ActionMetadata{CorrelationID: "run-1", ServerID: "s-0"}, Did: did,
		})
		require.NoError(t, err)
	}
	step(lifecycle.ActionMetadata{}, p.row("a", running, 1, 0, -1, ""))
	step(lifecycle.ActionMetadata{SSHExitStatus: "7"}, p.row("a", running, 2, 0, -1, lifecycle.FailWorkerInstall))
	done := p.row("a", succeeded, 2, 0, 3, "")
	step(lifecycle.ActionMetadata{ServerID: "s-1", LastPhase: "done", SSHExitStatus: "0"}, done, p.row("b", running, 1, 3, -1, ""))
	step(lifecycle.ActionMetadata{LastPhase: strings.Repeat("x", 17<<10)}, done, p.row("b", running, 2, 3, -1, lifecycle.FailInternal))
	rows, err := p.s.ListActionLogs(t.Context(), db.ActionLogFilter{JobID: p.job.ID}, "", 9)
	require.NoError(t, err)
	var got []string
	for _, r := range rows {
		got = append([]string{string(r.Metadata)}, got...)
	}
	require.Len(t, got, 4)
	require.JSONEq(t, `{"correlation_id": "run-1", "server_id": "s-0", "ssh_exit_status": "7"}`, got[0])
	require.JSONEq(t, `{"correlation_id": "run-1", "server_id": "s-1", "last_phase": "done", "ssh_exit_status": "0"}`, got[1])
	require.JSONEq(t, `{"correlation_id": "run-1", "server_id": "s-0"}`, got[2], "more than fits is left out")
	require.JSONEq(t, `{"correlation_id": "run-1", "server_id": "s-0"}`, got[3])
}

func TestActionLog_Bounds(t *testing.T) {
	t.Parallel()
	p := newSteps(t, dbtest.Store(t))
	step := db.Projection{
		JobID: p.job.ID, Seq: 1, RunID: "r", Status: lifecycle.JobRunning, Stage: "a", StageOrdinal: 1, ActionType: "REQUEST_CREATE",
		Stages: []lifecycle.StageRow{p.row("a", running, 1, 0, -1, "")}, Metadata: lifecycle.ActionMetadata{LastPhase: strings.Repeat("x", 17<<10)},
	}
	_, err := project(t, p.s, step)
	require.NoError(t, err, "a long text keeps no job from going on")
	rows, err := p.s.ListActionLogs(t.Context(), db.ActionLogFilter{JobID: p.job.ID, Component: lifecycle.ComponentAPI}, "", 9)
	require.NoError(t, err)
	require.JSONEq(t, `{"truncated": true}`, string(rows[0].Metadata))
	require.Equal(t, "REQUEST_CREATE", rows[0].ActionType)
	n, err := p.s.PruneActionLogs(t.Context(), time.Now().Add(time.Hour))
	require.NoError(t, err)
	require.Zero(t, n, "a try in progress stays")
	step.Seq, step.Status, step.Stages[0].State, step.Stages[0].FinishedAt = 2, lifecycle.JobFailedManual, lifecycle.StageFailed, p.at(3)
	step.Stages[0].Message, step.Metadata = strings.Repeat("é", 5000)+"\x00", lifecycle.ActionMetadata{}
	_, err = project(t, p.s, step)
	require.NoError(t, err)
	n, err = p.s.PruneActionLogs(t.Context(), time.Now().Add(time.Hour))
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
}

func TestFailedStage_StaysAfterACancellation(t *testing.T) {
	t.Parallel()
	p := newSteps(t, dbtest.Store(t))
	step := db.Projection{JobID: p.job.ID, Status: lifecycle.JobFailedManual, FailureClass: lifecycle.FailMAASRejected, FailedStage: "a", RunID: "r"}
	for i, c := range []struct {
		status lifecycle.JobStatus
		want   string
	}{
		{lifecycle.JobFailedManual, "a"}, {lifecycle.JobRunning, ""}, {lifecycle.JobFailedManual, "a"}, {lifecycle.JobCompensating, "a"}, {lifecycle.JobCancelled, "a"},
	} {
		step.Seq, step.Status, step.FailedStage, step.FailureClass = int64(i+1), c.status, "", ""
		if c.status.Parked() {
			step.FailedStage, step.FailureClass = "a", lifecycle.FailMAASRejected
		}
		_, err := project(t, p.s, step)
		require.NoError(t, err)
		got, err := p.s.Job(t.Context(), p.job.ID)
		require.NoError(t, err)
		require.Equal(t, c.want, got.FailedStage, c.status)
	}
}

// counted counts the queries of an estimate.
type counted struct {
	*db.Store
	queries *int
}

func (c counted) DBTX() db.DBTX {
	*c.queries++
	return c.Store.DBTX()
}

// TestEstimates_Jobs: an estimate includes the tries that failed, leaves out what waited for an
// operator, and prefers jobs of the same SKU.
func TestEstimates_Jobs(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	sku := [2]string{dbtest.SKU(t, s).ID, dbtest.SKU(t, s).ID}
	for i := range 20 {
		p := newSteps(t, s, dbtest.On(dbtest.Node(t, s, dbtest.Of(sku[i%2])).ID))
		b := p.row("b", pending, 0, -1, -1, "")
		took := 100 + 1000*(i%2)
		p.project(0, lifecycle.JobRunning, 1, p.row("a", running, 1, 0, -1, ""), b)
		p.project(took, lifecycle.JobFailedManual, 1, p.row("a", lifecycle.StageFailed, 1, 0, took, lifecycle.FailInternal), b)
		p.project(3000, lifecycle.JobRunning, 1, p.row("a", running, 2, 3000, -1, ""), b)
		a := p.row("a", succeeded, 2, 3000, 3100, "")
		p.project(3100, lifecycle.JobRunning, 2, a, p.row("b", running, 1, 3100, -1, ""))
		p.project(3110, lifecycle.JobCompleted, 2, a, p.row("b", succeeded, 1, 3100, 3110, ""))
	}
	var jobs []db.Job
	for range 30 {
		p := newSteps(t, s, dbtest.On(dbtest.Node(t, s, dbtest.Of(sku[0])).ID))
		p.begin = time.Now()
		p.project(0, lifecycle.JobRunning, 1, p.row("a", running, 1, 0, -1, ""), p.row("b", pending, 0, -1, -1, ""))
		job, err := s.Job(t.Context(), p.job.ID)
		require.NoError(t, err)
		jobs = append(jobs, job)
	}
	queries := 0
	var estimator db.Estimator
	got, err := estimator.Estimates(t.Context(), counted{s, &queries}, jobs)
	require.NoError(t, err)
	require.Len(t, got, len(jobs))
	for _, e := range got {
		require.Equal(t, 10, e.Samples)
		require.Empty(t, e.Reason)
		require.InDelta(t, 210, e.P50, 60, "both tries of a and b of the same SKU")
	}
	require.LessOrEqual(t, queries, 2)
	raw, err := json.Marshal(lifecycle.Estimate{Reason: "x"})
	require.NoError(t, err)
	require.JSONEq(t, `{"samples": 0, "overdue": false, "reason": "x"}`, string(raw))
}
