package db_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// TestDeleteRefusals_NameEachTable that can be in the way of what CheckDelete deletes.
func TestDeleteRefusals_NameEachTable(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	rows, err := s.DBTX().Query(t.Context(), `SELECT DISTINCT conrelid::regclass::text FROM pg_constraint
		WHERE contype = 'f' AND confdeltype NOT IN ('c', 'n') AND confrelid = ANY ($1::regclass[])`,
		[]string{"sites", "profiles", "skus", "bmcs", "install_workflows", "device_groups", "roce_assignments", "billing_accounts", "projects", "project_members", "clusters"})
	require.NoError(t, err)
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Contains(t, tables, "nodes")
	require.Empty(t, slices.DeleteFunc(tables, db.IsReferrer), "tables without words in db/referrers.go")
	n, sku := dbtest.Node(t, s), dbtest.SKU(t, s)
	require.NoError(t, dbtest.SetNodeSKU(t.Context(), s, n.ID, sku.ID))
	require.EqualError(t, s.DeleteSKU(t.Context(), sku.ID, sku.Version), "SKU "+sku.ID+" cannot be deleted: it is used by nodes; "+
		"the record of a node keeps it also after the node is deleted, so change it instead, or leave it unused")
}

func TestSitesProfilesAndSKUsAreChangedByVersion(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	ctx := t.Context()
	site, err := s.CreateSite(ctx, "ams1", spec.SiteSpec{MAASURL: "http://127.0.0.1/MAAS", SSHPort: 2222, Simulated: true})
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(site.ID, "site_"))
	require.Equal(t, 2222, site.Spec.SSHPort)
	var conflict *db.ConflictError
	_, err = s.CreateSite(ctx, "ams1", spec.SiteSpec{})
	require.ErrorAs(t, err, &conflict)
	require.Equal(t, site.ID, conflict.Existing)
	changed, err := s.UpdateSite(ctx, site.ID, site.Version, "ams2", spec.SiteSpec{Zone: "b"})
	require.NoError(t, err)
	require.Equal(t, site.Version+1, changed.Version)
	require.Equal(t, "b", changed.Spec.Zone)
	_, err = s.UpdateSite(ctx, site.ID, site.Version, "ams3", spec.SiteSpec{})
	require.ErrorIs(t, err, db.ErrStale)
	_, err = s.UpdateSite(ctx, "site_none", 1, "x", spec.SiteSpec{})
	require.ErrorIs(t, err, db.ErrNotFound)
	other := dbtest.Site(t, s)
	_, err = s.UpdateSite(ctx, other.ID, other.Version, "ams2", spec.SiteSpec{})
	require.ErrorAs(t, err, &conflict, "a rename to a taken name")

	p, err := s.CreateProfile(ctx, site.ID, "h200", spec.ProfileSpec{RequireHWSync: true}.WithDefaults())
	require.NoError(t, err)
	require.Equal(t, spec.ProfileSpec{RequireHWSync: true}.WithDefaults(), p.Spec)
	_, err = s.CreateProfile(ctx, site.ID, "h200", p.Spec)
	require.ErrorAs(t, err, &conflict)
	require.Equal(t, p.ID, conflict.Existing)
	_, err = s.CreateProfile(ctx, other.ID, "h200", p.Spec)
	require.NoError(t, err, "a name is one site's")
	_, err = s.CreateProfile(ctx, "site_none", "x", p.Spec)
	require.ErrorIs(t, err, db.ErrNotFound)
	p2, err := s.UpdateProfile(ctx, p.ID, p.Version, "h200-b", p.Spec)
	require.NoError(t, err)
	require.ErrorIs(t, s.DeleteProfile(ctx, p.ID, p.Version), db.ErrStale)
	require.ErrorAs(t, s.DeleteSite(ctx, site.ID, changed.Version), &conflict)
	require.Equal(t, "reference", conflict.What)
	require.Equal(t, "site "+site.ID+" cannot be deleted: it is used by profiles; delete those first", conflict.Message)
	require.NoError(t, s.DeleteProfile(ctx, p.ID, p2.Version))
	require.ErrorIs(t, s.DeleteProfile(ctx, p.ID, p2.Version), db.ErrNotFound)
	require.NoError(t, s.DeleteSite(ctx, site.ID, changed.Version))

	sku, err := s.CreateSKU(ctx, "8xH200", spec.SKUSpec{GPUs: 8})
	require.NoError(t, err)
	_, err = s.CreateSKU(ctx, "8xH200", spec.SKUSpec{})
	require.ErrorAs(t, err, &conflict)
	require.Equal(t, sku.ID, conflict.Existing)
	sku, err = s.UpdateSKU(ctx, sku.ID, sku.Version, "8xH200", spec.SKUSpec{GPUs: 8, RequireECC: true})
	require.NoError(t, err)
	require.True(t, sku.Spec.RequireECC)
	byName, err := s.SKUByName(ctx, "8xH200")
	require.NoError(t, err)
	require.Equal(t, sku, byName)
	require.NoError(t, s.DeleteSKU(ctx, sku.ID, sku.Version))
	skus, err := s.ListSKUs(ctx, "", 0)
	require.NoError(t, err)
	require.Empty(t, skus)
	profiles, err := s.ListProfiles(ctx, other.ID, "", 0)
	require.NoError(t, err)
	require.Len(t, profiles, 1)
}

