package machine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/db"
	machinesdb "github.com/slipway-cloud/slipway/db/machines"
	"github.com/slipway-cloud/slipway/internal/poll"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/runplan"
	"github.com/slipway-cloud/slipway/providers"
)

// exitTimedOut is the exit status of a command that ran past its timeout.
const exitTimedOut = 124

// uncertainTries is how often a machine is asked again when it does not know the outcome of a
// command.
const uncertainTries = 3

// endGrace is how long a command may take to end after its timeout, and a node at full load to say
// so.
const endGrace = time.Minute

// CommandEnd says in a failure of RunCommand how the command ended. "" means that it may still run.
type CommandEnd string

// The known ends of a command that failed.
const (
	CommandEnded  CommandEnd = "ended"
	CommandUnsent CommandEnd = "unsent" // by this call
)

// MarkEnd adds to a failure how the command ended.
func MarkEnd(err error, end CommandEnd) error {
	var app *temporal.ApplicationError
	if end == "" || !errors.As(err, &app) {
		return err
	}
	return temporal.NewApplicationErrorWithOptions(app.Message(), app.Type(), temporal.ApplicationErrorOptions{
		NonRetryable: app.NonRetryable(), Category: app.Category(), Cause: app.Unwrap(), Details: []any{end},
	})
}

// EndOf returns how the command of a failure of RunCommand ended.
func EndOf(err error) CommandEnd {
	var app *temporal.ApplicationError
	var end any
	if !errors.As(err, &app) || !app.HasDetails() || app.Details(&end) != nil {
		return ""
	}
	switch v := end.(type) {
	case CommandEnd: // in this process
		return v
	case string:
		return CommandEnd(v)
	}
	return ""
}

// isRepeated reports whether an earlier worker may have done a part of the attempt.
func isRepeated(ctx context.Context, in StepIn) bool {
	return in.Again || activity.IsActivity(ctx) && activity.GetInfo(ctx).Attempt > 1
}

// CommandIn is the input of RunCommand. EndsBy is the time by which the machine must have ended the
// command. The zero time stands for the command's timeout after the call.
type CommandIn struct {
	StepIn
	EndsBy time.Time `json:"ends_by"`
}

// RunCommand runs the command of a step and stores its output while it runs. The machine begins an
// attempt once, and a repeated call continues behind the stored output. A command that is sent late
// gets only the remaining time, so that it does not outlive its attempt.
func (a *Activities) RunCommand(ctx context.Context, in CommandIn) (StepFacts, error) {
	s, err := a.open(ctx, in.StepIn)
	if err != nil && isRepeated(ctx, in.StepIn) {
		return StepFacts{}, err
	}
	if err != nil {
		return StepFacts{}, MarkEnd(err, CommandUnsent)
	}
	if s.step.SSH == nil || s.adapter.RemoteExec == nil {
		return StepFacts{}, s.lacks(runplan.CapRemoteExec)
	}
	timeout := s.step.Timeout()
	limited, cancel := context.WithTimeout(ctx, timeout+endGrace)
	defer cancel()
	endsBy := time.Now().Add(timeout)
	if !in.EndsBy.IsZero() && in.EndsBy.Before(endsBy) {
		endsBy = in.EndsBy
	}
	res, err := s.exec(limited, s.step.SSH.Command, endsBy)
	switch {
	case ctx.Err() != nil:
		return StepFacts{}, ctx.Err()
	case err != nil:
		return StepFacts{}, fault.WithDid(s.commandFailure(ctx, err), s.actionMetadata())
	case res.ExitCode == exitTimedOut:
		err = MarkEnd(fault.New(lifecycle.FailCommand, "the command did not end within %s, and was ended", timeout), CommandEnded)
	case res.ExitCode != 0:
		err = MarkEnd(fault.New(lifecycle.FailCommand, "the command ended with exit status %d; the output of the run says why", res.ExitCode), CommandEnded)
	}
	if err != nil {
		return StepFacts{}, fault.WithDid(err, s.exitMetadata(res.ExitCode))
	}
	out := s.facts("the command ended")
	out.Did = s.exitMetadata(res.ExitCode)
	return out, nil
}

