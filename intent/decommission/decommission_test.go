package decommission_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/intent/decommission"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// The hashes of plans.
var shown, otherMode = strings.Repeat("a", 64), strings.Repeat("b", 64)

var operator = db.Actor{Owner: lifecycle.OwnerAdmin, ID: "alice"}

func check(t *testing.T, store *db.Store, n db.Node, mode lifecycle.DecommissionMode) decommission.Checked {
	t.Helper()
	c, err := decommission.Check(t.Context(), store, decommission.Request{NodeID: n.ID, Mode: mode, GraceSeconds: 7})
	require.NoError(t, err)
	return c
}

// TestCheckPlan_SaysWhatChanged compares plans that were shown with the one of now.
func TestCheckPlan_SaysWhatChanged(t *testing.T) {
	t.Parallel()
	store := dbtest.Store(t)
	n := dbtest.Node(t, store, dbtest.Active())
	c, other := check(t, store, n, lifecycle.ModeSoftReset), check(t, store, n, lifecycle.ModeStorageCleanup)
	row := func(stage, step string) contract.PlanRow {
		return contract.PlanRow{Stage: stage, Planned: contract.PlannedRun, Steps: []string{step}}
	}
	kept := contract.Plan{Hash: shown, Rows: []contract.PlanRow{row("same", "a"), row("other", "a"), row("gone", "a")}, Drives: []contract.PlanDrive{{Serial: "S1"}}}
	now := contract.Plan{Hash: "now", Rows: []contract.PlanRow{row("same", "a"), row("other", "b"), row("new", "a")}, Drives: []contract.PlanDrive{{Serial: "S2"}}}
	require.NoError(t, decommission.KeepPlan(t.Context(), store, c, kept))
	require.NoError(t, decommission.KeepPlan(t.Context(), store, other, contract.Plan{Hash: otherMode}))
	require.NoError(t, decommission.CheckPlan(t.Context(), store, c, now, "now"))
	for sent, want := range map[string]struct {
		detail string
		fields []string
	}{
		shown:                   {"is not true any more", []string{"plan.other", "plan.new", "plan.gone", "plan.drives"}},
		otherMode:               {"is for mode storage_cleanup, not soft_reset", nil},
		strings.Repeat("c", 64): {"no plan of this node with that hash", nil},
	} {
		refusal := intent.AsRefusal(decommission.CheckPlan(t.Context(), store, c, now, sent))
		require.NotNil(t, refusal, sent)
		require.Equal(t, []any{intent.PlanStale, "now"}, []any{refusal.Kind, refusal.PlanHash}, sent)
		require.Contains(t, refusal.Detail, want.detail)
		var fields []string
		for _, f := range refusal.Fields {
			fields = append(fields, f.Name)
		}
		require.Equal(t, want.fields, fields)
	}
}

// TestAccept_WritesWhatThePlanSays starts from a check before a tenant took the node, and from a
// new one.
func TestAccept_WritesWhatThePlanSays(t *testing.T) {
	t.Parallel()
	store := dbtest.Store(t)
	n := dbtest.Node(t, store, dbtest.Active())
	accept := func(c decommission.Checked) (job db.Job, err error) {
		err = store.Tx(t.Context(), func(tx *db.Tx) (err error) {
			job, n, err = decommission.Accept(t.Context(), tx, c, contract.Plan{Hash: shown}, "end of lease", operator)
			return err
		})
		return job, err
	}
	old := check(t, store, n, lifecycle.ModeStorageCleanup)
	dbtest.Occupy(t, store, n.ID) // a tenant takes the node
	require.NoError(t, dbtest.SetTenantRoot(t.Context(), store, false))
	_, err := accept(old)
	require.NotNil(t, intent.AsRefusal(err), err)
	require.Equal(t, intent.PlanStale, intent.AsRefusal(err).Kind)
	fresh, err := store.Node(t.Context(), old.Node.ID)
	require.NoError(t, err)
	require.NoError(t, decommission.KeepPlan(t.Context(), store, check(t, store, fresh, lifecycle.ModeStorageCleanup), contract.Plan{Hash: shown}))
	job, err := accept(check(t, store, fresh, lifecycle.ModeStorageCleanup))
	require.NoError(t, err)
	var in contract.DecommissionInput
	require.NoError(t, json.Unmarshal(job.Input, &in))
	require.Equal(t, []any{shown, "end of lease", 7, fresh.ID, fresh.Status}, []any{in.PlanHash, in.Reason, in.GraceSeconds, in.NodeID, in.From})
	require.Equal(t, lifecycle.NodeDraining, n.Status)
}

