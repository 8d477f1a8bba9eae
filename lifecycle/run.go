package lifecycle

import "slices"

// RunType is the kind of a run.
type RunType string

// The types of runs.
const (
	RunTypeRepave      RunType = "REPAVE"
	RunTypeRMA         RunType = "RMA"
	RunTypeReboot      RunType = "REBOOT"
	RunTypeUpgrade     RunType = "UPGRADE"
	RunTypeNetReconfig RunType = "NET_RECONFIG"
)

// RunTypes lists all types, in the order of the documentation.
func RunTypes() []RunType {
	return []RunType{RunTypeRepave, RunTypeRMA, RunTypeReboot, RunTypeUpgrade, RunTypeNetReconfig}
}

// RunPhase is how far a run is.
type RunPhase string

// The phases of a run, in the spelling of the API.
const (
	RunPending   RunPhase = "PENDING"
	RunRunning   RunPhase = "RUNNING"
	RunSucceeded RunPhase = "SUCCEEDED"
	RunFailed    RunPhase = "FAILED"
	RunCanceled  RunPhase = "CANCELED"
)

// The transitions of a run. Its job moves it.
var (
	RunStart  = runMove("start", RunRunning, "its job began", RunPending)
	RunFinish = runMove("finish", RunSucceeded, "all steps succeeded", RunRunning)
	RunFail   = runMove("fail", RunFailed, "a step failed after its retries; the machine is in MAINTENANCE", RunRunning)
	RunCancel = runMove("cancel", RunCanceled, "it was cancelled; the machine is in MAINTENANCE", RunPending, RunRunning)
)

func runMove(name string, to RunPhase, doc string, from ...RunPhase) Transition[RunPhase] {
	return Transition[RunPhase]{Name: name, From: from, To: to, Owners: []Owner{OwnerJob}, Doc: doc}
}

// Run is the lifecycle of a run.
var Run = Machine[RunPhase]{
	Resource: "run",
	Initial:  []RunPhase{RunPending},
	States: []StateInfo[RunPhase]{
		{State: RunPending, Doc: "accepted and not started", Transitional: true},
		{State: RunRunning, Doc: "its steps are carried out", Transitional: true},
		{State: RunSucceeded, Doc: "all steps succeeded", Terminal: true},
		{State: RunFailed, Doc: "a step failed; another run may be started", Terminal: true},
		{State: RunCanceled, Doc: "cancelled", Terminal: true},
	},
	Transitions: []Transition[RunPhase]{RunStart, RunFinish, RunFail, RunCancel},
}

// RunPhaseOf returns the phase of the run that a job carries out. class says why a parked job is
// parked, or which failure of a step ended a cancelled one; "" is that of a job that somebody
// cancelled. A park that no step caused leaves the run RUNNING: it has lost its workflow or its
// store, an operator froze it, or what it did could not be undone.
func RunPhaseOf(job JobStatus, class FailureClass) RunPhase {
	switch job {
	case JobPending:
		return RunPending
	case JobRunning, JobCompensating:
		return RunRunning
	case JobCompleted, JobReconciled:
		return RunSucceeded
	case JobCancelled:
		if class != "" && IsStepFailure(class) {
			return RunFailed
		}
		return RunCanceled
	case JobFailedRetryable, JobFailedManual:
		if IsStepFailure(class) {
			return RunFailed
		}
		return RunRunning
	}
	return RunRunning
}

// IsStepFailure reports whether a failure of this class is one of a step, after which its run has
// FAILED.
func IsStepFailure(class FailureClass) bool {
	return class != FailWorkflowLost && class != FailFrozen && class != FailStoreUnavailable && class != FailCompensation
}

// RunNeedsIntervention reports whether an active run waits for an operator.
func RunNeedsIntervention(job JobStatus, class FailureClass) bool {
	return job.Parked() && !IsStepFailure(class)
}

// StepState is the state of one step of a run.
type StepState string

// The states of a step, in the spelling of the API.
const (
	StepWaiting   StepState = "WAITING"
	StepRunning   StepState = "RUNNING"
	StepSucceeded StepState = "SUCCEEDED"
	StepFailed    StepState = "FAILED"
)

// The transitions of a step. The stage that carries it out moves it.
var (
	StepStart  = stepMove("start", StepRunning, "an attempt began", StepWaiting, StepFailed)
	StepFinish = stepMove("finish", StepSucceeded, "it succeeded, or its outcome was there already", StepWaiting, StepRunning)
	StepFail   = stepMove("fail", StepFailed, "an attempt failed", StepRunning)
)

func stepMove(name string, to StepState, doc string, from ...StepState) Transition[StepState] {
	return Transition[StepState]{Name: name, From: from, To: to, Owners: []Owner{OwnerJob}, Doc: doc}
}

// RunStep is the lifecycle of one step of a run.
var RunStep = Machine[StepState]{
	Resource: "run_step",
	Initial:  []StepState{StepWaiting},
	States: []StateInfo[StepState]{
		{State: StepWaiting, Doc: "not begun; so it stays when an earlier step fails"},
		{State: StepRunning, Doc: "an attempt runs", Transitional: true},
		{State: StepSucceeded, Doc: "its outcome is there; undone says that the run took it back at its end"},
		{State: StepFailed, Doc: "its last attempt failed"},
	},
	Transitions: []Transition[StepState]{StepStart, StepFinish, StepFail},
}

// StepStateOf returns the state of the step that a stage carries out.
func StepStateOf(stage StageState) StepState {
	switch stage {
	case StagePending:
		return StepWaiting
	case StageRunning:
		return StepRunning
	case StageSucceeded, StageSkipped, StageAdopted, StageUndone:
		return StepSucceeded
	case StageFailed, StageCompensated:
		return StepFailed
	}
	return StepFailed
}

// KeepOutcomes returns the steps of a run after a projection of its job, with how each of them had
// ended before the run began to undo what it did: an undo makes no step FAILED, and takes no
// message from one that is. before are the steps as they were stored.
func KeepOutcomes(before, after []StageRow) []StageRow {
	out := slices.Clone(after)
	for i := range min(len(before), len(out)) {
		last, row := before[i], &out[i]
		succeeded := last.State.Finished() || last.State == StageUndone
		undone := row.State == StageCompensated
		if !undone && (row.State != StageFailed || row.FailureClass != FailCompensation) || !succeeded && last.State != StageFailed {
			continue
		}
		message := row.Message // why the undo failed
		*row = last
		if succeeded {
			row.Message = message
		}
		if succeeded && undone {
			row.State = StageUndone
		}
	}
	return out
}

// RetryCount returns how often a step was repeated after its first attempt.
func RetryCount(s StageRow) int { return max(s.Attempts-1, 0) }
