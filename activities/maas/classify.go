package maas

import (
	"context"
	"fmt"
	"strings"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/workflows/contract"
)

// ClassifyIn is the input of ClassifyDeployFailure.
type ClassifyIn struct {
	MachineIn
	Outcome contract.DeployOutcome `json:"outcome"`
}

// Classified is why a deployment failed, with the lines that say so.
type Classified struct {
	contract.MachineFacts
	// Recovered is true when the machine turned out to be Deployed by now.
	Recovered bool                   `json:"recovered,omitempty"`
	Class     lifecycle.FailureClass `json:"class,omitempty"`
	Message   string                 `json:"message,omitempty"`
	Evidence  []string               `json:"evidence,omitempty"`
}

const (
	maxEvidence     = 8
	maxEvidenceLine = 300
	eventsRead      = 200
)

// ClassifyDeployFailure reads status, error description, DEBUG events and
// installation results and tells curtin, datasource, power, timeout, external
// release and deletion apart (research, maas section 3). Read-only.
func (a *Activities) ClassifyDeployFailure(ctx context.Context, in ClassifyIn) (Classified, error) {
	m, _, err := a.region(ctx, in.SiteID)
	if err != nil {
		return Classified{}, err
	}
	got, err := machine(ctx, m, in.SystemID)
	if err != nil {
		return Classified{}, err
	}
	out := Classified{MachineFacts: facts(got)}
	if got.Status == providers.MAASDeployed && got.Annotations[annotationJob] == in.JobID {
		out.Recovered, out.Done = true, true
		return out, nil
	}
	events, err := m.Events(ctx, in.SystemID, "DEBUG", eventsRead)
	if err != nil {
		return out, fault.MAAS(ctx, err)
	}
	results, err := m.Results(ctx, in.SystemID, "installation")
	if err != nil {
		return out, fault.MAAS(ctx, err)
	}
	signs := evidence(got, events, results)
	out.Class, out.Evidence = judgeSigns(in.Outcome, signs)
	out.Message = fmt.Sprintf("deployment of %s ended %s", in.SystemID, got.Status)
	if len(out.Evidence) > 0 {
		out.Message += ": " + out.Evidence[0]
	}
	return out, nil
}

// sign is one line of evidence; the newest come first.
type sign struct {
	text     string
	isEvent  bool
	isResult bool
}

func evidence(got providers.MAASMachine, events []providers.MAASEvent, results []providers.MAASResult) []sign {
	var out []sign
	add := func(text string, event, result bool) {
		if text = strings.TrimSpace(text); text != "" {
			if len(text) > maxEvidenceLine {
				text = text[:maxEvidenceLine]
			}
			out = append(out, sign{text, event, result})
		}
	}
	add(got.ErrorDescription, false, false)
	add(got.StatusMessage, false, false)
	for _, e := range sinceDeploying(events) {
		add(e.Type+": "+e.Description, true, false)
	}
	for _, r := range results {
		if r.Status == scriptFailed || r.Status == scriptTimedOut {
			for _, line := range strings.Split(r.Output, "\n") {
				add(line, false, true)
			}
		}
	}
	return out
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

// signature is a known trace of one cause. MAAS offers no code for these: its
// own event and console texts are the only evidence there is.
type signature struct {
	class lifecycle.FailureClass
	texts []string
}

func signatures() []signature {
	return []signature{
		{lifecycle.FailDatasource, []string{
			"no datasource found", "Can not apply stage config", "searching for network data from DataSourceMAAS",
			"DataSourceNone", "Used fallback datasource",
		}},
		{lifecycle.FailBMCUnreachable, []string{
			"Failed to power on node", "Failed to query node's BMC", "Power state could not be", "power-on activity",
		}},
		{lifecycle.FailDeploy, []string{"Installation failed", "Node installation failure"}},
	}
}

func judgeSigns(outcome contract.DeployOutcome, signs []sign) (lifecycle.FailureClass, []string) {
	for _, s := range signatures() {
		var lines []string
		for _, line := range signs {
			// A progress event that names curtin is no failure; a failed script
			// that does is one.
			curtin := s.class == lifecycle.FailDeploy && line.isResult && strings.Contains(line.text, "curtin")
			if (curtin || containsAny(line.text, s.texts)) && len(lines) < maxEvidence {
				lines = append(lines, line.text)
			}
		}
		if len(lines) == 0 {
			continue
		}
		if s.class == lifecycle.FailDatasource && !lastWordIsDatasource(signs, s.texts) {
			continue // it searched, found, and went on
		}
		return s.class, lines
	}
	if outcome == contract.DeployTimeout || containsAnySign(signs, "timed out after", "time-out during deployment") {
		return lifecycle.FailDeployTimeout, nil
	}
	return lifecycle.FailDeploy, nil
}

// lastWordIsDatasource reports whether the search for a datasource is the last
// progress that was heard: the newest installation event, or the console.
func lastWordIsDatasource(signs []sign, texts []string) bool {
	for _, s := range signs {
		if s.isResult && containsAny(s.text, texts) {
			return true
		}
	}
	for _, s := range signs {
		if s.isEvent && strings.HasPrefix(s.text, "Node installation:") {
			return containsAny(s.text, texts)
		}
	}
	return false
}

func containsAny(text string, parts []string) bool {
	for _, p := range parts {
		if strings.Contains(text, p) {
			return true
		}
	}
	return false
}

func containsAnySign(signs []sign, parts ...string) bool {
	for _, s := range signs {
		if containsAny(s.text, parts) {
			return true
		}
	}
	return false
}
