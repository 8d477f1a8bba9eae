package agent

import (
	"context"
	"path/filepath"
	"slices"
	"strings"

	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// unitDirs are where systemd finds the units that are installed.
var unitDirs = []string{"/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"}

// watchedUnits lists the services that watch or drive the GPUs.
func watchedUnits() []string {
	return []string{"gpud.service", "nvidia-dcgm.service", "nvidia-persistenced.service", "nvidia-fabricmanager.service"}
}

// unitStates are what `systemctl is-active` writes of a unit that is installed.
var unitStates = []string{"active", "inactive", "failed", "activating", "deactivating", "reloading"}

const (
	unitAbsent  = "absent"
	unitUnknown = "unknown"
)

// units asks systemd for the services that watch or drive the GPUs. systemctl fails when one of
// them is not active, and writes their states all the same.
func (n nodeReader) units(ctx context.Context) []spec.UnitReport {
	names := watchedUnits()
	out := make([]spec.UnitReport, 0, len(names))
	for _, name := range names {
		state := unitAbsent
		if slices.ContainsFunc(unitDirs, func(dir string) bool { return n.exists(filepath.Join(dir, name)) }) {
			state = unitUnknown
			raw, _ := n.tools.Run(ctx, "systemctl", "is-active", name)
			if s := strings.TrimSpace(string(raw)); slices.Contains(unitStates, s) {
				state = s
			}
		}
		out = append(out, spec.UnitReport{Name: name, State: state})
	}
	return out
}
