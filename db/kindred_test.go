package db_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

const (
	amiUUID = "03000200-0400-0500-0006-000700080009"
	oneUUID = "4c4c4544-0042-3510-8054-b7c04f503031"
)

// fleet is a site whose nodes come and go.
type fleet struct {
	t     testing.TB
	s     *db.Store
	owner *pgx.Conn
	site  db.Site
	nodes int
}

func newFleet(t testing.TB) *fleet {
	t.Helper()
	dsn := dbtest.Database(t)
	s := dbtest.Open(t, dsn)
	return &fleet{t: t, s: s, owner: dbtest.Owner(t, dsn), site: dbtest.Site(t, s)}
}

// onboard makes a node of a machine.
func (f *fleet) onboard(m db.NodeMachine, opts ...dbtest.Option) db.Node {
	f.t.Helper()
	f.nodes++
	m.SystemID = fmt.Sprintf("m%05d", f.nodes)
	of := []dbtest.Option{dbtest.Status(lifecycle.NodeQuarantined), dbtest.At(f.site.ID), dbtest.Hostname(fmt.Sprintf("gpu-%d", f.nodes))}
	n := dbtest.Node(f.t, f.s, append(of, opts...)...)
	require.NoError(f.t, f.s.SetNodeMachine(f.t.Context(), n.ID, m))
	return f.read(n.ID)
}

func (f *fleet) read(id string) db.Node {
	f.t.Helper()
	n, err := f.s.Node(f.t.Context(), id)
	require.NoError(f.t, err)
	return n
}

// leave deletes a node whose tenant left just now, without a proof.
func (f *fleet) leave(id string) {
	f.t.Helper()
	_, err := f.owner.Exec(f.t.Context(), "UPDATE nodes SET tenant_left_at = clock_timestamp(), maas_system_id = NULL WHERE id = $1", id)
	require.NoError(f.t, err)
	dbtest.MoveNode(f.t, f.s, id, lifecycle.NodeDeleted)
}

func (f *fleet) conflict(n db.Node) *db.Conflict {
	f.t.Helper()
	c, err := f.s.IdentityConflict(f.t.Context(), n, nil)
	require.NoError(f.t, err)
	return c
}

// TestTenantLeft_WeakKeys lets a machine that a tenant left come back while another machine with a
// weak key in common was proven clean, and lets a third one come fresh from the factory.
func TestTenantLeft_WeakKeys(t *testing.T) {
	t.Parallel()
	for name, k := range map[string][3]db.NodeMachine{
		"own keys":       {{Serial: "SN-1", HardwareUUID: oneUUID}, {Serial: "SN-2", HardwareUUID: "4c4c4544-0042-3510-8054-b7c04f503032"}, {Serial: "SN-3"}},
		"zeros":          {{Serial: "SN-1", HardwareUUID: "00000000-0000-0000-0000-000000000000"}, {Serial: "SN-2", HardwareUUID: "00000000-0000-0000-0000-000000000000"}, {Serial: "SN-3", HardwareUUID: "00000000-0000-0000-0000-000000000000"}},
		"AMI":            {{Serial: "SN-1", HardwareUUID: amiUUID}, {Serial: "SN-2", HardwareUUID: amiUUID}, {Serial: "SN-3", HardwareUUID: "00020003-0004-0005-0006-000700080009"}},
		"filler serial":  {{Serial: "NA", HardwareUUID: oneUUID}, {Serial: "NA"}, {Serial: "To be filled by O.E.M"}},
		"equal UUIDs":    {{Serial: "SN-1", HardwareUUID: oneUUID}, {Serial: "SN-2", HardwareUUID: oneUUID}, {Serial: "SN-3", HardwareUUID: "44454c4c-4200-1035-8054-b7c04f503031"}},
		"equal serials":  {{Serial: "SN-1", HardwareUUID: oneUUID}, {Serial: "SN-1"}, {Serial: "SN-1", HardwareUUID: "4c4c4544-0042-3510-8054-b7c04f503033"}},
		"equal in both":  {{Serial: "SN-1", HardwareUUID: oneUUID}, {Serial: "SN-1", HardwareUUID: oneUUID}, {Serial: "SN-1", HardwareUUID: oneUUID}},
		"no serial, MAC": {{HardwareUUID: oneUUID}, {}, {}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			for i := range k {
				k[i].MACs = []string{fmt.Sprintf("52:54:00:00:00:0%d", i+1)}
			}
			dirty := f.onboard(k[0], dbtest.Active())
			clean := f.onboard(k[1], dbtest.Active())
			f.leave(dirty.ID)
			dbtest.Certificate(t, f.s, clean.ID, "clean", time.Now())
			fresh := f.onboard(k[2])
			require.Nil(t, fresh.TenantLeftAt, "no tenant ever had this machine")
			swapped := k[0]
			if u, ok := spec.SwappedUUID(swapped.HardwareUUID); ok {
				swapped.HardwareUUID = u
			}
			back := f.onboard(swapped)
			require.NotNil(t, back.TenantLeftAt, "what the tenant left is still on this machine")
			require.True(t, back.TenantLeftAt.Equal(*f.read(dirty.ID).TenantLeftAt))

			dbtest.Certificate(t, f.s, back.ID, "clean", time.Now())
			dbtest.MoveNode(t, f.s, back.ID, lifecycle.NodeDeleted)
			again := f.onboard(k[0])
			require.Nil(t, again.TenantLeftAt, "its own certificate proves it clean")
		})
	}
}

