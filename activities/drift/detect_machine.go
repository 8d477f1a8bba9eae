package drift

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
)

// ofMachine asks about the machine as the region lists it. Without a whole list,
// or while the node has just moved, nothing is known; a machine that is absent
// is a finding of its own.
func ofMachine(f Facts, see func(Machine) Verdict) Verdict {
	switch {
	case f.Node.SystemID == "":
		return clean()
	case f.Listed.IsZero() || !f.settled():
		return unknown()
	case f.Machine == nil:
		return clean()
	}
	return see(*f.Machine)
}

func machineAbsent(f Facts) Verdict {
	switch {
	case f.Node.SystemID == "":
		return clean()
	case f.Listed.IsZero() || !f.settled():
		return unknown()
	case f.Machine != nil:
		return clean()
	}
	return found(f.Node.SystemID, "machine "+f.Node.SystemID+" is not in MAAS any more", "system_id", f.Node.SystemID)
}

// occupancyMismatch compares who occupies the node with whom the node names.
func occupancyMismatch(f Facts) Verdict {
	if f.Node.Pointer == f.Node.Occupant {
		return clean()
	}
	named := func(id string) string {
		if id == "" {
			return "nobody"
		}
		return id
	}
	return found(f.Node.Pointer+"/"+f.Node.Occupant, "the node names "+named(f.Node.Pointer)+" and is occupied by "+named(f.Node.Occupant),
		"pointer", f.Node.Pointer, "occupant", f.Node.Occupant)
}

// inStatus finds a machine in one of these statuses.
func inStatus(f Facts, words string, evidence func(Machine) []any, of ...providers.MAASStatus) Verdict {
	return ofMachine(f, func(m Machine) Verdict {
		if !slices.Contains(of, m.Status) {
			return clean()
		}
		name := m.Status.String()
		return found(name, fmt.Sprintf(words, name), append([]any{"maas_status", name}, evidence(m)...)...)
	})
}

func owner(m Machine) []any { return []any{"owner", m.Owner} }

func externallyReleased(f Facts) Verdict {
	return inStatus(f, "MAAS has the machine as %s and no job released it", owner,
		providers.MAASNew, providers.MAASReady, providers.MAASReserved, providers.MAASAllocated)
}

func busyWithoutJob(f Facts) Verdict {
	return inStatus(f, "MAAS has the machine as %s and no job asked for it", owner,
		providers.MAASCommissioning, providers.MAASTesting, providers.MAASDeploying, providers.MAASReleasing, providers.MAASDiskErasing,
		providers.MAASRescueMode, providers.MAASEnteringRescueMode, providers.MAASExitingRescueMode)
}

func failedOrBroken(f Facts) Verdict {
	return inStatus(f, "MAAS has the machine as %s", func(m Machine) []any { return []any{"maas_error", m.Error} },
		providers.MAASFailedCommissioning, providers.MAASMissing, providers.MAASRetired, providers.MAASBroken, providers.MAASFailedDeployment,
		providers.MAASReleasingFailed, providers.MAASFailedDiskErasing, providers.MAASFailedEnteringRescueMode,
		providers.MAASFailedExitingRescueMode, providers.MAASFailedTesting)
}

func externallyDeployed(f Facts) Verdict {
	return ofMachine(f, func(m Machine) Verdict {
		known := f.Mark != nil && f.Mark.DeployedBy != "" && !f.announced()
		if !known || m.Status != providers.MAASDeployed || m.DeployedBy == f.Mark.DeployedBy {
			return clean()
		}
		by := m.DeployedBy
		if by == "" {
			by = "none of Slipway's jobs"
		}
		return found(by, "the machine is Deployed by "+by+", where it was by "+f.Mark.DeployedBy,
			"deployed_by", m.DeployedBy, "known", f.Mark.DeployedBy, "owner", m.Owner)
	})
}

func machineLocked(f Facts) Verdict {
	return ofMachine(f, func(m Machine) Verdict {
		if !m.Locked {
			return clean()
		}
		return found("locked", "the machine is locked in MAAS", "maas_status", m.Status.String())
	})
}

func otherOwner(f Facts) Verdict {
	return ofMachine(f, func(m Machine) Verdict {
		if m.Owner == "" || f.User == "" || m.Owner == f.User {
			return clean()
		}
		return found(m.Owner, "the machine belongs to user "+m.Owner+" of MAAS, not to "+f.User, "owner", m.Owner, "expected", f.User)
	})
}

// bmcPower is what the BMC itself said not long ago, "" for nothing.
func bmcPower(f Facts) providers.PowerState {
	l := f.Look
	if l == nil || f.BMC == nil || l.Address != f.BMC.Address || l.PowerAt == nil || f.Now.Sub(*l.PowerAt) > f.Policy.LoginEvery+time.Minute {
		return ""
	}
	return providers.PowerState(l.Power)
}

