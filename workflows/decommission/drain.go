package decommission

import (
	"slices"
	"time"

	"go.temporal.io/sdk/workflow"

	bmcact "github.com/slipway-cloud/slipway/activities/bmc"
	maasact "github.com/slipway-cloud/slipway/activities/maas"
	nodestateact "github.com/slipway-cloud/slipway/activities/nodestate"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/workflows/stage"
)

// load reads what the job goes by, once.
func (s *State) load(ctx workflow.Context, at string) error {
	if s.StartedAt.IsZero() {
		s.StartedAt = workflow.Now(ctx).UTC()
	}
	if err := s.readNode(ctx, at); err != nil || s.Loaded {
		return err
	}
	if !s.pxe() && s.InitialDisks == nil {
		s.InitialDisks = s.Node.Disks
		if s.distrustsReport() && len(s.Node.Drives) > 0 {
			s.InitialDisks, s.DisksRecorded = recordedDisks(s.Node.Drives), true
		}
	}
	in := maasact.NodeConfigIn{JobRef: s.Job.At(at), Keys: !s.mode().Operation || s.pxe()}
	f, err := stage.Do(ctx, stage.KindMAASCall, "read site, profile, SKU", maas.LoadNodeConfig, in)
	if err == nil {
		s.Config, s.Loaded = f, true
	}
	return err
}

