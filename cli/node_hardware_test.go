package cli_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/cli"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	hardwaredb "github.com/slipway-cloud/slipway/db/hardware"
	"github.com/slipway-cloud/slipway/lifecycle/hardware"
)

// TestNodeHardware: the worst part is shown without asking for more, and a text of a BMC cannot
// write to the terminal.
func TestNodeHardware(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.env["SLIPWAY_SERVER"], w.env["SLIPWAY_TOKEN"] = w.url, w.token("viewer")
	n := dbtest.Node(t, w.store, dbtest.Active())
	rec, err := w.store.CreateBMC(t.Context(), db.NewBMC{NodeID: &n.ID, Address: "https://127.0.0.9", Protocol: "redfish", CredentialRef: "x"})
	require.NoError(t, err)
	require.NoError(t, hardwaredb.RecordSurvey(t.Context(), w.store, hardwaredb.Reading{
		BMCID: rec.ID, At: time.Now(), Health: "Critical", Whole: hardware.Kinds(),
		Probes: []hardware.PartHealth{{Target: "/gpu/3", Category: hardware.CategoryGPU, Health: "Critical"}, {Target: "/fan/1", Category: hardware.CategoryThermal, Health: "OK"}},
		Parts:  []hardware.Part{{Kind: hardware.GPU, URI: "/gpu/3", Serial: "G3", Model: "H100\x1b[2J"}, {Kind: hardware.PSU, URI: "/psu", Model: "3 kW"}},
	}))
	_, err = hardwaredb.RecordLogs(t.Context(), w.store, hardwaredb.LogReading{BMCID: rec.ID, At: time.Now(), Entries: []hardware.LogEntry{{Service: "SEL", ID: "1", Severity: "Critical", Message: "GPU 3 fell off the bus\x1b[2J"}}})
	require.NoError(t, err)

	out := w.run("", "node", "health", n.Hostname).exits(cli.ExitOK).out
	require.Contains(t, out, "/gpu/3")
	require.NotContains(t, out, "/fan/1")
	require.Contains(t, w.run("", "node", "health", n.ID, "--all").exits(cli.ExitOK).out, "/fan/1")
	out = w.run("", "node", "inventory", n.ID).exits(cli.ExitOK).out
	require.Contains(t, out, "G3")
	require.Contains(t, out, "(", "a derived id is marked")
	require.NotContains(t, out, "\x1b")
	require.NotContains(t, w.run("", "node", "inventory", n.ID, "--kind", "psu").exits(cli.ExitOK).out, "G3")
	w.run("", "node", "inventory", n.ID, "--changes").exits(cli.ExitOK)
	out = w.run("", "node", "bmc-log", n.ID, "--severity", "Critical", "--since", time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)).exits(cli.ExitOK).out
	require.Contains(t, out, "GPU 3 fell off the bus")
	require.NotContains(t, out, "\x1b")
	w.run("", "node", "bmc-log", n.ID, "--since", "yesterday").exits(cli.ExitUsage)
}
