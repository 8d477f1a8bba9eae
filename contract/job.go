// Package contract is what the API, the workflows and the operators share:
// workflow names and ids, inputs and results, Update and signal names, search
// attributes and the shape of a projection. Everything here may stand in a
// Temporal history, so nothing here may hold a secret.
package contract

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"time"

	"github.com/slipway-cloud/slipway/lifecycle"
)

// JobKind is the kind of a staged job.
type JobKind string

// The kinds of job.
const (
	KindOnboarding  JobKind = "onboarding"
	KindBMCRotation JobKind = "bmc_rotation" // a BMC's password is replaced
	// KindDecommission is one of the four modes; KindNodeOperation is drain,
	// retire or remove. Both run the stages that their mode lists.
	KindDecommission  JobKind = "decommission"
	KindNodeOperation JobKind = "node_operation"
	// KindAgentReissue gives a node's agent a new identity, KindAgentUpdate a new version.
	KindAgentReissue JobKind = "agent_reissue"
	KindAgentUpdate  JobKind = "agent_update"
	// KindAllocationProvision prepares a node for a tenant, KindAllocationRelease ends that.
	KindAllocationProvision JobKind = "allocation_provision"
	KindAllocationRelease   JobKind = "allocation_release"
	// KindAllocationKeys brings the keys of an active allocation to its node.
	KindAllocationKeys JobKind = "allocation_keys"
	// KindMachineRun carries out the steps of a run on a machine.
	KindMachineRun JobKind = "machine_run"
	// KindInstanceCreate makes an instance at a cloud provider, KindInstanceTerminate deletes it.
	KindInstanceCreate    JobKind = "instance_create"
	KindInstanceTerminate JobKind = "instance_terminate"
	// KindPaymentReconcile credits what was paid for a payment session.
	KindPaymentReconcile JobKind = "payment_reconcile"
)

// SignalNodeFree tells the job of a request that waits that a node became free.
const SignalNodeFree = "node_free"

// TaskQueue is the task queue of all job workflows and their activities.
const TaskQueue = "slipway"

// The workflows besides those of jobs, which the table Kinds names. They are registered explicitly
// so that a Go rename cannot change them.
const (
	// PlanWorkflow observes what an onboarding would do; it changes nothing.
	PlanWorkflow = "OnboardingPlan"
)

// JobWorkflowID is the deterministic workflow id of a job.
func JobWorkflowID(k JobKind, jobID string) string { return string(k) + "/" + jobID }

// JobInput starts a job workflow. All else is loaded from the projected state,
// so that the same input also continues a job whose workflow was lost.
type JobInput struct {
	JobID  string  `json:"job_id"`
	Kind   JobKind `json:"kind"`
	NodeID string  `json:"node_id"`
	SiteID string  `json:"site_id"`
	// ResourceID is what the job is about besides a node: the allocation.
	ResourceID string `json:"resource_id,omitempty"`
	// Hostname is the node's when the job was started, for operators who read Temporal's lists.
	Hostname string `json:"hostname,omitempty"`
}

// Ref returns the reference that the job's activities are given.
func (in JobInput) Ref() JobRef {
	return JobRef{JobID: in.JobID, NodeID: in.NodeID, SiteID: in.SiteID, ResourceID: in.ResourceID}
}

// JobResult is what a job workflow returns.
type JobResult struct {
	Status lifecycle.JobStatus `json:"status"`
	Stage  string              `json:"stage,omitempty"`
}

// ActionRequest is the argument of every action Update and signal. The name of
// the Update or signal is the action.
type ActionRequest struct {
	Actor string `json:"actor"`
	// Customer says that the actor is a customer in a project, and no operator.
	Customer bool   `json:"customer,omitempty"`
	Reason   string `json:"reason,omitempty"`
	// IdempotencyKey, when set, makes a repetition return the first result.
	IdempotencyKey string `json:"idempotency_key,omitempty"`
	// AcceptRisk lets adopt_observed_state accept what automation may not;
	// it needs a reason.
	AcceptRisk bool `json:"accept_risk,omitempty"`
	// Resolution says what becomes of the money when adopt_observed_state takes what the payment
	// provider shows of a payment: credit, suspense or write_off. Other jobs take none.
	Resolution lifecycle.Resolution `json:"resolution,omitempty"`
	// Proof shows that the API has accepted the action from the actor.
	Proof *ActionProof `json:"proof,omitempty"`
}

