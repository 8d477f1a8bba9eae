package scrub

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/slipway-cloud/slipway/agent/hostscan"
	"github.com/slipway-cloud/slipway/agent/task"
	"github.com/slipway-cloud/slipway/agent/toolrunner"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// gpuServices keep GPUs open and are not tenants': they stop for the reset.
// The fabric manager stays, since NVSwitch boards are reset through it.
func gpuServices() []string {
	return []string{"nvidia-dcgm.service", "dcgm.service", "dcgm-exporter.service", "nvidia-persistenced.service"}
}

// stopServices stops those that run and returns how to start them again.
func (r *run) stopServices(ctx context.Context) (start func()) {
	var stopped []string
	for _, unit := range gpuServices() {
		if _, err := r.run(ctx, 20*time.Second, "systemctl", "is-active", "--quiet", unit); err != nil {
			continue
		}
		if _, err := r.run(ctx, time.Minute, "systemctl", "stop", unit); err == nil {
			stopped = append(stopped, unit)
		}
	}
	return func() {
		slices.Reverse(stopped)
		for _, unit := range stopped {
			// The scrub may have been told to stop; the machine's services still come back.
			_, _ = r.run(context.WithoutCancel(ctx), time.Minute, "systemctl", "start", unit)
		}
	}
}

// gpuHolders are the processes that have a GPU open, but the fabric manager.
func (r *run) gpuHolders() ([]hostscan.Process, error) {
	who, err := r.holders(func(p string) bool {
		base := filepath.Base(p)
		return filepath.Dir(p) == "/dev" && strings.HasPrefix(base, "nvidia") || strings.HasPrefix(p, "/dev/nvidia-caps/")
	})
	// The kernel keeps 15 letters of a name.
	return slices.DeleteFunc(who, func(p hostscan.Process) bool { return slices.Max(p.UIDs) == 0 && p.Name == "nv-fabricmanage" }), err
}

// idleGPUs is an error while anything has a GPU open.
func (r *run) idleGPUs(ctx context.Context) ([]gpu, string, error) {
	gpus, driver, err := r.readGPUs(ctx)
	if err != nil {
		return nil, "", err
	}
	var busy []string
	for _, g := range gpus {
		for _, p := range g.Processes {
			busy = append(busy, fmt.Sprintf("%s (%s) on %s", task.Clip(p.PID, 20), task.Clip(p.Name, 40), g.UUID))
		}
	}
	who, err := r.gpuHolders()
	if err != nil {
		return nil, "", err
	}
	if busy = append(busy, names(who)...); len(busy) > 0 {
		return nil, "", fmt.Errorf("processes still have a GPU open: %s", list(busy))
	}
	return gpus, driver, nil
}

// gpuProcesses makes sure that nothing uses a GPU.
func (r *run) gpuProcesses(ctx context.Context) (string, error) {
	if _, _, err := r.readGPUs(ctx); err != nil {
		return "", err
	}
	defer r.stopServices(ctx)()
	gpus, _, err := r.idleGPUs(ctx)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("no process has one of %d GPUs open", len(gpus)), nil
}

