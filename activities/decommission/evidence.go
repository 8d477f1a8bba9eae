package decommission

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/contract"
)

// take adds what a task reported: its steps under the name of its kind, and its
// devices. A validation that found something takes back what a scrub proved.
func (g *gathered) take(t *db.NodeTask) {
	if t == nil {
		return
	}
	r := *t.Result
	g.simulated = g.simulated || r.Simulated
	for _, s := range r.Steps {
		if s.EndedAt.After(g.ended) {
			g.ended = s.EndedAt
		}
		s.Name = string(t.Kind) + "/" + s.Name
		g.steps = append(g.steps, s)
	}
	if !r.OK && !slices.ContainsFunc(r.Steps, func(s lifecycle.StepResult) bool { return !s.OK && s.Skipped == "" }) {
		g.steps = append(g.steps, lifecycle.StepResult{Name: string(t.Kind), Detail: firstOf(r.Message, r.Code)})
	}
	for _, d := range r.Devices {
		g.add(d)
	}
	var out struct {
		BootDisks []string `json:"boot_disks"`
		Protected []string `json:"protected"`
	}
	if t.Kind == lifecycle.TaskKindScrub && len(r.Output) > 0 && json.Unmarshal(r.Output, &out) == nil {
		g.boots, g.guarded = append(g.boots, out.BootDisks...), append(g.guarded, out.Protected...)
	}
}

func firstOf(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return "it gave no reason"
}

// find is the device of the same kind and serial number; where one has none, the
// same name.
func (g *gathered) find(d lifecycle.DeviceResult) *lifecycle.DeviceResult {
	i := slices.IndexFunc(g.devices, func(have lifecycle.DeviceResult) bool {
		if have.Kind != d.Kind {
			return false
		}
		if have.Serial != "" && d.Serial != "" {
			return have.Serial == d.Serial && (have.Name == d.Name || d.Kind != "disk")
		}
		return have.Name == d.Name
	})
	if i < 0 {
		return nil
	}
	return &g.devices[i]
}

// add joins what is said of one device: how it was erased stands, and it is
// verified only while nobody found otherwise.
func (g *gathered) add(d lifecycle.DeviceResult) {
	have := g.find(d)
	if have == nil {
		g.devices = append(g.devices, d)
		return
	}
	if d.Method != lifecycle.SanitizeNone {
		have.Method, have.Tool = d.Method, d.Tool
	}
	switch {
	case have.Verified && !d.Verified:
		have.Verified, have.Detail = false, d.Detail
	case have.Verified && d.Detail != "" && d.Detail != have.Detail:
		have.Detail += "; after the boot: " + d.Detail
	}
}

// eraseTool is what MAAS's erasure is called in a certificate: it takes the
// drive's own secure erase and overwrites where there is none, and does not say
// which, so that no more than clear is claimed.
const eraseTool = "MAAS, release with secure erase, else overwrite"

// release adds MAAS's erasure from outside. It counts by serial number, for disks
// that nothing better is known of: the one that the system ran from above all.
func (g *gathered) release(f contract.ReleaseFacts) {
	if !f.Erased {
		detail := f.Fallback
		if detail == "" {
			detail = "MAAS did not say that it erased the disks"
		}
		g.steps = append(g.steps, lifecycle.StepResult{Name: "maas.release/erase", Detail: detail})
		return
	}
	g.steps = append(g.steps, lifecycle.StepResult{Name: "maas.release/erase", OK: true, Detail: "MAAS: Disks erased, machine " + f.SystemID})
	for _, d := range f.Disks {
		d.Kind, d.Method, d.Tool, d.Verified = "disk", lifecycle.SanitizeClear, eraseTool, true
		d.Detail = "MAAS said that it erased all of it, from a system of its own"
		have := g.bySerial(d.Serial)
		switch {
		case have == nil:
			g.devices = append(g.devices, d)
		case !have.Verified && have.Method == lifecycle.SanitizeNone && !slices.Contains(g.guarded, d.Serial):
			name := have.Name
			*have = d
			have.Name = name
		}
	}
}

func (g *gathered) bySerial(serial string) *lifecycle.DeviceResult {
	i := slices.IndexFunc(g.devices, func(d lifecycle.DeviceResult) bool { return d.Kind == "disk" && serial != "" && d.Serial == serial })
	if i < 0 {
		return nil
	}
	return &g.devices[i]
}

// unseen adds the disks that the installed system listed and the live one did
// not: a live system without the right driver must not prove a node clean.
func (g *gathered) unseen() {
	if g.in.Netboot == nil || g.scrub == nil {
		return
	}
	for _, d := range g.in.Netboot.Disks {
		known := g.find(d) != nil
		if d.Serial != "" {
			known = g.bySerial(d.Serial) != nil
		}
		if !known {
			d.Detail = "the installed system listed it, and the live system that was to erase it does not see it"
			g.devices = append(g.devices, d)
		}
	}
}

// keepsSystem lists the modes that leave the installed system as it is.
func keepsSystem(m lifecycle.DecommissionMode) bool {
	return m == lifecycle.ModeSoftReset || m == lifecycle.ModeStorageCleanup
}

// kept says of the disk that a system ran from what the mode means for it.
func (g *gathered) kept() {
	for i, d := range g.devices {
		if d.Kind != "disk" || d.Verified || !slices.Contains(g.boots, d.Serial) {
			continue
		}
		if keepsSystem(g.in.Mode) {
			g.devices[i].Detail = fmt.Sprintf("kept, not erased: %s leaves the installed system on this disk", g.in.Mode)
		}
	}
}

// unproven lists what keeps the mode from succeeding. A mode that keeps the
// system is not asked for its disk; a release that the profile lets go without
// erasing not for the same one. Of a node that leaves for good, dark and powered
// off, only the disks count. From a live system every disk is asked for.
func (g *gathered) unproven() []string {
	var out []string
	fallback := g.in.Mode == lifecycle.ModeFull && g.in.Release != nil && g.in.Release.Fallback != ""
	dark := g.in.Dark != "" && g.in.Mode == lifecycle.ModeFull
	for _, s := range g.steps {
		if s.OK || s.Skipped != "" || s.Name == string(lifecycle.TaskKindScrub) && dark || s.Name == "maas.release/erase" && fallback {
			continue
		}
		out = append(out, fmt.Sprintf("step %s: %s", s.Name, s.Detail))
	}
	disks := 0
	for _, d := range g.devices {
		if d.Kind == "disk" {
			disks++
		}
		boot := slices.Contains(g.boots, d.Serial)
		if d.Verified || boot && (keepsSystem(g.in.Mode) || fallback) || dark && d.Kind != "disk" {
			continue
		}
		out = append(out, fmt.Sprintf("%s %s %s: %s", d.Kind, d.Name, d.Serial, d.Detail))
	}
	blind := g.in.Netboot != nil && !g.in.Netboot.Installed
	if (dark || blind) && disks == 0 {
		out = append(out, "no disk of the machine is known to be erased")
	}
	return out
}