// disable confirms that nothing new is scheduled on the node: the request moved
// it. Somebody who moved it back meanwhile decided otherwise.
func disable(ctx workflow.Context, s *State) error {
	if err := s.load(ctx, lifecycle.StageDisableNode); err != nil {
		return err
	}
	if s.pxe() { // the look has confirmed its state
		if why := s.tenantMoves(); why != "" {
			return stage.Fail(lifecycle.FailConfiguration, "%s; cancel this job", why)
		}
		return nil
	}
	switch s.Node.Status { //nolint:exhaustive // every other state is somebody else's decision
	case lifecycle.NodeDraining:
	case lifecycle.NodeRetired:
		s.Retired = true
		if !s.isFullDecommission() {
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
	if why := s.protectedFromRelease(); why != "" {
		return stage.Fail(lifecycle.FailConfiguration, "%s", why)
	}
	if s.Request.Mode == lifecycle.ModeReimage && s.Node.SystemID == "" {
		return stage.Fail(lifecycle.FailConfiguration, "reimage installs by MAAS, and MAAS does not manage this node; install it by hand after full_decommission, or use soft_reset where no tenant was root on it")
	}
	return nil
}

// protectedFromRelease returns why MAAS must not release the machine: it erases every disk, also
// those that are protected.
func (s *State) protectedFromRelease() string {
	if len(s.Node.ProtectSerials) == 0 || s.Node.SystemID == "" || !slices.Contains(s.mode().Stages, lifecycle.StageReleaseMAAS) {
		return ""
	}
	return lifecycle.ProtectedFromRelease(s.Node.ProtectSerials, !s.TenantRelease && !s.Node.TenantRoot)
}

// tenantMoves is why disks are not moved into other hardware.
func (s *State) tenantMoves() string {
	if s.Request.Mode == lifecycle.ModeMigrate && s.Request.Disks == diskMoved && (s.Node.AllocationID != "" || s.Node.TenantLeft != nil) {
		return lifecycle.TenantWouldMove
	}
	return ""
}

func (s *State) revokeTask() agentTask {
	return agentTask{stage: lifecycle.StageForceRelease, kind: lifecycle.TaskKindRevokeUser, tries: &s.Tries.Revoke, args: spec.RevokeUserArgs{
		AllocationID: s.Node.AllocationID, User: lifecycle.TenantAccount(s.Node.AllocationID), RemoveHome: true,
	}}
}

// forceRelease ends the tenant on the node, then the occupancy.
func forceRelease(ctx workflow.Context, s *State) error {
	if err := s.readNode(ctx, lifecycle.StageForceRelease); err != nil || s.Node.AllocationID == "" {
		return err
	}
	a := s.revokeTask()
	in := nodestateact.AllocationIn{JobRef: s.Job.At(a.stage), AllocationID: s.Node.AllocationID}
	switch {
	case s.Node.TenantRoot && !s.pxe(): // no claim gives a PXE node to a tenant
		if err := s.cutRootTenantOff(ctx, a.stage); err != nil {
			return err
		}
		in.PoweredOff = true
	case s.Node.Agent == contract.AgentAlive:
		if _, err := s.runTask(ctx, a); err != nil {
			return err
		}
		in.ByAgent = true
	default:
		off, err := s.withoutAgent(ctx, a.stage)
		if err != nil {
			return err
		}
		in.PoweredOff = off
	}
	f, err := stage.Do(ctx, stage.KindLocalWork, "end the allocation", nodeActs.EndAllocation, in)
	if err == nil {
		s.recordNode(f)
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
	off, err := s.ensurePoweredOff(ctx, at, false)
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
	if err := s.readNode(ctx, lifecycle.StageForceRelease); err != nil {
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
	if s.pxe() {
		return s.withoutAgentPXE(ctx, at)
	}
	why := s.unreachableReason()
	switch {
	case s.RootTenantOff:
		why = "the machine was switched off to end the access of a tenant who was root"
	case s.distrusted():
		why = lifecycle.SystemDistrusted
	}
	off, err = s.ensurePoweredOff(ctx, at, !s.isFullDecommission() && !s.distrusted())
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

// ensurePoweredOff switches the machine off, or only looks, and reports whether everybody
// who can tell reads it off: MAAS, and the BMC where it is known. Somebody must.
func (s *State) ensurePoweredOff(ctx workflow.Context, at string, observe bool) (off bool, err error) {
	var said []contract.PowerFacts
	if s.Node.SystemID != "" {
		in := s.machineIn(at)
		in.ObserveOnly = observe
		f, err := stage.Do(ctx, stage.KindBMCCall, "power off by MAAS", maas.PowerOffByMAAS, in)
		if err != nil {
			return false, err
		}
		s.recordPower(f)
		if f.State == "on" || f.State == "off" {
			said = append(said, f)
		}
	}
	if s.Node.BMCID != "" {
		in := bmcact.PowerIn{JobRef: s.Job.At(at), BMCID: s.Node.BMCID, CAPEM: s.Config.Site.BMCCAPEM}
		in.ObserveOnly = observe
		f, err := stage.Do(ctx, stage.KindBMCCall, "power off at the BMC", bmc.PowerOffByBMC, in)
		if err != nil {
			return false, err
		}
		s.recordPower(f)
		said = append(said, f)
	}
	for _, f := range said {
		if !f.Done {
			return false, nil
		}
	}
	return len(said) > 0, nil
}

func (s *State) drainTask() agentTask {
	grace := time.Duration(s.Request.GraceSeconds) * time.Second
	return agentTask{
		stage: lifecycle.StageDrainNode, kind: lifecycle.TaskKindDrain, tries: &s.Tries.Drain, limit: grace + 30*time.Minute,
		args: spec.DrainArgs{GraceSeconds: s.Request.GraceSeconds, Reason: s.Request.Reason},
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
		s.recordNode(f)
	}
	if err := s.readNode(ctx, lifecycle.StageDrainNode); err != nil {
		return err
	}
	if s.Request.Mode == lifecycle.ModeDrain && s.Node.AllocationID != "" { // its release waits for this job, which has the node
		if err := forceRelease(ctx, s); err != nil {
			return err
		}
	}
	if s.Node.Agent != contract.AgentAlive || s.RootTenantOff || s.distrusted() { // it may have been heard a moment before
		_, err := s.withoutAgent(ctx, lifecycle.StageDrainNode)
		return err
	}
	s.AgentUnreachable = ""
	_, err := s.runTask(ctx, s.drainTask())
	return err
}

func observeDrained(ctx workflow.Context, s *State) (stage.Observation, error) {
	r, err := s.observeTask(ctx, s.drainTask())
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