// gpuReset destroys MIG instances, resets clocks and compute mode, and resets
// all GPUs together, as boards with NVSwitch need it.
func (r *run) gpuReset(ctx context.Context) (string, error) {
	if _, _, err := r.readGPUs(ctx); err != nil {
		return "", err
	}
	defer r.stopServices(ctx)()
	gpus, driver, err := r.idleGPUs(ctx)
	if err != nil {
		return "", fmt.Errorf("the GPUs are not reset: %w", err)
	}
	if slices.ContainsFunc(gpus, func(g gpu) bool { return g.migOff() != nil }) {
		// Without instances these two answer with an error; what counts is the mode afterwards.
		_, _ = r.run(ctx, time.Minute, "nvidia-smi", "mig", "-dci")
		_, _ = r.run(ctx, time.Minute, "nvidia-smi", "mig", "-dgi")
		if _, err := r.run(ctx, time.Minute, "nvidia-smi", "-mig", "0"); err != nil {
			return "", fmt.Errorf("MIG cannot be turned off: %w", err)
		}
	}
	for _, args := range [][]string{{"-rgc"}, {"-rmc"}, {"-c", "0"}} {
		if _, err := r.run(ctx, time.Minute, "nvidia-smi", args...); err != nil && args[0] == "-c" {
			return "", fmt.Errorf("the compute mode cannot be set back: %w", err)
		} // clocks cannot be locked on all models, and a reset frees them
	}
	if _, err := r.run(toolrunner.Permit(ctx, toolrunner.GuardMachine), 5*time.Minute, "nvidia-smi", "--gpu-reset"); err != nil {
		return "", err
	}
	after, _, err := r.readGPUs(ctx)
	if err != nil {
		return "", fmt.Errorf("after the reset: %w", err)
	}
	if err := sameAndReset(gpus, after); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d GPUs reset together, driver %s", len(after), driver), nil
}

func sameAndReset(before, after []gpu) error {
	var errs []error
	for _, b := range before {
		if !slices.ContainsFunc(after, func(a gpu) bool { return a.UUID == b.UUID }) {
			errs = append(errs, fmt.Errorf("GPU %s is gone after the reset", b.UUID))
		}
	}
	for _, g := range after {
		errs = append(errs, g.migOff(), g.noResetNeeded())
		if g.ComputeMode != "Default" {
			errs = append(errs, fmt.Errorf("GPU %s has compute mode %q", g.UUID, g.ComputeMode))
		}
	}
	return errors.Join(errs...)
}

// gpuMemory looks at all memory of each GPU through slipway-gpu-pattern. There
// is no other proof: driver 580 was seen to clear memory between processes, but
// no driver promises it. Without the program each GPU is reported as not verified.
func (r *run) gpuMemory(ctx context.Context) (string, error) {
	gpus, driver, err := r.readGPUs(ctx)
	if err != nil {
		return "", err
	}
	reset := r.stepOK(StepGPUReset)
	tool := "driver " + driver
	if reset {
		tool = "nvidia-smi --gpu-reset, " + tool
	}
	out, err := r.run(toolrunner.Permit(ctx, toolrunner.GuardMachine), 30*time.Minute, "slipway-gpu-pattern", "--json")
	found := map[string]pattern{}
	if err == nil {
		var version string
		if found, version, err = parsePattern(out); err == nil {
			tool += "; slipway-gpu-pattern " + version
		}
	}
	if errors.Is(err, toolrunner.ErrNotInstalled) {
		err = errors.New("slipway-gpu-pattern is not installed, so nobody knows what is in the GPUs' memory")
	}
	var errs []error
	for _, g := range gpus {
		d := lifecycle.DeviceResult{Kind: "gpu", Name: g.UUID, Serial: g.Serial, Model: g.Model, Method: lifecycle.SanitizeNone, Tool: tool}
		bad := err
		if bad == nil {
			bad = found[g.UUID].check(g.UUID)
		}
		switch {
		case bad != nil:
			d.Detail = bad.Error()
			errs = append(errs, bad)
		case !reset:
			d.Detail = "its memory is clear, but it was not reset"
			errs = append(errs, fmt.Errorf("GPU %s was not reset", g.UUID))
		default:
			d.Method, d.Verified = lifecycle.SanitizeClear, true
			d.Detail = fmt.Sprintf("reset; %d of %d bytes overwritten and read back", found[g.UUID].Checked, found[g.UUID].Total)
		}
		r.device(d)
	}
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("the memory of %d GPUs was overwritten and read back", len(gpus)-len(errs)), errors.Join(errs...)
}

// stepOK is whether a step of this run succeeded.
func (r *run) stepOK(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.steps, func(s lifecycle.StepResult) bool { return s.Name == name && s.OK && s.Skipped == "" })
}
