package drift_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	hardwaredb "github.com/slipway-cloud/slipway/db/hardware"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/intent/rackdevice"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/hardware"
	simhw "github.com/slipway-cloud/slipway/sim/hw"
	redfishsim "github.com/slipway-cloud/slipway/sim/redfish"
)

// kinds counts the parts of an inventory that are there.
func kinds(i hardware.Inventory) map[hardware.Kind]int {
	out := map[hardware.Kind]int{}
	for _, k := range i.Parts {
		if !k.Gone {
			out[k.Kind]++
		}
	}
	return out
}

// TestParts_OfAPass: one login reads parts, health and logs, and what agents report is kept beside
// it.
func TestParts_OfAPass(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.readParts()
	require.Equal(t, 1, w.bmc.Counters().Logins, "one login for all of it")
	survey, err := hardwaredb.SurveyOf(t.Context(), w.store, w.rec.ID)
	require.NoError(t, err)
	require.Equal(t, "OK", survey.Health)
	require.Empty(t, survey.Partial)
	got := kinds(survey.Inventory)
	require.Equal(t, 8, got[hardware.GPU])
	require.Equal(t, 2, got[hardware.DPU])
	require.Equal(t, 2, got[hardware.CPU])
	require.Len(t, survey.Modes, 2)
	agent, err := hardwaredb.AgentInventoryOf(t.Context(), w.store, w.node.ID)
	require.NoError(t, err)
	require.Equal(t, 8, kinds(agent.Inventory)[hardware.GPU])
	require.Equal(t, len(w.hw.Spec().Disks), kinds(agent.Inventory)[hardware.Drive])
	require.Empty(t, w.open(), "the first reading is no change")

	require.NoError(t, w.bmc.SetField(oneGPU, "SerialNumber", "ANOTHER-GPU"))
	w.pass()
	f := w.finding(lifecycle.DriftPartsChanged)
	require.Contains(t, f.Message, "gpu ANOTHER-GPU: added")
	survey, err = hardwaredb.SurveyOf(t.Context(), w.store, w.rec.ID)
	require.NoError(t, err)
	require.Equal(t, 8, kinds(survey.Inventory)[hardware.GPU])
	require.Len(t, survey.Inventory.Changes, 2)
}

// TestParts_LogsSurviveTheirBMC: entries are copied in each pass; clearing the BMC's log deletes
// none, and an id that comes again is another entry.
func TestParts_LogsSurviveTheirBMC(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.bmc.AddLogEntry("Critical", "Uncorrectable ECC error on GPU 3")
	w.readParts()
	entries := func() []hardwaredb.LogEntry {
		t.Helper()
		all, err := hardwaredb.ListLogEntries(t.Context(), w.store, w.rec.ID, hardwaredb.LogFilter{}, 0, 200)
		require.NoError(t, err)
		return all
	}
	has := func(all []hardwaredb.LogEntry, text string) bool {
		return slices.ContainsFunc(all, func(e hardwaredb.LogEntry) bool { return e.Message == text })
	}
	before := entries()
	require.True(t, has(before, "Uncorrectable ECC error on GPU 3"))
	require.Zero(t, w.pass().BMCs.LogEntries, "what is kept is not copied again")
	require.Len(t, entries(), len(before))

	w.bmc.ClearLog()
	w.bmc.AddLogEntry("Warning", "Log cleared by root")
	require.Positive(t, w.pass().BMCs.LogEntries)
	after := entries()
	require.True(t, has(after, "Uncorrectable ECC error on GPU 3"))
	require.True(t, has(after, "Log cleared by root"), "its id is one that the log had before")
	later, err := hardwaredb.ListLogEntries(t.Context(), w.store, w.rec.ID, hardwaredb.LogFilter{}, before[len(before)-1].ID, 200)
	require.NoError(t, err)
	require.Len(t, later, len(after)-len(before), "the cursor continues")
}

// rackDevice adds a power shelf with a simulated BMC to the site.
func (w *world) rackDevice() (*redfishsim.Server, hardwaredb.RackDevice) {
	w.t.Helper()
	m, err := w.fleet.Add(simhw.GPUServer("NVIDIA", 3))
	require.NoError(w.t, err)
	shelf, err := redfishsim.New(redfishsim.Options{Machine: m, Personality: "NVIDIA-PowerShelf", TLS: true, Seed: 9})
	require.NoError(w.t, err)
	url, stop, err := shelf.Start(w.t.Context(), "127.0.0.1:0")
	require.NoError(w.t, err)
	w.t.Cleanup(stop)
	w.putLogin("bmc/shelf", m.Spec().BMCUser, m.Spec().BMCPassword)
	request := rackdevice.Request{SiteID: w.site.ID, Kind: "power_shelf", Name: "shelf-1", Rack: "A1", BMC: intent.BMC{Address: url, CredentialRef: "bmc/shelf", Protocol: "redfish"}}
	require.NoError(w.t, rackdevice.Check(w.t.Context(), w.store, request))
	var row hardwaredb.RackDevice
	require.NoError(w.t, w.store.Tx(w.t.Context(), func(tx *db.Tx) error {
		row, err = rackdevice.Create(w.t.Context(), tx, request)
		return err
	}))
	return shelf, row
}

// TestParts_OfARackDevice: its certificate waits for approval before any login, its health is a
// finding that closes, and it is never a node.
func TestParts_OfARackDevice(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	shelf, row := w.rackDevice()
	w.acts.Policy.HealthEvery = time.Nanosecond
	w.pass()
	require.Zero(t, shelf.Counters().Logins, "no password goes to a certificate that nobody approved")
	rec, err := w.store.BMC(t.Context(), row.BMCID)
	require.NoError(t, err)
	require.Len(t, rec.PinPending, 64)
	require.NoError(t, w.store.SetBMCPin(t.Context(), rec.ID, rec.PinPending))
	w.pass()
	survey, err := hardwaredb.SurveyOf(t.Context(), w.store, rec.ID)
	require.NoError(t, err)
	require.Equal(t, "OK", survey.Health)
	require.NotEmpty(t, kinds(survey.Inventory)[hardware.PSU])
	require.Empty(t, w.open())

	require.NoError(t, shelf.SetHealth("/redfish/v1/Chassis/powershelf", "Critical"))
	w.pass()
	f := w.finding(lifecycle.DriftBMCUnhealthy)
	require.Equal(t, rec.ID, f.Subject)
	require.Nil(t, f.NodeID)
	require.Contains(t, f.Message, "power_shelf shelf-1")
	_, err = w.act(f.ID, lifecycle.DriftQuarantine)
	var conflict *db.ConflictError
	require.ErrorAs(t, err, &conflict, "it is no node")
	require.NoError(t, shelf.SetHealth("/redfish/v1/Chassis/powershelf", "OK"))
	w.pass()
	require.Empty(t, w.open())

	rec, err = w.store.BMC(t.Context(), rec.ID)
	require.NoError(t, err)
	err = w.store.Tx(t.Context(), func(tx *db.Tx) error { return tx.BMCFree(t.Context(), rec.Address+"/", "redfish", "", w.node.ID) })
	require.ErrorAs(t, err, &conflict, "its BMC is no node's")
	require.Equal(t, row.ID, conflict.Existing)
	other := w.neighbour(lifecycle.NodeActive)
	rec.NodeID = &other.ID
	_, err = w.store.UpdateBMC(t.Context(), rec)
	require.ErrorIs(t, err, db.ErrInvalid, "a rack device's BMC is no node's, whoever asks")
}
