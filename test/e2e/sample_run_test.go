package e2e_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/cli"
	"github.com/slipway-cloud/slipway/test/stack"
)

// The machine and the plan of the document that the API follows, word for word.
const (
	sampleMachine = `{
  "machine_id": "m-123",
  "labels": {"env": "prod", "role": "worker", "provider": "dc-1"},
  "spec": {
    "ssh_endpoint": "10.20.30.40:22",
    "bmc_endpoint": "10.20.30.41",
    "target_cluster_ref": "cluster-a",
    "mac_addresses": ["aa:bb:cc:dd:ee:ff"]
  },
  "status": {
    "phase": "READY",
    "conditions": [
      {"type": "Reachable", "status": true, "reason": "PingOK"},
      {"type": "BMCReachable", "status": true, "reason": "RedfishOK"},
      {"type": "InCustomerCluster", "status": false, "reason": "NotJoined"}
    ],
    "active_run_id": ""
  }
}`
	samplePlan = `{
  "plan_id": "plan-repave-ubuntu-2204-v1",
  "display_name": "Repave Ubuntu 22.04 + Join Cluster",
  "steps": [
    {"name": "set-netboot", "timeout_seconds": 60, "max_retries": 2, "netboot": {"mode": "PXE"}},
    {"name": "repave-os", "timeout_seconds": 1800, "max_retries": 1, "repave": {"image": "ubuntu-22.04"}},
    {"name": "reboot", "timeout_seconds": 300, "max_retries": 2, "reboot": {"mode": "bmc"}},
    {"name": "join-cluster", "timeout_seconds": 600, "max_retries": 1, "join": {"cluster_ref": "cluster-a"}},
    {"name": "verify", "timeout_seconds": 300, "max_retries": 0, "verify": {"cluster_ref": "cluster-a"}}
  ]
}`
)

// TestSample_RunsInTheStack: the sample plan runs on the sample machine, and every step says what
// it did. The requests are plain JSON without any field that Slipway has added.
func TestSample_RunsInTheStack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, stack.Options{Count: 1})
	token, err := op.CreateToken(t.Context(), w.App.Store, "automation", []string{"admin"}, time.Hour)
	require.NoError(t, err)
	c := commandLine{w, token}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, []byte("simulated"), 0o600))
	c.run(t, cli.ExitOK, "secret", "put", "clusters/cluster-a", "--kind", "kubeconfig", "--network", "127.0.0.0/8", "--from-file", kubeconfig)
	c.run(t, cli.ExitOK, "cluster", "create", "cluster-a", "--api-url", "https://127.0.0.1:6443", "--ca-pin", "sha256:"+strings.Repeat("0", 64),
		"--kubeconfig", "clusters/cluster-a", "--kubernetes-version", "v1.34.1")
	require.Equal(t, http.StatusOK, c.postJSON(t, "MachineService/RegisterMachine", `{"machine": `+sampleMachine+`}`))
	require.Equal(t, http.StatusOK, c.postJSON(t, "PlanService/CreatePlan", `{"plan": `+samplePlan+`}`))
	out := c.run(t, cli.ExitOK, "run", "start", "m-123", "REPAVE", "--plan", "plan-repave-ubuntu-2204-v1", "--follow")
	for _, said := range []string{"SetNetboot", "image ubuntu-22.04 is installed", "its boot id is", "is node m-123 of cluster cluster-a", "SUCCEEDED"} {
		require.Contains(t, out, said)
	}
	require.Contains(t, c.run(t, cli.ExitOK, "machine", "get", "m-123"), "IN_SERVICE")
}

// postJSON sends a request of the gRPC API in JSON, and returns its status.
func (c commandLine) postJSON(t *testing.T, procedure, body string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.Config.API.PublicURL+"/slipway.v1."+procedure, strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer "+c.token)
	r.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	return res.StatusCode
}