func TestListsGoOnAfterTheLastID(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	for range 5 {
		dbtest.Site(t, s)
	}
	var seen []string
	for after := ""; ; after = seen[len(seen)-1] {
		rows, err := s.ListSites(t.Context(), after, 2)
		require.NoError(t, err)
		if len(rows) == 0 {
			break
		}
		for _, r := range rows {
			seen = append(seen, r.ID)
		}
	}
	require.Len(t, seen, 5)
	require.IsIncreasing(t, seen)
}

func TestNodesAreFoundByWhatIsKnownOfThem(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	ctx := t.Context()
	site := dbtest.Site(t, s)
	a := dbtest.Node(t, s, dbtest.At(site.ID), dbtest.Hostname("gpu-001"), dbtest.Active())
	b := dbtest.Node(t, s, dbtest.At(site.ID), dbtest.Hostname("gpu-002"))
	dbtest.Node(t, s, dbtest.Hostname("gpu-001"))
	require.NoError(t, s.SetNodeMachine(ctx, a.ID, db.NodeMachine{SystemID: "abc123", Serial: "SN-77", HardwareUUID: "4c4c4544-0042-3510-8054-b7c04f503031", MACs: []string{"52:54:00:aa:bb:cc"}}))
	for _, tc := range []struct {
		q    db.NodeFilter
		want []string
	}{
		{db.NodeFilter{SiteID: site.ID}, []string{a.ID, b.ID}},
		{db.NodeFilter{SiteID: site.ID, Q: "GPU-00"}, []string{a.ID, b.ID}},
		{db.NodeFilter{SiteID: site.ID, Hostname: "gpu-002"}, []string{b.ID}},
		{db.NodeFilter{SiteID: site.ID, Status: "active"}, []string{a.ID}},
		{db.NodeFilter{SiteID: site.ID, ExceptStatus: "active"}, []string{b.ID}},
		{db.NodeFilter{SiteID: site.ID, Statuses: []string{"active", "offline"}}, []string{a.ID}},
		{db.NodeFilter{IDs: []string{b.ID, a.ID, "node_none"}}, []string{a.ID, b.ID}},
		{db.NodeFilter{IDs: []string{b.ID, a.ID}, Status: "active"}, []string{a.ID}},
		{db.NodeFilter{SiteID: site.ID, SKUID: "sku_none"}, []string{}},
		{db.NodeFilter{SiteID: site.ID, Q: "sn-7"}, []string{a.ID}},
		{db.NodeFilter{SiteID: site.ID, Q: "abc123"}, []string{a.ID}},
		{db.NodeFilter{SiteID: site.ID, Q: "52:54:00:AA:BB:CC"}, []string{a.ID}},
		{db.NodeFilter{SiteID: site.ID, Q: b.ID}, []string{b.ID}},
		{db.NodeFilter{SiteID: site.ID, Q: "gpu_0%"}, []string{}},
		{db.NodeFilter{SiteID: site.ID, Q: "2"}, []string{b.ID}},
		{db.NodeFilter{SiteID: site.ID, Q: "n-"}, []string{a.ID}},
		{db.NodeFilter{SiteID: site.ID, Q: "gpu-01"}, []string{}}, // every piece of it is in gpu-001
		{db.NodeFilter{SiteID: site.ID, Q: "gpu-001", Hostname: "gpu-002"}, []string{}},
		{db.NodeFilter{SiteID: site.ID, Hostname: "gpu-00"}, []string{}},
		{db.NodeFilter{SiteID: site.ID, Q: "gpu", Status: "active"}, []string{a.ID}},
	} {
		q, want := tc.q, tc.want
		rows, err := s.ListNodes(ctx, q, "", 0)
		require.NoError(t, err)
		ids := []string{}
		for _, r := range rows {
			ids = append(ids, r.ID)
		}
		require.Equal(t, want, ids, "%+v", q)
	}
	got, err := s.LiveNodeOfMachine(ctx, site.ID, "abc123")
	require.NoError(t, err)
	require.Equal(t, "SN-77", got.Serial)
	var conflict *db.ConflictError
	require.ErrorAs(t, s.SetNodeMachine(ctx, b.ID, db.NodeMachine{SystemID: "abc123"}), &conflict)
	require.Equal(t, "maas_machine", conflict.What)
	require.NoError(t, s.SetNodeMachine(ctx, a.ID, db.NodeMachine{}), "untied, and what is empty stays")
	got, err = s.Node(ctx, a.ID)
	require.NoError(t, err)
	require.Nil(t, got.MAASSystemID)
	require.Equal(t, []string{"52:54:00:aa:bb:cc"}, got.MACs)
	require.ErrorIs(t, s.SetNodeMachine(ctx, "node_none", db.NodeMachine{}), db.ErrNotFound)
}

