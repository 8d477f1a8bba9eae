package stage

import (
	"errors"
	"strings"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// outcome says how a stage ended. err is a failure of the runner itself.
type outcome struct {
	failure     *contract.Failure
	backTo      string
	interrupted bool
	cancelled   bool
	err         error
}

const (
	firstBackoff = 2 * time.Second
	maxBackoff   = time.Minute
)

// runStage takes a stage through its automatic attempts.
func (r *runner[S]) runStage(i int) outcome {
	st, row := r.def.Stages[i], &r.rows[i]
	if st.Skip != nil {
		if why := st.Skip(r.state); why != "" {
			row.State, row.Message, row.FailureClass = lifecycle.StageSkipped, why, ""
			row.StartedAt, row.FinishedAt = r.now(), r.now()
			return outcome{} // shown with the next stage's start
		}
	}
	r.failure = nil
	at := workflow.Now(r.ctx).Add(r.stageDeadline(st))
	if r.wait.stage == st.Name && r.deadline != nil && row.StartedAt != nil {
		at = *r.deadline // the interruption changed nothing, so the deadline stays
	} else {
		row.StartedAt = r.now()
	}
	row.State, row.FinishedAt, row.Message, row.FailureClass, r.wait.stage = lifecycle.StageRunning, nil, "", "", ""
	r.deadline = &at
	failed := map[lifecycle.FailureClass]int{} // one failure class must not use up the tries of another
	spent := 0                                 // retries of the stage's own
	for tried := 1; ; tried++ {
		row.Attempts++
		if err := r.project(r.ctx, nil); err != nil {
			return outcome{err: err}
		}
		r.did = lifecycle.ActionMetadata{} // that of the try before is stored
		if len(r.inbox.queue) > 0 {        // it came while that was written: no attempt is made
			row.Attempts--
			return r.leaveStage(row, outcome{interrupted: true})
		}
		observed, err := r.attempt(st, at, tried)
		if err == nil {
			row.State, row.FinishedAt, row.Message, row.FailureClass = lifecycle.StageSucceeded, r.now(), observed, ""
			return outcome{} // one projection ends this stage and starts the next
		}
		out := r.outcomeOf(st, err)
		if out.failure == nil {
			return r.leaveStage(row, out)
		}
		class := out.failure.Class
		row.Message, row.FailureClass = out.failure.Message, class
		failed[class]++
		backoff := min(firstBackoff<<min(failed[class]-1, 5), maxBackoff)
		again := failed[class] < r.attempts(class)
		if st.Retries != nil && lifecycle.IsStepFailure(class) {
			again = spent < *st.Retries && !lifecycle.Failure(class).Manual
			spent++
		}
		if !again || workflow.Now(r.ctx).Add(backoff).After(at) {
			row.State, row.FinishedAt = lifecycle.StageFailed, r.now()
			return out
		}
		if r.pause(backoff) {
			return r.leaveStage(row, outcome{interrupted: true})
		}
	}
}

// attempts is how often a stage is tried for a class before it fails.
func (r *runner[S]) attempts(class lifecycle.FailureClass) int {
	n := lifecycle.Failure(class).AutoAttempts
	if r.def.Attempts != nil {
		n = r.def.Attempts(r.state, class, n)
	}
	return n
}

// leaveStage closes the row of a stage that was left without failing.
func (r *runner[S]) leaveStage(row *lifecycle.StageRow, out outcome) outcome {
	row.FailureClass = ""
	if out.backTo != "" {
		row.State, row.FinishedAt = lifecycle.StageSucceeded, r.now()
	} else {
		row.State, r.wait.stage = lifecycle.StagePending, row.Name
	}
	return out
}

// attempt runs a stage once, within its deadline; a stage that waits outside
// can be interrupted by an action. It returns a note for the stage row.
func (r *runner[S]) attempt(st Stage[S], at time.Time, tried int) (string, error) {
	sctx := workflow.WithValue(workflow.WithValue(r.ctx, deadlineKey, at), attemptKey, tried)
	sctx = workflow.WithValue(sctx, saveKey, func() error { return r.project(r.ctx, nil) })
	sctx = workflow.WithValue(sctx, didKey, func(did lifecycle.ActionMetadata) { r.did = r.did.With(did) })
	sctx, cancel := workflow.WithCancel(sctx)
	timedOut, over := false, false
	workflow.Go(sctx, func(c workflow.Context) {
		left := max(at.Sub(workflow.Now(c)), time.Second)
		timer := workflow.NewTimerWithOptions(c, left, workflow.TimerOptions{Summary: "deadline of " + st.Name})
		if timer.Get(c, nil) == nil && !over {
			timedOut = true
			cancel()
		}
	})
	r.wait.interrupted = false
	if st.Waits {
		r.wait.cancel = cancel
	}
	note, err := r.observeOrRun(sctx, st)
	over, r.wait.cancel = true, nil
	cancel()
	var b *goToStage
	switch {
	case err == nil:
		return note, nil
	case r.wait.interrupted && !errors.As(err, &b):
		// The error does not matter. A worker that dies while its activity is being cancelled ends
		// it with a timeout, since Temporal does not start it again, and what the stage waits for
		// may fail at this moment. The action decides what follows. A stage that continues after it
		// observes the state again.
		return "", errInterrupted
	case timedOut:
		class := st.DeadlineClass
		if class == "" {
			class = lifecycle.FailStageDeadline
		}
		return "", Fail(class, "%s did not end within %s", st.Name, r.stageDeadline(st))
	}
	return "", err
}

const saveKey ctxKey = "slipway-job-save"

// Save stores the state of the job before a stage begins something that must not be begun again if
// the workflow is lost meanwhile.
func Save(ctx workflow.Context) error {
	save, ok := ctx.Value(saveKey).(func() error)
	if !ok {
		return errors.New("the state of a job is saved by a stage that runs")
	}
	return save()
}

func (r *runner[S]) observeOrRun(ctx workflow.Context, st Stage[S]) (string, error) {
	if r.outside.lookFirst && st.Observe != nil {
		o, err := st.Observe(ctx, r.state)
		if err != nil {
			return "", err
		}
		if o.Done {
			return "already so: " + o.Note, nil
		}
	}
	return "", st.Run(ctx, r.state)
}

var errInterrupted = errors.New("interrupted by an operator")

// outcomeOf turns an error into what to do about it.
func (r *runner[S]) outcomeOf(st Stage[S], err error) outcome {
	var b *goToStage
	var c *cancelJob
	switch {
	case errors.As(err, &b):
		return outcome{backTo: b.stage}
	case errors.As(err, &c):
		return outcome{cancelled: true}
	case errors.Is(err, errEnded):
		return outcome{err: err}
	case errors.Is(err, errInterrupted), errors.Is(err, errHistoryFull):
		return outcome{interrupted: true}
	}
	f := failureOf(err)
	f.Stage = st.Name
	return outcome{failure: &f}
}

const maxMessage = 1000

// failureOf returns class and message of an error: the typed error of an activity, a StageError, or
// any other, which becomes an internal error.
func failureOf(err error) contract.Failure {
	var failed *StageError
	var app *temporal.ApplicationError
	var timeout *temporal.TimeoutError
	f := contract.Failure{Class: lifecycle.FailInternal, Message: "internal error; the worker's log holds the detail"}
	switch {
	case errors.As(err, &failed):
		f.Class, f.Message = failed.Class, failed.Message
	case errors.As(err, &app):
		class := lifecycle.FailureClass(app.Type())
		if lifecycle.Failure(class).Class == class {
			f.Class, f.Message = class, app.Message()
		}
	case errors.As(err, &timeout):
		f.Class, f.Message = lifecycle.FailStageDeadline, "no worker finished the stage's activity in time"
	}
	if len(f.Message) > maxMessage {
		f.Message = strings.ToValidUTF8(f.Message[:maxMessage], "")
	}
	return f
}

// Explain adds a text to the message of a failure, for operators. An error that ends a stage
// without a failure stays as it is.
func Explain(err error, text string) error {
	var b *goToStage
	var c *cancelJob
	if err == nil || errors.As(err, &b) || errors.As(err, &c) || Unfinished(err) {
		return err
	}
	f := failureOf(err)
	return Fail(f.Class, "%s; %s", f.Message, text)
}

// ClassOf returns the failure class that the runner takes from an error, or "".
func ClassOf(err error) lifecycle.FailureClass {
	if err == nil {
		return ""
	}
	return failureOf(err).Class
}

// Unfinished reports an activity that was cancelled, or that no worker finished.
func Unfinished(err error) bool {
	var timeout *temporal.TimeoutError
	return temporal.IsCanceledError(err) || errors.As(err, &timeout)
}

// pause waits between attempts; it returns true when an action came, or the job has ended.
func (r *runner[S]) pause(d time.Duration) bool {
	came, err := workflow.AwaitWithTimeout(r.ctx, d, func() bool { return len(r.inbox.queue) > 0 || r.phase.Overtaken() })
	return err == nil && came
}

func (r *runner[S]) stageDeadline(st Stage[S]) time.Duration {
	d := st.Deadline
	if r.def.Deadline != nil {
		d = r.def.Deadline(r.state, st.Name, d)
	}
	if d <= 0 {
		d = 15 * time.Minute
	}
	return d
}
