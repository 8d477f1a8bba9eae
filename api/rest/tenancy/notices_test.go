package tenancy_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	webhookdb "github.com/slipway-cloud/slipway/db/webhook"
)

// notify writes a notice and returns the addresses to which it is sent.
func (w *world) notify(project, episode string) (to []string) {
	w.t.Helper()
	require.NoError(w.t, w.store.Tx(w.t.Context(), func(tx *db.Tx) error {
		_, err := webhookdb.AddNotice(w.t.Context(), tx, webhookdb.Notice{ProjectID: project, Kind: "webhook_failing", Episode: episode, Message: "it fails"}, "slipway.example")
		return err
	}))
	rows, err := dbtest.Owner(w.t, w.dsn).Query(w.t.Context(), `SELECT e.recipient FROM notice_emails e JOIN notices n ON n.project_id = e.project_id AND n.id = e.notice_id
		WHERE n.project_id = $1 AND n.episode = $2 ORDER BY e.recipient`, project, episode)
	require.NoError(w.t, err)
	for rows.Next() {
		var address string
		require.NoError(w.t, rows.Scan(&address))
		to = append(to, address)
	}
	require.NoError(w.t, rows.Err())
	return to
}

// The creator of a project gets its notices, at the address of the sign-in.
func TestNotices_ReachTheCreator(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.newTenant("alpha")
	own := w.do(a.owner, "POST", "/projects", map[string]any{"billing_account_id": a.account, "name": "second"}).want(http.StatusCreated).field("id")
	require.Equal(t, []string{"alpha-owner@example.com"}, w.notify(own, "1"))
	unverified := w.signIn("alpha-owner", map[string]any{"email": "ceo@victim.example", "email_verified": false})
	w.do(unverified, "GET", "/projects/"+own, nil).want(http.StatusOK)
	require.Equal(t, []string{"alpha-owner@example.com"}, w.notify(own, "2"), "an address that is not verified replaces none")
}

// A member who is removed and invited again at another address gets notices there, and nowhere
// else. A member whose address changes gets them at the new one after the next request.
func TestNotices_FollowTheAddress(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.newTenant("alpha")
	at := "/projects/" + a.project
	join := func(bearer, email string) string {
		w.do(a.owner, "POST", at+"/invitations", map[string]any{"email": email, "role": "owner"}).want(http.StatusCreated)
		return w.accept(bearer)
	}
	id := join(w.signIn("bob"), "bob@example.com")
	require.Equal(t, []string{"alpha-owner@example.com", "bob@example.com"}, w.notify(a.project, "1"))
	w.do(a.owner, "DELETE", at+"/members/"+id, nil).want(http.StatusNoContent)
	require.Equal(t, []string{"alpha-owner@example.com"}, w.notify(a.project, "2"))
	join(w.signIn("bob", map[string]any{"email": "bob@new.example"}), "bob@new.example")
	require.Equal(t, []string{"alpha-owner@example.com", "bob@new.example"}, w.notify(a.project, "3"))
	w.do(w.signIn("bob", map[string]any{"email": "bob@newer.example"}), "GET", at, nil).want(http.StatusOK)
	require.Equal(t, []string{"alpha-owner@example.com", "bob@newer.example"}, w.notify(a.project, "4"))
}

// A member without a verified address gets no notice, and the claimed one is not shown as the name.
func TestNotices_UnverifiedAddressIsNone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.newTenant("alpha")
	at := "/projects/" + a.project
	for name, claims := range map[string]map[string]any{
		"mallory": {"email": "ceo@victim.example", "email_verified": false},
		"eve":     {"email": "", "preferred_username": "ceo@victim.example", "name": "ceo@victim.example"},
		"trudy":   {"email": "ceo@victim.example\r\nBcc: all@victim.example"},
		"oscar":   {"email": "ceo@victim.example", "email_verified": "true"},
	} {
		w.do(a.owner, "POST", at+"/invitations", map[string]any{"subject": "oidc:" + name, "role": "owner"}).want(http.StatusCreated)
		w.accept(w.signIn(name, claims))
	}
	require.NotContains(t, string(w.do(a.owner, "GET", at+"/members", nil).want(http.StatusOK).raw), "victim")
	require.Equal(t, []string{"alpha-owner@example.com"}, w.notify(a.project, "1"))
}

// TestNotices_TellMoneyToWhoMayReadIt reads notices of money in each role, and their events.
func TestNotices_TellMoneyToWhoMayReadIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.newTenant("alpha")
	at := "/projects/" + v.project
	readers := map[string]string{"owner": v.owner}
	for _, role := range []string{"billing", "member", "viewer"} {
		readers[role], _ = w.addMember(v, role, role)
	}
	kinds := []string{"low_balance", "depleted", "balance_short", "budget_warning", "budget_spent"}
	require.NoError(t, w.store.Tx(t.Context(), func(tx *db.Tx) error {
		for _, kind := range append(kinds, "webhook_failing") {
			n := webhookdb.Notice{ProjectID: v.project, Kind: kind, Episode: "1", Message: "12.34 USD are left"}
			if _, err := webhookdb.AddNotice(t.Context(), tx, n, "slipway.example"); err != nil {
				return err
			}
		}
		return nil
	}))
	for role, bearer := range readers {
		var list struct {
			Data []struct{ Kind, Message string }
		}
		require.NoError(t, json.Unmarshal(w.do(bearer, "GET", at+"/notices", nil).want(http.StatusOK).raw, &list))
		require.Len(t, list.Data, len(kinds)+1)
		for _, n := range list.Data {
			if role == "owner" || role == "billing" || n.Kind == "webhook_failing" {
				require.Contains(t, n.Message, "12.34", role+" "+n.Kind)
			} else {
				require.Contains(t, n.Message, "ask who may read money", role+" "+n.Kind)
			}
		}
	}
	for _, kind := range kinds {
		var payload string
		require.NoError(t, dbtest.Owner(t, w.dsn).QueryRow(t.Context(), "SELECT payload::text FROM outbox WHERE type = $1", "notice."+kind).Scan(&payload))
		require.NotContains(t, payload, "12.34", kind)
		require.Contains(t, payload, "ask who may read money")
	}
}
