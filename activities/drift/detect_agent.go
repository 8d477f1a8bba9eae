package drift

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

func bootUnannounced(f Facts) Verdict {
	switch {
	case f.Heartbeat == nil || !f.settled():
		return unknown()
	case f.Mark == nil || f.Mark.BootID == "" || f.Mark.BootID == f.Heartbeat.BootID || f.announced():
		return clean()
	}
	return found(f.Heartbeat.BootID, "the node has booted and nobody asked for it", "boot_id", f.Heartbeat.BootID, "known_boot_id", f.Mark.BootID)
}

// agentSilent returns a finding for an agent whose last heartbeat is older than the policy allows.
// An identity that is locked out cannot be heard and has a finding of its own.
func agentSilent(f Facts) Verdict {
	switch {
	case f.Heartbeat == nil || !f.settled():
		return unknown()
	case f.Now.Sub(f.Heartbeat.ReceivedAt) <= f.Policy.Silent, f.Identity != nil && f.Identity.LockedAt != nil:
		return clean()
	}
	last := f.Heartbeat.ReceivedAt.UTC().Format(time.RFC3339)
	return found(last, "the agent was last heard at "+last, "last_heartbeat", last)
}

func agentOld(f Facts) Verdict {
	switch {
	case f.Policy.MinAgent == "":
		return clean()
	case f.Heartbeat == nil:
		return unknown()
	case !spec.OlderVersion(f.Heartbeat.AgentVersion, f.Policy.MinAgent):
		return clean()
	}
	return found(f.Heartbeat.AgentVersion, fmt.Sprintf("the agent is %s, at least %s is wanted", f.Heartbeat.AgentVersion, f.Policy.MinAgent),
		"version", f.Heartbeat.AgentVersion, "minimum", f.Policy.MinAgent)
}

// certificateLeft is the part of its lifetime that a certificate should never
// come down to: agents renew at a third.
const certificateLeft = 5

func agentCertificate(f Facts) Verdict {
	i := f.Identity
	if i == nil || i.NotAfter == nil || i.NotBefore == nil {
		return unknown()
	}
	left := i.NotAfter.Sub(f.Now)
	if left >= i.NotAfter.Sub(*i.NotBefore)/certificateLeft {
		return clean()
	}
	words := "the agent's certificate ends in " + left.Round(time.Second).String() + " and was not renewed"
	if left <= 0 {
		words = "the agent's certificate has ended"
	}
	return found(fmt.Sprint(i.Generation), words, "not_after", i.NotAfter.UTC().Format(time.RFC3339), "generation", i.Generation)
}

func agentLocked(f Facts) Verdict {
	if f.Identity == nil || f.Identity.LockedAt == nil {
		return clean()
	}
	at := f.Identity.LockedAt.UTC().Format(time.RFC3339)
	return found(at, "the agent's identity is locked: "+f.Identity.LockedReason, "since", at, "reason", f.Identity.LockedReason)
}

func clockSkew(f Facts) Verdict {
	if !f.agentAlive() {
		return unknown()
	}
	skew := time.Duration(f.Heartbeat.SkewMS) * time.Millisecond
	if skew.Abs() <= f.Policy.Skew {
		return clean()
	}
	key := "ahead"
	if skew < 0 {
		key = "behind"
	}
	return found(key, fmt.Sprintf("the node's clock is %s %s", skew.Abs().Round(time.Second), key), "skew", skew.String())
}

// ofReport compares the agent's report of its present boot with the SKU.
func ofReport(f Facts, see func(spec.HealthReport, spec.SKUSpec) Verdict) Verdict {
	r := f.report()
	switch {
	case f.SKU == nil:
		return clean()
	case r == nil || !f.settled():
		return unknown()
	}
	v := see(*r, *f.SKU)
	if v.State == Found && f.Heartbeat.ReportedAt != nil {
		v.Evidence["reported_at"] = f.Heartbeat.ReportedAt.UTC().Format(time.RFC3339)
	}
	return v
}