// TestTenantLeft_RecordBeingRemoved: a machine comes back as another node before the record that a
// tenant left is deleted, when that is tied to no machine any more.
func TestTenantLeft_RecordBeingRemoved(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	m := db.NodeMachine{Serial: "SN-1", HardwareUUID: oneUUID, MACs: []string{"52:54:00:00:00:01"}}
	old := f.onboard(m, dbtest.Status(lifecycle.NodeRemoving))
	_, err := f.owner.Exec(t.Context(), "UPDATE nodes SET tenant_left_at = clock_timestamp(), maas_system_id = NULL WHERE id = $1", old.ID)
	require.NoError(t, err)
	back := f.onboard(m)
	require.NotNil(t, back.TenantLeftAt, "what the tenant left is still on this machine")
	like := f.onboard(db.NodeMachine{Serial: "SN-1", MACs: []string{"52:54:00:00:00:02"}})
	require.NotNil(t, f.conflict(like), "it may be that machine")
}

// TestTenantLeft_MarkDuringScrub: a certificate proves nothing of a tenant who left after its scrub
// had begun.
func TestTenantLeft_MarkDuringScrub(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	m := db.NodeMachine{Serial: "SN-1", HardwareUUID: oneUUID, MACs: []string{"52:54:00:00:00:01"}}
	old := f.onboard(m, dbtest.Active())
	f.leave(old.ID)
	left := *f.read(old.ID).TenantLeftAt
	dbtest.Certificate(t, f.s, old.ID, "clean", left.Add(time.Minute), left.Add(-time.Minute))
	back := f.onboard(m)
	require.NotNil(t, back.TenantLeftAt)
	dbtest.Certificate(t, f.s, back.ID, "clean", left.Add(3*time.Minute), left.Add(2*time.Minute))
	dbtest.MoveNode(t, f.s, back.ID, lifecycle.NodeDeleted)
	require.Nil(t, f.onboard(m).TenantLeftAt)
}

