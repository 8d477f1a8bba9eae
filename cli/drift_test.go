package cli_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/cli"
	"github.com/slipway-cloud/slipway/db/dbtest"
	driftdb "github.com/slipway-cloud/slipway/db/drift"
	"github.com/slipway-cloud/slipway/lifecycle"
)

func TestDriftOnTheCommandLine(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.env["SLIPWAY_SERVER"], w.env["SLIPWAY_TOKEN"] = w.url, w.token("operator")
	site := dbtest.Site(t, w.store, dbtest.Named("south"))
	node := dbtest.Node(t, w.store, dbtest.Active(), dbtest.At(site.ID), dbtest.Hostname("gpu-7"))
	require.Contains(t, w.run("", "drift", "list").exits(cli.ExitOK).out, "No such findings.")
	boot, _ := lifecycle.DriftDetectorOf(lifecycle.DriftBootUnannounced)
	gpus, _ := lifecycle.DriftDetectorOf(lifecycle.DriftGPUCount)
	_, err := driftdb.ObserveFindings(t.Context(), w.store, site.ID, []driftdb.Observation{
		{Detector: boot, Subject: node.ID, NodeID: node.ID, Key: "b2", Message: "it has booted", Evidence: map[string]any{"boot_id": "b2"}},
		{Detector: gpus, Subject: node.ID, NodeID: node.ID, Key: "7 of 8", Message: "7 GPUs"},
	})
	require.NoError(t, err)
	rows, err := driftdb.ListFindings(t.Context(), w.store, driftdb.Filter{Detector: boot.Name}, "", 1)
	require.NoError(t, err)
	booted := rows[0].Finding.ID
	rows, err = driftdb.ListFindings(t.Context(), w.store, driftdb.Filter{Detector: gpus.Name}, "", 1)
	require.NoError(t, err)
	lost := rows[0].Finding.ID

	table := w.run("", "drift", "list", "--site", "south", "--node", "gpu-7").exits(cli.ExitOK).out
	for _, part := range []string{"DETECTOR", booted, "boot_id_changed_unannounced", "gpu-7", "7 GPUs", "critical"} {
		require.Contains(t, table, part)
	}
	require.NotContains(t, w.run("", "drift", "list", "--severity", "critical").exits(cli.ExitOK).out, booted)
	require.Contains(t, w.run("", "drift", "show", booted).exits(cli.ExitOK).out, `"boot_id": "b2"`)
	w.run("", "drift", "show", "drift_none").exits(cli.ExitNotFound)

	w.run("", "drift", "adopt", booted).exits(cli.ExitUsage)
	require.Contains(t, w.run("", "drift", "adopt", booted, "--reason", "a power cut").exits(cli.ExitOK).out, "adopted by")
	w.run("", "drift", "adopt", lost, "--reason", "no").exits(cli.ExitRefused)
	require.Contains(t, w.run("", "drift", "quarantine", lost, "--reason", "on its way to repair").exits(cli.ExitOK).out, "quarantine by")
	require.Contains(t, w.run("", "drift", "ignore", lost, "--reason", "known").exits(cli.ExitOK).out, "ignored")
	require.Contains(t, w.run("", "drift", "list", "--status", "closed").exits(cli.ExitOK).out, booted)
	require.Contains(t, w.run("", "drift", "list", "--status", "all").exits(cli.ExitOK).out, lost)
	require.Contains(t, w.run("", "attention", "--site", "south").exits(cli.ExitOK).out, "node_quarantined")

	pass, err := driftdb.BeginPass(t.Context(), w.store, site.ID, time.Hour)
	require.NoError(t, err)
	require.NoError(t, driftdb.FinishPass(t.Context(), w.store, pass, "the region is away", []byte(`{"nodes": 1}`)))
	require.Contains(t, w.run("", "drift", "passes").exits(cli.ExitOK).out, "the region is away")
	w.env["SLIPWAY_TOKEN"] = w.token("viewer")
	w.run("", "drift", "ignore", lost, "--reason", "x").exits(cli.ExitUnauthorised)
}
