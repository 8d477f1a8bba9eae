package db_test

import (
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
)

func TestOfManyJobsOnOneNodeOneWins(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	n := dbtest.Node(t, s)
	var won atomic.Value
	var wins atomic.Int32
	var wg sync.WaitGroup
	losers := make(chan error, 10)
	for range 10 {
		wg.Go(func() {
			err := s.Tx(t.Context(), func(tx *db.Tx) error {
				j, err := tx.CreateJob(t.Context(), db.NewJob{Kind: "onboarding", NodeID: &n.ID, SiteID: &n.SiteID, Actor: admin})
				if err == nil {
					won.Store(j.ID)
				}
				return err
			})
			if err == nil {
				wins.Add(1)
				return
			}
			losers <- err
		})
	}
	wg.Wait()
	close(losers)
	require.EqualValues(t, 1, wins.Load())
	for err := range losers {
		var conflict *db.ConflictError
		require.ErrorAs(t, err, &conflict)
		require.Equal(t, "live_job", conflict.What)
		require.Equal(t, won.Load(), conflict.Existing)
	}
	jobs, err := s.ListJobs(t.Context(), db.JobFilter{NodeID: n.ID}, "", 0)
	require.NoError(t, err)
	require.Len(t, jobs, 1)
	starts, err := s.ClaimOutbox(t.Context(), "r", 10, time.Minute)
	require.NoError(t, err)
	require.Len(t, starts, 1, "a loser leaves no start behind")
}

func TestAConflictLeavesTheTransactionUsable(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	n := dbtest.Node(t, s)
	in(t, s, func(tx *db.Tx) error {
		_, err := tx.CreateNode(t.Context(), db.NewNode{Hostname: n.Hostname, SiteID: n.SiteID, Actor: admin})
		var conflict *db.ConflictError
		require.ErrorAs(t, err, &conflict)
		require.Equal(t, "hostname", conflict.What)
		require.Equal(t, n.ID, conflict.Existing)
		_, err = tx.CreateNode(t.Context(), db.NewNode{Hostname: n.Hostname + "-b", SiteID: n.SiteID, Actor: admin})
		return err
	})
}

func TestCreateJob_StoresTheRequest(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	n := dbtest.Node(t, s)
	p := dbtest.Profile(t, s, dbtest.At(n.SiteID))
	var j db.Job
	in(t, s, func(tx *db.Tx) (err error) {
		j, err = tx.CreateJob(t.Context(), db.NewJob{
			Kind: "onboarding", NodeID: &n.ID, SiteID: &n.SiteID, ProfileID: &p.ID, Input: json.RawMessage(`{"hostname":"a\u0000b"}`), Actor: admin,
		})
		return err
	})
	require.Equal(t, lifecycle.JobPending, j.Status)
	require.Equal(t, "onboarding/"+j.ID, j.WorkflowID)
	require.Equal(t, "ada", j.CreatedBy)
	require.JSONEq(t, `{"hostname": "a\ufffdb"}`, string(j.Input))
	require.Nil(t, j.StartedAt)

	var conflict *db.ConflictError
	err := s.Tx(t.Context(), func(tx *db.Tx) error {
		_, err := tx.CreateJob(t.Context(), db.NewJob{Kind: "storage", WorkflowID: j.WorkflowID, Actor: admin})
		return err
	})
	require.ErrorAs(t, err, &conflict)
	require.Equal(t, "workflow", conflict.What)

	gone := "node_gone"
	err = s.Tx(t.Context(), func(tx *db.Tx) error {
		_, err := tx.CreateJob(t.Context(), db.NewJob{Kind: "onboarding", NodeID: &gone, Actor: admin})
		return err
	})
	require.ErrorIs(t, err, db.ErrNotFound)
}

// projection is a valid first step of a job.
func projection(j db.Job, seq int64) db.Projection {
	now := time.Now().UTC().Truncate(time.Millisecond)
	return db.Projection{
		JobID: j.ID, Seq: seq, RunID: "run-1", Status: lifecycle.JobRunning, Stage: "commission_node", StageOrdinal: 2, Attempt: 1,
		ProgressPercent: 20, ReachedPercent: 20, WaitingOutside: true, Observed: &lifecycle.Observed{MAAS: "Commissioning", Power: "on", At: &now},
		StageDeadline: &now, Checkpoint: json.RawMessage(`{"n": 9007199254740993}`),
		Stages: []lifecycle.StageRow{
			{Ordinal: 1, Name: "load_site_config", State: "succeeded", Attempts: 1, StartedAt: &now, FinishedAt: &now},
			{Ordinal: 2, Name: "commission_node", State: "running", Attempts: 1, StartedAt: &now, Message: "waiting"},
		},
	}
}

