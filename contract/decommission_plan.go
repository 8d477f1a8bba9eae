package contract

import "github.com/slipway-cloud/slipway/lifecycle"

// DecommissionPlanWorkflow says what a decommission or a node operation would
// do, given what is observed now; it changes nothing and returns a Plan.
const DecommissionPlanWorkflow = "DecommissionPlan"

// DecommissionPlanInput asks for the plan of a live job, or, with a request and
// no job id, of one that is not accepted yet. Job always names kind, node and
// site.
//
// Plan.Hash depends on mode, node and what is observed, and neither on the job
// nor on times: the plan that was asked for and the one at acceptance have the
// same hash when the job would do the same.
type DecommissionPlanInput struct {
	Job JobInput `json:"job"`
	// Request is the request as it would be accepted, but for PlanHash and
	// Reason, which decide nothing. It is nil where Job.JobID is set.
	Request *DecommissionInput `json:"request,omitempty"`
	// Hardware is what a migration that is not accepted yet names at once; nil
	// for none.
	Hardware *HardwareFacts `json:"hardware,omitempty"`
}

// DecommissionPlanWorkflowID is the workflow id of a plan: one for a job, one
// for equal requests, so that asking twice at once looks once.
func DecommissionPlanWorkflowID(in DecommissionPlanInput) string {
	if in.Job.JobID != "" {
		return "plan/" + in.Job.JobID
	}
	return "plan/decommission-" + digest(in)[:24]
}

// DecommissionKind is the kind of job that runs a mode.
func DecommissionKind(m lifecycle.DecommissionMode) JobKind {
	if info, ok := lifecycle.DecommissionModeOf(m); ok && info.Operation {
		return KindNodeOperation
	}
	return KindDecommission
}
