package ipmi_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHealthFollowsTheSensors(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sensor  byte
		answer  []byte
		overall string
		problem string
		unknown string
	}{
		"inlet warm":           {sensorInlet, []byte{0x30, 0xc0, 0x08}, "Warning", "Inlet Temp", ""},
		"inlet hot":            {sensorInlet, []byte{0x40, 0xc0, 0x18}, "Critical", "Inlet Temp", ""},
		"inlet cold":           {sensorInlet, []byte{0x00, 0xc0, 0x02}, "Critical", "Inlet Temp", ""},
		"inlet not read":       {sensorInlet, []byte{0x00, 0xe0, 0x18}, "OK", "", "Inlet Temp"},
		"inlet not scanned":    {sensorInlet, []byte{0x00, 0x80, 0x18}, "OK", "", "Inlet Temp"},
		"supply failed":        {sensorSupply, []byte{0, 0xc0, 0x03, 0x80}, "Critical", "PSU1 Status", ""},
		"supply about to fail": {sensorSupply, []byte{0, 0xc0, 0x05, 0x80}, "Warning", "PSU1 Status", ""},
		"supply well":          {sensorSupply, []byte{0, 0xc0, 0x01, 0x80}, "OK", "", ""},
		"supply half answer":   {sensorSupply, []byte{0}, "Unknown", "", "PSU1 Status"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newReference(t)
			r.bmc.SetReading(c.sensor, c.answer...)
			h, err := open(t, r.target, fast()).Health(t.Context())
			require.NoError(t, err)
			require.Equal(t, c.overall, h.Overall, "%+v", h)
			if c.problem != "" {
				require.Len(t, h.Problems, 1)
				require.Contains(t, h.Problems[0], c.problem)
			}
			if c.unknown != "" {
				require.Len(t, h.Unknown, 1)
				require.Contains(t, h.Unknown[0], c.unknown)
			}
		})
	}
}