func project(t testing.TB, s *db.Store, p db.Projection, moves ...db.NodeMove) (applied bool, err error) {
	t.Helper()
	err = s.Tx(t.Context(), func(tx *db.Tx) error {
		out, err := tx.ProjectJob(t.Context(), p)
		applied = out.Applied
		for _, m := range moves {
			if err != nil {
				return err
			}
			err = moveNode(t, tx, p.JobID, m)
		}
		return err
	})
	return applied, err
}

func moveNode(t testing.TB, tx *db.Tx, jobID string, m db.NodeMove) error {
	j, err := tx.Job(t.Context(), jobID)
	if err != nil {
		return err
	}
	n, err := tx.LockNode(t.Context(), *j.NodeID)
	if err != nil {
		return err
	}
	m.Actor.WorkflowID = j.WorkflowID
	return tx.MoveJobNode(t.Context(), n, m)
}

func TestAProjectionShowsTheWholeJob(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	j := dbtest.Job(t, s)
	p := projection(j, 1)
	applied, err := project(t, s, p, db.NodeMove{To: lifecycle.NodeEnrolling, Actor: db.Actor{Owner: lifecycle.OwnerOnboarding, Comment: "onboarding begins"}})
	require.NoError(t, err)
	require.True(t, applied)

	got, err := s.Job(t.Context(), j.ID)
	require.NoError(t, err)
	require.Equal(t, lifecycle.JobRunning, got.Status)
	require.Equal(t, "commission_node", got.Stage)
	require.EqualValues(t, 1, got.Seq)
	require.Equal(t, p.Observed.MAAS, got.Observed.MAAS)
	require.True(t, p.Observed.At.Equal(*got.Observed.At))
	require.JSONEq(t, string(p.Checkpoint), string(got.Checkpoint), "numbers keep every digit")
	require.NotNil(t, got.StartedAt)
	require.Nil(t, got.FinishedAt)
	stages, err := s.JobStages(t.Context(), j.ID)
	require.NoError(t, err)
	require.Len(t, stages, 2)
	require.Equal(t, "waiting", stages[1].Message)
	require.True(t, stages[0].FinishedAt.Equal(*p.Stages[0].FinishedAt))

	n, err := s.Node(t.Context(), *j.NodeID)
	require.NoError(t, err)
	require.Equal(t, lifecycle.NodeEnrolling, n.Status)
	history, _, err := s.NodeHistory(t.Context(), n.ID, 1, 0)
	require.NoError(t, err)
	require.Equal(t, "onboarding", history[0].Owner)
	require.Equal(t, "onboarding begins", *history[0].Comment)
}

func TestALateOrRepeatedProjectionChangesNothing(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	j := dbtest.Job(t, s)
	p := projection(j, 5)
	p.Entries = []db.Entry{{Kind: db.EntryAction, Name: "cancel", Actor: admin}}
	_, err := project(t, s, p)
	require.NoError(t, err)
	before, err := s.Job(t.Context(), j.ID)
	require.NoError(t, err)
	trail, err := s.ResourceTimeline(t.Context(), "job", j.ID, 0, 100)
	require.NoError(t, err)
	require.Len(t, trail, 3, "created, started, the action")

	for _, seq := range []int64{5, 4, 1, 0} {
		late := p
		late.Seq, late.Status, late.Stage = seq, lifecycle.JobFailedRetryable, "elsewhere"
		late.Stages = []lifecycle.StageRow{{Ordinal: 1, Name: "elsewhere", State: "failed"}}
		applied, err := project(t, s, late)
		require.NoError(t, err)
		require.False(t, applied)
	}
	after, err := s.Job(t.Context(), j.ID)
	require.NoError(t, err)
	require.Equal(t, before, after)
	again, err := s.ResourceTimeline(t.Context(), "job", j.ID, 0, 100)
	require.NoError(t, err)
	require.Equal(t, trail, again)
	stages, err := s.JobStages(t.Context(), j.ID)
	require.NoError(t, err)
	require.Equal(t, "load_site_config", stages[0].Name)
}

