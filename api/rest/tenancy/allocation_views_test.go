package tenancy_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/rest/tenancy"
	"github.com/slipway-cloud/slipway/db"
	allocationdb "github.com/slipway-cloud/slipway/db/allocation"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// TestAllocation_ShowsWhereAndWhat reads what large tenants ask of each allocation: where it is,
// its network, which is never empty, what is installed, and, after its end, when that was and by
// which certificate, in the list as in the answer for one.
func TestAllocation_ShowsWhereAndWhat(t *testing.T) {
	t.Parallel()
	m := newMarket(t)
	both := func(id string) tenancy.Allocation {
		t.Helper()
		var one tenancy.Allocation
		m.do(m.owner, "GET", m.base+"/"+id, nil).want(http.StatusOK).at(t, &one)
		require.NotEmpty(t, one.Network.ID)
		require.NotEmpty(t, one.Network.Kind)
		listed := list[tenancy.Allocation](t, m.do(m.owner, "GET", m.base, nil))
		require.Len(t, listed, 1)
		one.SSHKeys = nil // which lists leave out
		require.Equal(t, one, listed[0])
		return one
	}
	id := m.create(map[string]any{"wait_seconds": 600})
	got := both(id)
	require.Equal(t, tenancy.AllocationNetwork{ID: "pending", Kind: "shared_network"}, got.Network)
	require.Equal(t, tenancy.AllocationTopology{}, got.Topology)
	require.Nil(t, got.Image)

	node := m.freeNode()
	m.exec(`UPDATE nodes SET labels = '{"rack": "r7", "group": "blue", "owner": "not for tenants"}' WHERE id = $1`, node.ID)
	m.tx(func(tx *db.Tx) error {
		_, found, err := allocationdb.Claim(t.Context(), tx, id, job)
		require.True(t, found)
		return err
	})
	got = both(id)
	require.Equal(t, tenancy.AllocationTopology{SiteID: m.site.ID, Site: "south", Rack: "r7", Group: "blue"}, got.Topology)
	require.Equal(t, tenancy.AllocationNetwork{ID: m.site.ID, Kind: "shared_network"}, got.Network)
	network := allocationdb.Network{ID: "vlan-12", Kind: "dedicated_network", CIDR: "10.4.0.0/24"}
	m.tx(func(tx *db.Tx) error { return allocationdb.SetNetwork(t.Context(), tx, id, network) })
	installed := time.Date(2026, 11, 1, 10, 0, 0, 0, time.UTC)
	image := allocationdb.Image{ID: "ubuntu/jammy", Name: "Ubuntu 22.04", Version: "20261030", InstalledAt: installed}
	m.tx(func(tx *db.Tx) error {
		_, err := allocationdb.Activate(t.Context(), tx, id, allocationdb.Connection{Host: "127.0.0.9", Port: 22}, image, job)
		return err
	})
	got = both(id)
	require.Equal(t, tenancy.AllocationNetwork(network), got.Network)
	require.Equal(t, tenancy.AllocationImage{ID: "ubuntu/jammy", Name: "Ubuntu 22.04", Version: "20261030", InstalledAt: installed}, *got.Image)
	require.Nil(t, got.ReleasedAt)

	m.tx(func(tx *db.Tx) error {
		_, err := allocationdb.MoveTo(t.Context(), tx, allocationdb.Move{ID: id, To: lifecycle.AllocationRelease, Actor: db.Actor{Owner: lifecycle.OwnerCustomer, ID: "oidc:ada"}})
		return err
	})
	require.NoError(t, allocationdb.EndAccess(t.Context(), m.store, id, lifecycle.AccessRevoked))
	certificate := dbtest.Certificate(t, m.store, node.ID, "clean", time.Now().Add(time.Minute))
	m.tx(func(tx *db.Tx) error {
		_, err := allocationdb.Free(t.Context(), tx, id, lifecycle.OutcomeReleased, certificate, job)
		return err
	})
	m.exec(`UPDATE nodes SET labels = '{"rack": "r8", "group": "of the next tenant"}' WHERE id = $1`, node.ID)
	require.Equal(t, tenancy.AllocationTopology{SiteID: m.site.ID, Site: "south"}, both(id).Topology, "where the node is now is the next tenant's")
	m.exec("UPDATE allocations SET released_at = released_at - interval '89 days' WHERE id = $1", id)
	got = both(id)
	require.Equal(t, []string{"released", "terminated", certificate, lifecycle.AccessRevoked}, []string{string(got.Status), got.State, got.CertificateID, got.Access})
	require.WithinDuration(t, time.Now().Add(-89*24*time.Hour), *got.ReleasedAt, time.Hour)
	require.Equal(t, image.ID, got.Image.ID)
	require.Equal(t, tenancy.AllocationNetwork(network), got.Network)
}

