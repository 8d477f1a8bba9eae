package e2e_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/rest"
	"github.com/slipway-cloud/slipway/client"
	"github.com/slipway-cloud/slipway/internal/signing"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/evidence"
	"github.com/slipway-cloud/slipway/test/runenv"
)

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
	r, err := askAgain(func() (client.Answer[client.Plan], error) {
		return api.PlanNewDecommission(t.Context(), client.DecommissionPlanRequest{
			NodeID: nodeID, Mode: client.DecommissionPlanRequestMode(mode), GraceSeconds: new(int64(1)),
		})
	})
	require.NoError(t, err)
	plan := decoded[rest.Plan](t, r.Raw)
	info, ok := lifecycle.DecommissionModeOf(mode)
	require.True(t, ok)
	var rows []string
	for _, r := range plan.Rows {
		rows = append(rows, r.Stage)
	}
	require.Equal(t, info.Stages, rows)
	require.False(t, plan.NeedsHuman, plan.Summary)
	ask := client.DecommissionRequest{
		NodeID: nodeID, Mode: client.DecommissionRequestMode(mode), GraceSeconds: new(int64(1)), Reason: new("the tenant left"),
	}
	_, err = api.CreateDecommission(t.Context(), ask)
	require.Equal(t, http.StatusPreconditionRequired, client.StatusOf(err), "%v", err)
	ask.PlanHash = new(strings.Repeat("0", 64))
	create := func() (client.Answer[client.Job], error) { return api.CreateDecommission(t.Context(), ask) }
	_, err = askAgain(create)
	require.Equal(t, http.StatusPreconditionFailed, client.StatusOf(err), "%v", err)
	require.Equal(t, lifecycle.NodeActive, w.node(t, nodeID).Status, "a refused start moves nothing")
	ask.PlanHash = &plan.PlanHash
	started, err := askAgain(create)
	require.NoError(t, err)
	job := decoded[rest.Job](t, started.Raw)
	require.Equal(t, info.Enters, w.node(t, nodeID).Status)
	return job
}

// askAgain repeats a request as long as the API answers that the workers are too busy for its plan
// and that nothing was changed, as an operator does on a busy machine.
func askAgain[T any](ask func() (client.Answer[T], error)) (client.Answer[T], error) {
	for ends := time.Now().Add(runenv.Patience(2 * time.Minute)); ; {
		got, err := ask()
		if !isBusy(client.StatusOf(err)) || time.Now().After(ends) {
			return got, err
		}
	}
}

// isBusy reports an answer of a machine on which Temporal or the workers have no time.
func isBusy(status int) bool {
	return status == http.StatusGatewayTimeout || status == http.StatusServiceUnavailable
}

// statusHistory returns the node's statuses from the API, the oldest first. The last change of the
// decommission carries its reason.
func (w *world) statusHistory(t *testing.T, nodeID string) []string {
	t.Helper()
	h, err := client.Value(w.as(t, "viewer").NodeHistory(t.Context(), nodeID, &client.NodeHistoryParams{Limit: new(int64(500))}))
	require.NoError(t, err)
	states, reasons := make([]string, len(h.Data)), ""
	for i, row := range h.Data {
		states[len(states)-1-i] = row.ToState
		reasons += row.Comment + "\n"
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
	r, err := w.as(t, "viewer").NodeCertificates(t.Context(), nodeID)
	require.NoError(t, err)
	got := decoded[rest.Certificates](t, r.Raw)
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
	require.NotEmpty(t, certs[0].Subject.Serial)
	require.Regexp(t, `^BMC: (system|chassis) \S+$`, certs[0].Subject.SerialSource, "the BMC names the serial number, and which of its resources has it")
	require.True(t, certs[0].Simulated)
	cut := got.Bundle
	cut.Certificates = nil
	_, problems = evidence.Verify(cut, keys)
	require.Contains(t, fmt.Sprint(problems), "some were removed", "the signed end tells when the only link is gone")
	return certs[0]
}
