package lifecycle

import (
	"fmt"
	"slices"
	"strings"
)

// JobStatus is the state of a staged job.
type JobStatus string

// The job states, shared by onboarding, decommission and every later job.
const (
	JobPending         JobStatus = "pending"
	JobRunning         JobStatus = "running"
	JobCompleted       JobStatus = "completed"
	JobFailedRetryable JobStatus = "failed_retryable"
	JobFailedManual    JobStatus = "failed_manual_intervention"
	JobCancelled       JobStatus = "cancelled"
	JobCompensating    JobStatus = "compensating"
	JobReconciled      JobStatus = "reconciled"
)

// JobGaveUp is how a job is shown that ended because of a failure. It is no state of the lifecycle:
// such a job is undone and ends as a cancelled one does, and keeps the class of its failure.
const JobGaveUp = "failed"

// ShownStatus returns how a job in this state is shown, with the class of failure in its row.
func ShownStatus(s JobStatus, class FailureClass) JobStatus {
	if s == JobCancelled && class != "" {
		return JobGaveUp
	}
	return s
}

var liveJob = []JobStatus{JobPending, JobRunning, JobFailedRetryable, JobFailedManual, JobCompensating}

// Live reports whether a job in this state still holds its resource. The partial unique index "one
// live job per node" has the same condition.
func (s JobStatus) Live() bool { return slices.Contains(liveJob, s) }

// Parked reports whether the job waits for an operator.
func (s JobStatus) Parked() bool { return s == JobFailedRetryable || s == JobFailedManual }

// The transitions of a job. Only the staged-job runner (owner job) and the
// sweeper (owner system) move a job.
var (
	JobStart      = jobMove("start", JobRunning, JobPending)
	JobContinue   = jobMove("continue", JobRunning, JobFailedRetryable, JobFailedManual, JobCompensating)
	JobComplete   = jobMove("complete", JobCompleted, JobRunning)
	JobReconcile  = jobMove("reconcile", JobReconciled, JobRunning)
	JobPark       = jobMove("park", JobFailedRetryable, JobPending, JobRunning, JobCompensating)
	JobParkManual = jobMove("park_manual", JobFailedManual, JobPending, JobRunning, JobFailedRetryable, JobCompensating)
	JobCompensate = jobMove("compensate", JobCompensating, JobPending, JobRunning, JobFailedRetryable, JobFailedManual)
	JobCancel     = jobMove("cancel", JobCancelled, JobCompensating, JobPending)
)

func jobMove(name string, to JobStatus, from ...JobStatus) Transition[JobStatus] {
	return Transition[JobStatus]{Name: name, From: from, To: to, Owners: []Owner{OwnerJob, OwnerSystem}}
}

// Job is the lifecycle of every staged job.
var Job = Machine[JobStatus]{
	Resource: "job",
	Initial:  []JobStatus{JobPending},
	States: []StateInfo[JobStatus]{
		{State: JobPending, Doc: "accepted but not started", Transitional: true},
		{State: JobRunning, Doc: "workflow executing", Transitional: true},
		{State: JobCompleted, Doc: "reached the intended success", Terminal: true},
		{State: JobFailedRetryable, Doc: "failed, but a safe recovery path exists"},
		{State: JobFailedManual, Doc: "blocked pending operator action"},
		{State: JobCancelled, Doc: "cancelled by operator or system", Terminal: true},
		{State: JobCompensating, Doc: "rollback or clean-up in progress", Transitional: true},
		{State: JobReconciled, Doc: "realigned with observed state", Terminal: true},
	},
	Transitions: []Transition[JobStatus]{
		JobStart, JobContinue, JobComplete, JobReconcile, JobPark, JobParkManual, JobCompensate, JobCancel,
	},
}

// JobTransition returns the transition that moves a job from one state to
// another, or an *IllegalTransitionError.
func JobTransition(from, to JobStatus) (Transition[JobStatus], error) {
	return Job.Between(from, to)
}

// Action is an operator action on a job.
type Action string

// The seven actions. Each is an Update of this name on the workflow and a
// signal of the same name.
const (
	ActionRetryStage   Action = "retry_stage"
	ActionResume       Action = "resume"
	ActionRerun        Action = "rerun"
	ActionRestartClean Action = "restart_clean"
	ActionCancel       Action = "cancel"
	ActionAdopt        Action = "adopt_observed_state"
	ActionMarkManual   Action = "mark_manual_intervention_required"
)

// Actions lists all seven, in the order of the documentation.
var Actions = []Action{
	ActionRetryStage, ActionResume, ActionRerun, ActionRestartClean,
	ActionCancel, ActionAdopt, ActionMarkManual,
}

// Doc returns the effect of the action in one line, for the CLI, the API and the Temporal Web UI.
func (a Action) Doc() string {
	switch a {
	case ActionRetryStage:
		return "Rerun the current failed stage."
	case ActionResume:
		return "Continue from the last safe stage; starts the workflow again if it was lost."
	case ActionRerun:
		return "Re-enter the job from the top; each stage first observes and is skipped if already so."
	case ActionRestartClean:
		return "Compensate everything done so far, then start from the top."
	case ActionCancel:
		return "Stop at the next safe point and compensate where possible."
	case ActionAdopt:
		return "Accept an externally advanced state and continue or finish."
	case ActionMarkManual:
		return "Freeze the job until an operator releases it."
	}
	return ""
}

