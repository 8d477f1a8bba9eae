package ipmi_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/lifecycle/hardware"
	ipmisim "github.com/slipway-cloud/slipway/sim/ipmi"
)

// The commands that a BMC refuses below, with the code for a node that is busy.
const (
	readingCommand   = "Get Sensor Reading"
	sdrCommand       = "Get SDR"
	inventoryCommand = "Read FRU Data"
	eventCommand     = "Get SEL Entry"
)

const damagedInventory = "inventory record: a part of it is blank, or its checksum is wrong"

// TestSurvey_NamesWhatItDidNotRead: a part that does not answer is named with a reason. It is
// neither OK nor left out, and nothing that was read beside it is lost.
func TestSurvey_NamesWhatItDidNotRead(t *testing.T) {
	t.Parallel()
	const inlet, supply = "sensor Inlet Temp (0x10)", "sensor PSU1 Status (0x20)"
	for name, c := range map[string]struct {
		change  func(r *reference)
		overall string
		probes  map[string]string // by target
		partial []string
		board   bool
	}{
		"everything answers": {
			change: func(*reference) {}, overall: "OK",
			probes: map[string]string{inlet: "OK", supply: "OK"}, board: true,
		},
		"a sensor refuses": {
			change:  func(r *reference) { r.bmc.Refuse(readingCommand, sensorInlet) },
			overall: "Unknown", probes: map[string]string{inlet: "Unknown", supply: "OK"}, partial: []string{inlet + ": busy"}, board: true,
		},
		"a sensor answers half": {
			change:  func(r *reference) { r.bmc.SetReading(sensorInlet, 0) },
			overall: "Unknown", probes: map[string]string{inlet: "Unknown", supply: "OK"}, partial: []string{inlet + ": protocol"}, board: true,
		},
		"a sensor refuses and another fails": {
			change: func(r *reference) {
				r.bmc.Refuse(readingCommand, sensorInlet)
				r.bmc.SetReading(sensorSupply, 0, 0xc0, 0x03, 0x80)
			},
			overall: "Critical", probes: map[string]string{inlet: "Unknown", supply: "Critical"}, partial: []string{inlet + ": busy"}, board: true,
		},
		"a sensor is switched off": {
			change:  func(r *reference) { r.bmc.SetReading(sensorInlet, 0, 0x80, 0) },
			overall: "OK", probes: map[string]string{inlet: "Unknown", supply: "OK"}, board: true,
		},
		"no sensor has a reading": {
			change: func(r *reference) {
				r.bmc.SetReading(sensorInlet, 0, 0x80, 0)
				r.bmc.SetReading(sensorSupply, 0, 0x80, 0)
			},
			overall: "Unknown", board: true,
			probes:  map[string]string{inlet: "Unknown", supply: "Unknown", "sensors: the BMC has none with a reading": "Unknown"},
			partial: []string{"sensors: the BMC has none with a reading: no sensor was read"},
		},
		"the sensor records refuse": {
			change: func(r *reference) { r.bmc.Refuse(sdrCommand) }, overall: "Unknown", board: true,
			probes: map[string]string{"sensor records that could not be read": "Unknown", "sensors: the BMC has none with a reading": "Unknown"},
			partial: []string{
				"sensor records that could not be read: busy", "sensors: the BMC has none with a reading: no sensor was read",
			},
		},
		"the inventory record refuses": {
			change:  func(r *reference) { r.bmc.Refuse(inventoryCommand) },
			overall: "OK", probes: map[string]string{inlet: "OK", supply: "OK"}, partial: []string{"inventory record: busy"},
		},
		"the inventory record is damaged": {
			change: func(r *reference) {
				record := ipmisim.Inventory("Example", "GPU-8", "SN0042")
				record[len(record)-1] ^= 1
				require.NoError(t, r.bmc.SetInventory(t.Context(), record))
			},
			overall: "OK", probes: map[string]string{inlet: "OK", supply: "OK"}, partial: []string{damagedInventory},
		},
		"the inventory record is blank": {
			change:  func(r *reference) { require.NoError(t, r.bmc.SetInventory(t.Context(), make([]byte, 256))) },
			overall: "OK", probes: map[string]string{inlet: "OK", supply: "OK"}, partial: []string{damagedInventory},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newReference(t)
			c.change(r)
			s, err := open(t, r.target, fast()).Survey(t.Context(), false)
			require.NoError(t, err)
			require.Equal(t, c.overall, s.Health.Overall)
			probes := map[string]string{}
			for _, p := range s.Probes {
				probes[p.Target] = p.Health
			}
			require.Equal(t, c.probes, probes)
			for target, health := range probes {
				require.Equal(t, health == "Unknown", slices.Contains(s.Health.Unknown, target), "%s of %v", target, s.Health.Unknown)
			}
			require.Equal(t, c.partial, s.Partial)
			require.Equal(t, c.board, slices.ContainsFunc(s.Parts, func(p hardware.Part) bool { return p.Serial == r.machine.Spec().Serial }))
			require.Empty(t, s.Whole, "IPMI lists no kind of part whole, so that a part which is not listed is not gone")
		})
	}
}

// TestLogsFrom_NamesWhatItDidNotRead: a log that refuses is named.
func TestLogsFrom_NamesWhatItDidNotRead(t *testing.T) {
	t.Parallel()
	s, r := newSELReader(t)
	r.bmc.Refuse(eventCommand)
	fresh, partial := s.read(t.Context())
	require.Empty(t, fresh)
	require.Equal(t, []string{"SEL: busy"}, partial)
}
