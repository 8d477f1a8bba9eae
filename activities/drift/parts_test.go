package drift_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	hardwaredb "github.com/slipway-cloud/slipway/db/hardware"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/hardware"
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

// TestParts_OfAPass: one login reads parts, health and logs, and what agents report is kept beside it.
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

// TestParts_LogsSurviveTheirBMC: entries are copied in each pass; clearing the BMC's log deletes none, and
// an id that comes again is another entry.
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
