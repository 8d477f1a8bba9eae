package maas

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/internal/cloudinit"
	"github.com/slipway-cloud/slipway/internal/poll"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
)

// DeployIn is the input of DeployMachine. The user-data travels by reference:
// it holds the enrolment token and the host key.
type DeployIn struct {
	contract.JobRef
	SystemID    string           `json:"system_id"`
	Profile     spec.ProfileSpec `json:"profile"`
	UserDataRef string           `json:"user_data_ref"`
	// Attempt counts deployments of this job from 1.
	Attempt int `json:"attempt"`
}

// DeployMachine allocates the machine, marks it with this job and attempt, and
// deploys. The mark makes it idempotent: a machine that is Deploying or
// Deployed under the mark is ours, and nothing is sent again.
func (a *Activities) DeployMachine(ctx context.Context, in DeployIn) (contract.MachineFacts, error) {
	m, got, err := a.openMachine(ctx, in.JobRef, in.SystemID)
	if err != nil {
		return contract.MachineFacts{}, err
	}
	if done, out := in.taken(got); done {
		return out, nil
	}
	if in.ObserveOnly {
		return facts(got), nil
	}
	if got.Status == providers.MAASReady {
		if got, err = in.allocate(ctx, m); err != nil {
			return facts(got), err
		}
		if done, out := in.taken(got); done {
			return out, nil
		}
	}
	switch got.Status {
	case providers.MAASAllocated:
		if j := got.Annotations[annotationJob]; j != "" && j != in.JobID {
			return facts(got), fault.New(lifecycle.FailStateDisagreement, "machine %s is allocated for another job, %s", in.SystemID, j)
		}
	default:
		return facts(got), fault.New(lifecycle.FailStateDisagreement, "machine %s is %s; it can be deployed only from Ready or Allocated", in.SystemID, got.Status)
	}
	return a.deploy(ctx, m, in)
}

// markPatience is how long a machine that somebody else has just allocated is
// watched for the mark of this job.
const (
	markPatience = 8 * time.Second
	markLook     = 250 * time.Millisecond
)

// allocate takes the machine and returns it as it is then. A refusal may mean
// that another execution of this very activity, taken for lost, was faster: its
// mark follows within moments. Without the mark the refusal stands.
func (in DeployIn) allocate(ctx context.Context, m providers.MAAS) (providers.MAASMachine, error) {
	_, aerr := m.Allocate(ctx, in.SystemID, "slipway", "slipway "+in.JobID)
	refused := aerr != nil && !transient(aerr)
	for until := time.Now().Add(markPatience); ; {
		got, err := machine(ctx, m, in.SystemID)
		switch {
		case err != nil:
			return got, err
		case refused && got.Annotations[annotationJob] == in.JobID:
			return got, nil
		case refused && (!providers.IsKind(aerr, providers.KindStateConflict) || time.Now().After(until)):
			return got, fault.MAAS(ctx, aerr)
		case !refused && got.Status == providers.MAASReady:
			return got, fault.New(lifecycle.FailMAASUnavailable, "machine %s is %s after allocation", in.SystemID, got.Status)
		case !refused:
			return got, nil
		}
		if err := poll.Sleep(ctx, markLook); err != nil {
			return got, err
		}
	}
}

// taken reports whether this very deployment is under way or done.
func (in DeployIn) taken(got providers.MAASMachine) (bool, contract.MachineFacts) {
	out := facts(got)
	ours := got.Annotations[annotationJob] == in.JobID && got.Annotations[annotationAttempt] == strconv.Itoa(in.Attempt)
	if ours && (got.Status == providers.MAASDeploying || got.Status == providers.MAASDeployed || got.Status == providers.MAASFailedDeployment) {
		out.Done, out.Note = true, fmt.Sprintf("attempt %d is %s", in.Attempt, got.Status)
		return true, out
	}
	return false, out
}

