package db_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/test/runenv"
)

var sweeper = db.Actor{Owner: lifecycle.OwnerSystem, ID: "sweeper"}

// liveJob finds one job as the sweeper sees it.
func liveJob(t *testing.T, s *db.Store, id string) db.LiveJob {
	t.Helper()
	rows, err := s.LiveJobs(t.Context(), "", 1000)
	require.NoError(t, err)
	for _, r := range rows {
		if r.ID == id {
			return r
		}
	}
	t.Fatalf("job %s is not live", id)
	return db.LiveJob{}
}

// sent marks every start as done, as a relay does.
func sent(t *testing.T, s *db.Store) {
	t.Helper()
	rows, err := s.ClaimOutbox(t.Context(), "test", 1000, time.Minute)
	require.NoError(t, err)
	for _, r := range rows {
		require.NoError(t, s.CompleteOutbox(t.Context(), r.ID))
	}
}

func parkLost(t *testing.T, s *db.Store, seen db.LiveJob, why string) bool {
	t.Helper()
	parked := false
	require.NoError(t, s.Tx(t.Context(), func(tx *db.Tx) error {
		var err error
		parked, err = tx.ParkLost(t.Context(), seen, why, sweeper)
		return err
	}))
	return parked
}

func TestALostJobIsParkedOnce(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	for _, from := range []lifecycle.JobStatus{lifecycle.JobPending, lifecycle.JobRunning, lifecycle.JobCompensating} {
		j := dbtest.Job(t, s, dbtest.JobStatus(from))
		seen := liveJob(t, s, j.ID)
		require.True(t, seen.StartOpen)
		require.False(t, parkLost(t, s, seen, "gone"), "a start is on its way")
		sent(t, s)
		require.True(t, parkLost(t, s, liveJob(t, s, j.ID), "the workflow was terminated"))
		got, err := s.Job(t.Context(), j.ID)
		require.NoError(t, err)
		require.Equal(t, lifecycle.JobFailedRetryable, got.Status)
		require.Equal(t, lifecycle.FailWorkflowLost, got.FailureClass)
		require.Equal(t, lifecycle.ActionResume, got.RecommendedAction)
		require.Equal(t, "the workflow was terminated", got.Message)
		require.NotEmpty(t, got.NextStep)
		require.Equal(t, j.Seq+1, got.Seq, "what the lost run may still write comes too late")
		require.False(t, parkLost(t, s, seen, "again"), "it is parked")
		broken, err := s.VerifyAudit(t.Context(), "job", j.ID)
		require.NoError(t, err)
		require.Zero(t, broken)
	}
}

func TestAJobThatMovedIsNotLost(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	j := dbtest.Job(t, s, dbtest.JobStatus(lifecycle.JobRunning))
	sent(t, s)
	seen := liveJob(t, s, j.ID)
	step := func(seq int64, stage string, state lifecycle.StageState) bool {
		applied, err := project(t, s, db.Projection{
			JobID: j.ID, Seq: seq, RunID: "r1", Status: lifecycle.JobRunning, Stage: stage,
			Stages: []lifecycle.StageRow{{Ordinal: 1, Name: stage, State: state, Attempts: 1}},
		})
		require.NoError(t, err)
		return applied
	}
	require.True(t, step(1, "wait_for_ready", "running"))
	require.False(t, parkLost(t, s, seen, "gone"))
	require.True(t, parkLost(t, s, liveJob(t, s, j.ID), "gone"))
	require.False(t, step(2, "wait_for_ready", "succeeded"), "the step that was on its way")
	stages, err := s.JobStages(t.Context(), j.ID)
	require.NoError(t, err)
	require.Equal(t, lifecycle.StageFailed, stages[0].State)
	require.Equal(t, "gone", stages[0].Message)
	got, err := s.Job(t.Context(), j.ID)
	require.NoError(t, err)
	require.Equal(t, "wait_for_ready", got.FailedStage)
	require.Nil(t, got.StageDeadlineAt)
}