func TestADeletedNodeFreesItsHostname(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	site := dbtest.Site(t, s)
	old := dbtest.Node(t, s, dbtest.At(site.ID), dbtest.Hostname("gpu-001"), dbtest.Status(lifecycle.NodeDeleted))
	again := dbtest.Node(t, s, dbtest.At(site.ID), dbtest.Hostname("gpu-001"))
	require.NotEqual(t, old.ID, again.ID)
	live, err := s.LiveNodeOfHost(t.Context(), site.ID, "gpu-001")
	require.NoError(t, err)
	require.Equal(t, again.ID, live.ID)
}

func TestANodeIsChangedByVersion(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	n := dbtest.Node(t, s)
	sku := dbtest.SKU(t, s)
	update := func(version int64, p db.NodePatch) (out db.Node, err error) {
		err = s.Tx(t.Context(), func(tx *db.Tx) error {
			out, err = tx.UpdateNode(t.Context(), n.ID, version, p)
			return err
		})
		return out, err
	}
	got, err := update(n.Version, db.NodePatch{SKUID: &sku.ID, Labels: db.Labels{"rack": "7"}})
	require.NoError(t, err)
	require.Equal(t, sku.ID, *got.SKUID)
	require.Equal(t, db.Labels{"rack": "7"}, got.Labels)
	require.Equal(t, n.Hostname, got.Hostname)
	_, err = update(n.Version, db.NodePatch{})
	require.ErrorIs(t, err, db.ErrStale)
	taken := dbtest.Node(t, s, dbtest.At(n.SiteID)).Hostname
	_, err = update(got.Version, db.NodePatch{Hostname: &taken})
	var conflict *db.ConflictError
	require.ErrorAs(t, err, &conflict)

	for range 2 {
		require.NoError(t, s.SetNodeHostKey(t.Context(), n.ID, "ssh-ed25519 AAAA"))
		require.NoError(t, s.SetNodeAddresses(t.Context(), n.ID, db.NodeAddresses{Source: lifecycle.AddressesOfMAAS, IPs: []string{"10.0.0.5"}, SSH: "10.0.0.5:22"}))
		require.NoError(t, s.SetMAASCreateIntent(t.Context(), n.ID, "job_1"))
	}
	now, err := s.Node(t.Context(), n.ID)
	require.NoError(t, err)
	require.Equal(t, got.Version+2, now.Version, "a repetition changes nothing")
	require.Equal(t, []string{"10.0.0.5"}, now.IPAddresses)
	require.ErrorIs(t, s.SetNodeHostKey(t.Context(), "node_none", "x"), db.ErrNotFound)
}

