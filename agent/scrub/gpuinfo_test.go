package scrub

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/agent/smi"
)

func TestGPU_NoResetNeeded(t *testing.T) {
	t.Parallel()
	recovery := func(s string) string { return "<gpu_recovery_action>" + s + "</gpu_recovery_action>" }
	required := func(s string) string {
		return "<gpu_reset_status><reset_required>" + s + "</reset_required></gpu_reset_status>"
	}
	const deprecated = "Requested functionality has been deprecated"
	for name, c := range map[string]struct{ xml, says string }{
		"550 No":                   {required("No"), ""},
		"550 Yes":                  {required("Yes"), `reset_required is "Yes"`},
		"575 None":                 {required(deprecated) + recovery("None"), ""},
		"575 Reset":                {required(deprecated) + recovery("Reset"), `gpu_recovery_action is "Reset"`},
		"575 without action":       {required(deprecated), "does not tell whether it needs a reset"},
		"580 None":                 {recovery("None"), ""},
		"580 Reboot":               {recovery("Reboot"), `gpu_recovery_action is "Reboot"`},
		"580 Drain P2P":            {recovery("Drain P2P"), `gpu_recovery_action is "Drain P2P"`},
		"580 Drain and Reset":      {recovery("Drain and Reset"), `gpu_recovery_action is "Drain and Reset"`},
		"580 new action":           {recovery("Replace"), `gpu_recovery_action is "Replace"`},
		"580 error":                {recovery("Unknown Error"), `gpu_recovery_action is "Unknown Error"`},
		"both missing":             {"", "does not tell whether it needs a reset"},
		"both N/A":                 {required("N/A") + recovery("N/A"), "does not tell whether it needs a reset"},
		"None but reset required":  {required("Yes") + recovery("None"), `reset_required is "Yes"`},
		"No but action Reset":      {required("No") + recovery("Reset"), `gpu_recovery_action is "Reset"`},
		"None but GPU needs reset": {required("GPU requires reset") + recovery("None"), `reset_required is "GPU requires reset"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			gpus, _, err := parseGPUs([]byte(`<nvidia_smi_log><attached_gpus>1</attached_gpus><gpu><uuid>GPU-1</uuid>` + c.xml + `</gpu></nvidia_smi_log>`))
			require.NoError(t, err)
			if c.says == "" {
				require.NoError(t, gpus[0].noResetNeeded())
				return
			}
			require.ErrorContains(t, gpus[0].noResetNeeded(), c.says)
		})
	}
}

// h200-580.xml was recorded on one H200. UUID, serial number and pdi in it are made up, and the
// lists of supported graphics clocks are cut to their first.
func TestParseGPUs_RecordedH200(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../testdata/h200-580.xml")
	require.NoError(t, err)
	gpus, driver, err := parseGPUs(raw)
	require.NoError(t, err)
	require.Equal(t, "580.159.04", driver)
	require.Equal(t, []gpu{{
		Bus: "00000000:00:06.0", Model: "NVIDIA H200", UUID: "GPU-5d0c3a1e-7b42-4f96-a1d8-0e2b6c9f3475", Serial: "1650000000017",
		MIG: "Disabled", MIGPending: "Disabled", ComputeMode: "Default", Recovery: "None", FabricState: "N/A", Fabric: "N/A",
	}}, gpus)
	require.NoError(t, sameAndReset(gpus, gpus))
	require.True(t, smi.Unknown(gpus[0].FabricState), "no NVSwitch")
}
