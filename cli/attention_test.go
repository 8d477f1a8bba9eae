package cli_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
)

func TestAttentionIsATable(t *testing.T) {
	t.Parallel()
	w := signedIn(t)
	require.NoError(t, w.store.FinishSweep(t.Context(), ""))
	require.Equal(t, "Nothing requires operator action.\n", w.run("", "attention").exits(0).out)
	site := dbtest.Site(t, w.store, dbtest.Named("south"))
	dbtest.Site(t, w.store, dbtest.Named("north"))
	node := dbtest.Node(t, w.store, dbtest.At(site.ID), dbtest.Hostname("gpu-7"), dbtest.Status(lifecycle.NodeQuarantined))
	job := dbtest.Job(t, w.store, dbtest.JobStatus(lifecycle.JobFailedRetryable))

	table := w.run("", "attention").exits(0).out
	for line := range strings.Lines(table) {
		require.LessOrEqual(t, len([]rune(strings.TrimRight(line, "\n"))), 120, line)
	}
	plain := strings.Join(strings.Fields(strings.ReplaceAll(table, "|", "")), " ")
	for _, part := range []string{"node_quarantined", "gpu-7 " + node.ID, "parked_job", job.ID, "onboard the host again"} {
		require.Contains(t, plain, part)
	}
	require.Less(t, strings.Index(table, "node_quarantined"), strings.Index(table, "parked_job"), "oldest first")
	require.NotContains(t, w.run("", "attention", "--kind", "parked_job").exits(0).out, "gpu-7")
	require.NotContains(t, w.run("", "attention", "--site", "south").exits(0).out, "parked_job")
	require.Contains(t, w.run("", "attention", "--site", "north").exits(0).out, "Nothing")
	require.NotContains(t, w.run("", "attention", "--limit", "1").exits(0).out, "parked_job")

	var got struct {
		Data []struct {
			JobID string `json:"job_id"`
		}
	}
	require.NoError(t, json.Unmarshal([]byte(w.run("", "attention", "--json").exits(0).out), &got))
	require.Len(t, got.Data, 2)
	require.Equal(t, job.ID, got.Data[1].JobID)
	w.run("", "attention", "--kind", "weather").exits(2)
	w.run("", "attention", "--site", "west").exits(3)
}
