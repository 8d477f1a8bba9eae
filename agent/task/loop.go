package task

import (
	"context"
	cryptorand "crypto/rand"
	"errors"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/slipway-cloud/slipway/agent/protocol"
	"github.com/slipway-cloud/slipway/internal/poll"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// The errors of a Server, by errors.Is.
var (
	ErrLeaseLost = errors.New("the lease is lost")
	ErrTaskEnded = errors.New("the task has ended")
	// ErrShutOut means that this identity counts no longer.
	ErrShutOut = errors.New("the server no longer takes this node's identity")
	// ErrRejected means that a report is not one that the server can take.
	ErrRejected = errors.New("the server cannot take the report")
	// ErrNotServed means that the server knows no tasks.
	ErrNotServed = errors.New("the server hands out no tasks")
)

// Server is the control plane as the loop sees it.
type Server interface {
	// Claim also gives the generation of the certificate that asked.
	Claim(ctx context.Context, r protocol.ClaimRequest) (out protocol.ClaimResponse, generation int64, err error)
	Renew(ctx context.Context, r protocol.RenewTaskRequest) (protocol.RenewTaskResponse, error)
	Result(ctx context.Context, r protocol.ResultRequest) (protocol.ResultResponse, error)
}

// LoopConfig is what a Loop is made of.
type LoopConfig struct {
	Server   Server
	Executor Executor
	BootID   func() (string, error)
	Fetch    func(ctx context.Context, f File) (path string, err error)
	Log      *slog.Logger
	// Wait is how long a claim waits for a task; default 20s, at most 30s.
	Wait time.Duration
	// Backoff is the shortest pause after a failure, MaxBackoff the longest;
	// defaults 1s and 1m.
	Backoff, MaxBackoff time.Duration
}

// Loop takes tasks from the server to the executor and results back, one at a
// time.
type Loop struct {
	LoopConfig
	failures int
	// outOfLease are results that the server did not take, by task: they wait for
	// the task to be handed out again, or dropped.
	outOfLease map[string]int
	// unsent is a refusal, which is in no journal.
	unsent *protocol.ResultRequest
	// claimID names a claim until its answer is here, so that a lost answer is
	// given again.
	claimID string
}

// NewLoop makes a loop.
func NewLoop(c LoopConfig) *Loop {
	if c.Wait <= 0 || c.Wait > 30*time.Second {
		c.Wait = 20 * time.Second
	}
	if c.Backoff <= 0 {
		c.Backoff = time.Second
	}
	if c.MaxBackoff < c.Backoff {
		c.MaxBackoff = max(time.Minute, c.Backoff)
	}
	return &Loop{LoopConfig: c, outOfLease: map[string]int{}}
}

// Run works until ctx ends, and returns nil then, or until an error that ends
// the process: ErrRestart or ErrUninstalled.
func (l *Loop) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		err := l.pass(ctx)
		if ctx.Err() != nil && err == nil {
			return nil
		}
		switch {
		case errors.Is(err, ErrRestart), errors.Is(err, ErrUninstalled):
			return err
		case err == nil:
			l.failures = 0
			continue
		}
		l.failures++
		wait := l.pause(err)
		if ctx.Err() == nil && (!errors.Is(err, ErrNotServed) || l.failures == 1) {
			l.Log.Warn("no task could be taken", "error", err, "tries", l.failures, "next_in", wait.Round(time.Millisecond))
		}
		rest(ctx, wait)
	}
	return nil
}

// pause grows from Backoff to MaxBackoff, with full jitter above a quarter. A wait that the server
// asks for is kept.
func (l *Loop) pause(err error) time.Duration {
	var asked interface{ RetryAfter() time.Duration }
	if errors.As(err, &asked) && asked.RetryAfter() > 0 {
		return asked.RetryAfter() + rand.N(asked.RetryAfter()/4+1)
	}
	most := l.Backoff
	for range min(l.failures-1, 16) {
		if most *= 2; most >= l.MaxBackoff {
			most = l.MaxBackoff
			break
		}
	}
	return most/4 + rand.N(most*3/4+1)
}

func rest(ctx context.Context, d time.Duration) { _ = poll.Sleep(ctx, d) }

