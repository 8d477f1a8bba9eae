package e2e_test

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/cli"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	tenancydb "github.com/slipway-cloud/slipway/db/tenancy"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/test/runenv"
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

// TestSample_RunsInTheStack: a client that was compiled from the text of the document alone runs
// its sample plan on its sample machine, as an operator and as a customer whose machine it is.
func TestSample_RunsInTheStack(t *testing.T) {
	t.Parallel()
	for name, isCustomer := range map[string]bool{"operator": false, "customer": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newPrivateWorld(t, stack.Options{Count: 1}) // the machine and the cluster have the names of the document
			token, err := op.CreateToken(t.Context(), w.App.Store, "automation", []string{"admin"}, time.Hour)
			require.NoError(t, err)
			c := commandLine{w, token}
			machine, plan, cluster := sampleMachine, samplePlan, []string{}
			if isCustomer {
				project := dbtest.Project(t, w.App.Store).ID
				machine = strings.Replace(machine, "{", `{"customer_id": "`+project+`",`, 1)
				plan = strings.Replace(plan, "{", `{"startable_by": "customer",`, 1)
				cluster = []string{"--project", project}
				token = w.projectToken(t, project)
			}
			c.run(t, cli.ExitOK, "secret", "put", "clusters/cluster-a", "--kind", "kubeconfig", "--network", "127.0.0.0/8", "--from-file", writeFile(t, "kubeconfig-"+rand.Text()))
			c.run(t, cli.ExitOK, append([]string{
				"cluster", "create", "cluster-a", "--api-url", "https://127.0.0.1:6443", "--ca-pin", "sha256:" + strings.Repeat("0", 64),
				"--kubeconfig", "clusters/cluster-a", "--kubernetes-version", "v1.34.1",
			}, cluster...)...)
			require.Equal(t, http.StatusOK, c.postJSON(t, "MachineService/RegisterMachine", `{"machine": `+machine+`}`))
			require.Equal(t, http.StatusOK, c.postJSON(t, "PlanService/CreatePlan", `{"plan": `+plan+`}`))
			newDocumentClient(t, w.Config.API.PublicURL, token).runSample()
			require.Contains(t, c.run(t, cli.ExitOK, "machine", "get", "m-123"), "IN_SERVICE")
		})
	}
}

// runSample starts the sample plan, follows the run by its events and its logs to the end, and
// reads what the document promises of it.
func (c *documentClient) runSample() {
	c.t.Helper()
	require.Equal(c.t, "READY", c.readMachine()["phase"])
	require.Contains(c.t, fmt.Sprint(c.callOnce("PlanService", "ListPlans", `{}`)), "plan-repave-ubuntu-2204-v1")
	events := c.stream("RunService", "WatchRuns", `{"filter": "machine_id=m-123"}`)
	const start = `{"request_id": "req-456", "machine_id": "m-123", "type": "REPAVE", "plan_id": "plan-repave-ubuntu-2204-v1"}`
	id := textOf(c.callOnce("RunService", "StartRun", start), "runId")
	require.NotEmpty(c.t, id)
	require.Equal(c.t, id, c.callOnce("RunService", "StartRun", start)["runId"], "the same request is the same run")
	logs := c.stream("RunService", "StreamRunLogs", `{"run_id": "`+id+`"}`)
	worked := map[string]bool{}
	for phase := ""; phase != "SUCCEEDED"; {
		event := events()
		require.NotNil(c.t, event, "the stream of events goes on")
		c.timeOf(event, "ts")
		run, _ := event["snapshot"].(map[string]any)
		require.Equal(c.t, id, run["runId"], "every event has its snapshot: %v", event)
		phase = textOf(run, "phase")
		require.NotContains(c.t, []string{"FAILED", "CANCELED"}, phase, "%v", run)
		if phase == "RUNNING" {
			c.timeOf(run, "startedAt")
			require.NotContains(c.t, run, "finishedAt")
			worked[textOf(run, "currentStep")] = true
		}
	}
	require.Contains(c.t, worked, "repave-os")
	said := ""
	for chunk := logs(); chunk != nil; chunk = logs() {
		c.timeOf(chunk, "ts")
		require.Equal(c.t, id, chunk["runId"])
		require.Contains(c.t, []any{"stdout", "stderr"}, chunk["stream"])
		data, err := base64.StdEncoding.DecodeString(textOf(chunk, "data"))
		require.NoError(c.t, err)
		said += string(data)
	}
	for _, want := range []string{"SetNetboot", "image ubuntu-22.04 is installed", "its boot id is", "is node m-123 of cluster cluster-a"} {
		require.Contains(c.t, said, want)
	}
	require.Contains(c.t, fmt.Sprint(c.callOnce("RunService", "ListRuns", `{"filter": "machine_id=m-123"}`)), id)
	c.checkRun(c.callOnce("RunService", "GetRun", `{"run_id": "`+id+`"}`))
	after := c.readMachine()
	require.Equal(c.t, "IN_SERVICE", after["phase"])
	c.checkConditions(after)
}

