package allocation

import (
	"strings"

	"go.temporal.io/sdk/workflow"

	allocationact "github.com/slipway-cloud/slipway/activities/allocation"
	maasact "github.com/slipway-cloud/slipway/activities/maas"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/workflows/sanitize"
	"github.com/slipway-cloud/slipway/workflows/stage"
)

func (s *ProvisionState) holderIn(at string) maasact.HolderIn {
	return maasact.HolderIn{MachineIn: maasact.MachineIn{JobRef: s.Job.At(at), SystemID: s.Node.SystemID}, AllocationID: s.Request.AllocationID}
}

// heldElsewhere returns why the node is not free, "" where nobody says so: MAAS and the agent know
// of tenants that a restored database has forgotten.
func (s *ProvisionState) heldElsewhere() string {
	switch id := s.Request.AllocationID; {
	case s.Machine.Allocation != "" && s.Machine.Allocation != id:
		return "MAAS has its machine marked for allocation " + s.Machine.Allocation
	case s.Node.HeldFor != "" && s.Node.HeldFor != id:
		return "its agent holds it for allocation " + s.Node.HeldFor
	}
	return ""
}

// markMachine has MAAS name the allocation, before anything of the tenant is on the node.
func (s *ProvisionState) markMachine(ctx workflow.Context, at string) error {
	if s.Node.SystemID == "" {
		return nil
	}
	_, err := stage.Do(ctx, stage.KindMAASCall, "mark the machine in MAAS", maas.MarkAllocation, s.holderIn(at))
	return err
}

// unmarkMachine takes the mark away again. Where that fails, the node counts as held: the release
// cleans it.
func (s *ProvisionState) unmarkMachine(ctx workflow.Context, at string) {
	if s.Node.SystemID == "" || s.Unproven != "" {
		return
	}
	if _, err := stage.Do(ctx, stage.KindMAASCall, "remove the mark of the machine in MAAS", maas.ClearAllocation, s.holderIn(at)); err != nil {
		s.Unproven = "MAAS still has the machine marked for the allocation: " + string(stage.ClassOf(err))
	}
}

// describeNetwork keeps which network of MAAS the node is in, for the tenant.
func (s *ProvisionState) describeNetwork(ctx workflow.Context, at string) error {
	if s.Node.SystemID == "" {
		return nil
	}
	n, err := stage.Do(ctx, stage.KindMAASCall, "read the node's network", maas.ReadNetwork, maasact.MachineIn{JobRef: s.Job.At(at), SystemID: s.Node.SystemID})
	if err != nil {
		return err
	}
	_, err = stage.Do(ctx, stage.KindLocalWork, "keep the network", allocs.KeepNetwork, allocationact.NetworkIn{AllocationRef: s.ref(at), CIDR: n.CIDR})
	return err
}

// retireOnNode has the agent remove from the disk what the installation was given.
func (s *ProvisionState) retireOnNode(ctx workflow.Context) error {
	return runTask(ctx, s.Job, task{stage: lifecycle.StageRetireCredentials, kind: lifecycle.TaskKindRetireCredentials, tries: &s.Tries.Retire,
		args: spec.RetireCredentialsArgs{}})
}

// probeNetwork has the node try to reach what no tenant may reach, before anything of the tenant is
// on it: until then its word counts. Nothing but a closed network lets the provision go on.
func probeNetwork(ctx workflow.Context, s *ProvisionState) error {
	const at = lifecycle.StageProbeNetwork
	if s.Probe == nil {
		targets, err := stage.Do(ctx, stage.KindLocalWork, "list what the node must not reach", networks.ListProbeTargets, s.Job.At(at))
		if err != nil {
			return err
		}
		s.Probe = &targets
	}
	if len(s.Probe.Targets) == 0 { // the operator allows all of them
		return nil
	}
	res, err := runTaskForResult(ctx, s.Job, task{stage: at, kind: lifecycle.TaskKindProbeNetwork, tries: &s.Tries.Probe, args: *s.Probe})
	if err != nil {
		return err
	}
	open, err := s.Probe.OpenTargets(res.Output)
	switch {
	case err != nil:
		return stage.Fail(lifecycle.FailNodeTask, "nothing proves what the node's network reaches: %s", err)
	case len(open) > 0:
		return stage.Fail(lifecycle.FailNetworkOpen, "the node's network reaches what no tenant may reach: %s", strings.Join(open, ", "))
	}
	return nil
}

func skipRotation(s *ReleaseState) string {
	switch {
	case s.Cleaning.Node.BMCID == "":
		return "Slipway knows no BMC of the node"
	case !s.Facts.TenantRoot:
		return "the tenant was not root, and could not reach the BMC from the node"
	}
	return ""
}

// rotateLogin gives the BMC another password, since root could have learnt it.
func rotateLogin(ctx workflow.Context, s *ReleaseState) (err error) {
	s.Rotated, err = sanitize.RotateLogin(ctx, s.Job.At(lifecycle.StageRotateBMCLogin), s.Cleaning.Node.BMCID)
	return err
}

// undoLogin ends a rotation that the release does not finish, since the allocation has lost its
// node: no other job could rotate the BMC's password, and MAAS might have the other one.
func undoLogin(ctx workflow.Context, s *ReleaseState) error {
	if s.Cleaning.Node.BMCID == "" {
		return nil
	}
	return sanitize.EndRotation(ctx, s.Job.At(lifecycle.StageRotateBMCLogin), s.Cleaning.Node.BMCID)
}

// provesRotation returns an error when a root tenant's BMC still has the password of before.
func (s *ReleaseState) provesRotation() error {
	if skipRotation(s) != "" || s.Rotated {
		return nil
	}
	return stage.Fail(lifecycle.FailFirmwareChanged, "the BMC's password is that of before the tenant; retry the stage %s", lifecycle.StageRotateBMCLogin)
}

// notVerified names what of the BMC nothing was compared of.
func (s *ReleaseState) notVerified() []string {
	if s.Cleaning.Node.BMCID == "" {
		return []string{"Slipway knows no BMC of the node"}
	}
	f := s.Settings
	if !s.Facts.TenantRoot { // he could not reach the BMC
		f.OtherAccounts = nil
	}
	return sanitize.NotVerified(f)
}
