package onboarding

import (
	"slices"

	"go.temporal.io/sdk/workflow"

	bmcact "github.com/slipway-cloud/slipway/activities/bmc"
	maasact "github.com/slipway-cloud/slipway/activities/maas"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/sanitize"
	"github.com/slipway-cloud/slipway/workflows/stage"
)

// The Undo of each stage. All are repeatable: absent or released already is success. Beside each
// stands its proof, which reads the outside again and names what is left.

func (s *State) removeIn() maasact.RemoveIn {
	return maasact.RemoveIn{
		MachineIn: s.machineIn(lifecycle.StageCreateOrFind), Created: s.Machine.Created, Hostname: s.Request.Hostname, BMC: s.BMC,
	}
}

// recordUndo keeps what an undo left of the machine, so that the job does not show what it has
// itself ended as observed.
func (s *State) recordUndo(f contract.MachineFacts, err error) error {
	if err != nil {
		return err
	}
	s.recordMachine(f)
	if f.Status == machineAbsent {
		s.Machine.Power, s.BMC.Power = "unknown", "unknown"
	}
	s.Agent.Enrolled, s.Agent.Healthy = false, false
	return nil
}

// machineAbsent is the status of a machine that MAAS does not have.
const machineAbsent = "absent"

// endRotation ends a change of the BMC's password that the job has begun and does not finish.
func endRotation(ctx workflow.Context, s *State) error {
	return sanitize.EndRotation(ctx, s.Job.At(lifecycle.StageResolvePower), s.RotatesBMC)
}

func verifyRotationEnded(ctx workflow.Context, s *State) (string, error) {
	in := bmcact.RotateIn{JobRef: s.Job.At(lifecycle.StageResolvePower), BMCID: s.RotatesBMC}
	f, err := stage.Do(ctx, stage.KindLocalWork, "no change of the password is open", bmc.CheckRotationEnded, in)
	return f.Note, err
}

func removeCreated(ctx workflow.Context, s *State) error {
	f, err := stage.Do(ctx, stage.KindPoll, "remove the record this job created", maas.RemoveCreatedMachine, s.removeIn())
	return s.recordUndo(f, err)
}

func verifyRecordRemoved(ctx workflow.Context, s *State) (string, error) {
	return remainingMachine(stage.Do(ctx, stage.KindMAASCall, "no record of this job is left", maas.CheckRecordRemoved, s.removeIn()))
}

func abortCommissioning(ctx workflow.Context, s *State) error {
	if s.Machine.SystemID == "" {
		return nil
	}
	f, err := stage.Do(ctx, stage.KindPoll, "abort commissioning", maas.AbortCommissioning, s.machineIn(lifecycle.StageCommission))
	return s.recordUndo(f, err)
}

func verifyNotCommissioning(ctx workflow.Context, s *State) (string, error) {
	if s.Machine.SystemID == "" {
		return "", nil
	}
	return remainingMachine(stage.Do(ctx, stage.KindMAASCall, "no commissioning runs", maas.CheckNotCommissioning, s.machineIn(lifecycle.StageCommission)))
}

func (s *State) releaseIn() maasact.ReleaseIn {
	return maasact.ReleaseIn{MachineIn: s.machineIn(lifecycle.StageDeploy), OnlyOurs: true, DeployStarted: s.Deploy.Started}
}

func releaseDeployed(ctx workflow.Context, s *State) error {
	if s.Machine.SystemID == "" {
		return nil
	}
	f, err := stage.Do(ctx, stage.KindPoll, "release what this job deployed", maas.ReturnToReady, s.releaseIn())
	return s.recordUndo(f, err)
}

func verifyReleased(ctx workflow.Context, s *State) (string, error) {
	if s.Machine.SystemID == "" {
		return "", nil
	}
	return remainingMachine(stage.Do(ctx, stage.KindMAASCall, "no deployment of this job is left", maas.CheckReleased, s.releaseIn()))
}

// remainingMachine names what is left of a machine.
func remainingMachine(f contract.MachineFacts, err error) (string, error) {
	switch {
	case err != nil || f.Done:
		return "", err
	case f.Note == "":
		return "machine " + f.SystemID + " is " + f.Status, nil
	}
	return f.Note, nil
}

func revokeBootstrap(ctx workflow.Context, s *State) error {
	_, err := stage.Do(ctx, stage.KindLocalWork, "revoke token, discard user-data", node.RevokeBootstrap, s.Job.At(lifecycle.StageRenderCloudInit))
	return err
}