// Effect is what an allowed action does.
type Effect string

// The effects in the action matrix.
const (
	EffectRefuse     Effect = "refuse"
	EffectNoop       Effect = "noop" // success, nothing duplicated
	EffectRetryStage Effect = "retry_stage"
	EffectContinue   Effect = "continue"
	EffectFromTop    Effect = "from_top"
	EffectRestart    Effect = "compensate_then_from_top"
	EffectCancel     Effect = "cancel"
	EffectAdopt      Effect = "adopt"
	EffectFreeze     Effect = "freeze"
)

// JobFacts holds the facts that decide an action, besides the status.
type JobFacts struct {
	// WaitingOutside is true while the current stage waits for an outside system (MAAS, the node).
	// Only then adopting a state makes sense.
	WaitingOutside bool
	// Unobserved names the current stage if it has no outside state to observe, and so nothing to
	// adopt. Otherwise it is empty.
	Unobserved string
	// CleanUp is true while a clean-up is under way, also while it is parked with the failure
	// FailCompensation.
	CleanUp bool
	// WorkflowLost is true when no workflow runs for the row.
	WorkflowLost bool
}

// Verdict is one cell of the matrix.
type Verdict struct {
	Allowed bool
	Effect  Effect
	Reason  string // why refused; empty when allowed
}

// ActionRefusedError says why an action was refused and which are allowed.
type ActionRefusedError struct {
	Action  Action    `json:"action"`
	Status  JobStatus `json:"status"`
	Reason  string    `json:"reason"`
	Allowed []Action  `json:"allowed"`
}

// Error does not list the allowed actions, because problem documents list them separately.
func (e *ActionRefusedError) Error() string {
	return fmt.Sprintf("%s is refused while the job is %s: %s", e.Action, e.Status, e.Reason)
}

// WithAllowed returns the whole refusal in one sentence, with the allowed actions, for places
// without a list of them: a Temporal error, an audit row.
func (e *ActionRefusedError) WithAllowed() string {
	names := make([]string, 0, len(e.Allowed))
	for _, a := range e.Allowed {
		names = append(names, string(a))
	}
	if len(names) == 0 {
		return e.Error() + "; no action is allowed now"
	}
	return e.Error() + "; allowed now: " + strings.Join(names, ", ")
}

// FrozenBy returns the message of a job that an operator froze.
func FrozenBy(who, reason string) string {
	if reason == "" {
		return "frozen by " + who
	}
	return "frozen by " + who + ": " + reason
}

// Claimed returns how a sender is named whose name is not proven.
func Claimed(name string) string { return string(OwnerEngine) + " (claimed: " + name + ")" }

// Decide is the action matrix. It returns a verdict for every status and action.
func Decide(a Action, s JobStatus, f JobFacts) Verdict {
	no := func(format string, args ...any) Verdict {
		return Verdict{Effect: EffectRefuse, Reason: fmt.Sprintf(format, args...)}
	}
	yes := func(e Effect) Verdict { return Verdict{Allowed: true, Effect: e} }
	if !Job.Has(s) {
		return no("%q is not a job state", s)
	}
	terminal := Job.Terminal(s)
	switch a {
	case ActionRetryStage, ActionRerun, ActionRestartClean:
		if !s.Parked() {
			return no("it applies only to a job that has failed and waits")
		}
		return yes(map[Action]Effect{
			ActionRetryStage: EffectRetryStage, ActionRerun: EffectFromTop, ActionRestartClean: EffectRestart,
		}[a])
	case ActionResume:
		switch {
		case terminal:
			return no("the job has ended; start a new one")
		case s.Parked() || f.WorkflowLost:
			return yes(EffectContinue)
		}
		return yes(EffectNoop)
	case ActionCancel:
		if terminal || s == JobCompensating {
			return yes(EffectNoop)
		}
		return yes(EffectCancel)
	case ActionAdopt:
		if s.Parked() && f.CleanUp {
			return no("clean-up has begun and must end first: resume it, cancel or restart clean")
		}
		if s.Parked() || (s == JobRunning && f.WaitingOutside) {
			if f.Unobserved != "" {
				return no("stage %s has no outside state to observe", f.Unobserved)
			}
			return yes(EffectAdopt)
		}
		if s == JobRunning {
			return no("the current stage does not wait on the outside")
		}
		return no("there is no outside state to adopt")
	case ActionMarkManual:
		switch s {
		case JobPending, JobRunning, JobFailedRetryable:
			return yes(EffectFreeze)
		case JobFailedManual:
			return yes(EffectNoop)
		case JobCompensating:
			return no("clean-up is in progress and must end first")
		case JobCompleted, JobCancelled, JobReconciled:
			return no("the job has ended")
		}
	}
	return no("%q is not an action", a)
}

// AllowedActions lists the actions that Decide allows now. It lists none for a job that has ended,
// although cancelling it again succeeds and does nothing.
func AllowedActions(s JobStatus, f JobFacts) []Action {
	out := []Action{}
	if Job.Terminal(s) {
		return out
	}
	for _, a := range Actions {
		if Decide(a, s, f).Allowed {
			out = append(out, a)
		}
	}
	return out
}
