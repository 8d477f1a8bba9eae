package scrub

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slipway-cloud/slipway/agent/smi"
	"github.com/slipway-cloud/slipway/agent/task"
	"github.com/slipway-cloud/slipway/agent/toolrunner"
)

// gpu is what `nvidia-smi -q -x` tells of one GPU that a scrub must know. Text
// as written; "" where it is missing.
type gpu struct {
	Bus         string `xml:"id,attr"`
	Model       string `xml:"product_name"`
	UUID        string `xml:"uuid"`
	Serial      string `xml:"serial"`
	MIG         string `xml:"mig_mode>current_mig"`
	MIGPending  string `xml:"mig_mode>pending_mig"`
	ComputeMode string `xml:"compute_mode"`
	Recovery    string `xml:"gpu_recovery_action"`
	NeedsReset  string `xml:"gpu_reset_status>reset_required"`
	FabricState string `xml:"fabric>state"`
	Fabric      string `xml:"fabric>status"`
	Processes   []struct {
		PID  string `xml:"pid"`
		Name string `xml:"process_name"`
	} `xml:"processes>process_info"`
}

// parseGPUs reads the XML of `nvidia-smi -q -x` and the driver's version. It is
// an error when fewer GPUs are described than are attached.
func parseGPUs(raw []byte) ([]gpu, string, error) {
	var log struct {
		Driver   string `xml:"driver_version"`
		Attached string `xml:"attached_gpus"`
		GPUs     []gpu  `xml:"gpu"`
	}
	if err := smi.Decode(raw, &log); err != nil {
		return nil, "", err
	}
	if err := smi.CheckAttached(log.Attached, len(log.GPUs)); err != nil {
		return nil, "", err
	}
	for i := range log.GPUs {
		g := &log.GPUs[i]
		for _, s := range []*string{&g.Bus, &g.Model, &g.UUID, &g.Serial, &g.MIG, &g.MIGPending, &g.ComputeMode, &g.Recovery, &g.NeedsReset, &g.FabricState, &g.Fabric} {
			*s = task.Clip(*s, 200)
		}
		if g.UUID == "" || smi.Unknown(g.UUID) {
			return nil, "", fmt.Errorf("GPU %d has no UUID", i)
		}
	}
	return log.GPUs, task.Clip(log.Driver, 40), nil
}

// withoutMIG are models that cannot be divided, and say N/A for it rightly. For
// every other N/A is unknown.
func withoutMIG(model string) bool {
	for f := range strings.FieldsSeq(strings.ReplaceAll(model, "-", " ")) {
		if slices.Contains([]string{"T4", "L4", "L20", "L40", "L40S", "A2", "A10", "A10G", "A16", "A40", "V100", "P100", "P40", "P4"}, f) {
			return true
		}
	}
	return false
}

// migOff is nil when the GPU is known to be whole.
func (g gpu) migOff() error {
	switch {
	case withoutMIG(g.Model) && smi.Unknown(g.MIG):
		return nil
	case smi.Unknown(g.MIG):
		return fmt.Errorf("GPU %s does not tell whether MIG is on (%q)", g.UUID, g.MIG)
	case g.MIG != "Disabled":
		return fmt.Errorf("GPU %s has MIG %s", g.UUID, strings.ToLower(g.MIG))
	case g.MIGPending != "Disabled" && !smi.Unknown(g.MIGPending):
		return fmt.Errorf("GPU %s will have MIG %s after a reset", g.UUID, strings.ToLower(g.MIGPending))
	}
	return nil
}

// noResetNeeded is nil when the driver says that the GPU needs neither a reset nor anything else.
// Drivers from 570 on say it in gpu_recovery_action, older ones in reset_required; 575 writes both
// and 580 only the first. Any other text is an error, also one that says that the driver failed.
func (g gpu) noResetNeeded() error {
	action, reset := smi.HasValue(g.Recovery), smi.HasValue(g.NeedsReset)
	switch {
	case !action && !reset:
		return fmt.Errorf("GPU %s does not tell whether it needs a reset (gpu_recovery_action %q, reset_required %q)", g.UUID, g.Recovery, g.NeedsReset)
	case action && g.Recovery != "None":
		return fmt.Errorf("GPU %s is not ready for use: the driver's gpu_recovery_action is %q", g.UUID, g.Recovery)
	case reset && g.NeedsReset != "No":
		return fmt.Errorf("GPU %s is not ready for use: the driver's reset_required is %q", g.UUID, g.NeedsReset)
	}
	return nil
}

// readGPUs asks nvidia-smi. A machine without any sign of an NVIDIA GPU has
// none; one with a sign and no answer is an error.
func (r *run) readGPUs(ctx context.Context) ([]gpu, string, error) {
	out, err := r.run(ctx, time.Minute, "nvidia-smi", "-q", "-x")
	if errors.Is(err, toolrunner.ErrNotInstalled) {
		if sign := r.gpuSign(); sign != "" {
			return nil, "", fmt.Errorf("%s, and nvidia-smi is not installed", sign)
		}
		return nil, "", skipped("this machine has no GPU")
	}
	if err != nil {
		return nil, "", err
	}
	gpus, driver, err := parseGPUs(out)
	if err == nil && len(gpus) == 0 {
		return nil, "", errors.New("nvidia-smi is installed and finds no GPU")
	}
	return gpus, driver, err
}

// gpuSign is a sentence about what says that there is a GPU, "" for nothing.
func (h Host) gpuSign() string {
	if h.exists("/proc/driver/nvidia/version") {
		return "the NVIDIA driver is loaded"
	}
	for _, dev := range h.names("/sys/bus/pci/devices") {
		class := h.text("/sys/bus/pci/devices", dev, "class")
		if h.text("/sys/bus/pci/devices", dev, "vendor") == "0x10de" && (strings.HasPrefix(class, "0x0300") || strings.HasPrefix(class, "0x0302")) {
			return "there is an NVIDIA GPU at " + dev
		}
	}
	return ""
}