// commandFailure turns the error of a command into a typed failure. A command with an unknown
// outcome counts as failed if it may be repeated, so that it is tried again under another id.
func (s *session) commandFailure(ctx context.Context, err error) error {
	if providers.IsKind(err, providers.KindUncertain) && s.step.SSH.Idempotent {
		return fault.New(lifecycle.FailCommand, "it is not known what became of the command, which may be repeated: %s", err.Error())
	}
	if s.unsent {
		return MarkEnd(s.failureOf(ctx, err), CommandUnsent)
	}
	return s.failureOf(ctx, err)
}

// refusesLogin reports whether an error shows that nothing was sent.
func refusesLogin(kind providers.Kind) bool {
	return kind == providers.KindPinMismatch || kind == providers.KindUnauthorized || kind == providers.KindForbidden
}

// opID returns the id of an operation that the machine does once. part distinguishes several
// operations of one attempt.
func (s *session) opID(part string) string {
	return s.in.RunID + "." + s.in.Step + part + "." + strconv.Itoa(s.in.Attempt)
}

// logPlace returns where the output of the attempt is stored.
func (s *session) logPlace() machinesdb.LogPlace {
	return machinesdb.LogPlace{RunID: s.in.RunID, Step: s.in.Step, Attempt: s.in.Attempt, Keep: cmp.Or(s.a.StepLog, machinesdb.DefaultStepLog)}
}

// exec runs a script. It repeats the call under the same id while the machine does not answer,
// until ctx ends. The machine ends the script at endsBy, but never in less than a second, so that
// the outcome of a script that was sent can be read.
func (s *session) exec(ctx context.Context, script string, endsBy time.Time) (providers.RemoteResult, error) {
	at := s.logPlace()
	var last error
	sent := isRepeated(ctx, s.in)
	if err := s.stopEarlier(ctx); err != nil {
		s.unsent = !sent
		return providers.RemoteResult{}, err
	}
	for uncertain := 0; ; {
		offsets, err := machinesdb.LogOffsets(ctx, s.a.Store, at)
		if err == nil {
			c := providers.RemoteCommand{
				OpID: s.opID(""), Script: script, Timeout: max(time.Until(endsBy), time.Second), MaxOutput: at.Keep,
				From: providers.RemoteOffsets{Stdout: offsets[providers.StreamStdout], Stderr: offsets[providers.StreamStderr]},
			}
			var res providers.RemoteResult
			var lost error // of the store
			res, err = s.adapter.RemoteExec.Exec(ctx, s.target, c, func(ctx context.Context, chunk providers.OutputChunk) error {
				lost = machinesdb.AppendLog(ctx, s.a.Store, at, chunk.Stream, chunk.Next, chunk.Data)
				return lost
			})
			s.record(ctx, err)
			if err == nil && res.Truncated {
				err = s.stateCut(ctx, at, res)
			}
			if err == nil {
				return res, nil
			}
			if db.IsUnavailable(lost) {
				err = lost // no failure of the step: the next try continues reading
			}
		}
		if ctx.Err() != nil && last == nil {
			last = err
		}
		switch kind := providers.KindOf(err); {
		case ctx.Err() != nil:
			return providers.RemoteResult{}, outOfTime(last, sent)
		case mayAnswerLater(kind):
			sent = sent || kind != providers.KindUnreachable
		case kind == providers.KindUncertain && uncertain < uncertainTries:
			uncertain, sent = uncertain+1, true
		default:
			s.unsent = last == nil && !sent && refusesLogin(kind)
			return providers.RemoteResult{}, err
		}
		last = err
		if poll.Sleep(ctx, s.a.poll()) != nil {
			return providers.RemoteResult{}, outOfTime(last, sent)
		}
	}
}