func TestTheSameStatusWritesNoTransition(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	j := dbtest.Job(t, s, dbtest.JobStatus(lifecycle.JobRunning))
	trail, err := s.ResourceTimeline(t.Context(), "job", j.ID, 0, 100)
	require.NoError(t, err)
	p := projection(j, 1)
	p.Checkpoint = nil
	applied, err := project(t, s, p)
	require.NoError(t, err)
	require.True(t, applied)
	p = projection(j, 2)
	_, err = project(t, s, p)
	require.NoError(t, err)
	p.Seq, p.Checkpoint = 3, nil
	_, err = project(t, s, p)
	require.NoError(t, err)
	got, err := s.Job(t.Context(), j.ID)
	require.NoError(t, err)
	require.JSONEq(t, `{"n": 9007199254740993}`, string(got.Checkpoint), "a step without a checkpoint keeps the last")
	again, err := s.ResourceTimeline(t.Context(), "job", j.ID, 0, 100)
	require.NoError(t, err)
	require.Equal(t, trail, again)
	_, err = s.RelayEvents(t.Context(), 100)
	require.NoError(t, err)
	events, err := s.EventsAfter(t.Context(), 0, db.EventFilter{ResourceKind: "job", ResourceID: j.ID}, 100)
	require.NoError(t, err)
	require.Equal(t, "job.progress", events[len(events)-1].Type)
	require.Contains(t, string(events[len(events)-1].Payload), `"progress_percent": 20`)
}

func TestAProjectionThatMayNotBeLeavesNothing(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	onboarding := db.Actor{Owner: lifecycle.OwnerOnboarding}
	moves := map[string]db.NodeMove{
		"a jump of the node":             {To: lifecycle.NodeRetired, Actor: onboarding},
		"a node's proof is missing":      {Transition: "activate", Actor: onboarding},
		"a transition that is not there": {Transition: "teleport", Actor: onboarding},
		"an owner that may not":          {To: lifecycle.NodeEnrolling, Actor: db.Actor{Owner: lifecycle.OwnerCustomer}},
	}
	spoilt := map[string]func(*db.Projection){
		"a jump of the job": func(p *db.Projection) { p.Status = lifecycle.JobCompleted },
		"a transition as an entry": func(p *db.Projection) {
			p.Entries = []db.Entry{{Kind: db.EntryTransition, Name: "x", Actor: admin}}
		},
		"a stage state that is none": func(p *db.Projection) { p.Stages[0].State = "thinking" },
		"a percentage over 100":      func(p *db.Projection) { p.ProgressPercent = 101 },
	}
	for name := range moves {
		spoilt[name] = func(*db.Projection) {}
	}
	for name, spoil := range spoilt {
		j := dbtest.Job(t, s)
		p := projection(j, 1)
		spoil(&p)
		var move []db.NodeMove
		if m, ok := moves[name]; ok {
			move = append(move, m)
		}
		applied, err := project(t, s, p, move...)
		require.Error(t, err, name)
		require.True(t, db.Permanent(err) || errors.Is(err, lifecycle.ErrIllegalTransition), "%s: %v", name, err)
		require.False(t, applied && err == nil, name)
		after, err := s.Job(t.Context(), j.ID)
		require.NoError(t, err)
		require.Equal(t, j, after, name)
		stages, err := s.JobStages(t.Context(), j.ID)
		require.NoError(t, err)
		require.Empty(t, stages, name)
	}
}

func TestANodeThatIsThereAlreadyIsNotMoved(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	n := dbtest.Node(t, s, dbtest.Status(lifecycle.NodeEnrolling))
	j := dbtest.Job(t, s, dbtest.On(n.ID))
	for i, move := range []db.NodeMove{{To: lifecycle.NodeEnrolling}, {Transition: "start_enrolling"}} {
		move.Actor.Owner = lifecycle.OwnerOnboarding
		applied, err := project(t, s, projection(j, int64(i+1)), move)
		require.NoError(t, err)
		require.True(t, applied)
	}
	after, err := s.Node(t.Context(), n.ID)
	require.NoError(t, err)
	require.Equal(t, n, after)
}

func TestTextFromOutsideIsMadeStorable(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	p := projection(dbtest.Job(t, s), 1)
	p.Message = "bad \x00 byte" + strings.Repeat("é", 5000)
	p.Stages[1].Message = "bad \x00\xff byte"
	p.Checkpoint = json.RawMessage(`{"out": "a\u0000b", "literal": "\\u0000"}`)
	_, err := project(t, s, p)
	require.NoError(t, err)
	j, err := s.Job(t.Context(), p.JobID)
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(j.Message, "bad \ufffd byteé"))
	require.Len(t, []rune(j.Message), 4001)
	require.JSONEq(t, `{"out": "a\ufffdb", "literal": "\\u0000"}`, string(j.Checkpoint))
}

