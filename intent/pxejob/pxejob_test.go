package pxejob_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/intent/pxejob"
	"github.com/slipway-cloud/slipway/lifecycle"
)

var operator = db.Actor{Owner: lifecycle.OwnerAdmin, ID: "alice"}

// TestCheck_NamesMisplacedOptions gives options that do not go with the state.
func TestCheck_NamesMisplacedOptions(t *testing.T) {
	t.Parallel()
	store := dbtest.Store(t)
	for name, c := range map[string]struct {
		pxejob.Request
		fields []string
	}{
		"no state":           {pxejob.Request{State: "melted"}, []string{"state"}},
		"of a migration":     {pxejob.Request{State: lifecycle.NodeDeprovisioning, Options: pxejob.Options{Disks: db.DisksNew, EraseOld: true, Hardware: &pxejob.Hardware{}}}, []string{"disks", "erase_old", "hardware"}},
		"of a job":           {pxejob.Request{State: lifecycle.NodePending, Options: pxejob.Options{GraceSeconds: 5}}, []string{"grace_seconds"}},
		"names the own":      {pxejob.Request{State: lifecycle.NodeMigrating, Options: pxejob.Options{Disks: db.DisksSame, EraseOld: true, Hardware: &pxejob.Hardware{}}}, []string{"hardware"}},
		"erases moved disks": {pxejob.Request{State: lifecycle.NodeMigrating, Options: pxejob.Options{Disks: db.DisksMoved, EraseOld: true}}, []string{"erase_old"}},
		"fits":               {pxejob.Request{State: lifecycle.NodeDeprovisioning, Options: pxejob.Options{GraceSeconds: 5}}, nil},
	} {
		_, err := pxejob.Check(t.Context(), store, c.Request)
		if c.fields == nil {
			require.NoError(t, err, name)
			continue
		}
		var fields []string
		for _, f := range intent.AsRefusal(err).Fields {
			fields = append(fields, f.Name)
		}
		require.Equal(t, c.fields, fields, name)
	}
}

// TestPutNodeBMC_RepetitionWritesNothing puts a BMC with a pin twice, and refuses nodes that cannot
// have one.
func TestPutNodeBMC_RepetitionWritesNothing(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Database(t)
	store := dbtest.Open(t, dsn)
	put := func(nodeID string) (b db.BMC, err error) {
		err = store.Tx(t.Context(), func(tx *db.Tx) (err error) {
			b, err = pxejob.PutNodeBMC(t.Context(), tx, pxejob.NodeBMC{
				BMC:       intent.BMC{NodeID: nodeID, Address: "127.0.0.1", Protocol: intent.ProtocolRedfish, CredentialRef: "bmc/a"},
				PinSHA256: strings.Repeat("ab", 32),
			}, operator)
			return err
		})
		return b, err
	}
	audited := func() (n int) {
		require.NoError(t, store.DBTX().QueryRow(t.Context(), "SELECT count(*) FROM audit_log WHERE resource_kind = 'bmc'").Scan(&n))
		return n
	}
	n := dbtest.PXENode(t, store, "02:00:00:00:00:01", lifecycle.NodeActive)
	first, err := put(n.ID)
	require.NoError(t, err)
	require.Equal(t, []any{n.ID, strings.Repeat("ab", 32)}, []any{*first.NodeID, first.PinSHA256})
	rows := audited()
	require.Positive(t, rows)
	again, err := put(n.ID)
	require.NoError(t, err)
	require.Equal(t, first, again)
	require.Equal(t, rows, audited())
	_, err = put(dbtest.Node(t, store, dbtest.Active()).ID)
	require.Equal(t, intent.ReasonMAASBMC, intent.AsRefusal(err).Reason)
	_, err = put(dbtest.PXENode(t, store, "02:00:00:00:00:02", lifecycle.NodeRetired).ID)
	require.Equal(t, intent.IllegalTransition, intent.AsRefusal(err).Kind)
	require.Equal(t, rows, audited())
}

// TestAccept_RefusesAJobThatCouldOnlyWait asks for a state whose job has nothing to erase with, or
// waits for another job.
func TestAccept_RefusesAJobThatCouldOnlyWait(t *testing.T) {
	t.Parallel()
	store := dbtest.Store(t)
	n := dbtest.PXENode(t, store, "02:00:00:00:00:01", lifecycle.NodeActive)
	ask := func() error {
		c, err := pxejob.Check(t.Context(), store, pxejob.Request{NodeID: n.ID, State: lifecycle.NodeDeprovisioning, Comment: "sold", Options: pxejob.Options{GraceSeconds: 5}})
		require.NoError(t, err)
		return store.Tx(t.Context(), func(tx *db.Tx) error { _, err := pxejob.Accept(t.Context(), tx, c, 0, operator); return err })
	}
	require.Equal(t, intent.ReasonNoEraseWorkflow, intent.AsRefusal(ask()).Reason)
	live := dbtest.Job(t, store, dbtest.On(n.ID), dbtest.Kind("agent_update"))
	refusal := intent.AsRefusal(ask())
	require.Equal(t, []any{intent.LiveJob, intent.ReasonJobHoldsNode, live.ID}, []any{refusal.Kind, refusal.Reason, refusal.JobID})
}
