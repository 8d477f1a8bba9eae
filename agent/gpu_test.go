package agent_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/agent"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// The samples are written to the schemas nvsmi_device_v11 to v13. A recording of a
// real GPU is in testdata.
func smi(version int, driver string, attached int, gpus ...string) []byte {
	return fmt.Appendf(nil, `<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v%d.dtd">
<nvidia_smi_log>
	<timestamp>Sat Nov 21 10:00:00 2026</timestamp>
	<driver_version>%s</driver_version>
	<cuda_version>12.4</cuda_version>
	<attached_gpus>%d</attached_gpus>
%s</nvidia_smi_log>
`, version, driver, attached, strings.Join(gpus, ""))
}

func gpu(name, uuid, inner string) string {
	return fmt.Sprintf(`	<gpu id="00000000:19:00.0">
		<product_name>%s</product_name>
		<product_brand>NVIDIA</product_brand>
		<mig_devices>None</mig_devices>
		<serial>1650523001122</serial>
		<uuid>%s</uuid>
%s	</gpu>
`, name, uuid, inner)
}

const healthyV12 = `		<mig_mode><current_mig>Disabled</current_mig><pending_mig>Disabled</pending_mig></mig_mode>
		<fb_memory_usage><total>81559 MiB</total><reserved>327 MiB</reserved><used>3 MiB</used><free>81228 MiB</free></fb_memory_usage>
		<bar1_memory_usage><total>131072 MiB</total></bar1_memory_usage>
		<ecc_mode><current_ecc>Enabled</current_ecc><pending_ecc>Enabled</pending_ecc></ecc_mode>
		<ecc_errors>
			<volatile><sram_correctable>4</sram_correctable><sram_uncorrectable_parity>0</sram_uncorrectable_parity><sram_uncorrectable_secded>0</sram_uncorrectable_secded><dram_correctable>9</dram_correctable><dram_uncorrectable>0</dram_uncorrectable></volatile>
			<aggregate><sram_uncorrectable_parity>7</sram_uncorrectable_parity><sram_uncorrectable_secded>7</sram_uncorrectable_secded><dram_uncorrectable>7</dram_uncorrectable><sram_threshold_exceeded>No</sram_threshold_exceeded></aggregate>
		</ecc_errors>
		<retired_pages><multiple_single_bit_retirement><retired_count>N/A</retired_count></multiple_single_bit_retirement><pending_blacklist>N/A</pending_blacklist><pending_retirement>N/A</pending_retirement></retired_pages>
		<remapped_rows><remapped_row_corr>0</remapped_row_corr><remapped_row_unc>0</remapped_row_unc><remapped_row_pending>No</remapped_row_pending><remapped_row_failure>No</remapped_row_failure></remapped_rows>
		<processes><process_info><pid>4242</pid><type>C</type></process_info><process_info><pid>4243</pid><type>C</type></process_info></processes>
`

func ptr[T any](v T) *T { return &v }

func TestSchemaV12Healthy(t *testing.T) {
	t.Parallel()
	gpus, driver, err := agent.ParseNvidiaSMI(smi(12, "550.54.15", 2,
		gpu("NVIDIA H100 80GB HBM3", "GPU-a", healthyV12), gpu("NVIDIA H100 80GB HBM3", "GPU-b", healthyV12)))
	require.NoError(t, err)
	require.Equal(t, "550.54.15", driver)
	require.Len(t, gpus, 2)
	g := gpus[0]
	require.Equal(t, "NVIDIA H100 80GB HBM3", g.Model)
	require.Equal(t, "GPU-a", g.UUID)
	require.Equal(t, "1650523001122", g.Serial)
	require.Equal(t, ptr[int64](81559), g.MemoryMiB, "frame buffer, not BAR1")
	require.Equal(t, ptr(true), g.ECCEnabled)
	require.Equal(t, ptr(0), g.UncorrectedECC, "of this boot, not of its life")
	require.Equal(t, ptr(false), g.MIGEnabled)
	require.Equal(t, ptr(false), g.RemapPending)
	require.Equal(t, ptr(false), g.RemapFailed)
	require.Equal(t, 2, g.Processes)
}

