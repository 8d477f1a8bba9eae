package lifecycle

// RunnerPhase is what one workflow run of a job does at the moment. It lives in the run alone: the
// status of the job is what is stored.
type RunnerPhase string

// The phases of a run.
const (
	RunnerLoading      RunnerPhase = "loading"
	RunnerRunning      RunnerPhase = "running"
	RunnerParked       RunnerPhase = "parked"
	RunnerCompensating RunnerPhase = "compensating"
	RunnerContinuing   RunnerPhase = "continuing"
	RunnerEnding       RunnerPhase = "ending"
	RunnerEnded        RunnerPhase = "ended"
	RunnerOvertaken    RunnerPhase = "overtaken"
	RunnerHandedOver   RunnerPhase = "handed_over"
)

func runnerMove(name string, to RunnerPhase, doc string, from ...RunnerPhase) Transition[RunnerPhase] {
	return Transition[RunnerPhase]{Name: name, From: from, To: to, Owners: []Owner{OwnerJob}, Doc: doc}
}

// Runner is the lifecycle of one workflow run of a job.
var Runner = Machine[RunnerPhase]{
	Resource: "runner",
	Initial:  []RunnerPhase{RunnerLoading},
	States: []StateInfo[RunnerPhase]{
		{State: RunnerLoading, Doc: "the run reads the stored state; actions wait until it has", Transitional: true},
		{State: RunnerRunning, Doc: "stages run in their order", Transitional: true},
		{State: RunnerParked, Doc: "a stage has failed, or an operator has frozen the job; an operator moves it on"},
		{State: RunnerCompensating, Doc: "the stages that were begun are undone", Transitional: true},
		{State: RunnerContinuing, Doc: "the history is long; the run stores where it stands and continues as new", Transitional: true},
		{State: RunnerEnding, Doc: "the end of the job is being stored; actions wait until it is", Transitional: true},
		{State: RunnerEnded, Doc: "the end of the job is stored; waiting actions are answered", Terminal: true},
		{State: RunnerOvertaken, Doc: "the stored job has ended without this run, which has not read that end yet; nothing is written, and actions wait", Transitional: true},
		{State: RunnerHandedOver, Doc: "the run has read the end that is stored, and answers waiting actions by it", Terminal: true},
	},
	Transitions: []Transition[RunnerPhase]{
		runnerMove("load", RunnerRunning, "the job is pending or running", RunnerLoading),
		runnerMove("load_parked", RunnerParked, "the job waits for an operator", RunnerLoading),
		runnerMove("load_compensating", RunnerCompensating, "a clean-up is under way", RunnerLoading),
		runnerMove("load_ended", RunnerEnded, "the job has ended before", RunnerLoading),
		runnerMove("park", RunnerParked, "a stage or an undo has failed, or an operator freezes the job", RunnerRunning, RunnerCompensating),
		runnerMove("resume", RunnerRunning, "an operator resumes the job", RunnerParked),
		runnerMove("compensate", RunnerCompensating, "the job is cancelled, is restarted clean, or gives up", RunnerRunning, RunnerParked),
		runnerMove("start_over", RunnerRunning, "everything is undone, and the job starts from the top", RunnerCompensating),
		runnerMove("continue_as_new", RunnerContinuing, "no action waits for an answer", RunnerRunning, RunnerParked),
		runnerMove("go_on", RunnerRunning, "an action came while the run was about to continue as new", RunnerContinuing),
		runnerMove("stay_parked", RunnerParked, "the same, of a parked job", RunnerContinuing),
		runnerMove("end", RunnerEnding, "every stage is done, or everything is undone", RunnerRunning, RunnerCompensating),
		runnerMove("refuse_end", RunnerRunning, "the subject of the job cannot follow", RunnerEnding),
		runnerMove("stored", RunnerEnded, "the end of the job is stored", RunnerEnding),
		runnerMove("overtake", RunnerOvertaken, "a projection found that the job has ended",
			RunnerRunning, RunnerParked, RunnerCompensating, RunnerContinuing, RunnerEnding, RunnerEnded),
		runnerMove("hand_over", RunnerHandedOver, "the run has read the stored end", RunnerOvertaken),
	},
}

// RunnerPhaseOf returns the phase of a run whose job has a status.
func RunnerPhaseOf(s JobStatus) RunnerPhase {
	switch {
	case Job.Terminal(s):
		return RunnerEnded
	case s.Parked():
		return RunnerParked
	case s == JobCompensating:
		return RunnerCompensating
	}
	return RunnerRunning
}

// TakesActions reports whether an action is decided in the phase. In the others it waits for the
// next phase.
func (p RunnerPhase) TakesActions() bool { return p != RunnerLoading && p != RunnerOvertaken }

// Overtaken reports whether the job has ended without the run.
func (p RunnerPhase) Overtaken() bool { return p == RunnerOvertaken || p == RunnerHandedOver }