func TestStartsThatNobodySends(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Database(t)
	s, conn := dbtest.Open(t, dsn), raw(t, dsn)
	held, missing := dbtest.Job(t, s), dbtest.Job(t, s)
	_, err := s.ClaimOutbox(t.Context(), "dead", 10, 10*time.Minute)
	require.NoError(t, err)
	exec(t, conn, "DELETE FROM outbox WHERE job_id = $1", missing.ID)

	n, err := s.ReleaseClaims(t.Context(), 15*time.Minute)
	require.NoError(t, err)
	require.Zero(t, n, "a claim that a relay may hold")
	n, err = s.ReleaseClaims(t.Context(), 30*time.Second)
	require.NoError(t, err)
	require.EqualValues(t, 1, n)

	ids, err := s.EnqueueMissingStarts(t.Context(), time.Hour, 10)
	require.NoError(t, err)
	require.Empty(t, ids, "too young")
	ids, err = s.EnqueueMissingStarts(t.Context(), 0, 10)
	require.NoError(t, err)
	require.Equal(t, []string{missing.ID}, ids)
	ids, err = s.EnqueueMissingStarts(t.Context(), 0, 10)
	require.NoError(t, err)
	require.Empty(t, ids)

	exec(t, conn, "UPDATE outbox SET next_at = now() - interval '1 minute' WHERE job_id = $1", held.ID)
	overdue, err := s.OverdueStarts(t.Context(), 30*time.Second)
	require.NoError(t, err)
	require.EqualValues(t, 1, overdue)
	woken := make(chan struct{}, 8)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		_ = s.Listen(ctx, db.ChannelOutbox, func() {
			select {
			case woken <- struct{}{}:
			default:
			}
		})
	}()
	<-woken // it listens
	require.NoError(t, s.WakeRelays(t.Context()))
	select {
	case <-woken:
	case <-time.After(runenv.Patience(10 * time.Second)):
		t.Fatal(runenv.Deadline + "no relay was woken")
	}
	rows, err := s.ClaimOutbox(t.Context(), "alive", 10, time.Minute)
	require.NoError(t, err)
	require.Len(t, rows, 2)
}

func TestAFindingIsOpenedOnceAndClosed(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	j := dbtest.Job(t, s, dbtest.JobStatus(lifecycle.JobRunning))
	f := db.Finding{Kind: db.FindingSilent, Subject: j.ID, JobID: &j.ID, Message: "no worker"}
	first, opened, err := s.SeeFinding(t.Context(), f)
	require.NoError(t, err)
	require.True(t, opened)
	f.Message = "the code fails"
	second, opened, err := s.SeeFinding(t.Context(), f)
	require.NoError(t, err)
	require.False(t, opened)
	require.Equal(t, first.ID, second.ID)
	require.Equal(t, first.OpenedAt, second.OpenedAt)
	require.Equal(t, "the code fails", second.Message)
	require.Equal(t, db.FindingSilent, liveJob(t, s, j.ID).Finding)

	closed, err := s.CloseFindingsOfMovedJobs(t.Context())
	require.NoError(t, err)
	require.Zero(t, closed, "the job is still at work")
	sent(t, s)
	require.True(t, parkLost(t, s, liveJob(t, s, j.ID), "gone"))
	closed, err = s.CloseFindingsOfMovedJobs(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1, closed)
	_, opened, err = s.SeeFinding(t.Context(), f)
	require.NoError(t, err)
	require.True(t, opened, "a closed one stays closed")
	ok, err := s.CloseFinding(t.Context(), f.Kind, f.Subject, "done")
	require.NoError(t, err)
	require.True(t, ok)
	open, err := s.OpenFindings(t.Context(), f.Kind, 10)
	require.NoError(t, err)
	require.Empty(t, open)
	n, err := s.PruneFindings(t.Context(), time.Now().Add(time.Hour))
	require.NoError(t, err)
	require.EqualValues(t, 2, n)
}

func TestAPassThatSawLittleDoesNotCount(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	before, err := s.SweepPass(t.Context())
	require.NoError(t, err)
	require.NoError(t, s.FinishSweep(t.Context(), strings.Repeat("x", 10_000)))
	after, err := s.SweepPass(t.Context())
	require.NoError(t, err)
	require.Equal(t, before.FinishedAt, after.FinishedAt)
	require.NotNil(t, after.TriedAt)
	require.NotEmpty(t, after.Problem)
	require.NoError(t, s.PlaceSweep(t.Context(), "job_x"))
	require.NoError(t, s.FinishSweep(t.Context(), ""))
	after, err = s.SweepPass(t.Context())
	require.NoError(t, err)
	require.True(t, after.FinishedAt.After(before.FinishedAt))
	require.Empty(t, after.Problem)
	require.EqualValues(t, 2, after.Passes)
	require.Equal(t, "job_x", after.Place)
}
