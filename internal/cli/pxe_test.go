package cli_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/internal/cli"
	"github.com/slipway-cloud/slipway/internal/pxenode"
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

	m := &pxenode.Machine{Server: w.url, MAC: "52:54:00:00:00:01"}
	_, err := m.Report(t.Context(), "", pxenode.Report{Vendor: "Dell"})
	require.NoError(t, err)
	const name = "pxe-525400000001"
	require.Contains(t, w.run("", "node", "list", "--lifecycle", "pxe").exits(cli.ExitOK).out, name)
	shown := w.run("", "node", "show", name).exits(cli.ExitOK).out
	require.Contains(t, shown, "vendor Dell")
	require.Contains(t, shown, "pending, retired")
	w.run("", "node", "state", name, "active").exits(cli.ExitRefused)
	require.Contains(t, w.run("", "node", "approve", name, "--workflow", "ubuntu", "--comment", "rack 7").exits(cli.ExitOK).out, "is pending")
	require.Contains(t, w.run("", "node", "history", name).exits(cli.ExitOK).out, "rack 7")
	w.run("", "install-workflow", "delete", "ubuntu").exits(cli.ExitRefused)
	said := w.run("", "node", "replace-hardware", name, "--mac", "52:54:00:00:00:09", "--serial", "S2").exits(cli.ExitRefused)
	require.Contains(t, said.err, "while the node is migrating")
	w.run("", "node", "state", name, "retired", "--force").exits(cli.ExitOK)

	m.MAC = "52:54:00:00:00:02"
	_, err = m.Report(t.Context(), "", pxenode.Report{})
	require.NoError(t, err)
	require.Contains(t, w.run("", "node", "purge-discovered", "--unseen", "1h").exits(cli.ExitOK).out, "0 nodes")
	require.Contains(t, w.run("", "node", "purge-discovered").exits(cli.ExitOK).out, "1 nodes")
	w.run("", "device-group", "delete", "lab").exits(cli.ExitOK)
}
