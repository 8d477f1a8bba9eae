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
