package nodestate_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/test/acttest"
)

func reportOf(serials ...string) *spec.HealthReport {
	r := &spec.HealthReport{}
	for _, s := range serials {
		r.Disks = append(r.Disks, spec.DiskReport{Name: "sd", Serial: s, Bytes: 512})
	}
	return r
}

// A plan takes the last report where there is no record; a job that has started takes the record
// alone, since an eraser's report would name whatever is plugged in. The first that is recorded
// stays, whatever the agent reports later, until MAAS commissions the machine or an operator
// accepts others.
func TestReadNodeFacts_Drives(t *testing.T) {
	t.Parallel()
	w := newNodeFixture(t)
	w.Enrol(1)
	tx := func(do func(*db.Tx) error) { w.Helper(); require.NoError(w, w.Store.Tx(w.Context(), do)) }
	expects := func(source db.DriveSource, serials ...string) {
		w.Helper()
		f := acttest.Must(w, w.acts.ReadNodeFacts, w.Ref)
		require.Equal(w, string(source), f.DrivesFrom)
		require.Len(w, f.Drives, len(serials))
		for i, s := range serials {
			require.Equal(w, s, f.Drives[i].Serial)
		}
	}
	expects("")
	w.Heartbeat("boot-1", 1, 0, reportOf(" s2 ", "S1", ""))
	expects("")
	plan := acttest.Must(w, w.acts.ReadNodeFacts, contract.JobRef{NodeID: w.Ref.NodeID})
	require.Equal(t, string(db.DrivesReported), plan.DrivesFrom)
	freeze := func(tx *db.Tx) error { return tx.FreezeDrives(w.Context(), w.Ref.NodeID) }
	tx(freeze)
	w.Heartbeat("boot-1", 1, 0, reportOf("S1", "s2", "NEW"))
	tx(freeze)
	expects(db.DrivesReported, "S1", "s2")
	for _, record := range []struct {
		source  db.DriveSource
		serials []string
	}{{db.DrivesAccepted, []string{"NEW", "S1"}}, {db.DrivesCommissioned, []string{"S3"}}} {
		tx(func(tx *db.Tx) error {
			return tx.RecordDrives(w.Context(), w.Ref.NodeID, reportOf(record.serials...).Drives(), record.source, db.Actor{Owner: lifecycle.OwnerAdmin})
		})
		expects(record.source, record.serials...)
	}
	w.Heartbeat("boot-1", 1, 0, reportOf(make([]string, spec.MaxDrives+1)...))
	reported, err := w.Store.ReportedDrives(w.Context(), w.Ref.NodeID)
	require.NoError(t, err)
	require.Empty(t, reported.Source, "a list that cannot be a node's")
}

// Label, profile and SKU each protect drives. A label that cannot be read stops what erases.
func TestReadNodeFacts_ProtectSerials(t *testing.T) {
	t.Parallel()
	w := newNodeFixture(t)
	ctx := w.Context()
	n, err := w.Store.Node(ctx, w.Ref.NodeID)
	require.NoError(t, err)
	profile, err := w.Store.CreateProfile(ctx, n.SiteID, "p", spec.ProfileSpec{ProtectSerials: []string{"PROF1", "both"}})
	require.NoError(t, err)
	sku, err := w.Store.CreateSKU(ctx, "protecting", spec.SKUSpec{ProtectSerials: []string{"BOTH", "SKU1"}})
	require.NoError(t, err)
	label := func(value string) {
		w.Helper()
		require.NoError(t, w.Store.Tx(ctx, func(tx *db.Tx) error {
			n, err := tx.LockNode(ctx, w.Ref.NodeID)
			if err == nil {
				_, err = tx.UpdateNode(ctx, n.ID, n.Version, db.NodePatch{ProfileID: &profile.ID, SKUID: &sku.ID, Labels: db.Labels{lifecycle.LabelProtectSerials: value}})
			}
			return err
		}))
	}
	label("LABEL1, eui.00ff")
	require.Equal(t, []string{"both", "eui.00ff", "LABEL1", "PROF1", "SKU1"}, acttest.Must(w, w.acts.ReadNodeFacts, w.Ref).ProtectSerials)
	label("LABEL1 eui.00ff,")
	require.Contains(t, acttest.Fails(w, lifecycle.FailConfiguration, w.acts.ReadNodeFacts, w.Ref), "protect-serials")
}

// A job that is accepted freezes the drives of a node without a record.
func TestStartNodeJob_FreezesDrives(t *testing.T) {
	t.Parallel()
	store := dbtest.Store(t)
	n := dbtest.Node(t, store, dbtest.Active())
	require.NoError(t, store.RecordHeartbeats(t.Context(), []db.Heartbeat{{NodeID: n.ID, BootID: "b", Report: reportOf("S1")}}))
	require.NoError(t, store.Tx(t.Context(), func(tx *db.Tx) error {
		_, _, err := tx.StartNodeJob(t.Context(), db.NodeJob{Mode: lifecycle.ModeSoftReset, Node: n, Job: db.NewJob{
			Kind: "decommission", Input: []byte(`{}`), Actor: db.Actor{Owner: lifecycle.OwnerAdmin},
		}})
		return err
	}))
	require.NoError(t, store.RecordHeartbeats(t.Context(), []db.Heartbeat{{NodeID: n.ID, BootID: "b", Report: reportOf("S1", "NEW")}}))
	got, err := store.ExpectedDrives(t.Context(), n.ID)
	require.NoError(t, err)
	require.Len(t, got.Drives, 1)
}
