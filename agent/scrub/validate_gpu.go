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
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// present answers the GPUs; a machine that should have some and shows none is
// no machine without GPUs.
func (v validation) present(ctx context.Context) ([]gpu, string, error) {
	gpus, driver, err := v.readGPUs(ctx)
	var none skipped
	if errors.As(err, &none) && v.args.SKU.GPUs > 0 {
		return nil, "", fmt.Errorf("%d GPUs expected, none found", v.args.SKU.GPUs)
	}
	return gpus, driver, err
}

// gpuState wants every GPU whole, idle, itself and in its normal mode.
func (v validation) gpuState(ctx context.Context) (string, error) {
	gpus, driver, err := v.present(ctx)
	if err != nil {
		return "", err
	}
	var errs []error
	seen := map[string]bool{}
	health := map[string]spec.GPUReport{}
	if v.Health != nil {
		for _, g := range v.Health(ctx).GPUs {
			health[g.UUID] = g
		}
	}
	for _, g := range gpus {
		bad := []error{g.migOff(), g.noResetNeeded(), remaps(g, health)}
		if seen[g.UUID] {
			bad = append(bad, fmt.Errorf("GPU %s is there twice", g.UUID))
		}
		seen[g.UUID] = true
		if g.ComputeMode != "Default" {
			bad = append(bad, fmt.Errorf("GPU %s has compute mode %q", g.UUID, g.ComputeMode))
		}
		if len(g.Processes) > 0 {
			bad = append(bad, fmt.Errorf("GPU %s is used by %d processes", g.UUID, len(g.Processes)))
		}
		err := errors.Join(bad...)
		dev := lifecycle.DeviceResult{Kind: "gpu", Name: g.UUID, Serial: g.Serial, Model: g.Model, Method: lifecycle.SanitizeNone,
			Tool: "nvidia-smi, driver " + driver, Verified: err == nil, Detail: "whole, idle, no row remap, no reset needed"}
		if err != nil {
			dev.Detail = err.Error()
			errs = append(errs, err)
		}
		v.device(dev)
	}
	return fmt.Sprintf("%d GPUs, driver %s", len(gpus), driver), errors.Join(errs...)
}

// remaps wants the row remaps and ECC counts known and none of them bad; the
// SKU's own limits are the step before.
func remaps(g gpu, health map[string]spec.GPUReport) error {
	h, ok := health[g.UUID]
	switch {
	case !ok:
		return fmt.Errorf("GPU %s is not in the hardware report", g.UUID)
	case h.RemapFailed == nil && !withoutMIG(g.Model), h.RemapPending == nil:
		return fmt.Errorf("GPU %s does not tell its row remaps", g.UUID)
	case h.RemapFailed != nil && *h.RemapFailed, *h.RemapPending:
		return fmt.Errorf("GPU %s has a row remap pending or failed", g.UUID)
	}
	return nil
}

// gpuFabric wants the fabric manager active, of the driver's version, and every
// GPU joined, where there are NVSwitches.
func (v validation) gpuFabric(ctx context.Context) (string, error) {
	gpus, driver, err := v.present(ctx)
	if err != nil {
		return "", err
	}
	switched := v.exists("/dev/nvidia-nvswitchctl") || slices.ContainsFunc(gpus, func(g gpu) bool { return !smi.Unknown(g.FabricState) })
	if !switched {
		return "", skipped("there is no NVSwitch")
	}
	var errs []error
	for _, g := range gpus {
		if g.FabricState != "Completed" || g.Fabric != "Success" {
			errs = append(errs, fmt.Errorf("GPU %s has not joined the fabric (%s, %s)", g.UUID, g.FabricState, g.Fabric))
		}
	}
	if _, err := v.run.run(ctx, 20*time.Second, "systemctl", "is-active", "--quiet", "nvidia-fabricmanager.service"); err != nil {
		errs = append(errs, fmt.Errorf("the fabric manager is not active: %w", err))
	}
	out, err := v.run.run(ctx, 20*time.Second, "nv-fabricmanager", "--version")
	if err != nil {
		errs = append(errs, fmt.Errorf("the version of the fabric manager is unknown: %w", err))
	} else if !slices.Contains(strings.Fields(string(out)), driver) {
		errs = append(errs, fmt.Errorf("the fabric manager (%s) is not of the driver's version %s", task.Clip(string(out), 80), driver))
	}
	return fmt.Sprintf("%d GPUs have joined the fabric", len(gpus)), errors.Join(errs...)
}

// gpuErrors reads the kernel's log of this boot.
func (v validation) gpuErrors(ctx context.Context) (string, error) {
	if _, _, err := v.present(ctx); err != nil {
		return "", err
	}
	log, err := v.run.run(ctx, time.Minute, "dmesg")
	if err != nil {
		return "", fmt.Errorf("the kernel's log is unknown: %w", err)
	}
	if len(strings.TrimSpace(string(log))) == 0 {
		return "", errors.New("the kernel's log is empty, so nobody knows whether the GPUs had errors")
	}
	if bad := parseXIDs(log); len(bad) > 0 {
		return "", fmt.Errorf("the driver reported %s", list(bad))
	}
	return "no error of a GPU in the kernel's log", nil
}
