package maas

import (
	"context"
	"fmt"
	"time"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
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

// ClassifyDeployFailure classifies a failed deployment by status, error description, DEBUG events
// and installation results: installer, datasource, power, timeout, external release or deletion. It
// aborts a deployment that still runs after its deadline, because MAAS or the workers were
// unavailable then, and changes nothing else.
func (a *Activities) ClassifyDeployFailure(ctx context.Context, in ClassifyIn) (Classified, error) {
	m, _, err := a.region(ctx, in.JobRef)
	if err != nil {
		return Classified{}, err
	}
	got, err := in.look(ctx, m)
	if err != nil {
		return Classified{}, err
	}
	out := Classified{MachineFacts: facts(got)}
	if got.Status == providers.MAASDeployed && got.Annotations[annotationJob] == in.JobID {
		out.Recovered, out.Done = true, true
		return out, nil
	}
	if why := in.movedBy(got); why != "" {
		out.Class, out.Message = lifecycle.FailStateDisagreement, why
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
	out.Class, out.Evidence = classifyEvidence(in.Outcome, collectEvidence(got, events, results))
	out.Message = fmt.Sprintf("deployment of %s ended %s", in.SystemID, got.Status)
	switch {
	case got.Status == providers.MAASDeploying:
		out.Message = fmt.Sprintf("deployment of %s did not end by its deadline; the abort was sent, and MAAS still says Deploying", in.SystemID)
	case len(out.Evidence) > 0:
		out.Message += ": " + out.Evidence[0]
	case out.Class == lifecycle.FailDeployTimeout:
		out.Message = fmt.Sprintf("deployment of %s did not end by its deadline and was aborted; MAAS says nothing of why", in.SystemID)
	default:
		out.Message += "; neither its events nor the installation log say why"
	}
	return out, nil
}

// abortPatience is how long a deployment that is aborted here is watched.
const abortPatience = time.Minute

// look reads the machine, and first ends a deployment of this job that nobody
// ended at its deadline.
func (in ClassifyIn) look(ctx context.Context, m providers.MAAS) (providers.MAASMachine, error) {
	got, err := machine(ctx, m, in.SystemID)
	late := in.Outcome == contract.DeployTimeout && got.Status == providers.MAASDeploying && got.Annotations[annotationJob] == in.JobID
	if err != nil || !late {
		return got, err
	}
	actx, cancel := context.WithTimeout(ctx, abortPatience)
	defer cancel()
	if err := abortDeploy(actx, m, in.MachineIn); err != nil && actx.Err() == nil {
		return got, err
	}
	return machine(ctx, m, in.SystemID)
}

// movedBy says what someone else did to the machine since its deployment ended;
// "" when it stands as the deployment, or our abort of it, left it.
func (in ClassifyIn) movedBy(got providers.MAASMachine) string {
	owner := got.Annotations[annotationJob]
	switch s := got.Status; {
	case owner != "" && owner != in.JobID:
		return fmt.Sprintf("machine %s is %s for another job, %s", in.SystemID, s, owner)
	case s == providers.MAASFailedDeployment, s == providers.MAASAllocated && in.Outcome == contract.DeployTimeout:
		return ""
	case s == providers.MAASAllocated:
		return fmt.Sprintf("the deployment of %s was aborted by someone else", in.SystemID)
	case s == providers.MAASReady, s == providers.MAASNew, s == providers.MAASReleasing, s == providers.MAASDiskErasing,
		s == providers.MAASReleasingFailed, s == providers.MAASFailedDiskErasing:
		return fmt.Sprintf("machine %s was released by someone else; it is %s", in.SystemID, s)
	case s == providers.MAASDeploying && in.Outcome == contract.DeployTimeout && owner == in.JobID:
		return "" // MAAS did not carry out our abort
	case s == providers.MAASDeploying, s == providers.MAASDeployed:
		return fmt.Sprintf("machine %s is %s, but not by this job", in.SystemID, s)
	default:
		return fmt.Sprintf("machine %s is %s now, which no deployment ends in", in.SystemID, s)
	}
}
