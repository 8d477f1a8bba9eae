package cli_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/cli"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
	pxesim "github.com/slipway-cloud/slipway/sim/pxe"
)

// An admin brings a machine into service with nothing but the command line.
func TestAPXENodeByTheCommandLine(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.env["SLIPWAY_SERVER"], w.env["SLIPWAY_TOKEN"] = w.url, w.token("admin")
	w.run("kernel: {url: http://127.0.0.1:1/vmlinuz}\ncommand_line: 'quiet ds=nocloud-net;s={{ .SeedURL }}'\nuser_data: |\n  #cloud-config\n  hostname: {{ .Hostname }}\n",
		"install-workflow", "create", "ubuntu", "-f", "-").exits(cli.ExitOK)
	require.Contains(t, w.run("", "install-workflow", "list").exits(cli.ExitOK).out, "ubuntu")
	bad := w.run("", "install-workflow", "update", "ubuntu", "--set", "user_data={{ call .X }}").exits(cli.ExitUsage)
	require.Contains(t, bad.err, "uses call")
	w.run("", "device-group", "put", "lab", "--auto-promote").exits(cli.ExitOK)
	require.Contains(t, w.run("", "device-group", "list").exits(cli.ExitOK).out, "true")

	m := &pxesim.Machine{Server: w.url, MAC: "52:54:00:00:00:01"}
	_, err := m.Report(t.Context(), "", pxesim.Report{Vendor: "Dell"})
	require.NoError(t, err)
	const name = "pxe-525400000001"
	require.Contains(t, w.run("", "node", "list", "--lifecycle", "pxe").exits(cli.ExitOK).out, name)
	shown := w.run("", "node", "show", name).exits(cli.ExitOK).out
	require.Contains(t, shown, "vendor Dell")
	require.Contains(t, shown, "pending, retired")
	w.run("", "node", "state", name, "active").exits(cli.ExitRefused)
	require.Contains(t, w.run("", "node", "approve", name, "--workflow", "ubuntu", "--comment", "rack 7").exits(cli.ExitOK).out, "is pending")
	require.Contains(t, w.run("", "node", "history", name).exits(cli.ExitOK).out, "rack 7")
	// Approved once more, it is refused before another workflow is assigned.
	w.run("kernel: {url: http://127.0.0.1:1/vmlinuz}\n", "install-workflow", "create", "other", "-f", "-").exits(cli.ExitOK)
	before := w.run("", "node", "show", name, "--utc").exits(cli.ExitOK).out
	again := w.run("", "node", "approve", name, "--workflow", "other").exits(cli.ExitRefused)
	require.Contains(t, again.err, "is pending")
	require.Contains(t, again.err, "slipway node assign-workflow "+name)
	require.Equal(t, before, w.run("", "node", "show", name, "--utc").exits(cli.ExitOK).out)
	w.run("", "install-workflow", "delete", "other").exits(cli.ExitOK)
	require.Contains(t, w.run("", "node", "assign-workflow", name, "ubuntu").exits(cli.ExitOK).out, name+" is installed with ubuntu from now on")
	w.run("", "install-workflow", "delete", "ubuntu").exits(cli.ExitRefused)
	said := w.run("", "node", "replace-hardware", name, "--mac", "52:54:00:00:00:09", "--serial", "S2").exits(cli.ExitRefused)
	require.Contains(t, said.err, "begin with slipway node migrate "+name)
	w.run("", "node", "state", name, "retired", "--force").exits(cli.ExitOK)

	m.MAC = "52:54:00:00:00:02"
	_, err = m.Report(t.Context(), "", pxesim.Report{})
	require.NoError(t, err)
	require.Contains(t, w.run("", "node", "purge-discovered", "--source", "nonsense").exits(cli.ExitUsage).err, "IP address")
	require.Contains(t, w.run("", "node", "purge-discovered", "--unseen", "1h").exits(cli.ExitOK).out, "0 nodes")
	require.Contains(t, w.run("", "node", "purge-discovered").exits(cli.ExitOK).out, "1 nodes")
	w.run("", "device-group", "delete", "lab").exits(cli.ExitOK)
}

