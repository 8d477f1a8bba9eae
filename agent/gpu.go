package agent

import (
	"context"
	"regexp"
	"strconv"
	"strings"

	"github.com/slipway-cloud/slipway/agent/smi"
	"github.com/slipway-cloud/slipway/agent/task"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// smiLog is the part of `nvidia-smi -q -x` that is used. Its schemas v11, v12
// and v13 differ in what they add and in how they split the SRAM counters, so
// every value is text that may be missing.
type smiLog struct {
	Driver   string   `xml:"driver_version"`
	Attached string   `xml:"attached_gpus"`
	GPUs     []smiGPU `xml:"gpu"`
}

type smiGPU struct {
	Bus      string    `xml:"id,attr"`
	Name     string    `xml:"product_name"`
	UUID     string    `xml:"uuid"`
	Serial   string    `xml:"serial"`
	MIG      string    `xml:"mig_mode>current_mig"`
	Total    string    `xml:"fb_memory_usage>total"`
	ECC      string    `xml:"ecc_mode>current_ecc"`
	Recovery string    `xml:"gpu_recovery_action"`
	Reset    string    `xml:"gpu_reset_status>reset_required"`
	Volatile smiErrors `xml:"ecc_errors>volatile"`
	Remap    struct {
		Pending string `xml:"remapped_row_pending"`
		Failure string `xml:"remapped_row_failure"`
	} `xml:"remapped_rows"`
	Retired struct {
		Pending    string `xml:"pending_retirement"`
		PendingOld string `xml:"pending_blacklist"`
	} `xml:"retired_pages"`
	Processes []struct {
		PID string `xml:"pid"`
	} `xml:"processes>process_info"`
}

// smiErrors are error counts since the driver was loaded. SRAM is one counter
// (v11, older GPUs in v12) or parity and SECDED (v12, v13); before Ampere there
// is only the total of double-bit errors.
type smiErrors struct {
	SRAM       string `xml:"sram_uncorrectable"`
	SRAMParity string `xml:"sram_uncorrectable_parity"`
	SRAMSecded string `xml:"sram_uncorrectable_secded"`
	DRAM       string `xml:"dram_uncorrectable"`
	DoubleBit  string `xml:"double_bit>total"`
}

// gpus asks nvidia-smi. The driver version is returned also when the GPUs
// could not be read, where the kernel tells it.
func (n nodeReader) gpus(ctx context.Context) ([]spec.GPUReport, string, error) {
	out, err := n.tools.Run(ctx, "nvidia-smi", "-q", "-x")
	if err == nil {
		var gpus []spec.GPUReport
		var driver string
		if gpus, driver, err = ParseNvidiaSMI(out); err == nil {
			return gpus, driver, nil
		}
	}
	return nil, n.kernelDriver(), err
}

// ParseNvidiaSMI reads the XML of `nvidia-smi -q -x`, schemas v11 to v13. A
// value that reads N/A, or is not there, is nil: unknown, not fine. It is an
// error when fewer GPUs are described than are attached.
func ParseNvidiaSMI(raw []byte) ([]spec.GPUReport, string, error) {
	var log smiLog
	if err := smi.Decode(raw, &log); err != nil {
		return nil, "", err
	}
	if err := smi.CheckAttached(log.Attached, len(log.GPUs)); err != nil {
		return nil, "", err
	}
	gpus := make([]spec.GPUReport, 0, len(log.GPUs))
	for _, g := range log.GPUs {
		gpus = append(gpus, g.report())
	}
	return gpus, known(log.Driver), nil
}

func (g smiGPU) report() spec.GPUReport {
	r := spec.GPUReport{UUID: known(g.UUID), Model: known(g.Name), Serial: known(g.Serial),
		MemoryMiB: mebibytes(g.Total), ECCEnabled: flag(g.ECC), MIGEnabled: flag(g.MIG),
		RemapPending: flag(g.Remap.Pending), RemapFailed: flag(g.Remap.Failure), Processes: len(g.Processes)}
	if r.RemapPending == nil { // before Ampere pages are retired instead of rows remapped
		if r.RemapPending = flag(g.Retired.Pending); r.RemapPending == nil {
			r.RemapPending = flag(g.Retired.PendingOld)
		}
	}
	r.UncorrectedECC = g.Volatile.uncorrected()
	r.RecoveryAction = known(g.Recovery)
	reset := flag(g.Reset) // before driver 570
	if smi.Failed(g.Recovery) {
		r.RecoveryAction = task.Clip(g.Recovery, 200)
	}
	if r.RecoveryAction == "" && (reset != nil && *reset || smi.RequiresReset(g.Recovery) || smi.RequiresReset(g.Reset)) {
		r.RecoveryAction = "Reset"
	}
	return r
}

// uncorrected sums the counters; one that is unknown makes the sum unknown.
func (e smiErrors) uncorrected() *int {
	if e.SRAM == "" && e.SRAMParity == "" && e.SRAMSecded == "" && e.DRAM == "" {
		return sum(e.DoubleBit)
	}
	if e.SRAMParity != "" || e.SRAMSecded != "" {
		return sum(e.SRAMParity, e.SRAMSecded, e.DRAM)
	}
	return sum(e.SRAM, e.DRAM)
}

func sum(counters ...string) *int {
	total := 0
	for _, c := range counters {
		n := number(c)
		if n == nil {
			return nil
		}
		total += int(*n)
	}
	return &total
}

// known is text that says something.
func known(s string) string {
	s = task.Clip(s, 200)
	if smi.Unknown(s) || strings.EqualFold(strings.Trim(s, "[]"), "None") {
		return ""
	}
	return s
}

func number(s string) *int64 {
	n, err := strconv.ParseInt(known(s), 10, 64)
	if err != nil || n < 0 || n > 1<<53 {
		return nil
	}
	return &n
}

// mebibytes reads "81559 MiB"; another unit is unknown.
func mebibytes(s string) *int64 {
	v, ok := strings.CutSuffix(known(s), " MiB")
	if !ok {
		return nil
	}
	return number(v)
}

func flag(s string) *bool {
	switch strings.ToLower(known(s)) {
	case "enabled", "yes":
		t := true
		return &t
	case "disabled", "no":
		f := false
		return &f
	}
	return nil
}

var driverVersion = regexp.MustCompile(`\s(\d{3,4}\.\d+(?:\.\d+)?)\s`)

func (n nodeReader) kernelDriver() string {
	raw, err := n.read("/proc/driver/nvidia/version")
	if err != nil {
		return ""
	}
	first, _, _ := strings.Cut(string(raw), "\n")
	if m := driverVersion.FindStringSubmatch(first + " "); m != nil {
		return m[1]
	}
	return ""
}
