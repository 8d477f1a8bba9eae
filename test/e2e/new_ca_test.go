package e2e_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"gopkg.in/yaml.v3"

	"github.com/slipway-cloud/slipway/agent/protocol"
	"github.com/slipway-cloud/slipway/assembly/server"
	"github.com/slipway-cloud/slipway/client"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/internal/cloudinit"
	"github.com/slipway-cloud/slipway/internal/config"
	"github.com/slipway-cloud/slipway/internal/nodeca"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/test/runenv"
	"github.com/slipway-cloud/slipway/test/stack"
)

// TestNewNodeCA_EveryAgentComesBack loses the node CA under agents that run, and does what the
// operations page says: a new CA, then new identities for the site over SSH. Every agent is back
// under the new CA. Whoever has the key of the old CA gets nothing by it, before and after.
func TestNewNodeCA_EveryAgentComesBack(t *testing.T) {
	t.Parallel()
	r := newRotator(t, newPrivateWorld(t, stack.Options{Count: 2}))
	machines := r.Sims.Fleet.All()
	nodes := make([]string, len(machines))
	var onboardings errgroup.Group
	for i, m := range machines {
		id := r.onboard(t, m).ID
		onboardings.Go(func() error {
			j := r.ends(t, id, 4*time.Minute)
			assert.Equal(t, lifecycle.JobCompleted, j.Status, "%s: %s", j.Stage, j.Message)
			nodes[i] = *j.NodeID
			return nil
		})
	}
	require.NoError(t, onboardings.Wait())
	old, err := nodeca.Load(r.Config.Agent.CADir)
	require.NoError(t, err)
	require.NoError(t, r.showCertificate(t, old, "node_of_nobody", 1), "a certificate of the present CA counts, so that a refusal below says something")
	r.requireAgents(t, nodes, old)

	require.NoError(t, r.Restart(t.Context(), func(owner config.Config) error {
		require.NoError(t, os.RemoveAll(owner.Agent.CADir))
		_, err := server.Migrate(t.Context(), owner, server.NewCA{})
		require.ErrorContains(t, err, "--new-node-ca", "no agent is locked out without the operator's word")
		_, err = server.Migrate(t.Context(), owner, server.NewCA{Replace: true})
		return err
	}))
	present, err := nodeca.Load(r.Config.Agent.CADir)
	require.NoError(t, err)
	require.NotEqual(t, old.CertPEM(), present.CertPEM())
	require.Len(t, r.agentAttention(t), len(nodes), "each agent has a line that says what to do")
	for i, m := range machines {
		require.NotZero(t, r.Sims.Nodes[m.Spec().ID].AgentPID(), "the agent runs on without a server that it trusts")
		require.ErrorContains(t, r.showCertificate(t, old, nodes[i], 100), "bad certificate")
	}

	r.reissueSite(t)
	r.requireAgents(t, nodes, present)
	require.Empty(t, r.agentAttention(t))
	for _, id := range nodes {
		require.ErrorContains(t, r.showCertificate(t, old, id, 100), "bad certificate")
	}
	require.Empty(t, r.agentAttention(t), "what the old CA signs harms nobody")
}

// reissueSite asks for new identities at the site and waits until every agent has one.
func (r *rotator) reissueSite(t *testing.T) {
	t.Helper()
	batch, err := client.Value(r.api.ReissueAgents(t.Context(), client.SiteReissueRequest{SiteID: r.site.ID, Reason: "test"}))
	require.NoError(t, err)
	items, err := r.App.Store.BatchItems(t.Context(), batch.ID, -1, 100)
	require.NoError(t, err)
	require.Len(t, items, len(r.Sims.Fleet.All()))
	for _, item := range items {
		require.NotNil(t, item.JobID, "%s was rejected", item.Hostname)
		j := r.ends(t, *item.JobID, 3*time.Minute)
		require.Equal(t, lifecycle.JobCompleted, j.Status, "%s: %s: %s", j.Stage, j.FailureClass, j.Message)
	}
}

// requireAgents checks that each node's agent trusts the CA, that its identity works, and that it
// sends heartbeats from now on.
func (r *rotator) requireAgents(t *testing.T, nodes []string, ca *nodeca.CA) {
	t.Helper()
	since, err := r.App.Store.Clock(t.Context())
	require.NoError(t, err)
	for i, m := range r.Sims.Fleet.All() {
		standing, err := r.App.Store.AgentIdentityStanding(t.Context(), nodes[i])
		require.NoError(t, err)
		require.True(t, standing.Works)
		raw, err := os.ReadFile(filepath.Join(r.Sims.Nodes[m.Spec().ID].Root(), cloudinit.AgentConfigPath))
		require.NoError(t, err)
		var trusts struct {
			CAPEM string `yaml:"ca_pem"`
		}
		require.NoError(t, yaml.Unmarshal(raw, &trusts))
		require.Equal(t, strings.TrimSpace(string(ca.CertPEM())), strings.TrimSpace(trusts.CAPEM))
		require.Eventually(t, func() bool {
			heartbeat, err := r.App.Store.LatestHeartbeat(t.Context(), nodes[i])
			return err == nil && heartbeat.ReceivedAt.After(since) && heartbeat.Generation == standing.Generation
		}, runenv.Patience(time.Minute), 50*time.Millisecond)
	}
}

// agentAttention lists what an operator is told about agents that cannot come back by themselves.
func (r *rotator) agentAttention(t *testing.T) (lines []string) {
	t.Helper()
	rows, err := r.App.Store.Attention(t.Context(), db.AttentionFilter{}, db.AttentionPlace{}, 100)
	require.NoError(t, err)
	for _, a := range rows {
		if strings.HasPrefix(a.Kind, "agent_") {
			lines = append(lines, a.Kind)
		}
	}
	return lines
}

// showCertificate sends a heartbeat under a certificate that a CA signs for a node. It returns the
// error of the connection, and none where the agent API answers. It does not check the server.
func (r *rotator) showCertificate(t *testing.T, ca *nodeca.CA, nodeID string, generation int64) error {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	made, err := ca.IssueNode(key.Public(), nodeca.Identity{NodeID: nodeID, Generation: generation, Enrolment: 1})
	require.NoError(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	cert, err := tls.X509KeyPair(made.PEM, pemBlock("PRIVATE KEY", der))
	require.NoError(t, err)
	client := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert}, InsecureSkipVerify: true}}} //nolint:gosec // whoever shows a stolen certificate checks nothing
	defer client.CloseIdleConnections()
	res, err := client.Post(r.Config.Agent.PublicURL+protocol.PathHeartbeat, "application/json", strings.NewReader(`{"boot_id":"forged"}`))
	if err != nil {
		return err
	}
	require.GreaterOrEqual(t, res.StatusCode, http.StatusBadRequest)
	return res.Body.Close()
}