// poweredOff believes the BMC before MAAS, which looks every few minutes only,
// and an agent that is alive before both.
func poweredOff(f Facts) Verdict {
	if f.isPXE() {
		return poweredOffPXE(f)
	}
	return ofMachine(f, func(m Machine) Verdict {
		power := bmcPower(f)
		alive := f.Heartbeat != nil && f.Listed.Sub(f.Heartbeat.ReceivedAt) <= f.Policy.Fresh
		switch {
		case m.Power != "off" || power == providers.PowerOn:
			return clean()
		case alive:
			return unknown()
		}
		return found("off", "the machine is powered off", "maas_power", m.Power, "bmc_power", string(power), "last_heartbeat", lastHeartbeat(f))
	})
}

// poweredOffPXE has the word of the BMC alone, which is asked while the agent is silent.
func poweredOffPXE(f Facts) Verdict {
	power := bmcPower(f)
	switch {
	case f.BMC == nil, f.agentAlive(), power == providers.PowerOn:
		return clean()
	case power != providers.PowerOff || !f.settled():
		return unknown()
	}
	return found("off", "the machine is powered off, as its BMC says", "bmc_power", string(power), "last_heartbeat", lastHeartbeat(f))
}

// lastHeartbeat returns when the agent was last heard, as text.
func lastHeartbeat(f Facts) string {
	if f.Heartbeat == nil {
		return "never"
	}
	return f.Heartbeat.ReceivedAt.UTC().Format(time.RFC3339)
}

func powerUnknown(f Facts) Verdict {
	return ofMachine(f, func(m Machine) Verdict {
		power := bmcPower(f)
		if m.Power == "on" || m.Power == "off" || power == providers.PowerOn || power == providers.PowerOff {
			return clean()
		}
		return found(m.Power, fmt.Sprintf("MAAS has the machine's power as %q", m.Power), "maas_power", m.Power, "bmc_power", string(power))
	})
}

// hwSyncStale is MAAS's own rule for a healthy sync.
func hwSyncStale(f Facts) Verdict {
	return ofMachine(f, func(m Machine) Verdict {
		// The key for MAAS is taken off the disk before a tenant comes, and hardware sync ends with
		// it.
		if !m.HWSync || m.SyncInterval <= 0 || m.Status != providers.MAASDeployed || f.Node.Occupant != "" {
			return clean()
		}
		since, last := f.Node.StateChangedAt, "never"
		if m.LastSync != nil {
			since, last = *m.LastSync, m.LastSync.UTC().Format(time.RFC3339)
		}
		if f.Listed.Sub(since) <= m.SyncInterval.D()*3/2 {
			return clean()
		}
		return found(last, "the last hardware sync was at "+last+", and one is due every "+m.SyncInterval.D().String(),
			"last_sync", last, "interval", m.SyncInterval.D().String())
	})
}

func hwSyncOff(f Facts) Verdict {
	return ofMachine(f, func(m Machine) Verdict {
		if f.Profile == nil || !f.Profile.RequireHWSync || m.HWSync || m.Status != providers.MAASDeployed {
			return clean()
		}
		return found("off", "the profile requires hardware sync and the machine has it off", "profile_requires", true)
	})
}

// ofMark compares a machine with how it was when it was accounted for.
func ofMark(f Facts, see func(Machine, Mark) Verdict) Verdict {
	return ofMachine(f, func(m Machine) Verdict {
		if f.Mark == nil || f.announced() {
			return clean()
		}
		return see(m, *f.Mark)
	})
}

func hostnameChanged(f Facts) Verdict {
	return ofMark(f, func(m Machine, k Mark) Verdict {
		if k.Hostname == "" || strings.EqualFold(m.Hostname, k.Hostname) {
			return clean()
		}
		return found(m.Hostname, "the machine is called "+m.Hostname+" in MAAS, where it was "+k.Hostname, "hostname", m.Hostname, "known", k.Hostname)
	})
}

func macsChanged(f Facts) Verdict {
	return ofMark(f, func(m Machine, k Mark) Verdict {
		if len(k.MACs) == 0 || sameSet(m.MACs, k.MACs) {
			return clean()
		}
		now := normal(m.MACs)
		return found(strings.Join(now, " "), fmt.Sprintf("the machine has %d network cards in MAAS that are not the %d it had", len(now), len(k.MACs)),
			"macs", now, "known", normal(k.MACs))
	})
}

func hardwareChanged(f Facts) Verdict {
	return ofMark(f, func(m Machine, k Mark) Verdict {
		now, known := spec.MachineKeys{Serial: m.Serial, UUID: m.UUID}, spec.MachineKeys{Serial: k.Serial, UUID: k.UUID}
		if len(now.Compare(known).Differ) == 0 {
			return clean()
		}
		return found(m.Serial+" "+m.UUID, fmt.Sprintf("the machine has serial %s, where it had %s", m.Serial, k.Serial),
			"serial", m.Serial, "uuid", m.UUID, "known_serial", k.Serial, "known_uuid", k.UUID)
	})
}