const eraser = "kernel: {url: http://127.0.0.1:1/vmlinuz}\ncommand_line: 'ds=nocloud-net;s={{ .SeedURL }}'\nuser_data: |\n  #cloud-config\n  hostname: eraser\nagent: {heartbeat_seconds: 10}\n"

// erasable is a server with an active PXE node and a workflow that it can be
// installed and erased with.
func erasable(t *testing.T) (*world, db.Node) {
	t.Helper()
	w, _ := leaverWorld(t)
	w.run(eraser, "install-workflow", "create", "eraser", "-f", "-").exits(cli.ExitOK)
	return w, dbtest.PXENode(t, w.store, "52:54:00:00:01:01", lifecycle.NodeActive)
}

func (w *world) operation(id string) (db.Job, contract.DecommissionInput) {
	w.t.Helper()
	job, err := w.store.LiveOperation(w.t.Context(), id)
	require.NoError(w.t, err)
	var in contract.DecommissionInput
	require.NoError(w.t, json.Unmarshal(job.Input, &in))
	return job, in
}

func TestANodeIsDeprovisionedByTheCommandLine(t *testing.T) {
	t.Parallel()
	w, n := erasable(t)
	do := func(args ...string) said { return w.run("", append([]string{"node"}, args...)...) }
	missing := do("deprovision", n.Hostname).exits(cli.ExitRefused)
	require.Contains(t, missing.err, "slipway node assign-workflow "+n.Hostname+" WORKFLOW --erase")
	do("assign-workflow", n.Hostname, "none", "--erase").exits(cli.ExitNotFound)
	do("assign-workflow", n.Hostname, "").exits(cli.ExitUsage)
	w.run("gpus: 4\n", "sku", "create", "a100x4", "-f", "-").exits(0)
	require.Contains(t, do("assign-sku", n.Hostname, "a100x4").exits(0).out, "is held against a100x4")
	do("assign-sku", n.Hostname, "none").exits(cli.ExitNotFound)

	// The device group's is taken where the node has none, and what is not named stays.
	w.run("", "device-group", "put", "lab", "--auto-promote").exits(0)
	w.run("", "device-group", "put", "lab", "--erase-workflow", "eraser").exits(0)
	groups := w.run("", "device-group", "list").exits(0).out
	require.Regexp(t, `lab +true +eraser`, groups)
	w.run("", "device-group", "put", "lab", "--auto-promote=false").exits(0)
	require.Regexp(t, `lab +false +eraser`, w.run("", "device-group", "list").exits(0).out)
	w.run("", "device-group", "put", "lab", "--erase-workflow", "").exits(0)
	require.Regexp(t, `lab +false +-`, w.run("", "device-group", "list").exits(0).out)

	do("assign-workflow", n.Hostname, "eraser", "--erase").exits(0)
	require.Regexp(t, `erase workflow +eraser`, do("show", n.Hostname).exits(0).out)
	require.Contains(t, do("deprovision", n.Hostname, "--plan").exits(0).out, "erase disks I")
	do("deprovision", n.Hostname, "--plan", "--wait").exits(cli.ExitUsage)
	require.Equal(t, lifecycle.NodeActive, status(t, w, n.ID))
	started := do("deprovision", n.Hostname, "--grace", "30", "--comment", "end of lease").exits(0)
	require.Contains(t, started.out, n.Hostname+" is deprovisioning; job job_")
	job, in := w.operation(n.ID)
	require.Equal(t, []any{lifecycle.ModeDeprovision, 30, "end of lease"}, []any{in.Mode, in.GraceSeconds, in.Reason})
	require.Contains(t, do("deprovision", n.Hostname, "--grace", "30").exits(0).out, job.ID, "asked for once more")
	said := do("state", n.Hostname, "retired").exits(cli.ExitRefused)
	require.Contains(t, said.err, "slipway job cancel "+job.ID)
	require.Contains(t, said.err, "--force")

	require.Contains(t, do("show", n.Hostname).exits(0).out, job.ID)
	require.Contains(t, do("timeline", n.Hostname).exits(0).out, "deprovision")
	require.Contains(t, w.run("", "job", "list", "--node", n.Hostname).exits(0).out, job.ID)
	require.Contains(t, w.run("", "job", "list", "--kind", "node_operation").exits(0).out, job.ID)
	require.Contains(t, w.run("", "job", "list", "--kind", "nope").exits(cli.ExitUsage).err, "not a kind of job")
	shown := w.run("", "job", "show", n.Hostname).exits(0).out
	require.Regexp(t, `kind +node_operation: deprovision`, shown)
	require.Contains(t, shown, lifecycle.StageBootEraser)
	require.Contains(t, w.run("", "job", "plan", n.Hostname).exits(0).out, "erase disks")
	require.Contains(t, do("drain", n.Hostname).exits(cli.ExitRefused).err, "slipway node state "+n.Hostname)

	// Cancelled before it began, the node stays; the next one is watched to its end.
	w.run(`{"username":"root","password":"calvin"}`, "secret", "put", "bmc/a", "--kind", "bmc_login", "--network", "10.0.0.0/8,127.0.0.0/8", "--stdin").exits(0)
	do("set-bmc", n.Hostname, "--address", "10.0.0.9").exits(cli.ExitUsage)
	do("set-bmc", n.Hostname, "--address", "10.0.0.9", "--credential-ref", "bmc/none").exits(cli.ExitUsage)
	require.Contains(t, do("set-bmc", n.Hostname, "--address", "10.0.0.9", "--credential-ref", "bmc/a", "--pin", strings.Repeat("0f", 32)).exits(0).out, "at 10.0.0.9")
	require.Contains(t, w.run("", "bmc", "list").exits(0).out, "10.0.0.9")

	w.run("", "job", "cancel", n.Hostname).exits(0)
	advice := strings.ReplaceAll(w.run("", "attention").exits(0).out, "\n    | ", " ") // a long line goes on below
	require.Contains(t, advice, "slipway node deprovision "+n.Hostname)
	late := do("deprovision", n.Hostname, "--wait", "--interval", "10ms", "--watch-timeout", "100ms").exits(cli.ExitError)
	require.Contains(t, late.out, n.Hostname+": pending")
	again, _ := w.operation(n.ID)
	require.NotEqual(t, job.ID, again.ID)
	require.NoError(t, w.store.Tx(t.Context(), func(tx *db.Tx) error {
		_, err := tx.TransitionJob(t.Context(), again.ID, lifecycle.JobCancel, nil, db.Actor{Owner: lifecycle.OwnerSystem})
		return err
	}))
	do("state", n.Hostname, "retired").exits(0)
	w.env["SLIPWAY_TOKEN"] = w.token("operator")
	do("deprovision", n.Hostname).exits(cli.ExitUnauthorised)
}