// pass reports what is done, goes on with what was begun, and otherwise waits
// for the next task and does it.
func (l *Loop) pass(ctx context.Context) error {
	if l.unsent != nil {
		if err := l.send(ctx, *l.unsent, ""); err != nil {
			return err
		}
	}
	pending, err := l.Executor.Pending(ctx)
	if err != nil {
		return err
	}
	maps.DeleteFunc(l.outOfLease, func(id string, _ int) bool {
		return !slices.ContainsFunc(pending, func(e Entry) bool { return e.TaskID == id })
	})
	claim := protocol.ClaimRequest{WaitSeconds: l.Wait.Seconds()}
	var begun []Entry
	for _, e := range pending {
		attempt, lost := l.outOfLease[e.TaskID]
		switch {
		case e.Phase == Reported:
			if err := l.Executor.Acknowledge(ctx, e.TaskID); err != nil {
				return err
			}
			continue
		case e.Phase == Begun:
			begun = append(begun, e)
		case !lost || attempt != e.Attempt:
			if err := l.send(ctx, protocol.ResultRequest{TaskID: e.TaskID, LeaseID: e.LeaseID, Attempt: e.Attempt, Result: *e.Result}, e.Kind); err != nil {
				return err
			}
			if _, lost = l.outOfLease[e.TaskID]; !lost {
				continue
			}
		}
		claim.Unfinished = append(claim.Unfinished, e.TaskID)
	}
	if claim.BootID, err = l.BootID(); err != nil {
		return err
	}
	if len(begun) > 0 {
		claim.WaitSeconds = 0
	}
	return l.claim(ctx, claim, begun)
}

func (l *Loop) claim(ctx context.Context, claim protocol.ClaimRequest, begun []Entry) error {
	if l.claimID == "" {
		l.claimID = cryptorand.Text()
	}
	claim.ClaimID = l.claimID
	asked := time.Now()
	wait := time.Duration(claim.WaitSeconds * float64(time.Second))
	call, cancel := context.WithTimeout(ctx, wait+10*time.Second)
	out, generation, err := l.Server.Claim(call, claim)
	cancel()
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	l.claimID = ""
	dropped := map[string]bool{}
	for _, id := range out.Dropped {
		dropped[id] = true
		delete(l.outOfLease, id)
		l.Log.Info("the server no longer waits for a task", "task", id)
		if err := l.Executor.Drop(ctx, id); err != nil {
			return err
		}
	}
	if out.Task != nil {
		return l.do(ctx, *out.Task, generation)
	}
	for _, e := range begun {
		if !dropped[e.TaskID] {
			return l.do(ctx, e.Signed, generation)
		}
	}
	if time.Since(asked) < wait/2 && len(dropped) == 0 {
		rest(ctx, l.Backoff/2+rand.N(l.Backoff+1)) // a server that does not let us wait is not to be asked in a circle
	}
	return nil
}

// do hands a task to the executor, keeps its lease meanwhile and reports.
func (l *Loop) do(ctx context.Context, signed protocol.SignedTask, generation int64) error {
	t, ok := peek(signed)
	if !ok {
		return errors.New("the server handed out something that is not a task")
	}
	delete(l.outOfLease, t.ID)
	keep := &lease{halt: make(chan struct{})}
	renewing, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		keep.keep(renewing, l.Server, t, func(what string, err error) { l.Log.Warn(what, "task", t.ID, "error", err) })
	}()
	res, err := l.Executor.Execute(ctx, signed, generation, Control{Progress: keep.progress, Halt: keep.halt, Fetch: l.Fetch})
	stop()
	<-ended
	if err != nil {
		if errors.Is(err, ErrForgotten) {
			l.Log.Info("a task of an earlier boot is left to be handed out again", "task", t.ID)
			return nil
		}
		return err
	}
	return l.send(ctx, protocol.ResultRequest{TaskID: t.ID, LeaseID: t.LeaseID, Attempt: t.Attempt, Result: res}, t.Kind)
}

// send reports a result and tells the journal what became of the report. An
// error means that it must be sent again.
func (l *Loop) send(ctx context.Context, r protocol.ResultRequest, kind lifecycle.TaskKind) error {
	call, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	_, err := l.Server.Result(call, r)
	switch {
	case err == nil, errors.Is(err, ErrShutOut) && kind == lifecycle.TaskKindUninstall && r.Result.OK:
		// A node that was removed while it reported so is removed.
		err = l.Executor.Acknowledge(ctx, r.TaskID)
	case errors.Is(err, ErrTaskEnded):
		l.Log.Warn("a task had ended before its result came", "task", r.TaskID)
		err = l.Executor.Drop(ctx, r.TaskID)
	case errors.Is(err, ErrLeaseLost), errors.Is(err, ErrRejected):
		l.Log.Warn("a result was not taken; it waits for the task to be handed out again or dropped", "task", r.TaskID, "error", err)
		l.outOfLease[r.TaskID], err = r.Attempt, nil
	default:
		l.unsent = l.refusal(ctx, r)
		return err
	}
	l.unsent = nil
	return err
}

// refusal keeps a result that no journal holds.
func (l *Loop) refusal(ctx context.Context, r protocol.ResultRequest) *protocol.ResultRequest {
	pending, err := l.Executor.Pending(ctx)
	if err != nil {
		return l.unsent
	}
	for _, e := range pending {
		if e.TaskID == r.TaskID {
			return nil
		}
	}
	return &r
}