func TestSchemaV11WithMIGLeavesTheUnknownUnknown(t *testing.T) {
	t.Parallel()
	gpus, _, err := agent.ParseNvidiaSMI(smi(11, "470.82.01", 1, gpu("NVIDIA A100-SXM4-40GB", "GPU-a", `
		<mig_mode><current_mig>Enabled</current_mig><pending_mig>Enabled</pending_mig></mig_mode>
		<mig_devices><mig_device><index>0</index><fb_memory_usage><total>4864 MiB</total></fb_memory_usage></mig_device></mig_devices>
		<fb_memory_usage><total>40536 MiB</total></fb_memory_usage>
		<ecc_mode><current_ecc>Enabled</current_ecc></ecc_mode>
		<ecc_errors><volatile><sram_correctable>0</sram_correctable><sram_uncorrectable>1</sram_uncorrectable><dram_correctable>0</dram_correctable><dram_uncorrectable>2</dram_uncorrectable></volatile></ecc_errors>
		<retired_pages><pending_blacklist>N/A</pending_blacklist><pending_retirement>N/A</pending_retirement></retired_pages>
		<remapped_rows>N/A</remapped_rows>
		<processes></processes>
`)))
	require.NoError(t, err)
	g := gpus[0]
	require.Equal(t, ptr(true), g.MIGEnabled)
	require.Equal(t, ptr[int64](40536), g.MemoryMiB, "of the GPU, not of its MIG device")
	require.Equal(t, ptr(3), g.UncorrectedECC)
	require.Nil(t, g.RemapPending, "N/A is unknown")
	require.Nil(t, g.RemapFailed)
	require.Zero(t, g.Processes)
}

func TestSchemaV13AndOthers(t *testing.T) {
	t.Parallel()
	volatile := func(inner string) string {
		return "<ecc_mode><current_ecc>Enabled</current_ecc></ecc_mode><ecc_errors><volatile>" + inner + "</volatile></ecc_errors>"
	}
	tests := map[string]struct {
		inner   string
		ecc     *bool
		errors  *int
		pending *bool
	}{
		"v13 counts":          {volatile("<sram_uncorrectable_parity>1</sram_uncorrectable_parity><sram_uncorrectable_secded>2</sram_uncorrectable_secded><dram_uncorrectable>4</dram_uncorrectable>"), ptr(true), ptr(7), nil},
		"one counter unknown": {volatile("<sram_uncorrectable_parity>N/A</sram_uncorrectable_parity><sram_uncorrectable_secded>0</sram_uncorrectable_secded><dram_uncorrectable>0</dram_uncorrectable>"), ptr(true), nil, nil},
		"one counter absent":  {volatile("<sram_uncorrectable_parity>0</sram_uncorrectable_parity><dram_uncorrectable>0</dram_uncorrectable>"), ptr(true), nil, nil},
		"all N/A": {`<ecc_mode><current_ecc>N/A</current_ecc></ecc_mode><ecc_errors><volatile><sram_uncorrectable>N/A</sram_uncorrectable><dram_uncorrectable>N/A</dram_uncorrectable></volatile></ecc_errors>
			<fb_memory_usage><total>N/A</total></fb_memory_usage>`, nil, nil, nil},
		"off":            {"<ecc_mode><current_ecc>Disabled</current_ecc></ecc_mode>", ptr(false), nil, nil},
		"negative":       {volatile("<sram_uncorrectable>-1</sram_uncorrectable><dram_uncorrectable>0</dram_uncorrectable>"), ptr(true), nil, nil},
		"requires reset": {volatile("<sram_uncorrectable>GPU requires reset</sram_uncorrectable><dram_uncorrectable>0</dram_uncorrectable>"), ptr(true), nil, nil},
		"before Ampere": {volatile("<single_bit><total>3</total></single_bit><double_bit><device_memory>1</device_memory><total>5</total></double_bit>") +
			"<retired_pages><pending_retirement>Yes</pending_retirement></retired_pages>", ptr(true), ptr(5), ptr(true)},
		"deprecated": {"<ecc_mode><current_ecc>Requested functionality has been deprecated</current_ecc></ecc_mode>" +
			"<fb_memory_usage><total>Requested functionality has been deprecated</total></fb_memory_usage>", nil, nil, nil},
		"nothing at all": {"", nil, nil, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			gpus, driver, err := agent.ParseNvidiaSMI(smi(13, "580.65.06", 1, gpu("NVIDIA B200", "GPU-a", tt.inner)))
			require.NoError(t, err)
			require.Equal(t, "580.65.06", driver)
			require.Equal(t, tt.ecc, gpus[0].ECCEnabled)
			require.Equal(t, tt.errors, gpus[0].UncorrectedECC)
			require.Equal(t, tt.pending, gpus[0].RemapPending)
			require.Nil(t, gpus[0].MemoryMiB)
		})
	}
}