// TestNodeMigrate_SameDisks erases a node and installs it again: its own hardware is planned, and
// no other may be.
func TestNodeMigrate_SameDisks(t *testing.T) {
	t.Parallel()
	w, n := erasable(t)
	do := func(args ...string) said { return w.run("", append([]string{"node"}, args...)...) }
	do("assign-workflow", n.Hostname, "eraser").exits(0)
	require.Contains(t, do("migrate", n.Hostname, "--disks", "same").exits(cli.ExitRefused).err, "has no erase workflow")
	do("assign-workflow", n.Hostname, "eraser", "--erase").exits(0)
	require.Contains(t, do("migrate", n.Hostname, "--disks", "same", "--mac", "52:54:00:00:01:09").exits(cli.ExitUsage).err, "is the node's own")
	require.Contains(t, do("migrate", n.Hostname, "--disks", "same", "--plan").exits(0).out, "put the node on "+n.MACs[0])
	require.Contains(t, do("migrate", n.Hostname, "--disks", "same").exits(0).out, "is migrating")
	_, in := w.operation(n.ID)
	require.Equal(t, []any{lifecycle.ModeMigrate, "same", true}, []any{in.Mode, in.Disks, in.EraseOld})
	require.Contains(t, do("migrate", n.Hostname, "--disks", "same").exits(0).out, "is migrating", "the same once more")
	do("migrate", n.Hostname, "--erase-old").exits(cli.ExitRefused)
	require.Contains(t, do("replace-hardware", n.Hostname, "--mac", "52:54:00:00:01:09").exits(cli.ExitRefused).err, "installs it again")
}

