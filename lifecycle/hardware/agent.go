package hardware

import (
	"fmt"
	"strings"
	"time"

	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// AgentParts lists the parts that an agent's report names.
func AgentParts(r spec.HealthReport) []Part {
	out := make([]Part, 0, len(r.GPUs)+len(r.NICs)+len(r.Disks))
	for i, g := range r.GPUs {
		serial := g.Serial
		if serial == "" {
			serial = g.UUID
		}
		out = append(out, Part{Kind: GPU, URI: fmt.Sprintf("gpu/%d", i), Name: g.UUID, Model: g.Model, Serial: serial})
	}
	for _, d := range r.Disks {
		out = append(out, Part{Kind: Drive, URI: "disk/" + d.Name, Name: d.Name, Model: d.Model, Serial: d.Serial})
	}
	for _, n := range r.NICs {
		out = append(out, Part{Kind: NIC, URI: "nic/" + n.Name, Name: n.Name, MAC: strings.ToLower(n.MAC)})
	}
	return out
}

// AgentProbes returns what an agent's report says of its node's health, measured by the SKU where
// the node has one. A report that is not of now, or not there, makes everything unknown.
func AgentProbes(r *spec.HealthReport, sku *spec.SKUSpec, at *time.Time, current bool) []Probe {
	if r == nil {
		return []Probe{NewProbe(SourceAgent, CategoryDevice, "", ClassUnknown, "the agent has sent no report", at)}
	}
	var out []Probe
	add := func(category Category, target string, class Class, note string) {
		if !current {
			class, note = ClassUnknown, "the agent is silent since then"
		}
		out = append(out, NewProbe(SourceAgent, category, target, class, note, at))
	}
	if r.GPUError != "" {
		add(CategoryGPU, "GPUs", ClassUnknown, r.GPUError)
	}
	for i, g := range r.GPUs[:min(len(r.GPUs), MaxParts)] {
		class, note := gpuClass(g)
		add(CategoryGPU, fmt.Sprintf("GPU %d %s", i, g.UUID), class, note)
	}
	if sku != nil && r.GPUError == "" && len(r.GPUs) != sku.GPUs {
		add(CategoryGPU, "GPUs", ClassCritical, fmt.Sprintf("%d found, %d expected", len(r.GPUs), sku.GPUs))
	}
	up := 0
	for _, n := range r.NICs {
		if n.Up {
			up++
		}
	}
	network := ClassOK
	if sku != nil && up < sku.NICsUp || up == 0 {
		network = ClassWarning
	}
	add(CategoryNetwork, "network cards", network, fmt.Sprintf("%d of %d are up", up, len(r.NICs)))
	switch {
	case r.MemoryMiB == nil:
		add(CategoryMemory, "memory", ClassUnknown, "its size could not be read")
	case sku != nil && *r.MemoryMiB < sku.MinMemoryMiB:
		add(CategoryMemory, "memory", ClassWarning, fmt.Sprintf("%d MiB, %d expected", *r.MemoryMiB, sku.MinMemoryMiB))
	default:
		add(CategoryMemory, "memory", ClassOK, fmt.Sprintf("%d MiB", *r.MemoryMiB))
	}
	data := 0
	for _, d := range r.Disks {
		if !d.Boot {
			data++
		}
	}
	drives := ClassOK
	if sku != nil && data < sku.DataDisks {
		drives = ClassWarning
	}
	add(CategoryDrive, "data disks", drives, fmt.Sprintf("%d found", data))
	for _, u := range r.Units {
		add(CategoryDevice, "unit "+u.Name, unitClass(u.State), u.State)
	}
	return out
}

func gpuClass(g spec.GPUReport) (Class, string) {
	yes := func(b *bool) bool { return b != nil && *b }
	switch {
	case yes(g.RemapFailed):
		return ClassCritical, "a row remap has failed"
	case g.RecoveryAction != "":
		return ClassCritical, fmt.Sprintf("the driver's recovery action is %q", g.RecoveryAction)
	case g.UncorrectedECC != nil && *g.UncorrectedECC > 0:
		return ClassWarning, fmt.Sprintf("%d uncorrected ECC errors", *g.UncorrectedECC)
	case yes(g.RemapPending):
		return ClassWarning, "a row remap is pending"
	case g.RemapFailed == nil || g.UncorrectedECC == nil:
		return ClassUnknown, "memory errors could not be read"
	}
	return ClassOK, ""
}

// unitClass rates the state of a service of the node. A service that is not installed is not asked
// for.
func unitClass(state string) Class {
	switch state {
	case "active":
		return ClassOK
	case "failed":
		return ClassCritical
	case "inactive", "activating", "deactivating", "reloading":
		return ClassWarning
	}
	return ClassUnknown
}
