package contract

import (
	"slices"

	"github.com/slipway-cloud/slipway/lifecycle"
)

// Kind is a row of the table of job kinds.
type Kind struct {
	Kind JobKind
	// Workflow is the name of the workflow, registered explicitly so that a Go rename cannot change
	// it.
	Workflow string
	// Stages lists the stages in order. It is nil for runs, whose stages are the steps of their
	// plans.
	Stages []string
	// Subject is what the job is about.
	Subject SubjectKind
	// Plan returns the workflow that says what the job would do now, its id and its input. It is
	// nil for a kind without plans.
	Plan func(PlanRequest) (workflow, id string, input any)
	// Routine says that there are so many jobs of the kind that a list of all jobs leaves them out,
	// but for those that wait for an operator. A list of the kind has them all.
	Routine bool
	// Refuses returns why the kind refuses an action that the matrix allows, "" where it takes the
	// action. It is nil for a kind that takes all.
	Refuses func(a lifecycle.Action, f SubjectFacts) string
}

// PlanRequest asks what a job would do now.
type PlanRequest struct {
	Job JobInput
	// Login allows one login to the BMC for Actor.
	Login bool
	Actor string
}

// Kinds is the table of job kinds: a new kind of job is one line here.
var Kinds = []Kind{
	{Kind: KindOnboarding, Workflow: "Onboarding", Stages: lifecycle.OnboardingStages(), Subject: SubjectNode, Plan: planOnboarding},
	{Kind: KindBMCRotation, Workflow: "BMCRotation", Stages: lifecycle.BMCRotationStages(), Subject: SubjectNode},
	{Kind: KindDecommission, Workflow: "Decommission", Stages: lifecycle.DecommissionStages(), Subject: SubjectNode, Plan: planDecommission},
	{Kind: KindNodeOperation, Workflow: "NodeOperation", Stages: lifecycle.DecommissionStages(), Subject: SubjectNode, Plan: planDecommission},
	{Kind: KindAgentReissue, Workflow: "AgentReissue", Stages: lifecycle.AgentReissueStages(), Subject: SubjectNode},
	{Kind: KindAgentUpdate, Workflow: "AgentUpdate", Stages: lifecycle.AgentUpdateStages(), Subject: SubjectNode},
	{Kind: KindAllocationProvision, Workflow: "AllocationProvision", Stages: lifecycle.AllocationProvisionStages(), Subject: SubjectAllocation, Plan: planAllocation, Refuses: refusalOfProvision},
	{Kind: KindAllocationRelease, Workflow: "AllocationRelease", Stages: lifecycle.AllocationReleaseStages(), Subject: SubjectAllocation, Plan: planAllocation, Refuses: refusalOfRelease},
	{Kind: KindAllocationKeys, Workflow: "AllocationKeys", Stages: lifecycle.AllocationKeysStages(), Subject: SubjectAllocation, Plan: planAllocation, Refuses: refusalOfKeys},
	{Kind: KindMachineRun, Workflow: "MachineRun", Subject: SubjectRun, Refuses: refusalOfRun},
	{Kind: KindInstanceCreate, Workflow: "InstanceCreate", Stages: lifecycle.InstanceCreateStages(), Subject: SubjectInstance, Refuses: refusalOfCreate},
	{Kind: KindInstanceTerminate, Workflow: "InstanceTerminate", Stages: lifecycle.InstanceTerminateStages(), Subject: SubjectInstance, Refuses: refusalOfTerminate},
	{Kind: KindPaymentReconcile, Workflow: "PaymentReconcile", Stages: lifecycle.PaymentReconcileStages(), Subject: SubjectPayment, Routine: true, Refuses: refusalOfPayment},
}

// KindOf returns the row of a kind, and whether there is one.
func KindOf(k JobKind) (Kind, bool) {
	i := slices.IndexFunc(Kinds, func(row Kind) bool { return row.Kind == k })
	if i < 0 {
		return Kind{}, false
	}
	return Kinds[i], true
}

// JobKinds returns the names of all kinds of job.
func JobKinds() []JobKind {
	out := make([]JobKind, 0, len(Kinds))
	for _, row := range Kinds {
		out = append(out, row.Kind)
	}
	return out
}

// RoutineKinds returns the names of the kinds whose jobs a list of all jobs leaves out.
func RoutineKinds() []string {
	var out []string
	for _, row := range Kinds {
		if row.Routine {
			out = append(out, string(row.Kind))
		}
	}
	return out
}

// WorkflowOf returns the name of the workflow that runs a kind of job, "" for an unknown kind.
func WorkflowOf(k JobKind) string {
	row, _ := KindOf(k)
	return row.Workflow
}

// Stages returns the names of a kind's stages in order; nil for an unknown kind, and for runs.
func Stages(k JobKind) []string {
	row, _ := KindOf(k)
	return row.Stages
}

func planOnboarding(r PlanRequest) (workflow, id string, input any) {
	in := PlanInput{Kind: KindOnboarding, Job: r.Job, Login: r.Login, Actor: r.Actor}
	return PlanWorkflow, PlanWorkflowID(in), in
}

func planDecommission(r PlanRequest) (workflow, id string, input any) {
	in := DecommissionPlanInput{Job: r.Job}
	return DecommissionPlanWorkflow, DecommissionPlanWorkflowID(in), in
}

func planAllocation(r PlanRequest) (workflow, id string, input any) {
	in := AllocationPlanInput{Job: r.Job}
	return AllocationPlanWorkflow, AllocationPlanWorkflowID(in), in
}