func (a *Activities) deploy(ctx context.Context, m providers.MAAS, in DeployIn) (contract.MachineFacts, error) {
	mark, err := a.mark(ctx, in, strconv.Itoa(in.Attempt))
	if err != nil {
		return contract.MachineFacts{}, err
	}
	if err := m.SetWorkloadAnnotations(ctx, in.SystemID, mark); err != nil {
		return contract.MachineFacts{}, fault.MAAS(ctx, err)
	}
	sealed, err := cloudinit.OpenSealed(ctx, a.Secrets, providers.SecretRef(in.UserDataRef))
	if err != nil {
		return contract.MachineFacts{}, fault.Secret(ctx, err)
	}
	_, derr := m.Deploy(ctx, in.SystemID, providers.MAASDeploy{
		DistroSeries: in.Profile.DistroSeries, HWEKernel: in.Profile.HWEKernel, UserData: sealed.Document,
		EnableHWSync: in.Profile.RequireHWSync, Comment: fmt.Sprintf("slipway %s attempt %d", in.JobID, in.Attempt),
	})
	got, err := m.Machine(ctx, in.SystemID)
	if err != nil {
		return contract.MachineFacts{}, fault.MAAS(ctx, err)
	}
	if done, out := in.taken(got); done {
		return out, nil
	}
	if derr == nil {
		derr = &providers.Error{Kind: providers.KindUncertain, Op: "maas.deploy", Message: "MAAS accepted the deployment but the machine is " + got.Status.String()}
	}
	return facts(got), fault.MAAS(ctx, derr)
}

// WaitDeployedIn is the input of WaitForDeployed. Until is the deadline after
// which the deployment is aborted; it comes from the workflow's clock.
type WaitDeployedIn struct {
	MachineIn
	Attempt int       `json:"attempt"`
	Until   time.Time `json:"until"`
}

// DeployedFacts is how a deployment ended as MAAS tells it. Deployed is not
// healthy: MAAS says it as soon as cloud-init asks for its data.
type DeployedFacts struct {
	contract.MachineFacts
	Outcome contract.DeployOutcome `json:"outcome"`
}

// WaitForDeployed polls until the deployment ended one way or another. A
// failure is an outcome and no error; classify_deploy_failure explains it. At
// the deadline the deployment is aborted, since MAAS has releases in which a
// machine stays Deploying for ever; where MAAS is away then, ClassifyDeployFailure
// aborts it.
func (a *Activities) WaitForDeployed(ctx context.Context, in WaitDeployedIn) (DeployedFacts, error) {
	m, _, err := a.region(ctx, in.JobRef)
	if err != nil {
		return DeployedFacts{}, err
	}
	out := DeployedFacts{Outcome: contract.DeployOK}
	got, err := pollMachine(ctx, m, in.SystemID, in.Poll.D(), func(got providers.MAASMachine) error {
		return in.readOutcome(got, &out.Outcome)
	})
	out.MachineFacts = facts(got)
	if err != nil {
		return out, err
	}
	if out.Outcome == contract.DeployTimeout {
		return out, abortDeploy(ctx, m, in.MachineIn)
	}
	if out.Outcome == contract.DeployOK {
		if err := a.recordAddresses(ctx, in.JobRef, got); err != nil {
			return out, err
		}
	}
	out.Done = true
	return out, nil
}

func (in WaitDeployedIn) readOutcome(got providers.MAASMachine, outcome *contract.DeployOutcome) error {
	owner := got.Annotations[annotationJob]
	ours := owner == in.JobID
	if !ours && owner != "" {
		return fault.New(lifecycle.FailStateDisagreement, "machine %s is %s for another job, %s", in.SystemID, got.Status, owner)
	}
	switch got.Status { //nolint:exhaustive // every other status is a disagreement
	case providers.MAASDeployed:
		if !ours || got.OSystem == "" {
			return fault.New(lifecycle.FailStateDisagreement, "machine %s is Deployed, but not by this job", in.SystemID)
		}
		*outcome = contract.DeployOK
		return nil
	case providers.MAASFailedDeployment:
		*outcome = contract.DeployFailed
		return nil
	case providers.MAASDeploying:
		if time.Now().After(in.Until) {
			if !ours {
				return fault.New(lifecycle.FailStateDisagreement,
					"machine %s is still Deploying, but not by this job; its deployment is left alone", in.SystemID)
			}
			*outcome = contract.DeployTimeout
			return nil
		}
		return errKeepWaiting
	case providers.MAASAllocated:
		return fault.New(lifecycle.FailStateDisagreement, "the deployment of %s was aborted by someone else", in.SystemID)
	case providers.MAASReady, providers.MAASReleasing, providers.MAASDiskErasing:
		return fault.New(lifecycle.FailStateDisagreement, "machine %s was released by someone else; it is %s", in.SystemID, got.Status)
	}
	return fault.New(lifecycle.FailStateDisagreement, "machine %s is %s while its deployment was awaited", in.SystemID, got.Status)
}

// abortDeploy ends a deployment that hangs.
func abortDeploy(ctx context.Context, m providers.MAAS, in MachineIn) error {
	_, err := abortUntil(ctx, m, in, ": deadline", func(s providers.MAASStatus) bool { return s != providers.MAASDeploying })
	return err
}
