package simnode

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"strings"

	simhw "github.com/slipway-cloud/slipway/sim/hw"
)

// The simulated driver speaks as the one that was recorded in agent/testdata.
const (
	driverVersion  = "580.159.04"
	cudaVersion    = "13.0"
	gpuVBIOS       = "96.00.A5.00.1A"
	gpuTemperature = "31"
	gpuPower       = "80.84"
	gpuPowerLimit  = "700.00"
	gpuReserved    = 616 // MiB
)

// nvidiaXML is what `nvidia-smi -q -x` writes, in the shape of the schema
// nvsmi_device_v13, for the GPUs of a machine less those that a fault takes
// away. UUIDs and serials come from the machine and are the same each time.
func nvidiaXML(s simhw.Spec, f Faults) []byte {
	n := gpuCount(s, f)
	var b bytes.Buffer
	b.WriteString("<?xml version=\"1.0\" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM \"nvsmi_device_v13.dtd\">\n<nvidia_smi_log>\n")
	b.WriteString("\t<!-- simulated -->\n\t<timestamp>Thu Jan  1 00:00:00 1970</timestamp>\n")
	fmt.Fprintf(&b, "\t<driver_version>%s</driver_version>\n\t<cuda_version>%s</cuda_version>\n\t<attached_gpus>%d</attached_gpus>\n", driverVersion, cudaVersion, n)
	for i := range n {
		writeGPU(&b, s, f, i)
	}
	b.WriteString("</nvidia_smi_log>\n")
	return b.Bytes()
}

func gpuCount(s simhw.Spec, f Faults) int { return max(0, s.GPUs-f.MissingGPUs) }

func gpuBus(i int) string { return fmt.Sprintf("00000000:%02X:00.0", 0x19+i*0x11) }

// gpuField is something that --query-gpu can be asked for. The header is "" where it is the name;
// the unit is "" where the value is no number or has none.
type gpuField struct{ name, header, unit string }

var gpuFields = []gpuField{
	{name: "index"}, {name: "name"}, {name: "gpu_name", header: "name"}, {name: "uuid"}, {name: "gpu_uuid", header: "uuid"}, {name: "serial"},
	{name: "pci.bus_id"}, {name: "gpu_bus_id", header: "pci.bus_id"}, {name: "driver_version"}, {name: "vbios_version"}, {name: "count"},
	{name: "memory.total", unit: "MiB"}, {name: "memory.reserved", unit: "MiB"}, {name: "memory.used", unit: "MiB"}, {name: "memory.free", unit: "MiB"},
	{name: "temperature.gpu"}, {name: "utilization.gpu", unit: "%"}, {name: "utilization.memory", unit: "%"},
	{name: "power.draw", unit: "W"}, {name: "power.limit", unit: "W"}, {name: "pstate"}, {name: "compute_mode"}, {name: "persistence_mode"},
	{name: "ecc.mode.current"}, {name: "ecc.errors.uncorrected.volatile.total"}, {name: "mig.mode.current"},
}

// nvidiaQuery is what `nvidia-smi --query-gpu` chooses its columns from: a line of the fields, each
// as name|header|unit, and a line for each GPU of nvidiaXML.
func nvidiaQuery(s simhw.Spec, f Faults) string {
	var b strings.Builder
	var fields []string
	for _, field := range gpuFields {
		fields = append(fields, field.name+"|"+cmp.Or(field.header, field.name)+"|"+field.unit)
	}
	b.WriteString(strings.Join(fields, "\t") + "\n")
	ecc, count := "Enabled", "0"
	if f.ECCUnknown {
		ecc, count = "[N/A]", "[N/A]"
	}
	total := gpuMemory(s.GPUModel)
	for i := range gpuCount(s, f) {
		b.WriteString(strings.Join([]string{fmt.Sprint(i), s.GPUModel, s.GPUModel, gpuUUID(s, i), gpuUUID(s, i), gpuSerial(s, i), gpuBus(i), gpuBus(i), driverVersion, gpuVBIOS,
			fmt.Sprint(gpuCount(s, f)), fmt.Sprint(total), fmt.Sprint(gpuReserved), "0", fmt.Sprint(total - gpuReserved), gpuTemperature, "0", "0",
			gpuPower, gpuPowerLimit, "P0", "Default", "Enabled", ecc, count, "Disabled"}, "\t") + "\n")
	}
	return b.String()
}

// nvidiaTable is what nvidia-smi writes without arguments.
func nvidiaTable(s simhw.Spec, f Faults) string {
	const (
		columns = "+-----------------------------------------+------------------------+----------------------+\n"
		head    = "| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |\n" +
			"| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |\n" +
			"|                                         |                        |               MIG M. |\n" +
			"|=========================================+========================+======================|\n"
		processes = "| Processes:                                                                              |\n" +
			"|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |\n" +
			"|        ID   ID                                                               Usage      |\n" +
			"|=========================================================================================|\n" +
			"|  No running processes found                                                             |\n"
	)
	rule := "+" + strings.Repeat("-", 89) + "+\n"
	var b strings.Builder
	b.WriteString("Thu Jan  1 00:00:00 1970       \n" + rule)
	fmt.Fprintf(&b, "| NVIDIA-SMI %-22s Driver Version: %-14s CUDA Version: %-8s |\n", driverVersion, driverVersion, cudaVersion)
	b.WriteString(columns + head)
	ecc := "0"
	if f.ECCUnknown {
		ecc = "N/A"
	}
	for i := range gpuCount(s, f) {
		fmt.Fprintf(&b, "| %3d  %-30.30s On  |   %s Off | %20s |\n", i, s.GPUModel, gpuBus(i), ecc)
		fmt.Fprintf(&b, "| N/A   %sC    P0             80W /  700W |%8dMiB /%7dMiB |      0%%      Default |\n", gpuTemperature, 0, gpuMemory(s.GPUModel))
		b.WriteString("|                                         |                        |             Disabled |\n" + columns)
	}
	b.WriteString("\n" + rule + processes + rule)
	return b.String()
}

