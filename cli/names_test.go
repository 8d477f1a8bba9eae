package cli_test

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/cli"
	"github.com/slipway-cloud/slipway/db/dbtest"
	driftdb "github.com/slipway-cloud/slipway/db/drift"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// TestNames_StandForIDs checks that a node shows the names of what it belongs to, and that batches
// and findings are taken by name.
func TestNames_StandForIDs(t *testing.T) {
	t.Parallel()
	w := ready(t)
	onboard(w).exits(0)
	shown := w.run("", "node", "show", "gpu-1").exits(0).out
	for _, row := range []string{`(?m)^site +north \(site_`, `(?m)^profile +standard \(prof_`, `(?m)^sku +h100x8 \(sku_`} {
		require.Regexp(t, row, shown)
	}

	batch := func(hostname string) {
		w.run("name: rack-7\nsite: north\nprofile: standard\nsku: h100x8\nitems: [{hostname: "+hostname+", bmc: 10.0.0."+hostname[1:]+", credential: bmc/gpu-1}]\n",
			"node", "onboard", "-f", "-").exits(0)
	}
	batch("b2")
	require.Contains(t, w.run("", "batch", "show", "rack-7").exits(0).out, "b2")
	require.Contains(t, w.run("", "job", "list", "--batch", "rack-7").exits(0).out, "b2")
	require.Contains(t, w.run("", "batch", "show", "rack-8").exits(cli.ExitNotFound).err, "slipway batch list")
	batch("b3")
	require.Regexp(t, `2 batches have the name "rack-7"; give the id of one:\n  batch_[\w-]+  rack-7.*\n  batch_[\w-]+  rack-7`, w.run("", "batch", "show", "rack-7").exits(cli.ExitRefused).err)

	node := dbtest.Node(t, w.store, dbtest.Active(), dbtest.Hostname("gpu-9"))
	boot, _ := lifecycle.DriftDetectorOf(lifecycle.DriftBootUnannounced)
	gpus, _ := lifecycle.DriftDetectorOf(lifecycle.DriftGPUCount)
	id := node.ID
	_, err := driftdb.ObserveFindings(t.Context(), w.store, node.SiteID, []driftdb.Observation{
		{Detector: boot, Subject: id, NodeID: id, Key: "b2", Message: "it has booted"}, {Detector: gpus, Subject: id, NodeID: id, Key: "7 of 8", Message: "7 GPUs"},
	})
	require.NoError(t, err)
	require.Contains(t, w.run("", "drift", "show", "gpu-9").exits(cli.ExitRefused).err, "gpu-9/DETECTOR")
	require.Contains(t, w.run("", "drift", "show", "gpu-9/"+gpus.Name).exits(0).out, "7 GPUs")
	w.run("", "drift", "ignore", "gpu-9/"+gpus.Name, "--reason", "known").exits(0)
	require.Contains(t, w.run("", "drift", "adopt", "gpu-9/"+boot.Name, "--reason", "a power cut").exits(0).out, "adopted by")
	w.run("", "drift", "show", "gpu-9/"+boot.Name).exits(cli.ExitNotFound)
	require.Contains(t, w.run("", "drift", "show", "gpu-9").exits(0).out, "7 GPUs", "it is the only one that is left")
}

// TestCompletion_OffersNames checks what a shell is offered, and that a server that cannot be asked
// offers nothing.
func TestCompletion_OffersNames(t *testing.T) {
	t.Parallel()
	w := ready(t)
	onboard(w).exits(0)
	offered := func(line ...string) []string {
		s := w.run("", append([]string{"__complete"}, line...)...).exits(0)
		lines := strings.Split(strings.TrimSpace(s.out), "\n")
		return lines[:len(lines)-1] // the last is a directive
	}
	for _, line := range [][]string{
		{"node", "show", "gpu"}, {"node", "label", ""}, {"job", "show", "g"}, {"job", "cancel", ""}, {"drift", "list", "--node", ""},
		{"bmc", "rotate", ""}, {"bmc", "clear-block", "g"}, {"node", "reissue-agent", ""},
	} {
		require.Equal(t, []string{"gpu-1"}, offered(line...), line)
	}
	require.Equal(t, []string{"north"}, offered("node", "onboard", "--site", "n"))
	require.Equal(t, []string{"north"}, offered("site", "show", ""))
	require.Equal(t, []string{"h100x8"}, offered("node", "onboard", "--sku", ""))
	require.Equal(t, []string{"standard"}, offered("node", "onboard", "--site", "north", "--profile", ""))
	require.Equal(t, []string{"standard"}, offered("profile", "show", "--site", "north", "s"))
	require.Empty(t, offered("profile", "show", "--site", "west", ""), "each site has its own profiles")
	require.Empty(t, offered("node", "show", "gpu-1", ""), "one argument is all")
	require.Empty(t, offered("node", "show", "x"))
	w.env["SLIPWAY_SERVER"], w.env["SLIPWAY_TOKEN"] = "http://127.0.0.1:1", "x"
	require.Empty(t, offered("node", "show", ""))
}

// TestTimes_AreRelative checks both forms of times in tables, and that a clock that differs from
// the server's moves none.
func TestTimes_AreRelative(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	token := w.token("viewer")
	w.env["SLIPWAY_SERVER"], w.env["SLIPWAY_TOKEN"] = w.url, token
	dbtest.Node(t, w.store, dbtest.Active(), dbtest.Hostname("gpu-7"))
	require.Regexp(t, `gpu-7 .* \d+s ago`, w.run("", "node", "list").exits(0).out)
	require.Regexp(t, `gpu-7 .* 20\d\d-\d\d-\d\dT[\d:]+Z`, w.run("", "node", "list", "--utc").exits(0).out)

	target, err := url.Parse(w.url)
	require.NoError(t, err)
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.ModifyResponse = func(r *http.Response) error {
		r.Header.Set("Date", time.Now().Add(3*time.Hour+time.Minute).UTC().Format(http.TimeFormat))
		return nil
	}
	ahead := httptest.NewServer(proxy)
	t.Cleanup(ahead.Close)
	w.env["SLIPWAY_SERVER"] = ahead.URL
	require.Regexp(t, `gpu-7 .* 3h0\dm ago`, w.run("", "node", "list").exits(0).out)
}
