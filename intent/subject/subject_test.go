package subject_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/intent/subject"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// rowsSQL are an instance, a machine with a run, an allocation and a payment session. Only their
// locks matter.
const rowsSQL = `
SET session_replication_role = replica;
INSERT INTO machines (id, status, phase_before, spec, active_run_id) VALUES ('m1', 'PROVISIONING', 'READY', '{}', 'run_1');
INSERT INTO runs (id, machine_id, request_id, type, plan_id, steps, status, job_id, created_by) VALUES ('run_1', 'm1', 'r', 'REBOOT', 'p', '[]', 'RUNNING', 'job_1', 'x');
INSERT INTO instances (id, project_id, name, provider, zone, type, image, model, status, job_id, created_by)
	VALUES ('inst_1', 'prj_1', 'i', 'p', 'z', 't', 'i', 'm', 'provisioning', 'job_1', 'x');
INSERT INTO allocations (id, project_id, sku_id, status, requested_by) VALUES ('alc_1', 'prj_1', 'sku_1', 'requested', 'x');
INSERT INTO payment_sessions (id, billing_account_id, project_id, requested_by, idempotency_key, request_hash, status, requested_amount_minor, currency, live, success_url, cancel_url, expires_at)
	VALUES ('pay_1', 'acc_1', 'prj_1', 'x', 'k', '', 'initiated', 500, 'USD', false, '', '', now());
SET session_replication_role = origin`

// lockOrder is written down apart from the table of subjects, whose order it checks.
var lockOrder = []contract.Move{
	{Subject: contract.SubjectAllocation, ID: "alc_1", Data: json.RawMessage("{}")},
	{Subject: contract.SubjectInstance, ID: "inst_1", Data: json.RawMessage("{}")},
	{Subject: contract.SubjectRun, Data: json.RawMessage("{}")},
	{Subject: contract.SubjectPayment, ID: "pay_1", Data: json.RawMessage("{}")},
	{Subject: contract.SubjectNode, Data: json.RawMessage("{}")},
}

var errUndo = errors.New("undo")

// hold locks the subjects of moves in a transaction of its own, tells locked, and keeps them until
// release.
func hold(ctx context.Context, s *db.Store, nodeID string, wait string, moves []contract.Move, locked chan<- error, release <-chan struct{}) {
	told := false
	err := s.Tx(ctx, func(tx *db.Tx) error {
		if _, err := tx.DBTX().Exec(ctx, "SET LOCAL lock_timeout = '"+wait+"'"); err != nil {
			return err
		}
		if _, err := subject.Lock(ctx, tx, contract.Projection{JobID: "job_1", NodeID: nodeID, Moves: moves}); err != nil {
			return err
		}
		locked <- nil
		told = true
		select {
		case <-release:
		case <-ctx.Done():
		}
		return errUndo
	})
	if !told {
		locked <- err
	}
}

// Two projections that name the same two subjects in opposite orders lock them in one order,
// whichever pair of subjects it is: while the first of a pair is held, a projection of both waits
// for it, and has not locked the second one.
func TestLock_EveryPairInOneOrder(t *testing.T) {
	t.Parallel()
	dsn := dbtest.FreshDatabase(t)
	s, owner := dbtest.Open(t, dsn), dbtest.Owner(t, dsn)
	node := dbtest.Node(t, s)
	_, err := owner.Exec(t.Context(), rowsSQL)
	require.NoError(t, err)
	wait := runenv.Patience(time.Minute)
	for i, first := range lockOrder {
		for _, second := range lockOrder[i+1:] {
			name := string(first.Subject) + " before " + string(second.Subject)
			ctx, cancel := context.WithCancel(t.Context())
			t.Cleanup(cancel) // ends them all where the test fails
			endFirst, endBoth, endThird := make(chan struct{}), make(chan struct{}), make(chan struct{})
			locked, lockedBoth, lockedSecond := make(chan error, 1), make(chan error, 1), make(chan error, 1)
			go hold(ctx, s, node.ID, "0", []contract.Move{first}, locked, endFirst)
			require.NoError(t, <-locked, name)
			go hold(ctx, s, node.ID, "0", []contract.Move{second, first}, lockedBoth, endBoth)
			require.Eventually(t, func() bool {
				var waits bool
				err := owner.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE NOT l.granted AND a.datname = current_database())").Scan(&waits)
				return err == nil && waits
			}, wait, 10*time.Millisecond, name)
			go hold(ctx, s, node.ID, "2s", []contract.Move{second}, lockedSecond, endThird)
			require.NoError(t, <-lockedSecond, "%s: the projection of both has locked the second one first", name)
			close(endThird)
			close(endFirst)
			require.NoError(t, <-lockedBoth, name)
			close(endBoth)
		}
	}
}

func TestLock_RefusesAnUnknownSubject(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	err := s.Tx(t.Context(), func(tx *db.Tx) error {
		_, err := subject.Lock(t.Context(), tx, contract.Projection{JobID: "job_1", Moves: []contract.Move{{Subject: "planet"}}})
		return err
	})
	require.ErrorIs(t, err, db.ErrInvalid)
	require.ErrorContains(t, err, "planet")
}

// Every kind of job has a subject that the table knows.
func TestOf_EveryKind(t *testing.T) {
	t.Parallel()
	for _, row := range contract.Kinds {
		require.Equal(t, row.Subject, subject.Of(row.Kind).Kind, row.Kind)
	}
}
