package decommission

import (
	"time"

	"go.temporal.io/sdk/workflow"

	nodestateact "github.com/slipway-cloud/slipway/activities/nodestate"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/workflows/sanitize"
	"github.com/slipway-cloud/slipway/workflows/stage"
)

// disable confirms that nothing new is scheduled on the node: the request moved
// it. Somebody who moved it back meanwhile decided otherwise.
func disable(ctx workflow.Context, s *State) error {
	if err := s.Load(ctx, lifecycle.StageDisableNode); err != nil {
		return err
	}
	if s.IsPXE() { // the look has confirmed its state
		if why := s.tenantMoves(); why != "" {
			return stage.Fail(lifecycle.FailConfiguration, "%s; cancel this job", why)
		}
		return nil
	}
	switch s.Node.Status { //nolint:exhaustive // every other state is somebody else's decision
	case lifecycle.NodeDraining:
	case lifecycle.NodeRetired:
		s.Retired = true
		if !s.IsFullDecommission() {
			return stage.Fail(lifecycle.FailStateDisagreement, "the node is retired already; %s begins with a node in service: cancel this job", s.Request.Mode)
		}
		if s.AgentUnreachable = ""; s.Node.Agent != contract.AgentAlive {
			_, err := s.withoutAgent(ctx, lifecycle.StageDisableNode)
			return err
		}
	case lifecycle.NodeRemoving:
		s.Retired = true // rerun from the top while the removal was under way
	default:
		return stage.Fail(lifecycle.FailStateDisagreement, "the node is %s and not draining: somebody took it out of this job's hands; cancel it, or resume it to go on", s.Node.Status)
	}
	if why := s.ProtectedFromRelease(); why != "" {
		return stage.Fail(lifecycle.FailConfiguration, "%s", why)
	}
	if s.Request.Mode == lifecycle.ModeReimage && s.Node.SystemID == "" {
		return stage.Fail(lifecycle.FailConfiguration, "reimage installs by MAAS, and MAAS does not manage this node; install it by hand after full_decommission, or use soft_reset where no tenant was root on it")
	}
	return nil
}

// tenantMoves is why disks are not moved into other hardware.
func (s *State) tenantMoves() string {
	if s.Request.Mode == lifecycle.ModeMigrate && s.Request.Disks == diskMoved && (s.Node.AllocationID != "" || s.Node.TenantLeft != nil) {
		return lifecycle.TenantWouldMove
	}
	return ""
}

func (s *State) revokeTask() sanitize.Task {
	return sanitize.Task{Stage: lifecycle.StageForceRelease, Kind: lifecycle.TaskKindRevokeUser, Tries: &s.Drains.Revoke, Args: spec.RevokeUserArgs{
		AllocationID: s.Node.AllocationID, User: lifecycle.TenantAccount(s.Node.AllocationID), RemoveHome: true,
	}}
}

// forceRelease ends the tenant on the node, then the occupancy.
func forceRelease(ctx workflow.Context, s *State) error {
	if err := s.ReadNode(ctx, lifecycle.StageForceRelease); err != nil || s.Node.AllocationID == "" {
		return err
	}
	a := s.revokeTask()
	in := nodestateact.AllocationIn{JobRef: s.Job.At(a.Stage), AllocationID: s.Node.AllocationID}
	switch {
	case s.Node.TenantRoot && !s.IsPXE(): // no claim gives a PXE node to a tenant
		if err := s.cutRootTenantOff(ctx, a.Stage); err != nil {
			return err
		}
		in.PoweredOff = true
	case s.Node.Agent == contract.AgentAlive:
		if _, err := s.RunTask(ctx, a); err != nil {
			return err
		}
		in.ByAgent = true
	default:
		off, err := s.withoutAgent(ctx, a.Stage)
		if err != nil {
			return err
		}
		in.PoweredOff = off
	}
	f, err := stage.Do(ctx, stage.KindLocalWork, "end the allocation", nodeActs.EndAllocation, in)
	if err == nil {
		s.RecordNode(f)
	}
	return err
}

// cutRootTenantOff ends the access of a tenant who is root. His agent's word proves nothing, so the
// machine has to be read off. A job that needs its agent again is not for it.
func (s *State) cutRootTenantOff(ctx workflow.Context, at string) error {
	if s.Request.Mode.KeepsSystem() || s.Request.Mode == lifecycle.ModeReimage {
		return stage.Fail(lifecycle.FailConfiguration,
			"the tenant is root on the node, and %s goes by what the node says; cancel this job, and release allocation %s, which installs the node again", s.Request.Mode, s.Node.AllocationID)
	}
	off, err := s.EnsurePoweredOff(ctx, at, false)
	if err != nil {
		return err
	}
	if !off {
		return stage.Fail(lifecycle.FailPowerNotConfirmed,
			"the tenant is root on the node, and his access ends only with its power, which nobody who can tell reads off; switch it off, then retry the stage")
	}
	s.RootTenantOff = true
	return nil
}

