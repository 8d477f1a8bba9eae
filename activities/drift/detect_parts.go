package drift

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slipway-cloud/slipway/lifecycle/hardware"
)

// maxChanges bounds the changes that a finding names.
const maxChanges = 10

// baseParts takes into a baseline what it does not have yet of the parts, of a reading since the
// last job: what that job changed is read first.
func (f Facts) baseParts(next *Mark) {
	p := f.Parts
	if p == nil {
		return
	}
	after := func(at *time.Time) bool { return at != nil && (f.LastJobAt == nil || at.After(*f.LastJobAt)) }
	// Another digest without a change is a reading that told more.
	same := func(digest string, changes []hardware.Change) bool {
		return digest == "" || len(changesSince(changes, next.PartsAt)) == 0
	}
	if after(p.BMCAt) {
		if p.BMCDigest != "" && p.BMCDigest != next.BMCParts && same(next.BMCParts, p.BMCChanges) {
			if next.BMCParts == "" || next.PartsAt.IsZero() {
				next.PartsAt = *p.BMCAt
			}
			next.BMCParts = p.BMCDigest
		}
		if len(next.DPUModes) == 0 {
			next.DPUModes = p.Modes
		}
	}
	if p.AgentDigest != "" && p.AgentDigest != next.AgentParts && after(p.AgentAt) && same(next.AgentParts, p.AgentChanges) {
		next.AgentParts = p.AgentDigest
		if next.PartsAt.IsZero() {
			next.PartsAt = *p.AgentAt
		}
	}
}

// partsChanged compares the parts of the machine with those that were accounted for, as the BMC and
// the agent tell them.
func partsChanged(f Facts) Verdict {
	p, k := f.Parts, f.Mark
	if p == nil || k == nil || f.announced() || k.BMCParts == "" && k.AgentParts == "" {
		return unknown()
	}
	byBMC := k.BMCParts != "" && p.BMCDigest != "" && p.BMCDigest != k.BMCParts
	byAgent := k.AgentParts != "" && p.AgentDigest != "" && p.AgentDigest != k.AgentParts
	var changes []string
	if byBMC {
		changes = append(changes, changesSince(p.BMCChanges, k.PartsAt)...)
	}
	if byAgent {
		changes = append(changes, changesSince(p.AgentChanges, k.PartsAt)...)
	}
	if len(changes) == 0 {
		return clean()
	}
	return found(p.BMCDigest+" "+p.AgentDigest, "the machine's parts have changed: "+strings.Join(changes, "; "),
		"changes", changes, "bmc_parts", p.BMCDigest, "agent_parts", p.AgentDigest, "read_at", later(p.BMCAt, p.AgentAt).UTC().Format(time.RFC3339Nano))
}

func later(a, b *time.Time) time.Time {
	switch {
	case a == nil && b == nil:
		return time.Time{}
	case a == nil || b != nil && b.After(*a):
		return *b
	}
	return *a
}

func changesSince(all []hardware.Change, since time.Time) []string {
	var out []string
	for _, c := range all {
		if !c.At.After(since) || c.What == "mode" {
			continue
		}
		line := fmt.Sprintf("%s %s: %s", c.Kind, c.ID, c.What)
		if c.From != "" && c.To != "" {
			line += fmt.Sprintf(" was %s, is %s", c.From, c.To)
		}
		if !slices.Contains(out, line) {
			out = append(out, line)
		}
		if len(out) == maxChanges {
			break
		}
	}
	return out
}

// dpuModeChanged compares the modes of the host's DPUs with those that were accounted for. A DPU
// that is new or gone is a change of the parts.
func dpuModeChanged(f Facts) Verdict {
	p, k := f.Parts, f.Mark
	if p == nil || k == nil || f.announced() || len(k.DPUModes) == 0 {
		return unknown()
	}
	known := map[string]string{}
	for _, m := range k.DPUModes {
		id, mode, _ := strings.Cut(m, "=")
		known[id] = mode
	}
	var now []string
	for _, m := range p.Modes {
		id, mode, _ := strings.Cut(m, "=")
		if was, ok := known[id]; ok && was != mode {
			now = append(now, fmt.Sprintf("DPU %s is in mode %s, where it was in mode %s", id, mode, was))
		}
	}
	if len(now) == 0 {
		return clean()
	}
	return found(strings.Join(p.Modes, " "), strings.Join(now, "; "), "dpu_modes", p.Modes, "known", k.DPUModes)
}
