package machinerun

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	machineact "github.com/slipway-cloud/slipway/activities/machine"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/runplan"
	"github.com/slipway-cloud/slipway/workflows/stage"
)

// machine names the activities; it is nil.
var machine *machineact.Activities

const (
	// attemptSlack is how much longer than its timeout an attempt may take: for the login, and for
	// the end of a command that ignores SIGTERM.
	attemptSlack = 2 * time.Minute
	// pauseLimit is the longest pause before a retry.
	pauseLimit = time.Minute
	// startSlack is how much later than it is asked for an attempt may begin and still has its
	// timeout.
	startSlack = time.Minute
	// outageLimit is how long workers may be away before the step fails: the machine goes on
	// meanwhile.
	outageLimit = 2 * time.Hour
)

// buildStages returns a stage for each step of a run.
func buildStages(steps []contract.RunStep) ([]stage.Stage[State], error) {
	out := make([]stage.Stage[State], 0, len(steps))
	for _, step := range steps {
		st := stage.Stage[State]{
			Name: step.Name, Doc: "step " + step.Name + " of the run's plan", Weight: 1, Waits: true, Retries: &step.Retries,
			Deadline: time.Duration(step.Retries+1)*(timeoutOf(step)+attemptSlack+pauseLimit) + attemptSlack + outageLimit,
		}
		switch step.Kind {
		case runplan.KindSSH:
			st.Run, st.Undo, st.HasUndo = runCommand(step), stopCommand(step), mayRun(step)
		case runplan.KindReboot:
			st.Run = reboot(step)
		case runplan.KindNetboot:
			st.Run, st.Undo, st.VerifyUndo, st.HasUndo = setNetboot(step), clearNetboot(step), verifyNetbootCleared(step), isNetbootSet(step)
		case runplan.KindRepave:
			st.Run, st.Undo, st.VerifyUndo, st.HasUndo = repave(step), undoRepave(step), verifyRepaveUndone(step), isRepaveBegun(step)
		case runplan.KindNet:
			st.Run, st.Undo, st.HasUndo = tryNetwork(step), revertNetwork(step), isNetworkPending(step)
		case runplan.KindRMA:
			st.Run = returnMachine(step)
		case runplan.KindJoin:
			st.Run, st.Undo, st.VerifyUndo, st.HasUndo = joinCluster(step), undoJoin(step), verifyNoToken(step), mayRun(step)
		case runplan.KindVerify:
			st.Run = verifyInCluster(step)
		default:
			return nil, fmt.Errorf("step %s: %s is no kind of step", step.Name, step.Kind)
		}
		out = append(out, st)
	}
	if last := len(out) - 1; last >= 0 {
		out[last].Run = clearedAtEnd(out[last].Run)
	}
	return out, nil
}

// clearedAtEnd has the last step leave no device of the next boot behind: it counts for this run
// alone.
func clearedAtEnd(run func(workflow.Context, *State) error) func(workflow.Context, *State) error {
	return func(ctx workflow.Context, s *State) error {
		if err := run(ctx, s); err != nil || s.Netboot == "" {
			return err
		}
		return clearNetboot(contract.RunStep{Name: s.Netboot})(ctx, s)
	}
}

func (s *State) stepIn(step contract.RunStep) machineact.StepIn {
	return machineact.StepIn{JobRef: s.Job.At(step.Name), RunID: s.Request.RunID, Step: step.Name, Attempt: s.attempt(step), IPs: s.installedAt()}
}

// inOf returns the function that makes the input of a step that needs nothing else.
func (s *State) inOf(step contract.RunStep) func(again bool) machineact.StepIn {
	return func(again bool) machineact.StepIn {
		in := s.stepIn(step)
		in.Again = again
		return in
	}
}

// attempt returns the number of the attempt that the machine is told.
func (s *State) attempt(step contract.RunStep) int { return max(s.of(step.Name).Attempts, 1) }

// endAttempt counts an attempt that has failed for good. An attempt that was interrupted, that no
// worker finished or whose output could not be stored goes on under its number: the machine does
// not begin it again.
func (s *State) endAttempt(step contract.RunStep, err error) error {
	if err == nil || stage.Unfinished(err) || !lifecycle.IsStepFailure(stage.ClassOf(err)) {
		return err
	}
	s.of(step.Name).Attempts = s.attempt(step) + 1
	return err
}