func addressesChanged(f Facts) Verdict {
	return ofMark(f, func(m Machine, k Mark) Verdict {
		if len(k.Addresses) == 0 || len(m.Addresses) == 0 || m.Status != providers.MAASDeployed || sameSet(m.Addresses, k.Addresses) {
			return clean()
		}
		now := normal(m.Addresses)
		return found(strings.Join(now, " "), fmt.Sprintf("the machine has the addresses %s, where it had %s", strings.Join(now, ", "), strings.Join(k.Addresses, ", ")),
			"addresses", now, "known", normal(k.Addresses))
	})
}

func bmcAddressChanged(f Facts) Verdict {
	if f.BMC == nil {
		return clean()
	}
	return ofMachine(f, func(m Machine) Verdict {
		if m.PowerAddress == "" || providers.SameBMC(m.PowerAddress, f.BMC.Address) {
			return clean()
		}
		return found(m.PowerAddress, "MAAS reaches the BMC at "+m.PowerAddress+", the record says "+f.BMC.Address,
			"address", m.PowerAddress, "known", f.BMC.Address)
	})
}

func bmcPinChanged(f Facts) Verdict {
	switch l := f.Look; {
	case f.BMC == nil || f.BMC.PinSHA256 == "":
		return clean()
	case l == nil || l.Address != f.BMC.Address || l.PinSHA256 == "":
		return unknown()
	case strings.EqualFold(l.PinSHA256, f.BMC.PinSHA256):
		return clean()
	}
	return found(f.Look.PinSHA256, "the BMC shows certificate pin "+f.Look.PinSHA256+", approved is "+f.BMC.PinSHA256,
		"pin_sha256", f.Look.PinSHA256, "approved", f.BMC.PinSHA256, "address", f.BMC.Address)
}

// silentProbes is how many probes in a row a BMC may leave unanswered: one that
// restarts is away for some minutes.
const silentProbes = 3

func bmcUnreachable(f Facts) Verdict {
	switch l := f.Look; {
	case f.BMC == nil:
		return clean()
	case l == nil || l.Address != f.BMC.Address:
		return unknown()
	case l.Failures == 0:
		return clean()
	case l.Failures < silentProbes:
		return unknown()
	}
	last := "never"
	if f.Look.AnsweredAt != nil {
		last = f.Look.AnsweredAt.UTC().Format(time.RFC3339)
	}
	return found("unreachable", fmt.Sprintf("the BMC at %s has not answered %d probes in a row", f.BMC.Address, f.Look.Failures),
		"address", f.BMC.Address, "problem", f.Look.Problem, "failures", f.Look.Failures, "last_answer", last)
}

// bmcUnhealthy is what the BMC said of the machine's parts when they were last read. Parts that
// could not be read neither open nor close a finding.
func bmcUnhealthy(f Facts) Verdict {
	switch l := f.Look; {
	case f.BMC == nil:
		return clean()
	case l == nil || l.Address != f.BMC.Address || l.HealthAt == nil:
		return unknown()
	case l.Health == "OK":
		return clean()
	case l.Health != "Warning" && l.Health != "Critical":
		return unknown()
	}
	at := f.Look.HealthAt.UTC().Format(time.RFC3339)
	problems := someProblems(f.Look.HealthProblems)
	return found(problemsKey(f.Look.Health, f.Look.HealthProblems), fmt.Sprintf("the BMC reports %s: %s", f.Look.Health, problems),
		"health", f.Look.Health, "problems", problems, "read_at", at)
}

// maxNamed bounds the parts that a message names.
const maxNamed = 10

// someProblems names the first parts that are not well, and counts the others.
func someProblems(problems []string) string {
	if more := len(problems) - maxNamed; more > 0 {
		return strings.Join(problems[:maxNamed], "; ") + fmt.Sprintf("; and %d more", more)
	}
	return strings.Join(problems, "; ")
}

// problemsKey is another one when another part is not well: an operator who ignores one has not
// seen it.
func problemsKey(health string, problems []string) string {
	sorted := slices.Sorted(slices.Values(problems))
	sum := sha256.Sum256([]byte(strings.Join(sorted, "\x00")))
	return health + " " + hex.EncodeToString(sum[:8])
}

func bmcLoginBlocked(f Facts) Verdict {
	if f.BMC == nil || f.BMC.BlockedAt == nil {
		return clean()
	}
	at := f.BMC.BlockedAt.UTC().Format(time.RFC3339)
	return found(at, "logins to the BMC are stopped since "+at+": "+f.BMC.BlockedReason, "since", at, "reason", f.BMC.BlockedReason)
}
