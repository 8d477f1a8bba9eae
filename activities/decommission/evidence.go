package decommission

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
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
		g.steps = append(g.steps, lifecycle.StepResult{Name: string(t.Kind), Detail: cmp.Or(r.Message, r.Code, "it gave no reason")})
	}
	before := slices.Clone(g.devices)
	for _, d := range r.Devices {
		if have := g.find(d, before, r.Devices); t.Kind == lifecycle.TaskKindValidate && d.Kind == "disk" && have == nil {
			d.Verified, d.Detail = false, "the validation saw it, and the scrub that was to erase it did not"
		}
		g.add(d, r.Devices)
	}
	var out struct {
		BootDisks []string `json:"boot_disks"`
		Protected []string `json:"protected"`
	}
	if t.Kind == lifecycle.TaskKindScrub && len(r.Output) > 0 && json.Unmarshal(r.Output, &out) == nil {
		g.boots, g.guarded = append(g.boots, out.BootDisks...), append(g.guarded, out.Protected...)
	}
}

// find is the device in a list that another list, of which d is one, means by d:
// the one of the same kind and serial number where that is only one's in either
// list, since names move from boot to boot; where it is several's, as of the
// namespaces of one drive, the name decides as well, and where there is none, the
// name alone.
func (g *gathered) find(d lifecycle.DeviceResult, in, others []lifecycle.DeviceResult) *lifecycle.DeviceResult {
	alone := d.Serial != "" && bearers(in, d) == 1 && bearers(others, d) <= 1
	i := slices.IndexFunc(in, func(have lifecycle.DeviceResult) bool {
		switch {
		case have.Kind != d.Kind:
			return false
		case have.Serial != "" && d.Serial != "":
			return have.Serial == d.Serial && (alone || have.Name == d.Name || d.Kind != "disk")
		}
		return have.Name == d.Name
	})
	if i < 0 {
		return nil
	}
	return &in[i]
}

// bearers counts the devices of a list that have the kind and serial number.
func bearers(list []lifecycle.DeviceResult, d lifecycle.DeviceResult) int {
	n := 0
	for _, other := range list {
		if other.Kind == d.Kind && other.Serial == d.Serial {
			n++
		}
	}
	return n
}

// add joins what is said of one device of a list: how it was erased stands, and
// it is verified only while nobody found otherwise.
func (g *gathered) add(d lifecycle.DeviceResult, others []lifecycle.DeviceResult) {
	have := g.find(d, g.devices, others)
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

// unasked says so where no scrub was asked to erase disks, as when a person
// adopted its stage: what a validation then finds blank was not erased by anybody
// that is known.
func (g *gathered) unasked() {
	var args spec.ScrubArgs
	if g.scrub != nil && json.Unmarshal(g.scrub.Args, &args) == nil && (len(args.Steps) == 0 || slices.Contains(args.Steps, "disks")) || g.in.Dark != "" {
		return
	}
	g.steps = append(g.steps, lifecycle.StepResult{Name: string(lifecycle.TaskKindScrub), Detail: "nothing is known of a scrub that was asked to erase disks"})
}

// eraseTool is what MAAS's erasure is called in a certificate: it takes the
// drive's own secure erase and overwrites where there is none, and does not say
// which, so that no more than clear is claimed.
const eraseTool = "MAAS, release with secure erase, else overwrite"

// release adds MAAS's erasure from outside. It counts by serial number, for disks
// that nothing better is known of: the one that the system ran from above all. MAAS
// does not say which disks it erased, so that one of which only its record knows,
// perhaps gone since it was made, is proven by nothing.
func (g *gathered) release(f contract.ReleaseFacts) {
	if f.Erased {
		g.steps = append(g.steps, lifecycle.StepResult{Name: "maas.release/erase", OK: true, Detail: "MAAS: Disks erased, machine " + f.SystemID})
	} else {
		g.steps = append(g.steps, lifecycle.StepResult{Name: "maas.release/erase", Detail: cmp.Or(f.Fallback, "MAAS did not say that it erased the disks")})
	}
	for i := range f.Disks {
		f.Disks[i].Kind = "disk"
	}
	seen := slices.Clone(g.devices)
	for _, d := range f.Disks {
		have := g.find(d, seen, f.Disks)
		if have == nil {
			d.Method, d.Tool, d.Verified = lifecycle.SanitizeNone, "", false
			d.Detail = "not seen: MAAS's record of the machine lists it, and neither the node's agent nor who erased the disks has named it"
			g.devices = append(g.devices, d)
			continue
		}
		have = g.find(*have, g.devices, nil)
		if f.Erased && d.Serial != "" && have.Serial == d.Serial && !have.Verified && have.Method == lifecycle.SanitizeNone && !slices.Contains(g.guarded, d.Serial) {
			have.Method, have.Tool, have.Verified, have.Model = lifecycle.SanitizeClear, eraseTool, true, cmp.Or(d.Model, have.Model)
			have.Detail = "MAAS said that it erased all of it, from a system of its own"
		}
	}
}

// unseen adds the disks that the node's agent had listed before, in the installed
// system or when the job began, and who erased did not: a live system without the
// right driver, or a disk that had fallen off its bus, must not prove a node clean.
func (g *gathered) unseen() {
	if g.scrub == nil {
		return
	}
	add := func(known []lifecycle.DeviceResult, why string) {
		seen := slices.Clone(g.devices)
		for _, d := range known {
			if g.find(d, seen, known) == nil {
				d.Kind, d.Method, d.Verified, d.Detail = "disk", lifecycle.SanitizeNone, false, why
				g.devices = append(g.devices, d)
			}
		}
	}
	if g.in.Netboot != nil {
		add(g.in.Netboot.Disks, "the installed system listed it, and the live system that was to erase it does not see it")
	}
	add(g.in.Known, "not seen: the node's agent listed it when the job began, and it is not among what the scrub has reported")
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
