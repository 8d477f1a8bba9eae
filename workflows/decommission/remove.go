package decommission

import (
	"fmt"

	"go.temporal.io/sdk/workflow"

	maasact "github.com/slipway-cloud/slipway/activities/maas"
	nodestateact "github.com/slipway-cloud/slipway/activities/nodestate"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/workflows/sanitize"
	"github.com/slipway-cloud/slipway/workflows/stage"
)

// switchOff ends with a machine that everybody who can tell reads off: what is
// on would enlist itself in MAAS again.
func switchOff(at string) func(workflow.Context, *State) error {
	return func(ctx workflow.Context, s *State) error {
		if s.IsPXE() { // a machine that an admin took out of the job's hands is not switched off
			if err := s.ReadNode(ctx, at); err != nil {
				return err
			}
		}
		off, err := s.EnsurePoweredOff(ctx, at, false)
		if err != nil {
			return err
		}
		if !off {
			return stage.Fail(lifecycle.FailPowerNotConfirmed, "nobody confirms that the machine is off: %s", s.Power.TimelineNote())
		}
		return nil
	}
}

func observeOff(at string) func(workflow.Context, *State) (stage.Observation, error) {
	return func(ctx workflow.Context, s *State) (stage.Observation, error) {
		off, err := s.EnsurePoweredOff(ctx, at, true)
		if err != nil && stage.ClassOf(err) != lifecycle.FailInternal {
			// A broken BMC must not keep a server in the job for ever: an operator who has
			// unplugged the server may accept the risk.
			return stage.Observation{State: "power not confirmed", Note: string(stage.ClassOf(err))}, nil
		}
		return stage.Observation{Done: off, State: "power " + s.Power.State, Note: s.Power.TimelineNote()}, err
	}
}

func (s *State) move(ctx workflow.Context, at string, from, to lifecycle.NodeStatus, owner lifecycle.Owner, proof lifecycle.Proof, note string) error {
	in := nodestateact.MoveIn{JobRef: s.Job.At(at), From: from, To: to, Owner: owner, Proof: proof, Note: note}
	_, err := stage.Do(ctx, stage.KindLocalWork, "move the node to "+string(to), nodeActs.MoveNode, in)
	return err
}

func retire(ctx workflow.Context, s *State) error {
	if s.IsPXE() {
		return s.retirePXE(ctx)
	}
	if err := s.move(ctx, lifecycle.StageRetireNode, lifecycle.NodeDraining, lifecycle.NodeRetired, s.ModeInfo().Owner, nil, s.Note("has drained the node")); err != nil {
		return err
	}
	s.Retired = true
	return nil
}

func (s *State) uninstallTask() sanitize.Task {
	return sanitize.Task{Stage: lifecycle.StageRemoveNode, Kind: lifecycle.TaskKindUninstall, Tries: &s.Drains.Uninstall, Args: spec.UninstallArgs{}}
}

// removeNode has the agent uninstall itself where it can be asked, and then revokes its identity. A
// removal that fails leaves the node retired.
func removeNode(ctx workflow.Context, s *State) error {
	const at = lifecycle.StageRemoveNode
	if err := s.Load(ctx, at); err != nil {
		return err
	}
	s.Retired = true
	note := s.Note("removes the node")
	if s.Node.Agent != contract.AgentAlive && !s.IsFullDecommission() {
		note += "; its agent cannot be asked to uninstall itself (" + s.UnreachableReason() + "), so what is on the disk stays there and its identity is refused"
	}
	if err := s.move(ctx, at, lifecycle.NodeRetired, lifecycle.NodeRemoving, lifecycle.OwnerDecommission, lifecycle.Proof{lifecycle.NeedOwningJob}, note); err != nil {
		return err
	}
	if !s.Uninstalled {
		if err := s.uninstall(ctx); err != nil {
			return err
		}
	}
	f, err := stage.Do(ctx, stage.KindLocalWork, "shut the agent's identity out", nodeActs.RevokeIdentity, s.Job.At(at))
	if err != nil {
		return err
	}
	if !f.Done {
		return stage.Fail(lifecycle.FailInternal, "the identity is not revoked: %s", f.Note)
	}
	s.Uninstalled = true
	return nil
}

// uninstall asks the agent to remove itself. It asks nothing where MAAS has erased the disks, where
// the machine is confirmed off, and where the agent is silent: the identity is revoked in each
// case, and an agent that starts again is refused
// (docs/adr/0017-where-node-states-leave-the-requirements.md).
func (s *State) uninstall(ctx workflow.Context) error {
	switch {
	case s.Release.Erased, s.IsFullDecommission() && s.Power.Done && s.Power.State == "off", s.Node.Agent != contract.AgentAlive:
		return nil
	}
	_, err := s.RunTask(ctx, s.uninstallTask())
	return err
}

func observeRemoved(ctx workflow.Context, s *State) (stage.Observation, error) {
	f, err := stage.Do(ctx, stage.KindLocalWork, "look at the identity", nodeActs.CheckIdentityRevoked, s.Job.At(lifecycle.StageRemoveNode))
	if err != nil {
		return stage.Observation{}, err
	}
	if err := s.ReadNode(ctx, lifecycle.StageRemoveNode); err != nil {
		return stage.Observation{}, err
	}
	done := f.Done && s.Uninstalled && s.Node.Status == lifecycle.NodeRemoving
	return stage.Observation{Done: done, State: string(s.Node.Status), Note: f.Note}, nil
}

func cleanSecrets(ctx workflow.Context, s *State) error {
	_, err := stage.Do(ctx, stage.KindLocalWork, "delete the node's secrets", nodeActs.DeleteNodeSecrets, s.Job.At(lifecycle.StageCleanupSecrets))
	return err
}

func (s *State) recordIn() maasact.RemoveMachineIn {
	return maasact.RemoveMachineIn{MachineIn: s.MachineIn(lifecycle.StageRemoveMAAS), MACs: s.Node.MACs}
}

func removeRecord(ctx workflow.Context, s *State) error {
	f, err := stage.Do(ctx, stage.KindBMCCall, "delete the machine in MAAS", maas.RemoveMachine, s.recordIn())
	if err == nil {
		s.RecordMachine(f)
	}
	return err
}

func observeRecord(ctx workflow.Context, s *State) (stage.Observation, error) {
	in := s.recordIn()
	in.ObserveOnly = true
	f, err := stage.Do(ctx, stage.KindMAASCall, "look for the machine in MAAS", maas.RemoveMachine, in)
	if err != nil {
		return stage.Observation{}, err
	}
	return stage.Observation{Done: f.Done, State: f.Status, Note: fmt.Sprintf("%s %s", f.Status, f.Note)}, nil
}
