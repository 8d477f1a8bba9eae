package maas

import (
	"strings"

	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/workflows/contract"
)

// signs is what MAAS left of a deployment. It offers no code for the cause: its
// own words are the only evidence there is (research, maas section 3).
type signs struct {
	verdict []string // error description and status message
	events  []string // "type: description", newest first
	console []string // output of the installation scripts that did not pass
	failed  bool     // one of them failed, other than being cut off
}

func evidence(got providers.MAASMachine, events []providers.MAASEvent, results []providers.MAASResult) signs {
	var s signs
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

// sinceDeploying leaves out what happened before this deployment began: an
// earlier trouble with the BMC is not why it failed. Newest come first.
func sinceDeploying(events []providers.MAASEvent) []providers.MAASEvent {
	for i, e := range events {
		if e.Type == "Deploying" {
			return events[:i+1]
		}
	}
	return events
}

// What each cause leaves behind, and how events begin that tell how far a
// deployment is. A machine that asks for its boot image has power, and has not
// gone on for that.
var (
	progress = []string{"Node installation", "Configuring storage", "Installing OS", "Configuring OS", "Rebooting"}
	alive    = append([]string{"Performing PXE boot", "PXE Request", "Loading ephemeral"}, progress...)

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

// judgeSigns tells the cause and the lines that say so, the most telling first.
//
// cloud-init searches for its datasource in every deployment, and MAAS notes
// every power query: either is a cause only where nothing came after it.
func judgeSigns(outcome contract.DeployOutcome, s signs) (lifecycle.FailureClass, []string) {
	if s.searchedInVain() {
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

// searchedInVain: the search for a datasource is the last progress that was
// heard, on the console or among the events.
func (s signs) searchedInVain() bool {
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

// neverPowered: MAAS's own verdict, or a power failure after which the machine
// was not heard of.
func (s signs) neverPowered() bool {
	if len(containing(s.verdict, powerWords)) > 0 {
		return true
	}
	for _, line := range s.events {
		if begins(line, alive) {
			return false
		}
		if len(containing([]string{line}, powerWords)) > 0 {
			return true
		}
	}
	return false
}

// quote is the evidence for one cause: MAAS's verdict, its events, the log.
func (s signs) quote(words []string) []string {
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
