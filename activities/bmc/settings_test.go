package bmc_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	bmcact "github.com/slipway-cloud/slipway/activities/bmc"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	allocationdb "github.com/slipway-cloud/slipway/db/allocation"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
	simhw "github.com/slipway-cloud/slipway/sim/hw"
)

// TestSettings_OfTheClaimAreComparedAtTheRelease: what root changed in the BMC is named, also when
// the snapshot would be kept once more.
func TestSettings_OfTheClaimAreComparedAtTheRelease(t *testing.T) {
	t.Parallel()
	l := newLab(t, "Dell", 1, nil)
	in := l.claim()
	l.hw.AddBMCLogin("ADMIN", "Pass-12345678")
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
	require.Equal(t, []string{"ADMIN"}, same.OtherAccounts, "nothing shows whether its password is that of before")

	l.hw.SetBootOverride(simhw.Override{Target: "Pxe", Enabled: "Continuous"})
	_, err = l.acts.KeepSettings(t.Context(), in)
	require.NoError(t, err)
	changed, err := l.acts.CompareSettings(t.Context(), in)
	require.NoError(t, err)
	require.False(t, changed.Done)
	require.Len(t, changed.Changed, 1)
	require.True(t, strings.HasPrefix(changed.Changed[0], "boot/override was "), changed.Changed[0])
}

// TestCompareSettings_TenantWithoutAccess: a tenant who gave the node back before he had access
// changed nothing, so that the missing snapshot keeps nobody from the node.
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

// TestCompareFormerSettings_MachineThatComesBack: a machine whose record was decommissioned after a
// tenant who was root is a new node, and its BMC is compared with what was kept of the old one.
func TestCompareFormerSettings_MachineThatComesBack(t *testing.T) {
	t.Parallel()
	l := newLab(t, "Dell", 1, nil)
	identified, err := l.acts.ResolvePowerCredentials(t.Context(), bmcact.ResolveIn{JobRef: contract.JobRef{JobID: "job_back"}, BMCID: l.bmcID})
	require.NoError(t, err)
	require.NotEmpty(t, identified.Serial)
	former, back := dbtest.Node(t, l.truth, dbtest.Active()), dbtest.Node(t, l.truth)
	in := bmcact.FormerIn{JobRef: contract.JobRef{JobID: "job_back", NodeID: back.ID}, BMC: identified}
	compare := func() contract.SettingsFacts {
		f, err := l.acts.CompareFormerSettings(t.Context(), in)
		require.NoError(t, err)
		return f
	}
	tenant := dbtest.Occupy(t, l.truth, former.ID)
	_, err = l.acts.KeepSettings(t.Context(), bmcact.SettingsIn{
		AllocationRef: contract.AllocationRef{JobRef: contract.JobRef{JobID: "job_kept", NodeID: former.ID}, AllocationID: tenant.ID}, BMCID: l.bmcID,
	})
	require.NoError(t, err)
	_, err = l.truth.DBTX().Exec(t.Context(), "UPDATE nodes SET tenant_left_at = now() - interval '1 minute', allocation_id = NULL WHERE id = $1", former.ID)
	require.NoError(t, err)
	before := l.hw.BootOverride()
	l.hw.SetBootOverride(simhw.Override{Target: "Pxe", Enabled: "Continuous"})
	require.Zero(t, compare().Count, "another machine's record is not asked")

	require.NoError(t, l.truth.SetNodeMachine(t.Context(), former.ID, db.NodeMachine{MACs: []string{strings.ToLower(identified.MACs[0])}}))
	require.Zero(t, compare().Count, "a record in service is another machine's, and keeps its mark")
	dbtest.MoveNode(t, l.truth, former.ID, lifecycle.NodeDeleted)
	changed := compare()
	require.Len(t, changed.Changed, 1, "the serial number is one that root could write, and the MAC address finds it")
	require.True(t, strings.HasPrefix(changed.Changed[0], "boot/override was "), changed.Changed[0])

	l.hw.SetBootOverride(before)
	require.NoError(t, l.truth.SetNodeMachine(t.Context(), former.ID, db.NodeMachine{Serial: identified.Serial, MACs: []string{"52:54:00:00:00:01"}}))
	same := compare()
	require.True(t, same.Done, "%v", same.Changed)
	require.Greater(t, same.Count, 5)
	require.Equal(t, former.ID, same.FormerNode)
	n, err := l.truth.Node(t.Context(), former.ID)
	require.NoError(t, err)
	require.NotNil(t, n.TenantLeftAt, "the BMC has the password that its tenant could have learnt")
	in.Rotated = true
	require.Empty(t, compare().FormerNode)
	n, err = l.truth.Node(t.Context(), former.ID)
	require.NoError(t, err)
	require.NotNil(t, n.TenantLeftAt, "a record with the serial number of one machine and the cards of another is not proven to be this machine")
	keys := db.NodeMachine{Serial: identified.Serial, MACs: []string{strings.ToLower(identified.MACs[0])}}
	require.NoError(t, l.truth.SetNodeMachine(t.Context(), former.ID, keys))
	require.Empty(t, compare().FormerNode)
	marked := func(id string) bool {
		n, err := l.truth.Node(t.Context(), id)
		require.NoError(t, err)
		return n.TenantLeftAt != nil
	}
	require.True(t, marked(former.ID), "it was removed without an erasure: the BMC says nothing of the disks")

	// The mark is that of the machine's next node, which is erased from outside and removed.
	between := dbtest.Node(t, l.truth)
	require.NoError(t, l.truth.SetNodeMachine(t.Context(), between.ID, keys))
	require.True(t, marked(between.ID))
	for _, to := range []lifecycle.NodeStatus{lifecycle.NodeQuarantined, lifecycle.NodeRetired, lifecycle.NodeDeleted} { // not by way of active
		dbtest.MoveNode(t, l.truth, between.ID, to)
	}
	certify := func(verified bool) {
		id := dbtest.Certificate(t, l.truth, former.ID, "clean", time.Unix(0, 0)) // long before the tenant; it makes the signing key
		_, err := l.truth.DBTX().Exec(t.Context(), `INSERT INTO certificates (id, node_id, run_id, sequence, verdict, simulated, payload, hash, previous_hash, key_id, signature, issued_at)
			SELECT 'cert_of_' || e.id, $2::text, 'r', 1 + n.had, 'not_verified', true, convert_to(format(
			'{"devices": [{"kind": "gpu", "verified": false}, {"kind": "disk", "verified": true}, {"kind": "disk", "verified": %s}]}', $3::boolean::text), 'UTF8'),
			encode(sha256(e.id::bytea), 'hex'), CASE n.had WHEN 0 THEN '' ELSE repeat('0', 64) END, e.key_id, e.signature, now()
			FROM certificates e, (SELECT count(*) AS had FROM certificates WHERE node_id = $2::text) n WHERE e.id = $1`, id, between.ID, verified)
		require.NoError(t, err)
	}
	certify(false)
	compare()
	require.True(t, marked(former.ID), "a disk is not proven")
	certify(true)
	require.Empty(t, compare().FormerNode)
	require.False(t, marked(former.ID), "it was proven, so that the next firmware is nobody's business")
	require.False(t, marked(between.ID))
	require.Zero(t, compare().Count)
	require.NoError(t, l.truth.SetNodeMachine(t.Context(), back.ID, keys))
	require.False(t, marked(back.ID))
}
