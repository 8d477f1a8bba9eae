package e2e_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/cli"
	"github.com/slipway-cloud/slipway/test/runenv"
	"github.com/slipway-cloud/slipway/test/stack"
)

// TestCLI_MachineRuns takes a simulated machine through runs from the command line: API, relay,
// workflow, provider and the streams of output. One succeeds, one restarts the machine, one fails
// at a command, one is cancelled in the middle, and the default plans install it again, change its
// network and have it leave.
func TestCLI_MachineRuns(t *testing.T) {
	t.Parallel()
	w := newWorld(t, stack.Options{Count: 1})
	token, err := op.CreateToken(t.Context(), w.App.Store, "automation", []string{"admin"}, time.Hour)
	require.NoError(t, err)
	c := commandLine{w, token}
	file := func(name string, v any) string {
		raw, err := json.Marshal(v)
		require.NoError(t, err)
		path := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.WriteFile(path, raw, 0o600))
		return path
	}
	plan := func(id, script string) {
		type object = map[string]any
		c.run(t, cli.ExitOK, "plan", "create", file("plan.json", object{"plan_id": id, "steps": []object{
			{"name": "net-boot", "netboot": object{"mode": "PXE"}}, {"name": "work", "timeout_seconds": 600, "ssh": object{"command": script}},
		}}))
	}
	machine := "m-" + w.site.Name
	c.run(t, cli.ExitOK, "machine", "register", file("machine.json", map[string]any{"machine_id": machine, "labels": map[string]string{"provider": "fake", "machine": machine},
		"spec": map[string]string{"netplan": "network: {version: 2}\n"}}))
	state := func() string {
		var m struct {
			Status struct {
				State string `json:"effective_state"`
			} `json:"status"`
		}
		require.NoError(t, json.Unmarshal([]byte(c.run(t, cli.ExitOK, "machine", "get", machine, "-o", "json")), &m))
		return m.Status.State
	}
	require.Equal(t, "READY", state())

	plan(machine+"-good", "#fake\nstdout \"all is well\\n\"")
	out := c.run(t, cli.ExitOK, "run", "start", machine, "UPGRADE", "--plan", machine+"-good", "--follow")
	require.Contains(t, out, "all is well")
	require.Contains(t, out, "SUCCEEDED")
	require.Equal(t, "READY", state())
	require.Contains(t, c.run(t, cli.ExitOK, "run", "start", machine, "REBOOT", "--follow"), "SUCCEEDED")
	require.Contains(t, c.run(t, cli.ExitOK, "campaign", "create", "REBOOT", "--filter", "labels.machine="+machine, "--watch"), "COMPLETED")

	plan(machine+"-bad", "#fake\nstderr \"no space left\\n\"\nexit 3")
	out = c.run(t, cli.ExitJobFailed, "run", "start", machine, "UPGRADE", "--plan", machine+"-bad", "--follow")
	require.Contains(t, out, "no space left")
	require.Contains(t, out, "exit status 3")
	require.Equal(t, "MAINTENANCE", state())
	var failed struct {
		Runs []struct {
			ID string `json:"run_id"`
		} `json:"runs"`
	}
	require.NoError(t, json.Unmarshal([]byte(c.run(t, cli.ExitOK, "run", "list", "--filter", "phase=FAILED AND machine_id="+machine, "-o", "json")), &failed))
	require.Len(t, failed.Runs, 1)
	out = c.run(t, cli.ExitJobFailed, "run", "retry", failed.Runs[0].ID, "--follow")
	require.Contains(t, out, "in the place of "+failed.Runs[0].ID)
	require.Contains(t, out, "net-boot", "what it had set was cleared, so that it is set again")

	plan(machine+"-long", "#fake\nstdout \"begun\\n\"\nwait")
	var run struct {
		ID string `json:"run_id"`
	}
	require.NoError(t, json.Unmarshal([]byte(c.run(t, cli.ExitOK, "run", "start", machine, "UPGRADE", "--plan", machine+"-long", "-o", "json")), &run))
	c.run(t, cli.ExitRefused, "run", "start", machine, "REBOOT")
	require.Equal(t, "PROVISIONING", state())
	require.Eventually(t, func() bool { return strings.Contains(c.run(t, cli.ExitOK, "run", "logs", run.ID), "begun") }, runenv.Patience(time.Minute), 100*time.Millisecond)
	c.run(t, cli.ExitOK, "run", "cancel", run.ID)
	require.Eventually(t, func() bool { return strings.Contains(c.run(t, cli.ExitOK, "run", "get", run.ID), "CANCELED") }, runenv.Patience(time.Minute), 100*time.Millisecond)
	require.Equal(t, "MAINTENANCE", state())
	require.Contains(t, c.run(t, cli.ExitOK, "run", "list", "--filter", "machine_id="+machine+" AND phase=CANCELED"), run.ID)

	for _, end := range [][2]string{{"REPAVE", "READY"}, {"NET_RECONFIG", "READY"}, {"RMA", "RMA"}} { // the default plans
		require.Contains(t, c.run(t, cli.ExitOK, "run", "start", machine, end[0], "--follow"), "SUCCEEDED", end[0])
		require.Equal(t, end[1], state())
	}
}