func TestJobsAreListedNewestFirstByPages(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	parked := dbtest.Job(t, s, dbtest.JobStatus(lifecycle.JobFailedManual))
	running := dbtest.Job(t, s, dbtest.JobStatus(lifecycle.JobRunning))
	pending := dbtest.Job(t, s, dbtest.Kind("decommission"))
	ids := func(f db.JobFilter, after string, limit int) []string {
		jobs, err := s.ListJobs(t.Context(), f, after, limit)
		require.NoError(t, err)
		out := []string{}
		for _, j := range jobs {
			out = append(out, j.ID)
		}
		return out
	}
	yes, no := true, false
	require.Equal(t, []string{pending.ID, running.ID}, ids(db.JobFilter{}, "", 2))
	require.Equal(t, []string{parked.ID}, ids(db.JobFilter{}, running.ID, 2))
	require.Equal(t, []string{parked.ID}, ids(db.JobFilter{NeedsHuman: &yes}, "", 0))
	require.Equal(t, []string{pending.ID, running.ID}, ids(db.JobFilter{NeedsHuman: &no}, "", 0))
	require.Equal(t, []string{running.ID}, ids(db.JobFilter{Status: "running"}, "", 0))
	require.Equal(t, []string{pending.ID}, ids(db.JobFilter{Kind: "decommission"}, "", 0))
	require.Equal(t, []string{running.ID}, ids(db.JobFilter{NodeID: *running.NodeID}, "", 0))
	require.Equal(t, []string{running.ID}, ids(db.JobFilter{SiteID: *running.SiteID}, "", 0))
	require.Empty(t, ids(db.JobFilter{BatchID: "batch_none"}, "", 0))

	past, err := s.JobsPastDeadline(t.Context(), time.Now(), time.Now().Add(-time.Hour), "", 0)
	require.NoError(t, err)
	require.Empty(t, past)
	past, err = s.JobsPastDeadline(t.Context(), time.Now(), time.Now().Add(time.Hour), "", 0)
	require.NoError(t, err)
	require.Len(t, past, 2, "parked jobs wait for an operator and have no deadline")
}

// One live job for a BMC, also for one that no node has; the next one may come
// when it has ended.
func TestOneLiveJobForABMC(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	bmc, err := s.CreateBMC(t.Context(), db.NewBMC{Address: "10.0.0.1", Protocol: "redfish", CredentialRef: "bmc/a"})
	require.NoError(t, err)
	create := func() (job db.Job, err error) {
		err = s.Tx(t.Context(), func(tx *db.Tx) error {
			job, err = tx.CreateJob(t.Context(), db.NewJob{Kind: "bmc_rotation", BMCID: &bmc.ID, Actor: db.Actor{Owner: lifecycle.OwnerAdmin, ID: "op"}})
			return err
		})
		return job, err
	}
	first, err := create()
	require.NoError(t, err)
	require.Equal(t, bmc.ID, *first.BMCID)
	_, err = create()
	var conflict *db.ConflictError
	require.ErrorAs(t, err, &conflict)
	require.Equal(t, []string{"live_job", first.ID}, []string{conflict.What, conflict.Existing})
	live, err := s.LiveJobOfBMC(t.Context(), bmc.ID)
	require.NoError(t, err)
	require.Equal(t, first.ID, live.ID)
	require.NoError(t, s.Tx(t.Context(), func(tx *db.Tx) error {
		_, err := tx.TransitionJob(t.Context(), first.ID, lifecycle.JobCancel, nil, db.Actor{Owner: lifecycle.OwnerSystem})
		return err
	}))
	_, err = s.LiveJobOfBMC(t.Context(), bmc.ID)
	require.ErrorIs(t, err, db.ErrNotFound)
	_, err = create()
	require.NoError(t, err)
}

// TestProjectJob_RefusedRowWritesNothing sends a step of which the database refuses the last row:
// the event and the columns, which were sent before it, are not there either.
func TestProjectJob_RefusedRowWritesNothing(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	j := dbtest.Job(t, s, dbtest.JobStatus(lifecycle.JobRunning))
	before, err := s.Job(t.Context(), j.ID)
	require.NoError(t, err)
	events := func() (n int) {
		require.NoError(t, s.DBTX().QueryRow(t.Context(), "SELECT count(*) FROM outbox").Scan(&n))
		return n
	}
	had := events()
	p := projection(j, 1)
	p.Stages[1].State = "nonsense"
	applied, err := project(t, s, p)
	require.ErrorIs(t, err, db.ErrInvalid)
	require.False(t, applied)
	after, err := s.Job(t.Context(), j.ID)
	require.NoError(t, err)
	require.Equal(t, before, after)
	require.Equal(t, had, events())
}
