package lifecycle

import (
	"fmt"
	"slices"
	"strings"
)

// DriftSeverity says how much a finding matters.
type DriftSeverity string

// The severities. An open critical finding requires operator action.
const (
	DriftCritical DriftSeverity = "critical"
	DriftWarning  DriftSeverity = "warning"
	DriftInfo     DriftSeverity = "info"
)

// DriftScope is what a finding is about: the kind of its subject.
type DriftScope string

// The scopes. A machine is one of MAAS, by system id; hardware is what several
// records share: a MAC address, a serial, a BMC's address, a boot id.
const (
	DriftOfNode     DriftScope = "node"
	DriftOfBMC      DriftScope = "bmc"
	DriftOfMachine  DriftScope = "machine"
	DriftOfHardware DriftScope = "hardware"
	DriftOfSite     DriftScope = "site"
)

// DriftAction is an operator's action on a finding.
type DriftAction string

// The actions. Adopt records what is observed, for detectors that define it. Quarantine takes the
// node out of scheduling. Ignore hides the finding until its evidence changes.
const (
	DriftAdopt      DriftAction = "adopt"
	DriftQuarantine DriftAction = "quarantine"
	DriftIgnore     DriftAction = "ignore"
)

// DriftActions lists every action.
func DriftActions() []DriftAction { return []DriftAction{DriftAdopt, DriftQuarantine, DriftIgnore} }

// DriftDetector is one named comparison, as data. The comparison itself is a pure function of the
// same name in activities/drift.
type DriftDetector struct {
	Name     string
	Scope    DriftScope
	Severity DriftSeverity
	// Sources are what is compared, of postgres, maas, bmc and agent.
	Sources []string
	// Finds says when there is a finding, Evidence what stands in it.
	Finds    string
	Evidence []string
	// Expects lists the states in which a node is looked at; nil is none. A
	// finding of a node that was quarantined meanwhile stays open while its
	// fault lasts.
	Expects []NodeStatus
	// Adopts says what adopt records; "" when there is nothing to adopt.
	Adopts string
	// Quarantines lets the reconciler quarantine the node by itself, once two
	// passes in a row have seen the same.
	Quarantines bool
	// Closes says what ends it besides the fault's going away, Next what to do.
	Closes string
	Next   string
}

// Actions lists what may be done about its findings.
func (d DriftDetector) Actions() []DriftAction {
	var out []DriftAction
	if d.Adopts != "" {
		out = append(out, DriftAdopt)
	}
	if d.Scope == DriftOfNode || d.Scope == DriftOfBMC {
		out = append(out, DriftQuarantine)
	}
	return append(out, DriftIgnore)
}

// Allows says whether an action may be taken on its findings.
func (d DriftDetector) Allows(a DriftAction) bool { return slices.Contains(d.Actions(), a) }

// DriftConfirm is how many passes in a row must have seen the same fault before
// the reconciler quarantines a node for it.
const DriftConfirm = 2

// DriftDetectors lists every detector.
func DriftDetectors() []DriftDetector {
	return slices.Concat(driftOfMachines(), driftOfOccupancy(), driftOfAgents(), driftOfIdentity(), driftOfBMCs(), driftOfSites())
}

// DriftDetectorOf finds a detector by its name.
func DriftDetectorOf(name string) (DriftDetector, bool) {
	all := DriftDetectors()
	i := slices.IndexFunc(all, func(d DriftDetector) bool { return d.Name == name })
	if i < 0 {
		return DriftDetector{}, false
	}
	return all[i], true
}

// DocumentDrift renders the catalogue.
func DocumentDrift() string {
	var b strings.Builder
	b.WriteString("# Drift detectors\n\nGenerated from package lifecycle. Do not edit; `make generate` writes it. " +
		"How a pass works is on the page on [drift](../drift.md).\n\n" +
		"| detector | about | severity | compares | finds | looks at nodes that are | actions | quarantines by itself |\n|---|---|---|---|---|---|---|---|\n")
	for _, d := range DriftDetectors() {
		auto := "no"
		if d.Quarantines {
			auto = fmt.Sprintf("after %d passes", DriftConfirm)
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s | %s | %s |\n",
			d.Name, d.Scope, d.Severity, strings.Join(d.Sources, ", "), d.Finds, plain(d.Expects), codes(d.Actions()), auto)
	}
	for _, d := range DriftDetectors() {
		fmt.Fprintf(&b, "\n## %s\n\nEvidence: %s. Closes when %s. ", d.Name, strings.Join(d.Evidence, ", "), d.Closes)
		if d.Adopts != "" {
			fmt.Fprintf(&b, "`adopt` %s. ", d.Adopts)
		}
		b.WriteString(d.Next + "\n")
	}
	return b.String()
}
