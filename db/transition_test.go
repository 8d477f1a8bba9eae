package db_test

import (
	"encoding/json"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

var admin = db.Actor{Owner: lifecycle.OwnerAdmin, ID: "ada"}

// in runs fn in a transaction.
func in(t testing.TB, s *db.Store, fn func(tx *db.Tx) error) {
	t.Helper()
	require.NoError(t, s.Tx(t.Context(), fn))
}

func TestATransitionWritesStateAuditAndEventTogether(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	before := dbtest.Node(t, s, dbtest.Active())
	var after db.Node
	in(t, s, func(tx *db.Tx) (err error) {
		after, err = tx.TransitionNode(t.Context(), before.ID, lifecycle.NodeQuarantine, nil, db.Actor{
			Owner: lifecycle.OwnerAdmin, ID: "ada", Comment: "smells of burning", WorkflowID: "w1", Metadata: map[string]any{"ticket": 7},
		})
		return err
	})
	stored, err := s.Node(t.Context(), before.ID)
	require.NoError(t, err)
	require.Equal(t, stored, after, "what is returned is what is stored")
	require.Equal(t, lifecycle.NodeQuarantined, after.Status)
	require.Equal(t, before.Version+1, after.Version)
	require.True(t, after.StateChangedAt.After(before.StateChangedAt), "a transition is dated")

	rows, err := s.ResourceTimeline(t.Context(), "node", before.ID, 0, 1)
	require.NoError(t, err)
	row := rows[0]
	require.Equal(t, []string{"quarantine", "active", "quarantined", "admin", "admin"},
		[]string{row.Name, row.FromState, row.ToState, row.TriggeredBy, row.Owner})
	require.Equal(t, "ada smells of burning w1", strings.Join([]string{*row.ActorID, *row.Comment, *row.WorkflowID}, " "))
	require.JSONEq(t, `{"ticket": 7}`, string(row.Metadata))
	require.Equal(t, after.Version, row.Version)
	require.EqualValues(t, 4, row.Seq)
	requireWhole(t, s, "node", before.ID)

	_, err = s.RelayEvents(t.Context(), 100)
	require.NoError(t, err)
	events, err := s.EventsAfter(t.Context(), 0, db.EventFilter{NodeID: before.ID}, 100)
	require.NoError(t, err)
	last := events[len(events)-1]
	require.Equal(t, "node.quarantined", last.Type)
	require.Contains(t, string(last.Payload), `"from": "active"`)
}

func TestProofIsPartOfTheAuditRow(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	n := dbtest.Node(t, s, dbtest.Active())
	rows, err := s.ResourceTimeline(t.Context(), "node", n.ID, 0, 1)
	require.NoError(t, err)
	require.JSONEq(t, `{"proof": ["agent_enrolled", "health_proven"]}`, string(rows[0].Metadata))
}

func TestARefusedTransitionChangesNothing(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	n := dbtest.Node(t, s, dbtest.Status(lifecycle.NodeEnrolling))
	for name, c := range map[string]struct {
		move   lifecycle.Transition[lifecycle.NodeStatus]
		owner  lifecycle.Owner
		proof  lifecycle.Proof
		reason string
	}{
		"no edge":     {lifecycle.NodeRetire, lifecycle.OwnerDrain, nil, "no such transition"},
		"wrong owner": {lifecycle.NodeActivate, lifecycle.OwnerCustomer, lifecycle.NodeActivate.Needs, "may not cause it"},
		"no proof":    {lifecycle.NodeActivate, lifecycle.OwnerOnboarding, lifecycle.Proof{lifecycle.NeedEnrolled}, "health_proven"},
	} {
		err := s.Tx(t.Context(), func(tx *db.Tx) error {
			_, err := tx.TransitionNode(t.Context(), n.ID, c.move, c.proof, db.Actor{Owner: c.owner})
			return err
		})
		require.ErrorIs(t, err, lifecycle.ErrIllegalTransition, name)
		require.ErrorContains(t, err, c.reason, name)
		require.ErrorContains(t, err, "allowed now: active, quarantined", name)
	}
	now, err := s.Node(t.Context(), n.ID)
	require.NoError(t, err)
	require.Equal(t, n, now)
	_, total, err := s.NodeHistory(t.Context(), n.ID, 1, 0)
	require.NoError(t, err)
	require.EqualValues(t, 2, total)

	err = s.Tx(t.Context(), func(tx *db.Tx) error {
		_, err := tx.TransitionNode(t.Context(), "node_none", lifecycle.NodeRetire, nil, admin)
		return err
	})
	require.ErrorIs(t, err, db.ErrNotFound)
}

// Many at once on one node: each edge is taken once, nothing is lost, and the
// chain stays whole.
func TestTransitionsAtOnce(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	n := dbtest.Node(t, s, dbtest.Active())
	const each = 40
	var wins, refused int
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range each {
				for _, m := range []lifecycle.Transition[lifecycle.NodeStatus]{lifecycle.NodeGoOffline, lifecycle.NodeComeBack} {
					err := s.Tx(t.Context(), func(tx *db.Tx) error {
						_, err := tx.TransitionNode(t.Context(), n.ID, m, m.Needs, db.Actor{Owner: lifecycle.OwnerHeartbeat})
						return err
					})
					mu.Lock()
					if err == nil {
						wins++
					} else {
						refused++
						if !errorsIsIllegal(err) {
							t.Errorf("unexpected: %v", err)
						}
					}
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	require.Equal(t, 8*each*2, wins+refused)
	require.Positive(t, wins)
	history, total, err := s.NodeHistory(t.Context(), n.ID, 1000, 0)
	require.NoError(t, err)
	require.EqualValues(t, wins+3, total)
	for i := 1; i < len(history); i++ { // newest first
		require.Equal(t, history[i].ToState, history[i-1].FromState)
	}
	now, err := s.Node(t.Context(), n.ID)
	require.NoError(t, err)
	require.EqualValues(t, wins+3, now.Version)
	require.Equal(t, history[0].ToState, string(now.Status))
	requireWhole(t, s, "node", n.ID)
}

func errorsIsIllegal(err error) bool {
	illegal, ok := err.(*lifecycle.IllegalTransitionError) //nolint:errorlint // the very type is what Tx must hand on
	return ok && illegal.Resource == "node"
}

func TestNodeHistoryHasTheShapeOfSeed000(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	n := dbtest.Node(t, s, dbtest.Status(lifecycle.NodeRetired)) // five rows
	page, total, err := s.NodeHistory(t.Context(), n.ID, 2, 1)
	require.NoError(t, err)
	require.EqualValues(t, 5, total)
	require.Len(t, page, 2)
	require.Equal(t, "active", page[0].FromState)
	require.Equal(t, "draining", page[0].ToState)
	doc, err := json.Marshal(page[0])
	require.NoError(t, err)
	var fields map[string]any
	require.NoError(t, json.Unmarshal(doc, &fields))
	for _, f := range []string{"id", "from_state", "to_state", "triggered_by", "user_id", "comment", "metadata", "created_at"} {
		require.Contains(t, fields, f)
	}
	none, total, err := s.NodeHistory(t.Context(), "node_none", 0, 0)
	require.NoError(t, err)
	require.Zero(t, total)
	require.Empty(t, none)
}

func TestTheTimelineOfANodeHoldsItsJobsAndActions(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	n := dbtest.Node(t, s)
	j := dbtest.Job(t, s, dbtest.On(n.ID), dbtest.JobStatus(lifecycle.JobFailedRetryable))
	in(t, s, func(tx *db.Tx) error {
		return tx.AppendAudit(t.Context(), db.Entry{
			ResourceKind: "job", ResourceID: j.ID, NodeID: j.NodeID, Kind: db.EntryAction, Name: "retry_stage",
			Actor: db.Actor{Owner: lifecycle.OwnerAdmin, ID: "ada", Comment: "zero \x00 byte \xff", Metadata: map[string]any{"out": "a\x00b", "big": int64(1) << 60}},
		})
	})
	var seen []string
	for after := int64(0); ; {
		rows, err := s.NodeTimeline(t.Context(), n.ID, after, 2)
		require.NoError(t, err)
		if len(rows) == 0 {
			break
		}
		for _, r := range rows {
			seen = append(seen, r.ResourceKind+" "+string(r.Kind)+" "+r.Name)
			after = r.Pos
		}
	}
	require.Equal(t, []string{"job action retry_stage", "job transition park", "job transition create", "node transition create"}, seen)
	rows, err := s.NodeTimeline(t.Context(), n.ID, 0, 1)
	require.NoError(t, err)
	require.Equal(t, "zero \ufffd byte \ufffd", *rows[0].Comment)
	require.JSONEq(t, `{"out": "a\ufffdb", "big": 1152921504606846976}`, string(rows[0].Metadata))
	requireWhole(t, s, "job", j.ID)

	err = s.AppendAudit(t.Context(), db.Entry{ResourceKind: "node", ResourceID: n.ID, Kind: db.EntryTransition, Name: "x", Actor: admin})
	require.ErrorIs(t, err, db.ErrInvalid, "transitions come from the commit point only")
}

func TestEveryChainOfABusyDatabaseIsWhole(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	for range 3 {
		dbtest.Job(t, s, dbtest.JobStatus(lifecycle.JobCompleted))
	}
	count := 0
	for after := (db.Chain{}); ; {
		chains, err := s.AuditChains(t.Context(), after, 2)
		require.NoError(t, err)
		if len(chains) == 0 {
			break
		}
		for _, c := range chains {
			requireWhole(t, s, c.ResourceKind, c.ResourceID)
			after = c
			count++
		}
	}
	require.Equal(t, 6, count, "three nodes and three jobs")
}

// Two transactions that lock two nodes crosswise: the database ends one of
// them, and Tx runs it again.
func TestADeadlockIsRunAgain(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	a, b := dbtest.Node(t, s), dbtest.Node(t, s)
	var runs atomic.Int32
	var both, wg sync.WaitGroup
	both.Add(2)
	for _, order := range [][2]string{{a.ID, b.ID}, {b.ID, a.ID}} {
		var once sync.Once
		wg.Go(func() {
			err := s.Tx(t.Context(), func(tx *db.Tx) error {
				runs.Add(1)
				if _, err := tx.LockNode(t.Context(), order[0]); err != nil {
					return err
				}
				once.Do(func() { both.Done(); both.Wait() })
				_, err := tx.LockNode(t.Context(), order[1])
				return err
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	require.GreaterOrEqual(t, runs.Load(), int32(3))
}

func TestReadTxCannotWrite(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	err := s.ReadTx(t.Context(), func(tx *db.Tx) error {
		_, err := tx.CreateSite(t.Context(), "x", spec.SiteSpec{})
		return err
	})
	require.Error(t, err)
	requireState(t, err, "25006")
}