func TestANodeIsMigratedByTheCommandLine(t *testing.T) {
	t.Parallel()
	w, n := erasable(t)
	do := func(args ...string) said { return w.run("", append([]string{"node"}, args...)...) }
	for _, args := range [][]string{
		{"--serial", "S2"}, {"--bmc-address", "10.0.0.9"}, {"--mac", "52:54:00:00:01:09", "--bmc-address", "10.0.0.9"}, {"--mac", "52:54:00:00:01:09", "--bmc-protocol", "ipmi"},
	} {
		require.Regexp(t, `--mac|--bmc-address`, do(append([]string{"migrate", n.Hostname}, args...)...).exits(cli.ExitUsage).err)
		do(append([]string{"replace-hardware", n.Hostname}, args...)...).exits(cli.ExitUsage)
	}
	do("migrate", n.Hostname, "--disks", "old").exits(cli.ExitUsage)
	require.Contains(t, do("migrate", n.Hostname).exits(cli.ExitRefused).err, "installs no agent")
	require.Contains(t, do("migrate", n.Hostname, "--disks", "moved").exits(cli.ExitRefused).err, "No agent of node")
	require.Contains(t, do("migrate", n.Hostname, "--disks", "moved", "--erase-old").exits(cli.ExitUsage).err, "would erase the disks")
	do("assign-workflow", n.Hostname, "eraser").exits(0)
	require.Contains(t, do("migrate", n.Hostname, "--erase-old").exits(cli.ExitRefused).err, "has no erase workflow")
	do("assign-workflow", n.Hostname, "eraser", "--erase").exits(0)
	w.run(`{"username":"root","password":"calvin"}`, "secret", "put", "bmc/new", "--kind", "bmc_login", "--network", "10.0.0.0/8,127.0.0.0/8", "--stdin").exits(0)

	require.Contains(t, do("migrate", n.Hostname, "--erase-old", "--plan").exits(0).out, "dry run")
	require.Contains(t, do("migrate", n.Hostname, "--plan", "--mac", "no address").exits(cli.ExitUsage).err, "Ethernet address")
	require.Contains(t, do("migrate", n.Hostname, "--plan", "--mac", "52:54:00:00:01:08").exits(0).out, "put the node on 52:54:00:00:01:08")
	require.Contains(t, do("migrate", n.Hostname, "--erase-old", "--mac", "52:54:00:00:01:08").exits(0).out, "is migrating")
	job, in := w.operation(n.ID)
	require.Equal(t, []any{lifecycle.ModeMigrate, "new", true}, []any{in.Mode, in.Disks, in.EraseOld})
	planned := do("replace-hardware", n.Hostname, "--mac", "52:54:00:00:01:09", "--serial", "S2", "--bmc-address", "10.0.0.9", "--bmc-credential-ref", "bmc/new").exits(0)
	require.Contains(t, planned.out, "52:54:00:00:01:09; serial S2; BMC 10.0.0.9; new disks")
	do("set-bmc", n.Hostname, "--address", "10.0.0.8", "--credential-ref", "bmc/new").exits(0)
	bare := do("replace-hardware", n.Hostname, "--mac", "52:54:00:00:01:09", "--serial", "S2").exits(cli.ExitUsage)
	require.Contains(t, bare.err, "--bmc-address")
	require.Contains(t, bare.err, "--keep-bmc")
	do("replace-hardware", n.Hostname, "--mac", "52:54:00:00:01:09", "--keep-bmc", "--bmc-address", "10.0.0.9", "--bmc-credential-ref", "bmc/new").exits(cli.ExitUsage)
	do("migrate", n.Hostname, "--keep-bmc").exits(cli.ExitUsage)
	do("replace-hardware", n.Hostname, "--mac", "52:54:00:00:01:09", "--serial", "S2", "--keep-bmc").exits(0)
	shown := do("show", n.Hostname).exits(0).out
	require.Regexp(t, `planned hardware +52:54:00:00:01:09; serial S2`, shown)
	require.Contains(t, shown, job.ID)
	do("state", n.Hostname, "active").exits(cli.ExitRefused)
	do("state", n.Hostname, "active", "--force").exits(0)
}
