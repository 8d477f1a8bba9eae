package maas

import (
	"context"
	"strings"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
)

// past reports whether a machine is beyond commissioning.
func past(s providers.MAASStatus) bool {
	return s == providers.MAASReady || s == providers.MAASAllocated || s == providers.MAASDeploying || s == providers.MAASDeployed
}

// CommissionMachine starts what leads to Ready: commissioning for a new or
// failed machine, release for a deployment of this job that failed. MAAS does
// not commission a machine that failed its tests; an operator decides whether to
// override them. It leaves a machine alone that is on its way or there
// already. BMC settings are never rewritten.
func (a *Activities) CommissionMachine(ctx context.Context, in MachineIn) (contract.MachineFacts, error) {
	return a.commission(ctx, in, false)
}

// CommissionAgain also commissions a machine that is Ready: what was changed in the server since is
// known to MAAS only then. A machine whose commissioning, test or release is under way is left
// alone, and so is one whose last commissioning is not the one that the job knows: it has been
// commissioned again, by an execution whose answer was lost.
func (a *Activities) CommissionAgain(ctx context.Context, in MachineIn) (contract.MachineFacts, error) {
	return a.commission(ctx, in, true)
}

func (a *Activities) commission(ctx context.Context, in MachineIn, again bool) (contract.MachineFacts, error) {
	m, got, err := a.openMachine(ctx, in.JobRef, in.SystemID)
	if err != nil {
		return contract.MachineFacts{}, err
	}
	switch s := got.Status; {
	case again && s == providers.MAASReady && !in.ObserveOnly && (in.Commissioning == 0 || in.Commissioning == got.CommissioningID):
		got, err = m.Commission(ctx, in.SystemID, providers.MAASCommission{})
	case past(s), s == providers.MAASCommissioning, s == providers.MAASTesting, s == providers.MAASReleasing:
		out := facts(got)
		out.Done, out.Note = true, "already "+s.String()
		return out, nil
	case in.ObserveOnly:
		return facts(got), nil
	case s == providers.MAASFailedTesting:
		return facts(got), fault.New(lifecycle.FailCommissioning,
			"machine %s failed its tests: %s; fix it and test it again in MAAS, or override the failed tests there, then retry the stage",
			in.SystemID, a.failedScripts(ctx, m, in.SystemID))
	case s == providers.MAASNew, s == providers.MAASFailedCommissioning:
		got, err = m.Commission(ctx, in.SystemID, providers.MAASCommission{})
	case s == providers.MAASFailedDeployment && got.Annotations[annotationJob] == in.JobID:
		if refused := a.checkRelease(ctx, m, in.NodeID); refused != nil {
			return facts(got), refused
		}
		err = m.Release(ctx, in.SystemID, providers.MAASRelease{Comment: "slipway " + in.JobID + ": failed deployment"})
	default:
		return facts(got), fault.New(lifecycle.FailStateDisagreement,
			"machine %s is %s; it cannot be commissioned from there", in.SystemID, s)
	}
	if err != nil {
		return a.reread(ctx, m, in.SystemID, err, func(s providers.MAASStatus) bool {
			return (past(s) && !again) || s == providers.MAASCommissioning || s == providers.MAASTesting || s == providers.MAASReleasing
		})
	}
	return facts(got), nil
}

// reread settles a mutation that ended in an error: if the machine has moved as
// asked, the mutation happened.
func (a *Activities) reread(ctx context.Context, m providers.MAAS, systemID string, cause error, moved func(providers.MAASStatus) bool) (contract.MachineFacts, error) {
	got, err := m.Machine(ctx, systemID)
	if err == nil && moved(got.Status) {
		out := facts(got)
		out.Done, out.Note = true, "taken although the answer was an error"
		return out, nil
	}
	return facts(got), fault.MAAS(ctx, cause)
}

