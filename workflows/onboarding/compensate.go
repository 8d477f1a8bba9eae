package onboarding

import (
	"slices"

	"go.temporal.io/sdk/workflow"

	maasact "github.com/slipway-cloud/slipway/activities/maas"
	"github.com/slipway-cloud/slipway/workflows/contract"
	"github.com/slipway-cloud/slipway/workflows/stage"
)

// What each stage's Undo does. All are repeatable: absent or released already
// is success.

func removeCreated(ctx workflow.Context, s *State) error {
	in := maasact.RemoveIn{
		MachineIn: s.machineIn(contract.StageCreateOrFind), Created: s.Machine.Created, Hostname: s.Request.Hostname, BMC: s.BMC,
	}
	_, err := stage.Do(ctx, stage.KindPoll, "remove the record this job created", maas.RemoveCreatedMachine, in)
	return err
}

func abortCommissioning(ctx workflow.Context, s *State) error {
	if s.Machine.SystemID == "" {
		return nil
	}
	_, err := stage.Do(ctx, stage.KindPoll, "abort commissioning", maas.AbortCommissioning, s.machineIn(contract.StageCommission))
	return err
}

func releaseDeployed(ctx workflow.Context, s *State) error {
	if s.Machine.SystemID == "" {
		return nil
	}
	in := maasact.ReleaseIn{MachineIn: s.machineIn(contract.StageDeploy), OnlyOurs: true, Begun: s.Deploy.Begun}
	_, err := stage.Do(ctx, stage.KindPoll, "release what this job deployed", maas.ReturnToReady, in)
	return err
}

func revokeBootstrap(ctx workflow.Context, s *State) error {
	_, err := stage.Do(ctx, stage.KindLocalWork, "revoke token, discard user-data", node.RevokeBootstrap, s.ref(contract.StageRenderCloudInit))
	return err
}

func lockIdentity(ctx workflow.Context, s *State) error {
	_, err := stage.Do(ctx, stage.KindLocalWork, "lock the agent's identity", node.LockAgentIdentity, s.ref(contract.StageWaitAgent))
	return err
}

// What each stage's Observe looks at. Nothing outside is changed.

func observeMachine(done ...string) func(workflow.Context, *State) (stage.Observation, error) {
	return func(ctx workflow.Context, s *State) (stage.Observation, error) {
		if s.Machine.SystemID == "" {
			return stage.Observation{State: "absent"}, nil
		}
		f, err := stage.Do(ctx, stage.KindMAASCall, "observe the machine", maas.ObserveMachine, s.machineIn("observe"))
		if err != nil {
			return stage.Observation{}, err
		}
		s.saw(f)
		o := stage.Observation{Done: slices.Contains(done, f.Status), State: f.Status, Note: f.Status}
		if f.Status == "Deployed" { // also when a person is about to adopt what is not ours
			s.Deploy.Outcome, s.Deploy.SyncBefore = contract.DeployOK, f.LastSync
		}
		return o, nil
	}
}

// observeDeployed takes only this job's own deployment as the outcome; another
// one is a person's to adopt.
func observeDeployed(ctx workflow.Context, s *State) (stage.Observation, error) {
	o, err := observeMachine("Deployed")(ctx, s)
	o.Done = o.Done && !s.Machine.Foreign
	return o, err
}

func looked(s *State, f contract.MachineFacts, err error) (stage.Observation, error) {
	if err != nil {
		return stage.Observation{}, err
	}
	s.saw(f)
	return stage.Observation{Done: f.Done, State: f.Status, Note: f.Note}, nil
}

func observeStorage(ctx workflow.Context, s *State) (stage.Observation, error) {
	in := s.storageIn()
	in.ObserveOnly = true
	f, err := stage.Do(ctx, stage.KindMAASCall, "observe storage", maas.ConfigureStorage, in)
	return looked(s, f, err)
}

func observeRoCE(ctx workflow.Context, s *State) (stage.Observation, error) {
	in := s.networkIn(contract.StageApplyRoCE)
	in.ObserveOnly = true
	f, err := stage.Do(ctx, stage.KindMAASCall, "observe the RoCE ports", maas.ApplyRoCE, in)
	return looked(s, f, err)
}

func observePXE(ctx workflow.Context, s *State) (stage.Observation, error) {
	in := s.networkIn(contract.StageEnsurePXE)
	in.ObserveOnly = true
	f, err := stage.Do(ctx, stage.KindMAASCall, "observe the links", maas.EnsurePXEInterfaceAuto, in)
	return looked(s, f, err)
}

func observeDeploy(ctx workflow.Context, s *State) (stage.Observation, error) {
	in := s.deployIn()
	in.ObserveOnly = true
	f, err := stage.Do(ctx, stage.KindMAASCall, "observe the deployment", maas.DeployMachine, in)
	return looked(s, f, err)
}

func observeSync(ctx workflow.Context, s *State) (stage.Observation, error) {
	in := maasact.WaitSyncIn{MachineIn: s.machineIn(contract.StageWaitHWSync), After: s.Deploy.SyncBefore, Until: workflow.Now(ctx)}
	in.ObserveOnly = true
	f, err := stage.Do(ctx, stage.KindMAASCall, "observe hardware sync", maas.WaitForHardwareSync, in)
	return looked(s, f, err)
}
