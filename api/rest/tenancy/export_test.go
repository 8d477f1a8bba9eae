package tenancy_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/db"
	webhookdb "github.com/slipway-cloud/slipway/db/webhook"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// addEvents adds events with bodies of a size to the history of a project, after those it has.
func (w *world) addEvents(project string, n, size int) {
	w.t.Helper()
	w.exec(`INSERT INTO events (cursor, resource_kind, resource_id, type, payload, at, project_id, project_cursor, event_id)
		SELECT 1000000 + i, 'project', $1::text, 'project.updated', jsonb_build_object('name', repeat('x', $3)), now(), $1, 1000 + i, 'evt_' || i
		FROM generate_series(1, $2::int) i`, project, n, size)
}

// TestExport_HasNoEnd exports more than a list of any size was cut at before, in order and once
// each.
func TestExport_HasNoEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.newTenant("alpha")
	w.relay()
	require.NoError(t, w.store.Tx(t.Context(), func(tx *db.Tx) error {
		for i := range 600 { // more than a page
			n := webhookdb.Notice{ProjectID: v.project, Kind: lifecycle.NoticeWebhookFailing, Episode: fmt.Sprint(i), Message: "the notice"}
			if _, err := webhookdb.AddNotice(t.Context(), tx, n, "example.com"); err != nil {
				return err
			}
		}
		return nil
	}))
	const events = 20_500
	w.addEvents(v.project, events, 10)
	raw := w.do(v.owner, "GET", "/projects/"+v.project+"/export", nil).want(http.StatusOK).raw
	var got struct {
		Project, BillingAccount map[string]any
		Complete                bool
		Members, Tokens, Audit  []any
		Webhooks                []map[string]any
		Notices                 []struct {
			ID         string
			Deliveries []struct{ To string }
		}
		Events []struct{ Cursor int64 }
	}
	require.NoError(t, json.Unmarshal(raw, &got))
	require.True(t, got.Complete)
	require.Equal(t, "alpha-project", got.Project["name"])
	require.Len(t, got.Members, 1)
	require.Len(t, got.Tokens, 1)
	require.NotEmpty(t, got.Audit)
	require.Equal(t, "https://alpha.example.com/", got.Webhooks[0]["url"])
	require.NotContains(t, string(raw), "secret", "neither a secret nor its reference")
	notices := map[string]bool{}
	for _, n := range got.Notices {
		notices[n.ID] = true
	}
	require.Len(t, got.Notices, 600)
	require.Len(t, notices, 600)
	require.Equal(t, "alpha-owner@example.com", got.Notices[0].Deliveries[0].To)
	require.Greater(t, len(got.Events), events, "those that happened, too")
	for i := 1; i < len(got.Events); i++ {
		require.Greater(t, got.Events[i].Cursor, got.Events[i-1].Cursor)
	}
}

// TestExport_HoldsWhatTheRoleReads exports as one who pays.
func TestExport_HoldsWhatTheRoleReads(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.newTenant("alpha")
	payer, _ := w.addMember(v, "payer", "billing")
	at := "/projects/" + v.project
	var got map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(w.do(payer, "GET", at+"/export", nil).want(http.StatusOK).raw, &got))
	names := make([]string, 0, len(got))
	for name := range got {
		names = append(names, name)
	}
	require.ElementsMatch(t, []string{"exported_at", "project", "billing_account", "members", "group_roles", "quotas", "notices", "complete"}, names)
	require.Equal(t, "alpha-account", w.do(payer, "GET", at+"/billing-account", nil).want(http.StatusOK).field("name"))
	for _, private := range []string{"/ssh-keys", "/webhooks", "/events", "/audit-log", "/invitations"} {
		w.do(payer, "GET", at+private, nil).want(http.StatusForbidden)
	}
	for _, open := range []string{"", "/members", "/quotas", "/notices", "/group-roles"} {
		w.do(payer, "GET", at+open, nil).want(http.StatusOK)
	}
}

// TestExport_EndsWithTheRole takes the role of a reader who stops reading in the middle: the export
// breaks off, so that nobody takes it for the whole.
func TestExport_EndsWithTheRole(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.newTenant("alpha")
	reader, member := w.addMember(v, "reader", "owner")
	w.addEvents(v.project, 4000, 10_000) // more than the buffers of a connection hold
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(w.url, "http://"))
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.(*net.TCPConn).SetReadBuffer(1<<16))
	_, err = fmt.Fprintf(conn, "GET %s/projects/%s/export HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", op.Prefix, v.project, reader)
	require.NoError(t, err)
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	defer answer.Body.Close()
	require.Equal(t, http.StatusOK, answer.StatusCode)
	w.do(v.owner, "PATCH", "/projects/"+v.project+"/members/"+member, map[string]any{"role": "billing"}).want(http.StatusOK)
	rest, err := io.ReadAll(answer.Body)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.NotContains(t, string(rest[max(0, len(rest)-100):]), "complete")
}
