package contract

// AllocationPlanWorkflow says what a provision or a release would do, given what is observed now;
// it changes nothing and returns a Plan.
const AllocationPlanWorkflow = "AllocationPlan"

// AllocationPlanInput asks for the plan of a live job, or, with a request and no job id, of one
// that does not exist yet. Job always names the kind.
type AllocationPlanInput struct {
	Job JobInput `json:"job"`
	// Request is nil where Job.JobID is set.
	Request *AllocationInput `json:"request,omitempty"`
}

// AllocationPlanWorkflowID is the workflow id of the plan of a job, so that asking twice at once
// looks once.
func AllocationPlanWorkflowID(in AllocationPlanInput) string { return "plan/" + in.Job.JobID }
