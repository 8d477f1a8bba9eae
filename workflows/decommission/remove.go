package decommission

import (
	"fmt"

	"go.temporal.io/sdk/workflow"

	maasact "github.com/slipway-cloud/slipway/activities/maas"
	nodestateact "github.com/slipway-cloud/slipway/activities/nodestate"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/workflows/contract"
	"github.com/slipway-cloud/slipway/workflows/stage"
)

func powerless(s *State) string {
	if s.Node.SystemID == "" && s.Node.BMCID == "" {
		return "Slipway knows neither a BMC nor a MAAS machine of the node; its agent is uninstalled instead"
	}
	return ""
}

// switchOff ends with a machine that everybody who can tell reads off: what is
// on would enlist itself in MAAS again.
func switchOff(at string) func(workflow.Context, *State) error {
	return func(ctx workflow.Context, s *State) error {
		if s.pxe() { // a machine that an admin took out of the job's hands is not switched off
			if err := s.look(ctx, at); err != nil {
				return err
			}
		}
		off, err := s.power(ctx, at, false)
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
		off, err := s.power(ctx, at, true)
		if err != nil && stage.ClassOf(err) != lifecycle.FailInternal {
			// A BMC that is broken must not hold a server for ever: a person who has
			// pulled its plug may accept the risk.
			return stage.Observation{State: "power not confirmed", Note: string(stage.ClassOf(err))}, nil
		}
		return stage.Observation{Done: off, State: "power " + s.Power.State, Note: s.Power.TimelineNote()}, err
	}
}

func retiredBefore(s *State) string {
	if s.Retired {
		return "the node is retired already"
	}
	return ""
}

func (s *State) move(ctx workflow.Context, at string, from, to lifecycle.NodeStatus, owner lifecycle.Owner, proof lifecycle.Proof, note string) error {
	in := nodestateact.MoveIn{JobRef: s.ref(at), From: from, To: to, Owner: owner, Proof: proof, Note: note}
	_, err := stage.Do(ctx, stage.KindLocalWork, "move the node to "+string(to), nodestate.MoveNode, in)
	return err
}

func retire(ctx workflow.Context, s *State) error {
	if s.pxe() {
		return s.retirePXE(ctx)
	}
	if err := s.move(ctx, lifecycle.StageRetireNode, lifecycle.NodeDraining, lifecycle.NodeRetired, s.mode().Owner, nil, s.note("has drained the node")); err != nil {
		return err
	}
	s.Retired = true
	return nil
}

func (s *State) uninstallAsk() ask {
	return ask{stage: lifecycle.StageRemoveNode, kind: lifecycle.TaskKindUninstall, tries: &s.Tries.Uninstall, args: spec.UninstallArgs{}}
}

// removeNode takes the agent from the node, or proves it gone with its disk, and
// then shuts its identity out. A removal that fails leaves the node retired.
func removeNode(ctx workflow.Context, s *State) error {
	const at = lifecycle.StageRemoveNode
	if err := s.load(ctx, at); err != nil {
		return err
	}
	s.Retired = true
	note := s.note("removes the node")
	if s.Node.Agent != contract.AgentAlive && !s.full() {
		note += "; its agent cannot be asked to uninstall itself (" + s.silence() + "), so what is on the disk stays there and its identity is refused"
	}
	if err := s.move(ctx, at, lifecycle.NodeRetired, lifecycle.NodeRemoving, lifecycle.OwnerDecommission, lifecycle.Proof{lifecycle.NeedOwningJob}, note); err != nil {
		return err
	}
	if !s.Uninstalled {
		if err := s.uninstall(ctx); err != nil {
			return err
		}
	}
	f, err := stage.Do(ctx, stage.KindLocalWork, "shut the agent's identity out", nodestate.RevokeIdentity, s.ref(at))
	if err != nil {
		return err
	}
	if !f.Done {
		return stage.Fail(lifecycle.FailInternal, "the identity is not revoked: %s", f.Note)
	}
	s.Uninstalled = true
	return nil
}

// uninstall asks the agent to remove itself. Three things are as good as its
// word: disks that MAAS erased, a machine that is confirmed off, and silence, as
// an agent that cannot be asked has nothing to say to an identity that is
// revoked (research, bmc_agent section 6.3).
func (s *State) uninstall(ctx workflow.Context) error {
	switch {
	case s.Release.Erased, s.full() && s.Power.Done && s.Power.State == "off", s.Node.Agent != contract.AgentAlive:
		return nil
	}
	_, err := s.run(ctx, s.uninstallAsk())
	return err
}

func observeRemoved(ctx workflow.Context, s *State) (stage.Observation, error) {
	f, err := stage.Do(ctx, stage.KindLocalWork, "look at the identity", nodestate.CheckIdentityRevoked, s.ref(lifecycle.StageRemoveNode))
	if err != nil {
		return stage.Observation{}, err
	}
	if err := s.look(ctx, lifecycle.StageRemoveNode); err != nil {
		return stage.Observation{}, err
	}
	done := f.Done && s.Uninstalled && s.Node.Status == lifecycle.NodeRemoving
	return stage.Observation{Done: done, State: string(s.Node.Status), Note: f.Note}, nil
}

// undoRemoval leaves a node whose removal was begun retired. An identity that
// was shut out stays so: the node can be removed again, and not reactivated.
func undoRemoval(ctx workflow.Context, s *State) error {
	const at = lifecycle.StageRemoveNode
	if err := withdraw(ctx, s); err != nil {
		return err
	}
	if err := s.look(ctx, at); err != nil || s.Node.Status != lifecycle.NodeRemoving {
		return err
	}
	note := "the removal was cancelled; the identity is kept"
	if s.Uninstalled {
		note = "the removal was cancelled after the agent's identity had been shut out: the node cannot be reactivated, only removed"
	}
	return s.move(ctx, at, lifecycle.NodeRemoving, lifecycle.NodeRetired, lifecycle.OwnerDecommission, nil, note)
}

func removalRemains(ctx workflow.Context, s *State) (string, error) {
	if err := s.look(ctx, lifecycle.StageRemoveNode); err != nil {
		return "", err
	}
	if s.Node.Status == lifecycle.NodeRemoving {
		return "the node is still removing", nil
	}
	return "", nil
}

func cleanSecrets(ctx workflow.Context, s *State) error {
	_, err := stage.Do(ctx, stage.KindLocalWork, "delete the node's secrets", nodestate.DeleteNodeSecrets, s.ref(lifecycle.StageCleanupSecrets))
	return err
}

func (s *State) recordIn() maasact.RemoveMachineIn {
	return maasact.RemoveMachineIn{MachineIn: s.machineIn(lifecycle.StageRemoveMAAS), MACs: s.Node.MACs}
}

func removeRecord(ctx workflow.Context, s *State) error {
	f, err := stage.Do(ctx, stage.KindBMCCall, "delete the machine in MAAS", maas.RemoveMachine, s.recordIn())
	if err == nil {
		s.saw(f)
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