// stopEarlier returns when the commands of the step's earlier attempts have ended, and ends those
// that still run: two attempts of a step never run at once.
func (s *session) stopEarlier(ctx context.Context) error {
	for earlier := *s; earlier.in.Attempt > 1; {
		earlier.in.Attempt--
		for {
			err := s.adapter.RemoteExec.Stop(ctx, s.target, earlier.opID(""))
			s.record(ctx, err)
			kind := providers.KindOf(err)
			if err == nil || kind == providers.KindUncertain { // it left no result
				break
			}
			if ctx.Err() == nil && !mayAnswerLater(kind) {
				return err
			}
			if poll.Sleep(ctx, s.a.poll()) != nil {
				return outOfTime(err, false)
			}
		}
	}
	return nil
}

// stateCut adds a line to the output that says that the machine kept no more of it. The line comes
// once, after all output that was kept.
func (s *session) stateCut(ctx context.Context, at machinesdb.LogPlace, res providers.RemoteResult) error {
	text := fmt.Sprintf("\n[slipway: what was written after %d bytes of a stream, or after the command had ended, was not kept]\n", at.Keep)
	return machinesdb.AppendLog(ctx, s.a.Store, at, providers.StreamStderr, res.Output.Stderr+1, []byte(text))
}

// mayAnswerLater reports whether a call that failed with a kind is worth repeating.
func mayAnswerLater(kind providers.Kind) bool {
	return kind == providers.KindUnreachable || kind == providers.KindBusy || kind == providers.KindUnavailable
}

// outOfTime returns the failure of a command whose attempt has used up its time. A command that was
// sent may have run.
func outOfTime(last error, sent bool) error {
	kind, why := providers.KindUnreachable, "the machine was not reached in time"
	if sent {
		kind, why = providers.KindUncertain, "the machine did not say in time what became of the command"
	}
	var pe *providers.Error
	if errors.As(last, &pe) {
		why += fmt.Sprintf("; last: %s", pe.Error())
	}
	return &providers.Error{Kind: kind, Op: "ssh.exec", Message: why, Err: last}
}

// StopIn is the input of StopCommand. EndsBy is the time by which the machine itself has ended the
// command.
type StopIn struct {
	StepIn
	EndsBy time.Time `json:"ends_by"`
}

// StopCommand ends the command of an attempt and of those before it, and returns when they have
// ended. It repeats the call while the machine does not answer, until the machine itself has ended
// the command.
func (a *Activities) StopCommand(ctx context.Context, in StopIn) (StepFacts, error) {
	s, err := a.openToUndo(ctx, in.StepIn)
	if err != nil {
		return StepFacts{}, err
	}
	if s.adapter.RemoteExec == nil {
		return StepFacts{}, s.lacks(runplan.CapRemoteExec)
	}
	facts, err := s.stop(ctx, in.EndsBy)
	for err == nil && s.in.Attempt > 1 {
		s.in.Attempt-- // the attempt may have been interrupted before it stopped this one
		_, err = s.stop(ctx, in.EndsBy)
	}
	return facts, err
}

// stop ends the command of one attempt.
func (s *session) stop(ctx context.Context, endsBy time.Time) (StepFacts, error) {
	for {
		err := s.adapter.RemoteExec.Stop(ctx, s.target, s.opID(""))
		s.record(ctx, err)
		kind := providers.KindOf(err)
		switch {
		case err == nil:
			return s.facts("the command was stopped"), nil
		case ctx.Err() != nil:
			return StepFacts{}, ctx.Err()
		case kind == providers.KindUncertain:
			return s.facts("the command left no result"), nil
		case !time.Now().Before(endsBy):
			return s.facts("the machine does not answer; it ended the command when its timeout had passed"), nil
		case !mayAnswerLater(kind):
			return StepFacts{}, s.failureOf(ctx, err)
		}
		if err := poll.Sleep(ctx, s.a.poll()); err != nil {
			return StepFacts{}, err
		}
	}
}
