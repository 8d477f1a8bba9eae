package e2e_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/client"
	"github.com/slipway-cloud/slipway/internal/cloudinit"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/test/runenv"
	"github.com/slipway-cloud/slipway/test/stack"
)

// TestReissueAgent_BringsAnAgentBack locks the identity of a real agent, and replaces it by one
// that ended long ago. Each time the agent comes back under a new generation; before, a machine
// that shows another host key gets nothing.
func TestReissueAgent_BringsAnAgentBack(t *testing.T) {
	t.Parallel()
	r := newRotator(t, newWorld(t, stack.Options{Count: 1}))
	m, store := r.Sims.Fleet.All()[0], r.App.Store
	onboarded := r.ends(t, r.onboard(t, m).ID, 3*time.Minute)
	require.Equal(t, lifecycle.JobCompleted, onboarded.Status, onboarded.Message)
	nodeID := *onboarded.NodeID
	root := r.Sims.Nodes[m.Spec().ID].Root()
	reissue := func() string {
		job, err := client.Value(r.api.ReissueAgent(t.Context(), nodeID, client.ReissueAgentRequest{Reason: "test"}))
		require.NoError(t, err)
		return job.ID
	}
	back := func(job string, generation int64) {
		t.Helper()
		j := r.ends(t, job, 2*time.Minute)
		require.Equal(t, lifecycle.JobCompleted, j.Status, "%s: %s: %s", j.Stage, j.FailureClass, j.Message)
		id, err := store.AgentIdentity(t.Context(), nodeID)
		require.NoError(t, err)
		require.Nil(t, id.LockedAt)
		require.GreaterOrEqual(t, id.Generation, generation)
		require.NoFileExists(t, filepath.Join(root, cloudinit.TokenPath), "the agent has used the token up")
	}

	node, err := store.Node(t.Context(), nodeID)
	require.NoError(t, err)
	_, another, err := cloudinit.NewHostKey()
	require.NoError(t, err)
	require.NoError(t, store.SetNodeHostKey(t.Context(), nodeID, another))
	require.NoError(t, store.LockAgentIdentity(t.Context(), nodeID, "a copy was seen"))
	job := reissue()
	parked := r.ends(t, job, 2*time.Minute)
	require.Equal(t, lifecycle.FailStateDisagreement, parked.FailureClass, parked.Message)
	require.Contains(t, parked.Message, "host key")
	require.NoFileExists(t, filepath.Join(root, cloudinit.TokenPath))
	require.NoError(t, store.SetNodeHostKey(t.Context(), nodeID, node.SSHHostKey))
	r.act(t, job, lifecycle.ActionRetryStage)
	require.Eventually(t, func() bool { return !r.job(t, job).Status.Parked() }, runenv.Patience(time.Minute), 20*time.Millisecond)
	back(job, 2)

	endIdentity(t, filepath.Join(root, cloudinit.StateDir, "identity.json"))
	job = reissue()
	back(job, 3)
}

// endIdentity replaces the certificate of an agent by one that ended a hundred days ago.
func endIdentity(t *testing.T, path string) {
	t.Helper()
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	var id map[string]any
	require.NoError(t, json.Unmarshal(raw, &id))
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	ended := time.Now().Add(-100 * 24 * time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: ended.Add(-time.Hour), NotAfter: ended},
		&x509.Certificate{SerialNumber: big.NewInt(2)}, key.Public(), key)
	require.NoError(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	id["certificate_pem"] = string(pemBlock("CERTIFICATE", der))
	id["key_pem"] = string(pemBlock("PRIVATE KEY", secret))
	raw, err = json.Marshal(id)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path+".new", raw, 0o600))
	require.NoError(t, os.Rename(path+".new", path))
}

func pemBlock(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
