package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// The demo's machine and plan of the API for automation. A script that begins with #fake says what
// a simulated machine shows.
const (
	automatedMachine = `{"machine_id": "m-1", "labels": {"provider": "fake", "env": "demo"}}`
	automatedPlan    = `{
  "plan_id": "check-and-reboot", "display_name": "Check the machine and reboot it",
  "steps": [
    {"name": "check", "ssh": {"command": "#fake\nstdout \"all filesystems are clean\\n\""}},
    {"name": "reboot", "reboot": {"mode": "bmc"}}
  ]
}`
)

// The machine of an onboarded node states no address: it is reached where MAAS put the node.
const nodeMachine = `{"machine_id": "m-2", "labels": {"provider": "datacenter", "env": "rack"}}`

// rebootNode restarts an onboarded node by a run: through its BMC, and proven by the boot id that
// the node then says over SSH.
func (o *operator) rebootNode(ctx context.Context, out io.Writer, w *watched) error {
	fmt.Fprintf(out, "\nA run restarts %s, which MAAS deployed. Its machine states no address: MAAS and the record of the node have it.\n", w.host)
	dir, err := os.MkdirTemp("", "slipway-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary folder
	machine := filepath.Join(dir, "machine.json")
	if err := os.WriteFile(machine, []byte(nodeMachine), 0o600); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"node", "show", w.host}, {"machine", "register", machine}, {"machine", "set-access", "m-2", "--node-id", w.host},
		{"campaign", "create", "REBOOT", "--filter", "labels.env=rack", "--dry-run"}, {"run", "start", "m-2", "REBOOT", "--follow"}, {"machine", "get", "m-2"},
	} {
		if err := o.show(ctx, out, args...); err != nil {
			return err
		}
	}
	return nil
}

// automate registers a machine that is simulated in the server itself, and runs a plan on it.
func (o *operator) automate(ctx context.Context, out io.Writer) error {
	fmt.Fprintln(out, "\nAutomation registers a machine over the gRPC API, runs a plan on it, and has a campaign restart every machine of a label. This machine is simulated in the worker: no command is really run.")
	dir, err := os.MkdirTemp("", "slipway-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary folder
	machine, plan := filepath.Join(dir, "machine.json"), filepath.Join(dir, "plan.json")
	for path, text := range map[string]string{machine: automatedMachine, plan: automatedPlan} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return err
		}
	}
	for _, args := range [][]string{
		{"machine", "register", machine}, {"plan", "create", plan}, {"run", "start", "m-1", "UPGRADE", "--plan", "check-and-reboot", "--follow"}, {"machine", "list"},
		{"campaign", "create", "REBOOT", "--filter", "labels.env=demo", "--watch"},
	} {
		if err := o.show(ctx, out, args...); err != nil {
			return err
		}
	}
	return nil
}
