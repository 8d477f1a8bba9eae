package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/rest"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/internal/signing"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/evidence"
)

// requests is one signed-in user of the API.
type requests struct {
	*world
	token string
}

func (w *world) as(t *testing.T, role string) requests {
	t.Helper()
	token, err := op.CreateToken(t.Context(), w.App.Store, "e2e-"+role, []string{role}, time.Hour)
	require.NoError(t, err)
	return requests{w, token}
}

// send sends one request, wants that status, and reads the answer into out,
// which may be nil.
func (r requests) send(t *testing.T, want int, method, path string, body, out any) {
	t.Helper()
	raw, err := json.Marshal(body)
	require.NoError(t, err)
	req, err := http.NewRequestWithContext(t.Context(), method, r.Config.API.PublicURL+"/api/v1"+path, bytes.NewReader(raw))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+r.token)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", db.NewID("key"))
	res, err := (&http.Client{Timeout: time.Minute}).Do(req)
	require.NoError(t, err)
	defer res.Body.Close() //nolint:errcheck // read to the end
	got, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.Equal(t, want, res.StatusCode, "%s %s: %s", method, path, got)
	if out != nil {
		require.NoError(t, json.Unmarshal(got, out), string(got))
	}
}

// decommission starts a mode as an operator does: the plan is made and read, a
// start without its hash or with another is refused and starts nothing, and the
// hash starts the job.
func (w *world) decommission(t *testing.T, nodeID string, mode lifecycle.DecommissionMode) rest.Job {
	t.Helper()
	role := "operator"
	if mode == lifecycle.ModeFull {
		role = "admin"
	}
	api := w.as(t, role)
	ask := map[string]any{"node_id": nodeID, "mode": mode, "grace_seconds": 1}
	var plan rest.Plan
	api.send(t, http.StatusOK, http.MethodPost, "/admin/decommissions/plan", ask, &plan)
	info, ok := lifecycle.DecommissionModeOf(mode)
	require.True(t, ok)
	var rows []string
	for _, r := range plan.Rows {
		rows = append(rows, r.Stage)
	}
	require.Equal(t, info.Stages, rows)
	require.False(t, plan.NeedsHuman, plan.Summary)
	ask["reason"] = "the tenant left"
	api.send(t, http.StatusPreconditionRequired, http.MethodPost, "/admin/decommissions", ask, nil)
	ask["plan_hash"] = strings.Repeat("0", 64)
	api.send(t, http.StatusPreconditionFailed, http.MethodPost, "/admin/decommissions", ask, nil)
	require.Equal(t, lifecycle.NodeActive, w.node(t, nodeID).Status, "a refused start moves nothing")
	ask["plan_hash"] = plan.PlanHash
	var job rest.Job
	api.send(t, http.StatusAccepted, http.MethodPost, "/admin/decommissions", ask, &job)
	require.Equal(t, info.Enters, w.node(t, nodeID).Status)
	return job
}

// statusHistory returns the node's statuses from the API, the oldest first. The last change of the
// decommission carries its reason.
func (w *world) statusHistory(t *testing.T, nodeID string) []string {
	t.Helper()
	var h rest.History
	w.as(t, "viewer").send(t, http.StatusOK, http.MethodGet, "/nodes/"+nodeID+"/history?limit=500", nil, &h)
	states, reasons := make([]string, len(h.Data)), ""
	for i, row := range h.Data {
		states[len(states)-1-i] = row.ToState
		if row.Comment != nil {
			reasons += *row.Comment + "\n"
		}
	}
	require.Contains(t, reasons, "the tenant left")
	return states
}

// onboarded is how the history of a node begins.
func onboarded(then ...lifecycle.NodeStatus) []string {
	out := []string{string(lifecycle.NodeBootstrapIssued), string(lifecycle.NodeEnrolling), string(lifecycle.NodeActive)}
	for _, s := range then {
		out = append(out, string(s))
	}
	return out
}

// proven reads the node's chain from the API, verifies it with the keys that
// this installation has, and returns its only certificate, which is of this job.
func (w *world) proven(t *testing.T, nodeID string, job rest.Job) evidence.Certificate {
	t.Helper()
	var got rest.Certificates
	w.as(t, "viewer").send(t, http.StatusOK, http.MethodGet, "/nodes/"+nodeID+"/certificates", nil, &got)
	ring := &signing.Ring{Store: w.App.Store, Secrets: w.App.Secrets}
	public, err := ring.Public(t.Context(), signing.Certificates)
	require.NoError(t, err)
	var keys []evidence.Key
	for _, k := range public {
		keys = append(keys, evidence.Key{ID: k.ID, Public: k.Public})
	}
	certs, problems := evidence.Verify(got.Bundle, keys)
	require.Empty(t, problems)
	require.Equal(t, got.Data, certs, "what is shown is what was signed")
	require.Len(t, certs, 1, "one certificate a run")
	require.Equal(t, job.ID, certs[0].Run.ID)
	require.Equal(t, "decommission", certs[0].Run.Kind)
	require.Equal(t, nodeID, certs[0].Subject.NodeID)
	require.True(t, certs[0].Simulated)
	cut := got.Bundle
	cut.Certificates = nil
	_, problems = evidence.Verify(cut, keys)
	require.Contains(t, fmt.Sprint(problems), "some were removed", "the signed end tells when the only link is gone")
	return certs[0]
}
