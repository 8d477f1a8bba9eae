package contract

import (
	"slices"

	"github.com/slipway-cloud/slipway/lifecycle"
)

// SubjectFacts are the facts about the subject of a job by which its kind refuses an action.
type SubjectFacts struct {
	// Ended is true when the allocation or the instance of the job has ended.
	Ended bool
	// HasServer is true when the instance of the job has a server, or had one that booted.
	HasServer bool
}

// Refusal returns why a job of this kind refuses an action that the matrix allows, or "" if it
// takes the action. The workflow and the API both ask it, so that the API lists no action that the
// workflow refuses.
func (k Kind) Refusal(a lifecycle.Action, f SubjectFacts) string {
	if k.Refuses == nil {
		return ""
	}
	return k.Refuses(a, f)
}

// Decide is the action matrix with what the kind of the job adds to it. An action without an effect
// is always taken.
func Decide(kind JobKind, a lifecycle.Action, s lifecycle.JobStatus, f lifecycle.JobFacts, subject SubjectFacts) lifecycle.Verdict {
	v := lifecycle.Decide(a, s, f)
	row, _ := KindOf(kind)
	if !v.Allowed || v.Effect == lifecycle.EffectNoop {
		return v
	}
	if why := row.Refusal(a, subject); why != "" {
		return lifecycle.Verdict{Effect: lifecycle.EffectRefuse, Reason: why}
	}
	return v
}

// AllowedActions lists the actions that Decide allows now, none for a job that has ended.
func AllowedActions(kind JobKind, s lifecycle.JobStatus, f lifecycle.JobFacts, subject SubjectFacts) []lifecycle.Action {
	return slices.DeleteFunc(lifecycle.AllowedActions(s, f), func(a lifecycle.Action) bool { return !Decide(kind, a, s, f, subject).Allowed })
}

func refusalOfRun(a lifecycle.Action, _ SubjectFacts) string {
	switch a {
	case lifecycle.ActionAdopt:
		return "nothing that is seen of a machine proves that a step of a plan has run; cancel the run and start another"
	case lifecycle.ActionRerun, lifecycle.ActionRestartClean:
		return "a run carries out each step once; cancel it and start another"
	case lifecycle.ActionRetryStage, lifecycle.ActionResume, lifecycle.ActionCancel, lifecycle.ActionMarkManual:
	}
	return ""
}

// refusalOfRelease keeps a release going forward: its tenant is out, and nothing of it can be taken
// back or taken on trust. It ends early only once the allocation has lost its node.
func refusalOfRelease(a lifecycle.Action, f SubjectFacts) string {
	const back = "a release is not taken back: its tenant has lost the node; retry the stage, or remove the assignment"
	switch a {
	case lifecycle.ActionCancel:
		if !f.Ended {
			return back
		}
	case lifecycle.ActionRestartClean:
		return back
	case lifecycle.ActionAdopt:
		return "a release adopts nothing: what it does not prove itself would reach the next tenant; retry the stage, or remove the assignment"
	case lifecycle.ActionRetryStage, lifecycle.ActionResume, lifecycle.ActionRerun, lifecycle.ActionMarkManual:
	}
	return ""
}

// refusalOfProvision keeps a provision from standing still with the tenant's keys on the node,
// where he would use it and pay nothing, and from being adopted past a proof.
func refusalOfProvision(a lifecycle.Action, _ SubjectFacts) string {
	switch a {
	case lifecycle.ActionMarkManual:
		return "a provision is not frozen: its tenant waits for it, and it ends by itself within minutes; cancel it"
	case lifecycle.ActionAdopt:
		return "a provision adopts nothing: each of its stages is a proof for the tenant; retry it, or cancel it"
	case lifecycle.ActionRestartClean:
		return "a provision that was taken back is not begun again: the allocation fails, and the tenant asks for another"
	case lifecycle.ActionRetryStage, lifecycle.ActionResume, lifecycle.ActionRerun, lifecycle.ActionCancel:
	}
	return ""
}

// refusalOfKeys keeps a change of keys from standing still while a former member may log in.
func refusalOfKeys(a lifecycle.Action, _ SubjectFacts) string {
	switch a {
	case lifecycle.ActionMarkManual:
		return "a change of keys is not frozen: a former member may be able to log in; cancel it, and the sweeper tries again"
	case lifecycle.ActionAdopt:
		return "a change of keys adopts nothing: it proves who may log in; retry it, or cancel it"
	case lifecycle.ActionRestartClean:
		return "a change of keys is not begun again: the sweeper starts another one while anything is unproven"
	case lifecycle.ActionRetryStage, lifecycle.ActionResume, lifecycle.ActionRerun, lifecycle.ActionCancel:
	}
	return ""
}

// refusalOfCreate: an instance that boots has one server, and would get no other.
func refusalOfCreate(a lifecycle.Action, f SubjectFacts) string {
	switch a {
	case lifecycle.ActionAdopt:
		return "nothing that is seen of a server proves that its worker serves; retry the stage, or terminate the instance"
	case lifecycle.ActionRerun, lifecycle.ActionRestartClean:
		if f.HasServer {
			return "an instance has one server and gets no other; retry the stage, or terminate it and create another"
		}
	case lifecycle.ActionRetryStage, lifecycle.ActionResume, lifecycle.ActionCancel, lifecycle.ActionMarkManual:
	}
	return ""
}

// refusalOfTerminate: a termination only goes forward, and ends early only once the instance has
// ended another way.
func refusalOfTerminate(a lifecycle.Action, f SubjectFacts) string {
	const back = "a termination is not taken back: parts of the instance may be gone; retry the stage"
	switch a {
	case lifecycle.ActionCancel:
		if !f.Ended {
			return back
		}
	case lifecycle.ActionRestartClean:
		return back
	case lifecycle.ActionAdopt:
		return "a termination adopts nothing: what it does not prove itself would go on being billed; retry the stage"
	case lifecycle.ActionRetryStage, lifecycle.ActionResume, lifecycle.ActionRerun, lifecycle.ActionMarkManual:
	}
	return ""
}

// refusalOfPayment: what a payment has booked stays booked, so nothing is undone before a retry.
func refusalOfPayment(a lifecycle.Action, _ SubjectFacts) string {
	switch a {
	case lifecycle.ActionRestartClean:
		return "what is booked of a payment is never undone; rerun the job, which reads the payment again"
	case lifecycle.ActionRetryStage, lifecycle.ActionResume, lifecycle.ActionRerun, lifecycle.ActionCancel, lifecycle.ActionAdopt, lifecycle.ActionMarkManual:
	}
	return ""
}