// WaitForReady polls until the machine is Ready (or beyond, for a resumed job).
func (a *Activities) WaitForReady(ctx context.Context, in MachineIn) (contract.MachineFacts, error) {
	m, _, err := a.region(ctx, in.JobRef)
	if err != nil {
		return contract.MachineFacts{}, err
	}
	got, err := pollMachine(ctx, m, in.SystemID, in.Poll.D(), func(got providers.MAASMachine) error {
		switch {
		case past(got.Status):
			return nil
		case got.Status == providers.MAASFailedCommissioning, got.Status == providers.MAASFailedTesting, got.Status == providers.MAASBroken:
			return fault.New(lifecycle.FailCommissioning, "machine %s is %s: %s", in.SystemID, got.Status, a.failedScripts(ctx, m, in.SystemID))
		case got.Status == providers.MAASNew:
			return fault.New(lifecycle.FailCommissioning, "commissioning of %s was aborted: the machine is New again", in.SystemID)
		case got.Status == providers.MAASReleasingFailed, got.Status == providers.MAASFailedDiskErasing, got.Status == providers.MAASRetired, got.Status == providers.MAASMissing:
			return fault.New(lifecycle.FailStateDisagreement, "machine %s is %s", in.SystemID, got.Status)
		}
		return errKeepWaiting
	})
	if err != nil {
		return facts(got), err
	}
	out := facts(got)
	out.Done = true
	return out, a.recordDrives(ctx, m, in, got)
}

// recordDrives records the drives that MAAS found, while the machine is Ready: with hardware sync,
// what runs on a deployed machine changes MAAS's list. A list in which a drive has no serial number
// is no record.
func (a *Activities) recordDrives(ctx context.Context, m providers.MAAS, in MachineIn, got providers.MAASMachine) error {
	if _, dry := m.(*dryRunMAAS); dry || in.ObserveOnly || in.NodeID == "" || got.Status != providers.MAASReady {
		return nil
	}
	disks, err := m.BlockDevices(ctx, in.SystemID)
	if err != nil {
		return fault.MAAS(ctx, err)
	}
	var found []spec.ExpectedDrive
	for _, d := range disks {
		if d.Type != "" && d.Type != "physical" {
			continue
		}
		if d.Serial == "" {
			return nil
		}
		found = append(found, spec.ExpectedDrive{Serial: d.Serial, Model: d.Model, Bytes: d.SizeBytes})
	}
	if found, err = spec.NormalDrives(found); err != nil {
		return nil //nolint:nilerr // a list that is no node's; the first report of the agent is recorded
	}
	err = a.Store.Tx(ctx, func(tx *db.Tx) error {
		return tx.RecordDrives(ctx, in.NodeID, found, db.DrivesCommissioned, db.Actor{Owner: lifecycle.OwnerJob, ID: in.JobID})
	})
	return fault.Internal(ctx, err)
}

// The statuses in MAAS of a script that did not do its work (ScriptStatus).
const (
	scriptFailed           = 3
	scriptTimedOut         = 4
	scriptFailedInstalling = 8
)

func didNotPass(r providers.MAASResult) bool {
	return r.Status == scriptFailed || r.Status == scriptTimedOut || r.Status == scriptFailedInstalling
}

// failedScripts names the scripts that did not pass.
func (a *Activities) failedScripts(ctx context.Context, m providers.MAAS, systemID string) string {
	var names []string
	for _, kind := range []string{"commissioning", "testing"} {
		results, err := m.Results(ctx, systemID, kind)
		if err != nil {
			continue
		}
		for _, r := range results {
			if didNotPass(r) {
				names = append(names, r.Name)
			}
		}
	}
	if len(names) == 0 {
		return "no script is marked as failed"
	}
	return "failed scripts: " + strings.Join(names, ", ")
}

// AbortCommissioning is the compensation of commission_node: a commissioning
// that still runs is aborted, anything else is left.
func (a *Activities) AbortCommissioning(ctx context.Context, in MachineIn) (contract.MachineFacts, error) {
	m, found, err := a.findMachine(ctx, in.JobRef, in.SystemID)
	if err != nil {
		return contract.MachineFacts{}, err
	}
	if found == nil {
		return absentFacts("", ""), nil
	}
	got := *found
	if got.Status == providers.MAASCommissioning || got.Status == providers.MAASTesting {
		got, err = abortUntil(ctx, m, in, " cancelled", func(s providers.MAASStatus) bool {
			return s != providers.MAASCommissioning && s != providers.MAASTesting
		})
		if err != nil {
			return facts(got), err
		}
	}
	out := facts(got)
	out.Done = true
	return out, nil
}
