package main

import (
	"context"
	"crypto/rand"
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

// The machine and the plan that a newcomer finds first: a data center's machine is installed again
// and joins its cluster. The provider dc-1 of the demo is simulated.
const (
	sampleMachine = `{
  "machine_id": "m-123", "labels": {"env": "prod", "role": "worker", "provider": "dc-1"},
  "spec": {"ssh_endpoint": "10.20.30.40:22", "bmc_endpoint": "10.20.30.41", "target_cluster_ref": "cluster-a", "mac_addresses": ["aa:bb:cc:dd:ee:ff"]}
}`
	samplePlan = `{
  "plan_id": "plan-repave-ubuntu-2204-v1", "display_name": "Repave Ubuntu 22.04 + Join Cluster",
  "steps": [
    {"name": "set-netboot", "timeout_seconds": 60, "max_retries": 2, "netboot": {"mode": "PXE"}},
    {"name": "repave-os", "timeout_seconds": 1800, "max_retries": 1, "repave": {"image": "ubuntu-22.04"}},
    {"name": "reboot", "timeout_seconds": 300, "max_retries": 2, "reboot": {"mode": "bmc"}},
    {"name": "join-cluster", "timeout_seconds": 600, "max_retries": 1, "join": {"cluster_ref": "cluster-a"}},
    {"name": "verify", "timeout_seconds": 300, "max_retries": 0, "verify": {"cluster_ref": "cluster-a"}}
  ]
}`
	simulatedCA = "sha256:0000000000000000000000000000000000000000000000000000000000000000"
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
	fmt.Fprintln(out, "\nAutomation registers a machine over the gRPC API, runs a plan on it, has a campaign restart every machine of a label, and installs a machine again that then joins its cluster. Both machines are simulated in the worker: no command is really run.")
	dir, err := os.MkdirTemp("", "slipway-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary folder
	files := map[string]string{"machine": automatedMachine, "plan": automatedPlan, "sample-machine": sampleMachine, "sample-plan": samplePlan, "kubeconfig": "kubeconfig-" + rand.Text()}
	for name, text := range files {
		files[name] = filepath.Join(dir, name+".json")
		if err := os.WriteFile(files[name], []byte(text), 0o600); err != nil {
			return err
		}
	}
	for _, args := range [][]string{
		{"machine", "register", files["machine"]}, {"plan", "create", files["plan"]},
		{"run", "start", "m-1", "UPGRADE", "--plan", "check-and-reboot", "--follow"}, {"machine", "list"},
		{"campaign", "create", "REBOOT", "--filter", "labels.env=demo", "--watch"},
		{"secret", "put", "clusters/cluster-a", "--kind", "kubeconfig", "--network", "127.0.0.0/8", "--from-file", files["kubeconfig"]},
		{"cluster", "create", "cluster-a", "--api-url", "https://127.0.0.1:6443", "--ca-pin", simulatedCA, "--kubeconfig", "clusters/cluster-a", "--kubernetes-version", "v1.34.1"},
		{"machine", "register", files["sample-machine"]}, {"plan", "create", files["sample-plan"]},
		{"run", "start", "m-123", "REPAVE", "--plan", "plan-repave-ubuntu-2204-v1", "--follow"},
	} {
		if err := o.show(ctx, out, args...); err != nil {
			return err
		}
	}
	return nil
}