// fewer finds a number that is not what the SKU says.
func fewer(what string, wanted, got int, exact bool) Verdict {
	if wanted == 0 || got == wanted || (!exact && got > wanted) {
		return clean()
	}
	return found(fmt.Sprintf("%d of %d", got, wanted), fmt.Sprintf("%d %s reported, the SKU has %d", got, what, wanted), "expected", wanted, "reported", got)
}

func gpuCount(f Facts) Verdict {
	return ofReport(f, func(r spec.HealthReport, s spec.SKUSpec) Verdict {
		if s.GPUs > 0 && r.GPUError != "" {
			return found("unreadable", "the GPUs cannot be read: "+r.GPUError, "expected", s.GPUs, "reported", r.GPUError)
		}
		return fewer("GPUs", s.GPUs, len(r.GPUs), true)
	})
}

func gpuFault(f Facts) Verdict {
	return ofReport(f, func(r spec.HealthReport, s spec.SKUSpec) Verdict {
		var bad []string
		for i, g := range r.GPUs {
			switch {
			case g.RemapFailed != nil && *g.RemapFailed:
				bad = append(bad, fmt.Sprintf("GPU %d: a row remap has failed", i))
			case g.RemapPending != nil && *g.RemapPending:
				bad = append(bad, fmt.Sprintf("GPU %d: a row remap is pending", i))
			case g.RecoveryAction != "":
				bad = append(bad, fmt.Sprintf("GPU %d: the driver's recovery action is %q", i, g.RecoveryAction))
			case s.RequireECC && g.UncorrectedECC != nil && *g.UncorrectedECC > s.MaxUncorrectedECC:
				bad = append(bad, fmt.Sprintf("GPU %d: %d uncorrected ECC errors", i, *g.UncorrectedECC))
			}
		}
		if len(bad) == 0 {
			return clean()
		}
		words := strings.Join(bad, "; ")
		return found(words, words, "expected", "no fault", "reported", bad)
	})
}

func memory(f Facts) Verdict {
	return ofReport(f, func(r spec.HealthReport, s spec.SKUSpec) Verdict {
		if r.MemoryMiB == nil {
			return unknown()
		}
		return fewer("MiB of memory", int(s.MinMemoryMiB), int(*r.MemoryMiB), false)
	})
}

func disks(f Facts) Verdict {
	return ofReport(f, func(r spec.HealthReport, s spec.SKUSpec) Verdict {
		data := 0
		for _, d := range r.Disks {
			if !d.Boot {
				data++
			}
		}
		return fewer("data disks", s.DataDisks, data, false)
	})
}

func nics(f Facts) Verdict {
	return ofReport(f, func(r spec.HealthReport, s spec.SKUSpec) Verdict {
		up := 0
		for _, n := range r.NICs {
			if n.Up {
				up++
			}
		}
		return fewer("network cards up", s.NICsUp, up, false)
	})
}

func driver(f Facts) Verdict {
	return ofReport(f, func(r spec.HealthReport, s spec.SKUSpec) Verdict {
		if s.DriverMinVersion == "" || !spec.OlderVersion(r.Driver, s.DriverMinVersion) {
			return clean()
		}
		return found(r.Driver, fmt.Sprintf("the GPU driver is %s, the SKU wants %s", r.Driver, s.DriverMinVersion), "expected", s.DriverMinVersion, "reported", r.Driver)
	})
}

// agentElsewhere: bridges and virtual cards come and go, but of its own cards a
// machine shows at least one.
func agentElsewhere(f Facts) Verdict {
	r := f.report()
	switch {
	case len(f.Node.MACs) == 0:
		return clean()
	case r == nil || !f.settled() || len(r.NICs) == 0:
		return unknown()
	}
	known := normal(f.Node.MACs)
	if f.Machine != nil {
		known = normal(append(slices.Clone(f.Node.MACs), f.Machine.MACs...))
	}
	var reported []string
	for _, n := range r.NICs {
		reported = append(reported, n.MAC)
	}
	reported = normal(reported)
	if slices.ContainsFunc(reported, func(m string) bool { return slices.Contains(known, m) }) {
		return clean()
	}
	return found(strings.Join(reported, " "), "the agent reports none of the node's network cards", "reported", reported, "known", known)
}
