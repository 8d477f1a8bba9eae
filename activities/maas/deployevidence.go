package maas

import (
	"strings"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
)

// deployEvidence is what MAAS stores of a failed deployment. MAAS has no code for the cause, so its
// texts are the only evidence.
type deployEvidence struct {
	verdict []string // error description and status message
	events  []string // "type: description", newest first
	console []string // output of the installation scripts that did not pass
	failed  bool     // a script failed, other than by a timeout
}

func collectEvidence(got providers.MAASMachine, events []providers.MAASEvent, results []providers.MAASResult) deployEvidence {
	var s deployEvidence
	add := func(to *[]string, text string) {
		if text = strings.TrimSpace(text); text != "" {
			*to = append(*to, strings.ToValidUTF8(text[:min(len(text), maxEvidenceLine)], ""))
		}
	}
	add(&s.verdict, got.ErrorDescription)
	add(&s.verdict, got.StatusMessage)
	for _, e := range sinceDeploying(events) {
		add(&s.events, e.Type+": "+e.Description)
	}
	for _, r := range results {
		if didNotPass(r) {
			s.failed = s.failed || r.Status != scriptTimedOut
			for line := range strings.Lines(r.Output) {
				add(&s.console, line)
			}
		}
	}
	return s
}

// sinceDeploying returns the events since this deployment began, newest first: an earlier problem
// with the BMC is not its cause.
func sinceDeploying(events []providers.MAASEvent) []providers.MAASEvent {
	for i, e := range events {
		if e.Type == "Deploying" {
			return events[:i+1]
		}
	}
	return events
}

// The texts of each cause, and the beginnings of events that show how far a deployment has come. A
// machine that requests its boot image has power, and has made no progress yet.
var (
	progress = []string{"Node installation", "Configuring storage", "Installing OS", "Configuring OS", "Rebooting"}
	powered  = append([]string{"Performing PXE boot", "PXE Request", "Loading ephemeral"}, progress...)

	datasourceWords = []string{
		"no datasource found", "Can not apply stage config", "searching for network data from DataSourceMAAS", "DataSourceNone", "Used fallback datasource",
	}
	powerWords = []string{
		"Failed to power on node", "Failed to query node's BMC", "Power state could not be", "power-on activity", "access the BMC", "access the node's BMC",
		"connect to the BMC", "BMC refused", "BMC password", "credentials for the BMC", "determining BMC task queue",
	}
	installerWords = []string{"Installation failed", "Node installation failure", "Unexpected error while running command", ": FAIL: "}
	timeoutWords   = []string{"timed out after", "time-out during deployment", "Node has not been heard from"}
)

// classifyEvidence returns the cause and the lines that show it, the most specific first.
//
// cloud-init searches for its datasource in every deployment, and MAAS records every power query:
// either is a cause only if nothing came after it.
func classifyEvidence(outcome contract.DeployOutcome, s deployEvidence) (lifecycle.FailureClass, []string) {
	if s.foundNoDatasource() {
		return lifecycle.FailDatasource, s.quote(datasourceWords)
	}
	if lines := s.quote(installerWords); len(lines) > 0 || s.failed {
		return lifecycle.FailDeploy, lines
	}
	if s.neverPowered() {
		return lifecycle.FailDeployPower, s.quote(powerWords)
	}
	if lines := s.quote(timeoutWords); len(lines) > 0 || outcome == contract.DeployTimeout {
		return lifecycle.FailDeployTimeout, lines
	}
	return lifecycle.FailDeploy, s.verdict
}

// foundNoDatasource reports whether the search for a datasource is the last progress, on the
// console or among the events.
func (s deployEvidence) foundNoDatasource() bool {
	if len(containing(s.console, datasourceWords)) > 0 {
		return true
	}
	for _, line := range s.events {
		if begins(line, progress) {
			return len(containing([]string{line}, datasourceWords)) > 0
		}
	}
	return false
}

// neverPowered reports whether MAAS says that powering on failed, or a power failure is the
// machine's last event.
func (s deployEvidence) neverPowered() bool {
	if len(containing(s.verdict, powerWords)) > 0 {
		return true
	}
	for _, line := range s.events {
		if begins(line, powered) {
			return false
		}
		if len(containing([]string{line}, powerWords)) > 0 {
			return true
		}
	}
	return false
}

// quote returns the evidence for one cause: MAAS's verdict, its events, the log.
func (s deployEvidence) quote(words []string) []string {
	var lines []string
	for _, from := range [][]string{s.verdict, s.events, s.console} {
		lines = append(lines, containing(from, words)...)
	}
	return lines[:min(len(lines), maxEvidence)]
}

func containing(lines, words []string) []string {
	var out []string
	for _, line := range lines {
		for _, w := range words {
			if strings.Contains(line, w) {
				out = append(out, line)
				break
			}
		}
	}
	return out
}

func begins(line string, heads []string) bool {
	for _, h := range heads {
		if strings.HasPrefix(line, h) {
			return true
		}
	}
	return false
}