func writeGPU(b *bytes.Buffer, s simhw.Spec, f Faults, i int) {
	ecc, count := "Enabled", "0"
	if f.ECCUnknown {
		ecc, count = "N/A", "N/A"
	}
	bus := gpuBus(i)
	total := gpuMemory(s.GPUModel)
	fmt.Fprintf(b, "\t<gpu id=\"%s\">\n", bus)
	for _, l := range [][2]string{
		{"product_name", escape(s.GPUModel)}, {"product_brand", "NVIDIA"}, {"product_architecture", "Hopper"},
		{"display_mode", "Requested functionality has been deprecated"}, {"display_attached", "Yes"}, {"display_active", "Disabled"},
		{"persistence_mode", "Enabled"}, {"addressing_mode", "None"},
		{"mig_mode", "<current_mig>Disabled</current_mig><pending_mig>Disabled</pending_mig>"}, {"mig_devices", "None"},
		{"accounting_mode", "Disabled"}, {"serial", gpuSerial(s, i)}, {"uuid", gpuUUID(s, i)}, {"minor_number", fmt.Sprint(i)},
		{"vbios_version", gpuVBIOS}, {"gpu_recovery_action", "None"}, {"gsp_firmware_version", driverVersion},
		{"pci", "<pci_bus_id>" + bus + "</pci_bus_id><pci_gpu_link_info><pcie_gen><max_link_gen>5</max_link_gen><current_link_gen>5</current_link_gen></pcie_gen><link_widths><max_link_width>16x</max_link_width><current_link_width>16x</current_link_width></link_widths></pci_gpu_link_info><replay_counter>0</replay_counter>"},
		{"performance_state", "P0"},
		{"fb_memory_usage", fmt.Sprintf("<total>%d MiB</total><reserved>%d MiB</reserved><used>0 MiB</used><free>%d MiB</free>", total, gpuReserved, total-gpuReserved)},
		{"compute_mode", "Default"},
		{"ecc_mode", fmt.Sprintf("<current_ecc>%s</current_ecc><pending_ecc>%s</pending_ecc>", ecc, ecc)},
		{"ecc_errors", "<volatile>" + counters(count) + "</volatile><aggregate>" + counters(count) + "<sram_threshold_exceeded>No</sram_threshold_exceeded></aggregate>"},
		{"retired_pages", "<pending_blacklist>N/A</pending_blacklist><pending_retirement>N/A</pending_retirement>"},
		{"remapped_rows", "<remapped_row_corr>0</remapped_row_corr><remapped_row_unc>0</remapped_row_unc><remapped_row_pending>No</remapped_row_pending><remapped_row_failure>No</remapped_row_failure>"},
		{"temperature", "<gpu_temp>" + gpuTemperature + " C</gpu_temp>"}, {"fabric", "<state>Completed</state><status>Success</status>"}, {"processes", ""},
	} {
		fmt.Fprintf(b, "\t\t<%s>%s</%s>\n", l[0], l[1], l[0])
	}
	b.WriteString("\t</gpu>\n")
}

func counters(v string) string {
	var b strings.Builder
	for _, name := range []string{"sram_correctable", "sram_uncorrectable_parity", "sram_uncorrectable_secded", "dram_correctable", "dram_uncorrectable"} {
		fmt.Fprintf(&b, "<%s>%s</%s>", name, v, name)
	}
	return b.String()
}

func gpuMemory(model string) int {
	switch {
	case strings.Contains(model, "H200"):
		return 143771
	case strings.Contains(model, "B200"):
		return 183359
	case strings.Contains(model, "40GB"):
		return 40960
	}
	return 81559
}

func gpuUUID(s simhw.Spec, i int) string {
	h := hex.EncodeToString(gpuHash(s, i))
	return fmt.Sprintf("GPU-%s-%s-%s-%s-%s", h[:8], h[8:12], h[12:16], h[16:20], h[20:32])
}

func gpuSerial(s simhw.Spec, i int) string {
	h := gpuHash(s, i)
	return fmt.Sprintf("1%03d%03d%03d%03d", h[16], h[17], h[18], h[19])
}

func gpuHash(s simhw.Spec, i int) []byte {
	h := sha256.Sum256(fmt.Appendf(nil, "%s/%s/%s/%d", s.ID, s.UUID, s.Serial, i))
	return h[:]
}

func escape(s string) string {
	var b bytes.Buffer
	_ = xml.EscapeText(&b, []byte(s)) // a buffer takes everything
	return b.String()
}