// readMachine returns the status of the machine.
func (c *documentClient) readMachine() map[string]any {
	c.t.Helper()
	machine := c.callOnce("MachineService", "GetMachine", `{"machine_id": "m-123"}`)
	require.Equal(c.t, "m-123", machine["machineId"])
	spec, _ := machine["spec"].(map[string]any)
	require.Equal(c.t, "10.20.30.40:22", spec["sshEndpoint"])
	status, _ := machine["status"].(map[string]any)
	return status
}

// checkConditions checks each field of the conditions of a machine that has joined its cluster.
func (c *documentClient) checkConditions(status map[string]any) {
	c.t.Helper()
	holds := map[string]any{}
	conditions, _ := status["conditions"].([]any)
	for _, v := range conditions {
		condition, _ := v.(map[string]any)
		c.timeOf(condition, "lastTransition")
		require.NotEmpty(c.t, condition["reason"], "%v", condition)
		holds[textOf(condition, "type")] = condition["status"]
	}
	require.Equal(c.t, true, holds["InCustomerCluster"], "%v", conditions)
}

// checkRun checks each field of a run that has succeeded.
func (c *documentClient) checkRun(run map[string]any) {
	c.t.Helper()
	for field, want := range map[string]string{
		"machineId": "m-123", "requestId": "req-456", "type": "REPAVE", "planId": "plan-repave-ubuntu-2204-v1", "phase": "SUCCEEDED",
	} {
		require.Equal(c.t, want, run[field], field)
	}
	created, started, finished := c.timeOf(run, "createdAt"), c.timeOf(run, "startedAt"), c.timeOf(run, "finishedAt")
	require.False(c.t, started.Before(created))
	require.True(c.t, finished.After(started))
	steps, _ := run["steps"].([]any)
	require.Len(c.t, steps, 5)
	for i, name := range []string{"set-netboot", "repave-os", "reboot", "join-cluster", "verify"} {
		step, _ := steps[i].(map[string]any)
		require.Equal(c.t, []any{name, "SUCCEEDED"}, []any{step["name"], step["state"]})
		require.False(c.t, c.timeOf(step, "finishedAt").Before(c.timeOf(step, "startedAt")), name)
	}
}

// timeOf returns a field that must be a time of just now.
func (c *documentClient) timeOf(from map[string]any, field string) time.Time {
	c.t.Helper()
	at, err := time.Parse(time.RFC3339Nano, textOf(from, field))
	require.NoError(c.t, err, "%s of %v", field, from)
	require.WithinDuration(c.t, time.Now(), at, runenv.Patience(10*time.Minute), field)
	return at
}

func textOf(from map[string]any, field string) string {
	v, _ := from[field].(string)
	return v
}

// projectToken returns a token of a member of a project.
func (w *world) projectToken(t *testing.T, project string) string {
	t.Helper()
	text, err := op.NewToken(op.ProjectTokenPrefix)
	require.NoError(t, err)
	var member tenancydb.Member
	require.NoError(t, w.App.Store.Tx(t.Context(), func(tx *db.Tx) (err error) {
		member, err = tenancydb.AddMember(t.Context(), tx, project, tenancydb.NewMember{Subject: "oidc:automation", Name: "Automation", Role: lifecycle.RoleProjectMember})
		return err
	}))
	require.NoError(t, w.App.Store.ForProject(t.Context(), project, func(tx *db.ProjectTx) error {
		_, err := tenancydb.AddToken(t.Context(), tx, member.ID, "ci", op.TokenHash(text), lifecycle.RoleProjectMember, time.Now().Add(time.Hour))
		return err
	}))
	return text
}

func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
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