// TestIdentityConflict_Table names which shared key keeps which node from being claimed.
func TestIdentityConflict_Table(t *testing.T) {
	t.Parallel()
	first := db.NodeMachine{Serial: "SN-1", HardwareUUID: oneUUID, MACs: []string{"52:54:00:00:00:01"}}
	for name, c := range map[string]struct {
		is       db.NodeMachine
		conflict bool
		marked   bool
	}{
		"another machine":                {is: db.NodeMachine{Serial: "SN-2", MACs: []string{"52:54:00:00:00:02"}}},
		"fillers":                        {is: db.NodeMachine{Serial: "0123456789", HardwareUUID: amiUUID, MACs: []string{"52:54:00:00:00:02"}}},
		"same serial, other UUID":        {is: db.NodeMachine{Serial: "sn-1", HardwareUUID: "4c4c4544-0042-3510-8054-b7c04f503032", MACs: []string{"52:54:00:00:00:02"}}, conflict: true},
		"same UUID, other serial":        {is: db.NodeMachine{Serial: "SN-2", HardwareUUID: "44454C4C-4200-1035-8054-B7C04F503031", MACs: []string{"52:54:00:00:00:02"}}, conflict: true},
		"MACs of one, serial of another": {is: db.NodeMachine{Serial: "SN-2", MACs: first.MACs}, conflict: true},
		"one key alone":                  {is: db.NodeMachine{Serial: "SN-1"}, conflict: true},
		"all keys":                       {is: first, conflict: true, marked: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			old := f.onboard(first, dbtest.Active())
			now := f.onboard(c.is)
			require.Equal(t, c.conflict, f.conflict(now) != nil, "beside a node in service")
			require.Nil(t, f.conflict(f.read(old.ID)), "the one that came first goes on")
			require.Nil(t, now.TenantLeftAt)

			f.leave(old.ID)
			now = f.onboard(c.is)
			require.Equal(t, c.marked, now.TenantLeftAt != nil)
			if c.marked {
				return
			}
			dbtest.Certificate(t, f.s, now.ID, "clean", time.Now())
			if got := f.conflict(f.read(now.ID)); got != nil {
				require.NotEqual(t, old.ID, got.Other.ID, "a certificate of the node itself settles what a tenant may have left on it")
			}
		})
	}
}

// TestTenantLeft_GeneratedMachines lets machines that share fillers, serial numbers, UUIDs and byte
// orders come, be left by tenants, be proven clean and come back. Each has network cards of its
// own, so that the test knows which is which. No node is marked for another machine's tenant, and
// none that a tenant left is neither marked nor in conflict.
func TestTenantLeft_GeneratedMachines(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	round := 0
	rapid.Check(t, func(rt *rapid.T) {
		round++
		serials := []string{"", "NA", "To be filled by O.E.M.", "00000000", fmt.Sprintf("SN-%d-A", round), fmt.Sprintf("SN-%d-B", round)}
		a, b := fmt.Sprintf("4c4c4544-0042-3510-8054-%012x", round), fmt.Sprintf("5c4c4544-0042-3510-8054-%012x", round)
		swapped, _ := spec.SwappedUUID(a)
		uuids := []string{"", amiUUID, "00020003-0004-0005-0006-000700080009", "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF", a, swapped, b}
		machines := make([]db.NodeMachine, rapid.IntRange(2, 3).Draw(rt, "machines"))
		for i := range machines {
			machines[i] = db.NodeMachine{
				Serial: rapid.SampledFrom(serials).Draw(rt, "serial"), HardwareUUID: rapid.SampledFrom(uuids).Draw(rt, "uuid"),
				MACs: []string{fmt.Sprintf("52:54:%02x:%02x:00:%02x", round>>8, round&255, i)},
			}
		}
		dirty := make([]bool, len(machines))
		live := make([]string, len(machines))
		for range rapid.IntRange(2, 6).Draw(rt, "steps") {
			i := rapid.IntRange(0, len(machines)-1).Draw(rt, "machine")
			switch {
			case live[i] == "":
				n := f.onboard(machines[i])
				live[i] = n.ID
				if dirty[i] {
					require.True(rt, n.TenantLeftAt != nil || f.conflict(n) != nil, "a tenant left machine %d", i)
				} else {
					require.Nil(rt, n.TenantLeftAt, "no tenant left machine %d", i)
				}
			case rapid.Bool().Draw(rt, "proven"):
				dbtest.Certificate(t, f.s, live[i], "clean", time.Now())
				in(t, f.s, func(tx *db.Tx) error { return tx.MarkSanitized(t.Context(), live[i], time.Now().Add(time.Second)) })
				dirty[i] = false
			default:
				f.leave(live[i])
				live[i], dirty[i] = "", true
			}
		}
	})
}