// ActionResult is the answer to an accepted action.
type ActionResult struct {
	Action lifecycle.Action    `json:"action"`
	Effect lifecycle.Effect    `json:"effect"`
	Status lifecycle.JobStatus `json:"status"`
	Stage  string              `json:"stage,omitempty"`
}

// Types of application error that a refused action carries.
const (
	ErrTypeActionRefused = "ActionRefused"
	ErrTypeActionInvalid = "ActionInvalid"
)

// ErrTypePlanOutOfTime is the type of the application error of a plan whose time was over before it
// had read what every row needs. A plan changes nothing, so it can be asked for again.
const ErrTypePlanOutOfTime = "PlanOutOfTime"

// Search attribute names, registered on the namespace as these types.
const (
	SearchNodeID     = "NodeID"     // Keyword
	SearchHostname   = "Hostname"   // Keyword
	SearchSiteID     = "SiteID"     // Keyword
	SearchJobKind    = "JobKind"    // Keyword
	SearchJobStatus  = "JobStatus"  // Keyword
	SearchStage      = "Stage"      // Keyword
	SearchNeedsHuman = "NeedsHuman" // Bool
)

// Failure is why a job is parked.
type Failure struct {
	Class   lifecycle.FailureClass `json:"class"`
	Stage   string                 `json:"stage"`
	Message string                 `json:"message"`
}

// ViaTemporalCancel is the way of an action that is a cancellation in Temporal. It names no actor.
const ViaTemporalCancel = "temporal_cancel"

// ActionEntry is one audit row about an action; a refused one says why.
type ActionEntry struct {
	Action  lifecycle.Action `json:"action"`
	Actor   string           `json:"actor"`
	Reason  string           `json:"reason,omitempty"`
	Via     string           `json:"via"` // update, signal, temporal_cancel
	Effect  lifecycle.Effect `json:"effect"`
	Refused string           `json:"refused,omitempty"`
	// Customer, AcceptRisk, Resolution and Proof are those of the request.
	Customer   bool                 `json:"customer,omitempty"`
	AcceptRisk bool                 `json:"accept_risk,omitempty"`
	Resolution lifecycle.Resolution `json:"resolution,omitempty"`
	Proof      *ActionProof         `json:"proof,omitempty"`
	// Seen says that the run has stored an action with the same proof before, so this one is a
	// copy.
	Seen bool `json:"seen,omitempty"`
}

// NodeMove asks for a change of the coarse state of the job's node.
type NodeMove struct {
	To    lifecycle.NodeStatus `json:"to"`
	Proof lifecycle.Proof      `json:"proof,omitempty"`
	Note  string               `json:"note,omitempty"`
	// Soft drops the move when the node's state has no edge for it.
	Soft bool `json:"soft,omitempty"`
	// Via are states on the way, where no edge leads To directly; a node that is
	// in one of them goes on from there.
	Via []lifecycle.NodeStatus `json:"via,omitempty"`
	// Owner is who moves the node; "" is the job's kind.
	Owner lifecycle.Owner `json:"owner,omitempty"`
}

// Move returns the move of the job's node.
func (m NodeMove) Move() *Move { return newMove(SubjectNode, "", true, m) }