// h200-580.xml was recorded on one H200. UUID, serial number and pdi in it are made up, and the
// lists of supported graphics clocks are cut to their first.
func TestParseNvidiaSMI_RecordedH200(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("testdata/h200-580.xml")
	require.NoError(t, err)
	gpus, driver, err := agent.ParseNvidiaSMI(raw)
	require.NoError(t, err)
	require.Equal(t, "580.159.04", driver)
	require.Equal(t, []spec.GPUReport{{
		UUID: "GPU-5d0c3a1e-7b42-4f96-a1d8-0e2b6c9f3475", Model: "NVIDIA H200", Serial: "1650000000017",
		MemoryMiB: ptr[int64](143771), ECCEnabled: ptr(true), UncorrectedECC: ptr(0), MIGEnabled: ptr(false),
		RemapPending: ptr(false), RemapFailed: ptr(false),
	}}, gpus)
}

func TestWhatNvidiaSMIMustNotGetAwayWith(t *testing.T) {
	t.Parallel()
	for name, raw := range map[string][]byte{
		"a GPU is missing": smi(12, "550.54.15", 8, gpu("NVIDIA H100 80GB HBM3", "GPU-a", healthyV12)),
		"cut off":          smi(12, "550.54.15", 1, gpu("NVIDIA H100 80GB HBM3", "GPU-a", healthyV12))[:900],
		"no xml":           []byte("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."),
		"empty":            nil,
		"other xml":        []byte("<html><body>hello</body></html>"),
	} {
		_, _, err := agent.ParseNvidiaSMI(raw)
		require.Error(t, err, name)
	}
	gpus, _, err := agent.ParseNvidiaSMI(smi(12, "550.54.15", 0))
	require.NoError(t, err)
	require.Empty(t, gpus)
}

func FuzzParseNvidiaSMI(f *testing.F) {
	f.Add(smi(12, "550.54.15", 1, gpu("NVIDIA H100", "GPU-a", healthyV12)))
	f.Add([]byte("<nvidia_smi_log><attached_gpus>0</attached_gpus></nvidia_smi_log>"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		gpus, _, err := agent.ParseNvidiaSMI(raw)
		if err != nil {
			require.Empty(t, gpus)
		}
	})
}

// TestParseNvidiaSMI_WhatTheDriverAsksFor: current drivers name the action, older ones only a
// reset.
func TestParseNvidiaSMI_WhatTheDriverAsksFor(t *testing.T) {
	t.Parallel()
	reset := func(s string) string {
		return "<gpu_reset_status><reset_required>" + s + "</reset_required></gpu_reset_status>"
	}
	action := func(s string) string { return "<gpu_recovery_action>" + s + "</gpu_recovery_action>" }
	for inner, want := range map[string]string{
		"": "", reset("No"): "", reset("Yes"): "Reset", reset("N/A"): "",
		reset("Requested functionality has been deprecated") + action("None"): "",
		action("None"): "", action("Reboot"): "Reboot", action("Drain and Reset"): "Drain and Reset", action("Unknown Error"): "Unknown Error", action("[GPU is lost]"): "[GPU is lost]", action("Not Supported"): "",
		action("GPU requires reset"): "Reset", reset("[GPU requires reset]"): "Reset",
	} {
		gpus, _, err := agent.ParseNvidiaSMI(smi(13, "580.159.04", 1, gpu("NVIDIA H200", "GPU-a", inner)))
		require.NoError(t, err)
		require.Equal(t, want, gpus[0].RecoveryAction, inner)
	}
}