// TestAllocation_Tags: 50 at most, at the request and afterwards; keys keep their case, and lists
// find by any of them.
func TestAllocation_Tags(t *testing.T) {
	t.Parallel()
	m := newMarket(t)
	m.freeNode()
	tags := func(n int) map[string]string {
		out := map[string]string{}
		for i := range n {
			out[fmt.Sprintf("Key-%d", i)] = fmt.Sprint("v", i)
		}
		return out
	}
	m.do(m.owner, "POST", m.base, m.request(map[string]any{"tags": tags(51)})).want(http.StatusUnprocessableEntity)
	id := m.create(map[string]any{"tags": tags(50)})
	require.Equal(t, tags(50), m.read(id).Tags)
	m.do(m.owner, "PATCH", m.base+"/"+id, map[string]any{"tags": tags(51)}).want(http.StatusUnprocessableEntity)
	for tag, found := range map[string]int{"Key-49=v49": 1, "key-49=v49": 0, "Key-49=V49": 0, "Key-49=": 0} {
		require.Len(t, list[tenancy.Allocation](t, m.do(m.owner, "GET", m.base+"?tag="+tag, nil)), found, tag)
	}
	require.Len(t, list[tenancy.Allocation](t, m.do(m.owner, "GET", m.base+"?tag=Key-1=v1&tag=Key-2=v2", nil)), 1)
	require.Empty(t, list[tenancy.Allocation](t, m.do(m.owner, "GET", m.base+"?tag=Key-1=v1&tag=Key-2=v1", nil)))
}

// TestBilling_OtherCurrencies: price, hold, ledger, statement and notices of an account are in its
// currency, with the digits of that; a price in another one is none.
func TestBilling_OtherCurrencies(t *testing.T) {
	t.Parallel()
	m := newMarket(t)
	m.setPrice(1993)
	for currency, want := range map[string]struct{ hour, total string }{"JPY": {"1993 JPY", "5000"}, "KWD": {"1.993 KWD", "5.000"}} {
		account := m.do(m.admin, "POST", "/admin/billing-accounts", map[string]any{"name": "in-" + currency, "currency": currency}).want(http.StatusCreated).field("id")
		project := m.do(m.admin, "POST", "/admin/projects", map[string]any{
			"billing_account_id": account, "name": "in-" + currency, "owner_email": "alpha-owner@example.com",
		}).want(http.StatusCreated).field("id")
		m.accept(m.owner)
		at := "/projects/" + project
		m.do(m.owner, "POST", at+"/ssh-keys", map[string]any{"name": "key", "public_key": publicKey(t)}).want(http.StatusCreated)
		m.do(m.admin, "PUT", "/admin"+at+"/quotas/total", map[string]any{"max_nodes": 8, "reason": "asked"}).want(http.StatusOK)
		adjust := map[string]any{"billing_account_id": account, "project_id": project, "amount_minor": 1000, "reason": "paid by invoice 17"}
		m.do(m.admin, "POST", "/admin/adjustments", adjust).want(http.StatusCreated)
		m.freeNode()
		body := m.request(nil)
		ask := func(status int) answer { return m.do(m.owner, "POST", at+"/allocations", body).want(status) }
		require.Contains(t, string(ask(http.StatusConflict).raw), "has no price in "+currency)
		m.setPriceIn(currency, 1993)
		require.Contains(t, string(ask(http.StatusConflict).raw), "node costs "+want.hour+" an hour")
		adjust["amount_minor"] = 4000
		m.do(m.admin, "POST", "/admin/adjustments", adjust).want(http.StatusCreated)
		ask(http.StatusAccepted)

		var b tenancy.Balance
		m.do(m.owner, "GET", at+"/balance", nil).want(http.StatusOK).at(t, &b)
		require.Equal(t, []any{currency, int64(5000), int64(1993), int64(3007)}, []any{b.Currency, b.BalanceMinor, b.HeldMinor, b.AvailableMinor})
		require.Equal(t, map[string]int64{"JPY": 10, "KWD": 10_000}[currency], b.Thresholds.LowMinor, "ten whole units")
		require.Equal(t, map[string]lifecycle.BalanceState{"JPY": lifecycle.BalanceHealthy, "KWD": lifecycle.BalanceLow}[currency], b.State)
		text := string(m.do(m.owner, "GET", at+"/statements/"+time.Now().UTC().Format("2006-01")+"?format=csv", nil).want(http.StatusOK).raw)
		require.Regexp(t, ",2,"+want.total+","+currency+`,\s*$`, text)
		m.do(m.owner, "POST", at+"/payments/checkout-session", map[string]any{
			"amount_minor": 10_000, "success_url": returnURL, "cancel_url": returnURL,
		}).want(http.StatusCreated)
		for _, table := range []string{"balance_holds", "usage_records", "ledger_accounts", "ledger_transactions", "payment_sessions"} {
			m.refusesEuro(table, account)
		}
	}
}

// refusesEuro: what a table has of a billing account carries its currency, whoever writes to it.
func (m *market) refusesEuro(table, account string) {
	m.t.Helper()
	owner := dbtest.Owner(m.t, m.dsn)
	var n int
	require.NoError(m.t, owner.QueryRow(m.t.Context(), "SELECT count(*) FROM "+table+" WHERE billing_account_id = $1", account).Scan(&n))
	require.Positive(m.t, n, table)
	_, err := owner.Exec(m.t.Context(), "UPDATE "+table+" SET currency = 'EUR' WHERE billing_account_id = $1", account)
	require.Error(m.t, err, table)
}