// Projection is the whole visible state of a job at one step. It applies only
// when Seq is higher than what is stored.
type Projection struct {
	JobID         string               `json:"job_id"`
	Kind          JobKind              `json:"kind"`
	NodeID        string               `json:"node_id"`
	RunID         string               `json:"run_id"`
	Seq           int64                `json:"seq"`
	Status        lifecycle.JobStatus  `json:"status"`
	Stage         string               `json:"stage"`
	StageOrdinal  int                  `json:"stage_ordinal"`
	Attempt       int                  `json:"attempt"`
	Stages        []lifecycle.StageRow `json:"stages"`
	Failure       *Failure             `json:"failure,omitempty"`
	WaitingOut    bool                 `json:"waiting_outside,omitempty"`
	Frozen        bool                 `json:"frozen,omitempty"`
	Adopted       bool                 `json:"adopted,omitempty"`
	Observed      *lifecycle.Observed  `json:"observed,omitempty"`
	Progress      int                  `json:"progress_percent"`
	Reached       int                  `json:"reached_percent"`
	StageDeadline *time.Time           `json:"stage_deadline,omitempty"`
	Checkpoint    []byte               `json:"checkpoint,omitempty"` // JSON of the job's own state
	Moves         []Move               `json:"moves,omitempty"`
	Actions       []ActionEntry        `json:"actions,omitempty"`
	By            string               `json:"by,omitempty"` // the operator whose action caused this step
	// At is the workflow's time of this step; ActionType and Metadata go into the
	// action log with the try that it begins.
	At         *time.Time               `json:"at,omitempty"`
	ActionType string                   `json:"action_type,omitempty"`
	Metadata   lifecycle.ActionMetadata `json:"metadata,omitzero"`
	// Did is what the try that the step ends has done. It completes the metadata of that try.
	Did lifecycle.ActionMetadata `json:"did,omitzero"`
}

// Fingerprint is equal for two executions of the same step, and differs when the job took another
// way. It covers what a step decides and no time: a workflow task that runs again does so later.
func (p Projection) Fingerprint() string {
	type row struct {
		State    lifecycle.StageState
		Attempts int
	}
	rows := make([]row, 0, len(p.Stages))
	for _, s := range p.Stages {
		rows = append(rows, row{s.State, s.Attempts})
	}
	var class, failed string
	if p.Failure != nil {
		class, failed = string(p.Failure.Class), p.Failure.Stage
	}
	raw, _ := json.Marshal([]any{p.Status, p.StageOrdinal, p.Attempt, rows, class, failed, p.WaitingOut, p.Frozen, p.Adopted, p.once(), p.Actions, p.By}) // none of these can fail
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:8])
}

// once returns the moves that the end of a job makes once.
func (p Projection) once() []Move {
	return slices.DeleteFunc(slices.Clone(p.Moves), func(m Move) bool { return !m.Once })
}

// MovesOnce reports whether the step has a move that the end of a job makes once.
func (p Projection) MovesOnce() bool { return len(p.once()) > 0 }

// Snapshot is what a starting run loads: the last projected state.
type Snapshot struct {
	Seq        int64                `json:"seq"`
	Status     lifecycle.JobStatus  `json:"status"`
	Stage      string               `json:"stage,omitempty"`
	Failure    *Failure             `json:"failure,omitempty"`
	Stages     []lifecycle.StageRow `json:"stages,omitempty"`
	Reached    int                  `json:"reached_percent"`
	Frozen     bool                 `json:"frozen,omitempty"`
	Adopted    bool                 `json:"adopted,omitempty"`
	Checkpoint []byte               `json:"checkpoint,omitempty"`
	// Input is the request as accepted.
	Input []byte `json:"input,omitempty"`
}

// ProjectResult says whether a projection was applied. When it was not,
// StoredSeq tells how far the stored state is ahead: a run that was started by
// a Temporal reset catches up from there.
type ProjectResult struct {
	Applied   bool  `json:"applied"`
	StoredSeq int64 `json:"stored_seq"`
	// Ended is the status with which the job has ended, if the projection asked for another or
	// moved something; nothing was written then.
	Ended lifecycle.JobStatus `json:"ended,omitempty"`
	// Pass is the job's after the projection; 0 is not known.
	Pass int `json:"pass,omitempty"`
	// Runbook is the URL of the page of the job's failure class, "" without a failure.
	Runbook string `json:"runbook,omitempty"`
	// Unproven are the indices of the actions whose actor is not proven.
	Unproven []int `json:"unproven,omitempty"`
}
