package bmc_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	bmcact "github.com/slipway-cloud/slipway/activities/bmc"
	"github.com/slipway-cloud/slipway/db"
	allocationdb "github.com/slipway-cloud/slipway/db/allocation"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
	simhw "github.com/slipway-cloud/slipway/sim/hw"
	"github.com/slipway-cloud/slipway/workflows/contract"
)

// TestSettings_OfTheClaimAreComparedAtTheRelease: what root changed in the BMC is named, also when the
// snapshot would be kept once more.
func TestSettings_OfTheClaimAreComparedAtTheRelease(t *testing.T) {
	t.Parallel()
	l := newLab(t, "Dell", 1, nil)
	node := dbtest.Node(t, l.truth)
	tenant := dbtest.Occupy(t, l.truth, node.ID)
	in := bmcact.SettingsIn{
		AllocationRef: contract.AllocationRef{JobRef: contract.JobRef{JobID: "job_settings", NodeID: node.ID}, AllocationID: tenant.ID}, BMCID: l.bmcID,
	}
	_, err := l.acts.CompareSettings(t.Context(), in)
	requireClass(t, err, lifecycle.FailFirmwareChanged)
	off, err := l.acts.DisableHostInterfaces(t.Context(), in)
	require.NoError(t, err)
	require.Equal(t, "1 host interfaces are off", off.Note)
	kept, err := l.acts.KeepSettings(t.Context(), in)
	require.NoError(t, err)
	require.Greater(t, kept.Count, 5)
	same, err := l.acts.CompareSettings(t.Context(), in)
	require.NoError(t, err)
	require.True(t, same.Done, "%v", same.Changed)

	l.hw.SetBootOverride(simhw.Override{Target: "Pxe", Enabled: "Continuous"})
	_, err = l.acts.KeepSettings(t.Context(), in)
	require.NoError(t, err)
	changed, err := l.acts.CompareSettings(t.Context(), in)
	require.NoError(t, err)
	require.False(t, changed.Done)
	require.Len(t, changed.Changed, 1)
	require.True(t, strings.HasPrefix(changed.Changed[0], "boot/override was "), changed.Changed[0])
}

// TestCompareSettings_TenantWithoutAccess: a tenant who gave the node back before he had access changed
// nothing, so that the missing snapshot keeps nobody from the node.
func TestCompareSettings_TenantWithoutAccess(t *testing.T) {
	t.Parallel()
	l := newLab(t, "Dell", 1, nil)
	var a allocationdb.Allocation
	project, sku := dbtest.Project(t, l.truth), dbtest.SKU(t, l.truth)
	require.NoError(t, l.truth.Tx(t.Context(), func(tx *db.Tx) (err error) {
		a, err = allocationdb.Create(t.Context(), tx, allocationdb.New{ProjectID: project.ID, SKUID: sku.ID, RequestedBy: "test", Actor: db.Actor{Owner: lifecycle.OwnerAdmin}})
		return err
	}))
	f, err := l.acts.CompareSettings(t.Context(), bmcact.SettingsIn{AllocationRef: contract.AllocationRef{AllocationID: a.ID}, BMCID: l.bmcID})
	require.NoError(t, err)
	require.True(t, f.Done)
	require.Empty(t, f.Changed)
}