func verifyBootstrapRevoked(ctx workflow.Context, s *State) (string, error) {
	left, err := stage.Do(ctx, stage.KindLocalWork, "no token and no user-data are left", node.CheckBootstrapRevoked, s.Job.At(lifecycle.StageRenderCloudInit))
	return left.Note, err
}

func lockIdentity(ctx workflow.Context, s *State) error {
	_, err := stage.Do(ctx, stage.KindLocalWork, "lock the agent's identity", node.LockAgentIdentity, s.Job.At(lifecycle.StageWaitAgent))
	if err == nil {
		s.Agent.Enrolled, s.Agent.Healthy = false, false
	}
	return err
}

func verifyIdentityLocked(ctx workflow.Context, s *State) (string, error) {
	left, err := stage.Do(ctx, stage.KindLocalWork, "the agent is shut out", node.CheckIdentityLocked, s.Job.At(lifecycle.StageWaitAgent))
	return left.Note, err
}

// The Observe of each stage. Nothing outside is changed.

func observeMachine(done ...string) func(workflow.Context, *State) (stage.Observation, error) {
	return func(ctx workflow.Context, s *State) (stage.Observation, error) {
		if s.Machine.SystemID == "" {
			return stage.Observation{State: "absent"}, nil
		}
		f, err := stage.Do(ctx, stage.KindMAASCall, "observe the machine", maas.ObserveMachine, s.machineIn("observe"))
		if err != nil {
			return stage.Observation{}, err
		}
		s.recordMachine(f)
		o := stage.Observation{Done: slices.Contains(done, f.Status), State: f.Status, Note: f.Status}
		if f.Status == "Deployed" { // also when an operator may adopt another deployment
			s.Deploy.Outcome, s.Deploy.SyncBefore = contract.DeployOK, f.LastSync
		}
		return o, nil
	}
}

// observeDeployed accepts only this job's own deployment as the outcome. An operator may adopt
// another one.
func observeDeployed(ctx workflow.Context, s *State) (stage.Observation, error) {
	o, err := observeMachine("Deployed")(ctx, s)
	o.Done = o.Done && !s.Machine.Foreign
	return o, err
}

func machineObservation(s *State, f contract.MachineFacts, err error) (stage.Observation, error) {
	if err != nil {
		return stage.Observation{}, err
	}
	s.recordMachine(f)
	return stage.Observation{Done: f.Done, State: f.Status, Note: f.Note}, nil
}

func observeStorage(ctx workflow.Context, s *State) (stage.Observation, error) {
	in := s.storageIn()
	in.ObserveOnly = true
	f, err := stage.Do(ctx, stage.KindMAASCall, "observe storage", maas.ConfigureStorage, in)
	return machineObservation(s, f, err)
}

func observeRoCE(ctx workflow.Context, s *State) (stage.Observation, error) {
	in := s.networkIn(lifecycle.StageApplyRoCE)
	in.ObserveOnly = true
	f, err := stage.Do(ctx, stage.KindMAASCall, "observe the RoCE ports", maas.ApplyRoCE, in)
	return machineObservation(s, f, err)
}

func observePXE(ctx workflow.Context, s *State) (stage.Observation, error) {
	in := s.networkIn(lifecycle.StageEnsurePXE)
	in.ObserveOnly = true
	f, err := stage.Do(ctx, stage.KindMAASCall, "observe the links", maas.EnsurePXEInterfaceAuto, in)
	return machineObservation(s, f, err)
}

func observeDeploy(ctx workflow.Context, s *State) (stage.Observation, error) {
	in := s.deployIn()
	in.ObserveOnly = true
	f, err := stage.Do(ctx, stage.KindMAASCall, "observe the deployment", maas.DeployMachine, in)
	return machineObservation(s, f, err)
}

func observeSync(ctx workflow.Context, s *State) (stage.Observation, error) {
	in := maasact.WaitSyncIn{MachineIn: s.machineIn(lifecycle.StageWaitHWSync), After: s.Deploy.SyncBefore, Until: workflow.Now(ctx)}
	in.ObserveOnly = true
	f, err := stage.Do(ctx, stage.KindMAASCall, "observe hardware sync", maas.WaitForHardwareSync, in)
	return machineObservation(s, f, err)
}