func TestABMCKeepsItsPinAndItsBlock(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	ctx := t.Context()
	n := dbtest.Node(t, s)
	b, err := s.CreateBMC(ctx, db.NewBMC{NodeID: &n.ID, Address: "https://10.0.0.9", Protocol: "redfish", CredentialRef: "bmc/rack7"})
	require.NoError(t, err)
	var conflict *db.ConflictError
	_, err = s.CreateBMC(ctx, db.NewBMC{NodeID: &n.ID, Address: "https://10.0.0.8", Protocol: "redfish", CredentialRef: "bmc/rack7"})
	require.ErrorAs(t, err, &conflict)
	require.Equal(t, b.ID, conflict.Existing)
	_, err = s.CreateBMC(ctx, db.NewBMC{Address: "x", Protocol: "telnet", CredentialRef: "y"})
	require.ErrorIs(t, err, db.ErrInvalid)

	seen, approved := strings.Repeat("a", 64), strings.Repeat("b", 64)
	require.NoError(t, s.SetBMCPinPending(ctx, b.ID, seen))
	require.NoError(t, s.SetBMCPin(ctx, b.ID, approved))
	require.NoError(t, s.SetBMCPin(ctx, b.ID, approved))
	require.NoError(t, s.BlockBMCLogin(ctx, b.ID, "401"))
	require.NoError(t, s.BlockBMCLogin(ctx, b.ID, "locked"))
	require.NoError(t, s.SetBMCFacts(ctx, b.ID, "ACME", "System.1"))
	got, err := s.BMCOfNode(ctx, n.ID)
	require.NoError(t, err)
	require.Equal(t, approved, got.PinSHA256)
	require.Empty(t, got.PinPending)
	require.NotNil(t, got.AuthBlockedAt)
	require.Equal(t, "401", got.AuthBlockedReason, "the first reason stays")
	other, err := s.CreateBMC(ctx, db.NewBMC{Address: "10.0.0.9:623", Protocol: "ipmi", CredentialRef: "bmc/rack7"})
	require.NoError(t, err)
	for address, found := range map[string]int{
		"10.0.0.9": 2, "https://10.0.0.9:443/": 2, "10.0.0.9:8443": 0, "10.0.0.90": 0, "https://10.0.0.8": 0,
	} {
		known, err := s.BMCsAt(ctx, address)
		require.NoError(t, err)
		require.Len(t, known, found, address)
		if found == 2 {
			require.Equal(t, []string{b.ID, other.ID}, []string{known[0].ID, known[1].ID}, "the one with the block comes first")
		}
	}
	require.NoError(t, s.ClearBMCBlock(ctx, b.ID))
	require.NoError(t, s.ClearBMCBlock(ctx, b.ID))
	got, err = s.BMC(ctx, b.ID)
	require.NoError(t, err)
	require.Nil(t, got.AuthBlockedAt)
	got.Address = "https://10.0.0.10"
	moved, err := s.UpdateBMC(ctx, got)
	require.NoError(t, err)
	require.Equal(t, approved, moved.PinSHA256)
	_, err = s.UpdateBMC(ctx, got)
	require.ErrorIs(t, err, db.ErrStale)
	for _, call := range []error{
		s.SetBMCPin(ctx, "bmc_none", seen), s.BlockBMCLogin(ctx, "bmc_none", "x"), s.ClearBMCBlock(ctx, "bmc_none"), s.DeleteBMC(ctx, "bmc_none", 1),
	} {
		require.ErrorIs(t, call, db.ErrNotFound)
	}
	require.NoError(t, s.DeleteBMC(ctx, b.ID, moved.Version))
}