func observeAllocationEnded(ctx workflow.Context, s *State) (stage.Observation, error) {
	if err := s.ReadNode(ctx, lifecycle.StageForceRelease); err != nil {
		return stage.Observation{}, err
	}
	if s.Node.AllocationID == "" {
		return stage.Observation{Done: true, State: "unoccupied", Note: "no allocation is on the node"}, nil
	}
	return stage.Observation{State: "occupied"}, nil
}

// withoutAgent replaces a drain when the agent cannot be reached: a machine that is off runs
// nothing. The job switches the machine off in a full decommission only. In any other mode it waits
// for an operator, who may want to save data first.
//
// It reports whether the machine was read off; on a PXE node a restart may end what runs instead.
func (s *State) withoutAgent(ctx workflow.Context, at string) (off bool, err error) {
	if s.IsPXE() {
		return s.withoutAgentPXE(ctx, at)
	}
	why := s.UnreachableReason()
	switch {
	case s.RootTenantOff:
		why = "the machine was switched off to end the access of a tenant who was root"
	case s.IsDistrusted():
		why = lifecycle.SystemDistrusted
	}
	off, err = s.EnsurePoweredOff(ctx, at, !s.IsFullDecommission() && !s.IsDistrusted())
	if err != nil {
		return false, err
	}
	if !off {
		return false, stage.Fail(lifecycle.FailNodeTask,
			"the node's agent cannot be asked to drain it: %s; bring the node back so that its agent sends heartbeats, or switch it off, then retry the stage", why)
	}
	s.AgentUnreachable = why + "; its power is confirmed off"
	return true, nil
}

func (s *State) drainTask() sanitize.Task {
	grace := time.Duration(s.Request.GraceSeconds) * time.Second
	return sanitize.Task{
		Stage: lifecycle.StageDrainNode, Kind: lifecycle.TaskKindDrain, Tries: &s.Drains.Drain, Limit: grace + 30*time.Minute,
		Args: spec.DrainArgs{GraceSeconds: s.Request.GraceSeconds, Reason: s.Request.Reason},
	}
}

// drain ends what runs on the node. The operation drain first waits for the
// allocation to end by itself, and frees the node of one that is being released.
func drain(ctx workflow.Context, s *State) error {
	if s.Request.Mode == lifecycle.ModeDrain && s.Node.AllocationID != "" {
		in := nodestateact.AllocationIn{JobRef: s.Job.At(lifecycle.StageDrainNode), AllocationID: s.Node.AllocationID, Poll: s.Config.Profile.PollInterval}
		f, err := stage.Do(ctx, stage.KindPoll, "wait for the allocation to end", nodeActs.WaitForAllocationEnd, in)
		if err != nil {
			return err
		}
		s.RecordNode(f)
	}
	if err := s.ReadNode(ctx, lifecycle.StageDrainNode); err != nil {
		return err
	}
	if s.Request.Mode == lifecycle.ModeDrain && s.Node.AllocationID != "" { // its release waits for this job, which has the node
		if err := forceRelease(ctx, s); err != nil {
			return err
		}
	}
	if s.Node.Agent != contract.AgentAlive || s.RootTenantOff || s.IsDistrusted() { // it may have been heard a moment before
		_, err := s.withoutAgent(ctx, lifecycle.StageDrainNode)
		return err
	}
	s.AgentUnreachable = ""
	_, err := s.RunTask(ctx, s.drainTask())
	return err
}

func observeDrained(ctx workflow.Context, s *State) (stage.Observation, error) {
	r, err := s.ObserveTask(ctx, s.drainTask())
	switch {
	case err != nil:
		return stage.Observation{}, err
	case r.OK:
		return stage.Observation{Done: true, State: "drained", Note: "the agent has drained the node"}, nil
	case s.AgentUnreachable != "":
		return stage.Observation{Done: true, State: "drained", Note: s.AgentUnreachable}, nil
	}
	return stage.Observation{State: "not drained", Note: r.Message}, nil
}

// withoutAgentPXE stands in for a drain where no agent can be asked: the machine
// is switched off where that is possible. Without a BMC the restart that follows
// ends what runs.
func (s *State) withoutAgentPXE(ctx workflow.Context, at string) (off bool, err error) {
	why := s.UnreachableReason()
	if s.Node.BMCID == "" {
		s.AgentUnreachable = why + "; the restart that follows ends what runs on it"
		return false, nil
	}
	off, err = s.EnsurePoweredOff(ctx, at, false)
	switch {
	case err != nil:
		return false, err
	case !off:
		return false, stage.Fail(lifecycle.FailPowerNotConfirmed, "the node's agent cannot be asked to drain it (%s), and nobody confirms that the machine is off: %s", why, s.Power.TimelineNote())
	}
	s.AgentUnreachable = why + "; its power is confirmed off"
	return true, nil
}
