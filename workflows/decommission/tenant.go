package decommission

import (
	"go.temporal.io/sdk/workflow"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/workflows/stage"
	"github.com/slipway-cloud/slipway/workflows/stage/plan"
)

// What the release of an allocation takes from here: the stages of a reimage or of a soft reset, over
// a State that is a part of its own.

// Stages returns every stage. A job of another kind takes those that it needs.
func Stages() []stage.Stage[State] { return stages() }

// NewTenantRelease returns the state in which the release of an allocation cleans its node. A node
// whose tenant was root is installed again; on any other the installed system stays.
func NewTenantRelease(job contract.JobRef, kind contract.JobKind, root bool, reason string) State {
	mode := lifecycle.ModeSoftReset
	if root {
		mode = lifecycle.ModeReimage
	}
	return State{
		Job: job, Kind: kind, TenantRelease: true,
		Request: contract.DecommissionInput{Mode: mode, NodeID: job.NodeID, Reason: reason},
	}
}

// Load reads the node, its agent, and once the policy of the site, the profile and the SKU.
func (s *State) Load(ctx workflow.Context, at string) error { return s.load(ctx, at) }

// distrusted reports that the node's system is that of a tenant who was root and has left. It is not
// asked for anything: the machine is switched off, and what is installed next proves the node clean.
// An operation erases nothing, and the release of an allocation goes by what it knows of its tenant.
func (s *State) distrusted() bool {
	erases := s.isFullDecommission() || s.Request.Mode == lifecycle.ModeReimage
	return erases && !s.TenantRelease && s.Node.TenantRoot && s.Node.AllocationID == "" && s.Node.TenantLeft != nil && !s.Deploy.Completed
}

// distrustsReport reports that what the node's agent has reported proves nothing: the node's tenant is
// or was root, or only the power ended his access. One disk that he made up could never be erased.
func (s *State) distrustsReport() bool {
	return s.Node.TenantRoot || s.TenantRelease && s.Request.Mode == lifecycle.ModeReimage
}

// recordedDisks returns the drives of the node's record, none of them erased or verified.
func recordedDisks(drives []spec.ExpectedDrive) []lifecycle.DeviceResult {
	out := make([]lifecycle.DeviceResult, 0, len(drives))
	for _, d := range drives {
		out = append(out, lifecycle.DeviceResult{Kind: "disk", Serial: d.Serial, Model: d.Model, Method: lifecycle.SanitizeNone})
	}
	return out
}

// PowerOff switches the machine off and reports whether everybody who can tell reads it off: MAAS,
// and the BMC where it is known. Somebody must.
func (s *State) PowerOff(ctx workflow.Context, at string) (bool, error) {
	return s.ensurePoweredOff(ctx, at, false)
}

// Certify signs what the job has proven, and fails where that does not prove the node clean.
func (s *State) Certify(ctx workflow.Context, at string) error { return s.certify(ctx, at) }

// ReleaseForbidden returns why MAAS must not release the machine, "" where it may.
func (s *State) ReleaseForbidden() string {
	if s.Request.Mode == lifecycle.ModeReimage && s.Node.SystemID == "" {
		return "the tenant was root, so that the node has to be installed again, and MAAS does not manage it"
	}
	return s.protectedFromRelease()
}

// CleaningPlan predicts the stages that clean the node of an allocation that is released.
type CleaningPlan struct{ p *predictor }

// PlanCleaning looks at the node of a release, as the plan of a decommission does. The system that
// cleans a node which is installed again does not exist yet, so that its agent is taken for reachable.
func PlanCleaning(ctx workflow.Context, s State) (*CleaningPlan, error) {
	c := &CleaningPlan{&predictor{Planner: plan.New[State](ctx)}}
	c.p.State = s
	err := c.p.observe(ctx)
	if s.Request.Mode == lifecycle.ModeReimage {
		c.p.agentUnreachable = false
	}
	return c, err
}

// State returns the state with what was observed.
func (c *CleaningPlan) State() State { return c.p.State }

// Predict returns the row of a stage of a decommission.
func (c *CleaningPlan) Predict(name string) contract.PlanRow { return predictions()[name](c.p) }