func TestRoCEPortsAreKeptByHost(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	ctx := t.Context()
	site := dbtest.Site(t, s)
	_, err := s.RoCEAssignment(ctx, site.ID, "gpu-001")
	require.ErrorIs(t, err, db.ErrNotFound)
	ports := []spec.RoCEPort{{Interface: "52:54:00:aa:bb:cc", MTU: 9000, SubnetCIDR: "10.1.0.0/24", IP: "10.1.0.7", Tags: []string{"roce"}}}
	a, err := s.CreateRoCEAssignment(ctx, site.ID, "gpu-001", ports)
	require.NoError(t, err)
	got, err := s.RoCEAssignment(ctx, site.ID, "gpu-001")
	require.NoError(t, err)
	require.Equal(t, ports, got)
	var conflict *db.ConflictError
	_, err = s.CreateRoCEAssignment(ctx, site.ID, "gpu-001", nil)
	require.ErrorAs(t, err, &conflict)
	require.Equal(t, a.ID, conflict.Existing)
	b, err := s.UpdateRoCEAssignment(ctx, a.ID, a.Version, nil)
	require.NoError(t, err)
	require.Empty(t, b.Spec)
	require.ErrorIs(t, s.DeleteRoCEAssignment(ctx, a.ID, a.Version), db.ErrStale)
	list, err := s.ListRoCEAssignments(ctx, site.ID, "", 0)
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.NoError(t, s.DeleteRoCEAssignment(ctx, a.ID, b.Version))
}

func TestSecretVersions(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	ctx := t.Context()
	put := func(value string) int {
		v, err := s.PutSecretVersion(ctx, "bmc/rack7", "awskms://x", []byte("sealed "+value), hashOf(value))
		require.NoError(t, err)
		return v
	}
	require.Equal(t, []int{1, 1, 2, 2, 3}, []int{put("a"), put("a"), put("b"), put("b"), put("a")}, "only the newest is compared")
	for asked, want := range map[int]string{0: "3 sealed a", 1: "1 sealed a", 2: "2 sealed b"} {
		version, keeper, sealed, found, err := s.SecretVersion(ctx, "bmc/rack7", asked)
		require.NoError(t, err)
		require.True(t, found)
		require.Equal(t, "awskms://x", keeper)
		require.Equal(t, want, fmt.Sprintf("%d %s", version, sealed))
	}
	_, _, _, found, err := s.SecretVersion(ctx, "bmc/rack7", 9)
	require.NoError(t, err)
	require.False(t, found)
	for range 2 {
		require.NoError(t, s.DeleteSecret(ctx, "bmc/rack7"))
	}
	_, _, _, found, err = s.SecretVersion(ctx, "bmc/rack7", 0)
	require.NoError(t, err)
	require.False(t, found)
}

func TestSecretsPutAtOnceGetDifferentVersions(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	versions := make(chan int, 8)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			v, err := s.PutSecretVersion(t.Context(), "name", "k", []byte{byte(i)}, hashOf(fmt.Sprint(i)))
			if err != nil {
				t.Error(err)
			}
			versions <- v
		})
	}
	wg.Wait()
	close(versions)
	var got []int
	for v := range versions {
		got = append(got, v)
	}
	require.ElementsMatch(t, []int{1, 2, 3, 4, 5, 6, 7, 8}, got)
}