// do carries out an attempt, again under its number while no worker has finished it: what the
// machine did meanwhile counts. An activity that no worker begins within startSlack is asked for
// again, with new times. in is told whether a worker may have begun one before.
func do[I, O any](ctx workflow.Context, step contract.RunStep, summary string, act func(context.Context, I) (O, error), in func(again bool) I) (O, error) {
	for begun := false; ; {
		limited := stage.StartWithin(stage.Limit(ctx, timeoutOf(step)+attemptSlack), startSlack)
		out, err := stage.Do(limited, stage.KindPoll, summary, act, in(begun))
		if !stage.Unfinished(err) || temporal.IsCanceledError(err) || ctx.Err() != nil || stage.PastDeadline(ctx) {
			return out, err
		}
		begun = begun || mayHaveBegun(err)
	}
}

// mayHaveBegun reports whether a worker may have begun an activity that none has finished. The
// cause of a timeout is what became of the try before.
func mayHaveBegun(err error) bool {
	var timeout *temporal.TimeoutError
	return !errors.As(err, &timeout) || timeout.TimeoutType() != enums.TIMEOUT_TYPE_SCHEDULE_TO_START || timeout.Unwrap() != nil
}

// noteSent notes that the command of the present attempt may run from now on.
func (s *State) noteSent(ctx workflow.Context, step contract.RunStep) *Sent {
	sent := &Sent{Attempt: s.attempt(step), EndsBy: workflow.Now(ctx).Add(timeoutOf(step) + startSlack)}
	s.of(step.Name).Running = sent
	return sent
}

func runCommand(step contract.RunStep) func(workflow.Context, *State) error {
	return send(step, "run the command of "+step.Name, machine.RunCommand)
}

// send has the machine run a command, and notes whether it may still run.
func send(step contract.RunStep, summary string, act func(context.Context, machineact.CommandIn) (machineact.StepFacts, error)) func(workflow.Context, *State) error {
	return func(ctx workflow.Context, s *State) error {
		of := s.of(step.Name)
		before := of.Running
		begun := false
		_, err := do(ctx, step, summary, act, func(again bool) machineact.CommandIn {
			begun = again
			args := machineact.CommandIn{StepIn: s.stepIn(step), EndsBy: s.noteSent(ctx, step).EndsBy}
			args.Again = again || before != nil && before.Attempt == args.Attempt // a lost workflow may have sent it, or an interrupted try
			return args
		})
		switch end := machineact.EndOf(err); {
		case err == nil, end == machineact.CommandEnded, end == machineact.CommandUnsent && !begun && before == nil:
			of.Running = nil
		case end == machineact.CommandUnsent && !begun:
			of.Running = before
		}
		return s.endAttempt(step, err)
	}
}

// reboot reads the boot id before it asks for a restart. An attempt that comes after a restart that
// was asked for compares with the boot id of before; so does the workflow after one that was lost.
func reboot(step contract.RunStep) func(workflow.Context, *State) error {
	return func(ctx workflow.Context, s *State) error {
		of := s.of(step.Name)
		ordered := of.Ordered
		if of.BootID == "" && !ordered {
			facts, err := do(ctx, step, "read the boot id", machine.ReadBootID, s.inOf(step))
			if err != nil {
				return s.endAttempt(step, err)
			}
			if err := s.noteOrder(ctx, step, facts.BootID); err != nil {
				return err
			}
		}
		_, err := do(ctx, step, "restart the machine and wait for its new boot id", machine.Reboot, func(again bool) machineact.RebootIn {
			return machineact.RebootIn{StepIn: s.inOf(step)(again), Before: of.BootID, Ordered: ordered}
		})
		if err == nil {
			s.Netboot = "" // the device counted for this boot alone
		}
		return s.endAttempt(step, err)
	}
}

// noteOrder notes that a restart may be ordered from now on, with the boot id of before. Without
// one the note is not stored yet: after a workflow that is lost now nothing would prove that the
// machine restarted.
func (s *State) noteOrder(ctx workflow.Context, step contract.RunStep, before string) error {
	if err := ctx.Err(); err != nil {
		return err // nothing is ordered
	}
	of := s.of(step.Name)
	of.BootID, of.Ordered = before, true
	if before == "" {
		return nil
	}
	return stage.Save(ctx)
}

func setNetboot(step contract.RunStep) func(workflow.Context, *State) error {
	return func(ctx workflow.Context, s *State) error {
		before, begun := s.Netboot, false
		s.Netboot = step.Name
		_, err := do(ctx, step, "set the device of the next boot", machine.SetNetboot, func(again bool) machineact.StepIn {
			begun = again
			return s.inOf(step)(again)
		})
		if machineact.EndOf(err) == machineact.CommandUnsent && !begun && before != step.Name {
			s.Netboot = before
			s.of(step.Name).NetbootUnsent++
		}
		return s.endAttempt(step, err)
	}
}

func timeoutOf(step contract.RunStep) time.Duration {
	return time.Duration(step.TimeoutSeconds) * time.Second
}
