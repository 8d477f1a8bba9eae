package tenancy_test

import (
	"encoding/base64"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/op"
)

// TestAnswers_HoldNoPlatformCounter sets every counter that all customers share to a number that is
// easy to find, and looks for it in each answer to a member, and in each cursor.
func TestAnswers_HoldNoPlatformCounter(t *testing.T) {
	t.Parallel()
	const marker = "8675309"
	w := newWorld(t)
	for _, sql := range []string{
		"ALTER SEQUENCE audit_pos RESTART WITH 86753090001", "ALTER TABLE ledger_transactions ALTER COLUMN id RESTART WITH 86753090001",
		"ALTER TABLE ledger_accounts ALTER COLUMN id RESTART WITH 86753090001", "ALTER TABLE outbox ALTER COLUMN id RESTART WITH 86753090001",
		"UPDATE event_cursor SET last = 86753090001",
	} {
		w.exec(sql)
	}
	v := w.newTenant("alpha")
	w.addAllocation(v)
	w.addInstance(v)
	page := w.checkout(v, 2500).want(http.StatusCreated)
	require.NoError(t, w.stripe.Pay(page.field("stripe_checkout_session_id")))
	w.exec("UPDATE payment_sessions SET looked_at = NULL")
	paid := "/projects/" + v.project + "/payments/sessions/" + page.field("id")
	w.do(v.owner, "GET", paid, nil).want(http.StatusOK)
	w.runPayments()
	require.Equal(t, "credited", w.do(v.owner, "GET", paid, nil).want(http.StatusOK).field("status"))
	for range 2 {
		w.do(w.admin, "POST", "/admin/adjustments", map[string]any{
			"billing_account_id": v.account, "project_id": v.project, "amount_minor": 70, "reason": "paid by invoice 17",
		}).want(http.StatusCreated)
	}
	require.Contains(t, string(w.do(w.admin, "GET", "/admin/billing-accounts/"+v.account+"/ledger", nil).want(http.StatusOK).raw), marker, "operators see the ids")
	w.relay()
	paths := []string{paid}
	for route, role := range w.api.Routes() {
		method, path, _ := strings.Cut(route, " ")
		if path = strings.TrimPrefix(path, op.Prefix); method == http.MethodGet && (role == op.RoleSignedIn || strings.HasPrefix(string(role), "project_")) {
			paths = append(paths, fill(t, path, v.ids))
		}
	}
	cursors := 0
	for _, path := range paths {
		if strings.HasSuffix(path, "/events") {
			require.NotContains(t, w.followUntil(v.owner, path, "token.created"), marker, path)
			continue
		}
		require.NotContains(t, string(w.do(v.owner, "GET", path, nil).want(http.StatusOK).raw), marker, path)
		first := w.do(v.owner, "GET", path+"?limit=1", nil)
		if next := nextCursor(first); next != "" {
			place, err := base64.RawURLEncoding.DecodeString(next)
			require.NoError(t, err, path)
			require.NotContains(t, string(place), marker, path)
			second := w.do(v.owner, "GET", path+"?limit=1&cursor="+next, nil).want(http.StatusOK)
			require.NotEqual(t, string(first.raw), string(second.raw), path)
			cursors++
		}
	}
	require.Greater(t, cursors, 3)
}

// nextCursor returns the cursor of a page, "" for an answer that is no page.
func nextCursor(a answer) string {
	if a.status != http.StatusOK || !strings.Contains(string(a.raw), `"next_cursor"`) {
		return ""
	}
	return a.field("next_cursor")
}

// TestBillingRole_SeesNoAddress lists allocations as a member with role billing: where to log in is
// left out, over both paths and for tokens too.
func TestBillingRole_SeesNoAddress(t *testing.T) {
	t.Parallel()
	m := newMarket(t)
	m.freeNode()
	m.activate(m.create(nil))
	payer, _ := m.addMember(m.tenant, "payer", "billing")
	viewer, _ := m.addMember(m.tenant, "reader", "viewer")
	token := m.do(payer, "POST", "/projects/"+m.project+"/tokens", map[string]any{"name": "t", "role": "billing"}).want(http.StatusCreated).field("token")
	for _, path := range []string{m.base, "/allocations?project_id=" + m.project} {
		require.Contains(t, string(m.do(viewer, "GET", path, nil).want(http.StatusOK).raw), "127.0.0.9", path)
		for who, bearer := range map[string]string{"member": payer, "token": token} {
			raw := string(m.do(bearer, "GET", path, nil).want(http.StatusOK).raw)
			require.Contains(t, raw, `"name":"train"`, "%s %s", who, path)
			for _, hidden := range []string{"127.0.0.9", "host_key", "SHA256:x", `"connection"`, `"cidr"`} {
				require.NotContains(t, raw, hidden, "%s %s", who, path)
			}
		}
	}
}