// TestEndUnstarted_LeavesOtherJobsNodes cancels a job that owns its node's state, and one that
// does not.
func TestEndUnstarted_LeavesOtherJobsNodes(t *testing.T) {
	t.Parallel()
	store := dbtest.Store(t)
	onboarding := dbtest.Job(t, store)
	before, err := store.Node(t.Context(), *onboarding.NodeID)
	require.NoError(t, err)
	n := dbtest.Node(t, store, dbtest.Active())
	c := check(t, store, n, lifecycle.ModeDrain)
	require.NoError(t, store.Tx(t.Context(), func(tx *db.Tx) error {
		job, _, err := decommission.Start(t.Context(), tx, "", c.Node, c.Input, operator)
		if err != nil {
			return err
		}
		if err := decommission.EndUnstarted(t.Context(), tx, onboarding, operator); err != nil {
			return err
		}
		return decommission.EndUnstarted(t.Context(), tx, job, operator)
	}))
	after, err := store.Node(t.Context(), before.ID)
	require.NoError(t, err)
	require.Equal(t, before, after)
	back, err := store.Node(t.Context(), n.ID)
	require.NoError(t, err)
	require.Equal(t, lifecycle.NodeOffline, back.Status, "until its health proves it active")
}

// TestCheck_RootTenantsSystem: the system on which a tenant was root is never asked to prove itself
// clean, while he is there and after he left.
func TestCheck_RootTenantsSystem(t *testing.T) {
	t.Parallel()
	store := dbtest.Store(t)
	n := dbtest.Node(t, store, dbtest.Active())
	asked := func(mode lifecycle.DecommissionMode) string {
		_, err := decommission.Check(t.Context(), store, decommission.Request{NodeID: n.ID, Mode: mode})
		if err == nil {
			return ""
		}
		refusal := intent.AsRefusal(err)
		require.NotNil(t, refusal, err)
		require.Equal(t, intent.Conflict, refusal.Kind)
		return refusal.Detail
	}
	keeping := []lifecycle.DecommissionMode{lifecycle.ModeSoftReset, lifecycle.ModeStorageCleanup}
	for _, mode := range keeping {
		require.Empty(t, asked(mode), "nobody was on it")
	}
	a := dbtest.Occupy(t, store, n.ID)
	for _, mode := range append(keeping, lifecycle.ModeReimage) {
		require.Contains(t, asked(mode), "release allocation "+a.ID)
	}
	require.Empty(t, asked(lifecycle.ModeFull))
	require.Empty(t, asked(lifecycle.ModeDrain))
	dbtest.EndTenancy(t, store, a.ID)
	for _, mode := range keeping {
		require.Contains(t, asked(mode), "use reimage or full_decommission")
	}
	require.Empty(t, asked(lifecycle.ModeReimage))
	require.NoError(t, dbtest.SetTenantRoot(t.Context(), store, false))
	for _, mode := range keeping {
		require.Empty(t, asked(mode), "he was not root")
	}
}

// TestCheck_RestoredDatabase: until the reconciler has asked MAAS and the agent, a database that
// was restored does not know whose a node is, and no mode starts that a root tenant's node must not
// get.
func TestCheck_RestoredDatabase(t *testing.T) {
	t.Parallel()
	store := dbtest.Store(t)
	n := dbtest.Node(t, store, dbtest.Active(), dbtest.At(dbtest.Site(t, store).ID))
	_, err := store.DBTX().Exec(t.Context(), `UPDATE nodes SET maas_system_id = 'abc123' WHERE id = $1`, n.ID)
	require.NoError(t, err)
	planned, err := store.PlanEndOfAccess(t.Context())
	require.NoError(t, err)
	_, err = store.EndRestoredAccess(t.Context(), planned.Hash)
	require.NoError(t, err)
	for mode, refused := range map[lifecycle.DecommissionMode]bool{
		lifecycle.ModeSoftReset: true, lifecycle.ModeStorageCleanup: true, lifecycle.ModeReimage: true, lifecycle.ModeFull: false, lifecycle.ModeDrain: false,
	} {
		_, err := decommission.Check(t.Context(), store, decommission.Request{NodeID: n.ID, Mode: mode})
		if !refused {
			require.NoError(t, err, mode)
			continue
		}
		refusal := intent.AsRefusal(err)
		require.NotNil(t, refusal, mode)
		require.Equal(t, intent.Conflict, refusal.Kind)
		require.Contains(t, refusal.Detail, "wait for the reconciler's next pass")
	}
}
