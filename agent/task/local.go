package task

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/slipway-cloud/slipway/agent/protocol"
	"github.com/slipway-cloud/slipway/agent/taskkeys"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// resumeTime is what a Resume has at least, also after the deadline.
const resumeTime = 2 * time.Minute

// LocalConfig is what a Local is made of; all but Simulated is needed.
type LocalConfig struct {
	NodeID   string
	Journal  *Journal
	Handlers Registry
	// Keys are the keys that this node believes, each until it ends; OnTrust is told of keys that
	// the other half has learnt, OnHealthy that a version is in touch with the server.
	Keys      func() ([]protocol.TaskKey, error)
	OnTrust   func(keys []protocol.TaskKey) error
	OnHealthy func(version string) error
	// OnInService does what Executor.InService says, while no task runs; nil does nothing.
	OnInService func(drain string) (mark string, err error)
	BootID      func() (string, error)
	Log         *slog.Logger
	Simulated   bool
}

// Local is the Executor that acts in this process.
type Local struct {
	LocalConfig
	now func() time.Time

	mu      sync.Mutex
	running string        // task id
	over    chan struct{} // closed when it has ended
}

var _ Executor = (*Local)(nil)

// NewLocal makes a Local.
func NewLocal(c LocalConfig) *Local { return &Local{LocalConfig: c, now: time.Now} }

// Pending implements Executor.
func (l *Local) Pending(context.Context) ([]Entry, error) { return l.Journal.Open() }

// Trust implements Executor.
func (l *Local) Trust(_ context.Context, keys []protocol.TaskKey) error { return l.OnTrust(keys) }

// Healthy implements Executor.
func (l *Local) Healthy(_ context.Context, version string) error { return l.OnHealthy(version) }

// InService implements Executor. A task that runs may be about to mark the node.
func (l *Local) InService(_ context.Context, drain string) (string, error) {
	l.mu.Lock() // none begins meanwhile
	defer l.mu.Unlock()
	if l.OnInService == nil || l.running != "" {
		return "", nil
	}
	return l.OnInService(drain)
}

// Execute implements Executor. A refusal is a result that is not in the journal,
// since nothing was done.
func (l *Local) Execute(ctx context.Context, signed protocol.SignedTask, generation int64, c Control) (lifecycle.TaskResult, error) {
	keys, err := l.Keys()
	if err != nil {
		return lifecycle.TaskResult{}, err
	}
	boot, err := l.BootID()
	if err != nil {
		return lifecycle.TaskResult{}, err
	}
	t, refusal := Open(signed, taskkeys.Valid(keys, l.now()))
	if refusal != nil {
		begun, ok := l.begunAs(signed)
		if !ok {
			return l.refused(refusal, boot), nil
		}
		t = begun
	}
	release, err := l.enter(ctx, t.ID)
	if err != nil {
		return lifecycle.TaskResult{}, err
	}
	defer release()
	d := delivery{l: l, task: t, signed: signed, boot: boot, generation: generation, control: c}
	e, known, err := l.Journal.Get(t.ID)
	switch {
	case err != nil:
		return lifecycle.TaskResult{}, err
	case known:
		return d.again(ctx, e)
	}
	return d.fresh(ctx)
}

// begunAs reads a delivery that the journal holds as it is: its signature was
// right when it was begun, and its key may have ended since.
func (l *Local) begunAs(signed protocol.SignedTask) (protocol.Task, bool) {
	t, ok := peek(signed)
	if !ok {
		return t, false
	}
	e, known, err := l.Journal.Get(t.ID)
	return t, err == nil && known && e.Signed.KeyID == signed.KeyID && bytes.Equal(e.Signed.Payload, signed.Payload) && bytes.Equal(e.Signed.Signature, signed.Signature)
}

func (l *Local) refused(r *Refusal, boot string) lifecycle.TaskResult {
	res := r.Result()
	res.BootID, res.Simulated = boot, l.Simulated
	l.Log.Warn("a task was refused", "code", r.Code, "reason", r.Reason)
	return res
}

// enter lets one task in at a time; a task that runs already is waited for.
func (l *Local) enter(ctx context.Context, id string) (release func(), err error) {
	for {
		l.mu.Lock()
		if l.running == "" {
			over := make(chan struct{})
			l.running, l.over = id, over
			l.mu.Unlock()
			return func() {
				l.mu.Lock()
				l.running = ""
				l.mu.Unlock()
				close(over)
			}, nil
		}
		same, over := l.running == id, l.over
		l.mu.Unlock()
		if !same {
			return nil, ErrBusy
		}
		select {
		case <-over:
		case <-ctx.Done():
			return nil, ErrInterrupted
		}
	}
}

// delivery is one handing over of a task.
type delivery struct {
	l          *Local
	task       protocol.Task
	signed     protocol.SignedTask
	boot       string
	generation int64
	control    Control
}

func (d delivery) entry(p Phase) Entry {
	return Entry{TaskID: d.task.ID, Kind: d.task.Kind, Attempt: d.task.Attempt, LeaseID: d.task.LeaseID, BootID: d.task.BootID,
		Deadline: d.task.Deadline, Signed: d.signed, Phase: p}
}

func (d delivery) request(args any) Request {
	return Request{Task: d.task, Args: args, Fetch: d.control.Fetch}
}

// fresh begins a task.
func (d delivery) fresh(ctx context.Context) (lifecycle.TaskResult, error) {
	h, args, refusal := d.check(true)
	if refusal != nil {
		return d.l.refused(refusal, d.boot), nil
	}
	if open, err := d.l.Journal.Open(); err != nil || len(open) >= maxOpen {
		return lifecycle.TaskResult{}, errors.Join(err, ErrJournalFull)
	}
	e := d.entry(Begun)
	if err := d.l.Journal.put(e, d.task.Generation); err != nil {
		return lifecycle.TaskResult{}, err
	}
	return d.run(ctx, e, h.Run, d.request(args))
}

// check applies the fence, whole or, for what was begun here, the node alone.
func (d delivery) check(whole bool) (Handler, any, *Refusal) {
	f := Fence{NodeID: d.l.NodeID, BootID: d.boot, Generation: d.generation, Now: d.l.now()}
	if !whole {
		f.BootID, f.Generation, f.Now = d.task.BootID, d.task.Generation, time.Time{}
	} else if known := d.l.Journal.Generation(); d.task.Generation < known {
		return nil, nil, refuse(CodeRefused, "the task is for generation %d of the node's identity; %d was seen already", d.task.Generation, known)
	}
	if r := f.Check(d.task); r != nil {
		return nil, nil, r
	}
	return d.l.Handlers.arguments(d.task)
}

// again takes a task that the journal knows.
func (d delivery) again(ctx context.Context, e Entry) (lifecycle.TaskResult, error) {
	if d.task.Attempt < e.Attempt {
		return d.l.refused(refuse(CodeRefused, "attempt %d of the task is over; this node has seen attempt %d", d.task.Attempt, e.Attempt), d.boot), nil
	}
	newer := d.task.Attempt > e.Attempt
	if e.Result != nil && (!newer || e.Result.Code != CodeUncertain) {
		if newer { // the report must name the lease that counts now
			e.Attempt, e.LeaseID, e.Signed, e.Deadline = d.task.Attempt, d.task.LeaseID, d.signed, d.task.Deadline
			if err := d.l.Journal.Put(e); err != nil {
				return lifecycle.TaskResult{}, err
			}
		}
		return *e.Result, nil
	}
	if e.Phase == Dropped && !newer {
		return d.l.refused(refuse(CodeRefused, "the server has dropped this attempt of the task"), d.boot), nil
	}
	h, args, refusal := d.check(newer)
	if refusal != nil {
		return d.l.refused(refusal, d.boot), nil
	}
	req := d.request(args)
	req.Resumed = e.Phase == Begun
	req.Rebooted, req.Expired = e.BootID != d.boot, !d.l.now().Before(d.task.Deadline)
	info, _ := lifecycle.TaskKindOf(d.task.Kind)
	resumer, canResume := h.(Resumer)
	if newer { // a separate request, by the server or an operator
		fresh := d.entry(Begun)
		fresh.Steps = e.Steps
		if err := d.l.Journal.put(fresh, d.task.Generation); err != nil {
			return lifecycle.TaskResult{}, err
		}
		if canResume && req.Resumed {
			return d.run(ctx, fresh, resumer.Resume, req)
		}
		fresh.Steps = nil
		return d.run(ctx, fresh, h.Run, req)
	}
	switch {
	case canResume:
		return d.run(ctx, e, resumer.Resume, req)
	case info.Redeliver && req.Rebooted:
		e.Phase = Dropped
		if err := d.l.Journal.Put(e); err != nil {
			return lifecycle.TaskResult{}, err
		}
		return lifecycle.TaskResult{}, ErrForgotten
	case info.Redeliver && req.Expired:
		return d.done(e, Fail(CodeExpired, "its deadline passed while the agent was stopped; it was begun"))
	case info.Redeliver:
		return d.run(ctx, e, h.Run, req)
	}
	return d.done(e, Uncertain("the agent was stopped in the middle of it and cannot tell how far it came"))
}

// run lets a handler do its work and puts the result into the journal.
func (d delivery) run(ctx context.Context, e Entry, do func(context.Context, Request, *Recorder) lifecycle.TaskResult, r Request) (lifecycle.TaskResult, error) {
	until := d.task.Deadline
	if least := d.l.now().Add(resumeTime); r.Resumed && until.Before(least) {
		until = least
	}
	inner, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	halt := d.control.Halt
	if d.task.Kind == lifecycle.TaskKindScrub {
		halt = nil // half a scrub is worse than one whose lease is lost
	}
	steps := NewRecorder(e.Steps, halt, d.control.Progress)
	d.l.Log.Info("task begins", "task", e.TaskID, "kind", e.Kind, "attempt", e.Attempt, "resumed", r.Resumed)
	res := d.guarded(inner, do, r, steps)
	late := inner.Err() != nil && ctx.Err() == nil
	switch {
	case res.Code == codeRestart:
		e.Steps = steps.Steps()
		if err := d.l.Journal.Put(e); err != nil {
			return lifecycle.TaskResult{}, err
		}
		return lifecycle.TaskResult{}, ErrRestart
	case res.OK && !steps.wasHalted():
	case ctx.Err() != nil, (res.Code == codeHalted || steps.wasHalted()) && !late:
		return lifecycle.TaskResult{}, ErrInterrupted
	case late:
		res.OK, res.Code = false, CodeExpired
		res.Message = Clip("its deadline passed while it ran. "+res.Message, maxMessage)
	}
	if len(res.Steps) == 0 {
		res.Steps = steps.Steps()
	}
	return d.done(e, res)
}

// guarded keeps a handler's panic from ending the agent.
func (d delivery) guarded(ctx context.Context, do func(context.Context, Request, *Recorder) lifecycle.TaskResult, r Request, steps *Recorder) (res lifecycle.TaskResult) {
	defer func() {
		if p := recover(); p != nil {
			d.l.Log.Error("a task's handler panicked", "kind", d.task.Kind, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			res = Fail(CodeInternal, "the agent's handler of this kind is at fault; its log says where")
		}
	}()
	return do(ctx, r, steps)
}

func (d delivery) done(e Entry, res lifecycle.TaskResult) (lifecycle.TaskResult, error) {
	if res.BootID == "" {
		res.BootID = d.boot
	}
	res.Simulated = res.Simulated || d.l.Simulated
	res = bound(res)
	e.Phase, e.Result, e.Steps = Done, &res, nil
	if err := d.l.Journal.Put(e); err != nil {
		return lifecycle.TaskResult{}, err
	}
	d.l.Log.Info("task done", "task", e.TaskID, "kind", e.Kind, "ok", res.OK, "code", res.Code)
	return res, nil
}

// Acknowledge implements Executor.
func (l *Local) Acknowledge(ctx context.Context, taskID string) error {
	release, err := l.enter(ctx, taskID)
	if err != nil {
		return err
	}
	defer release()
	e, known, err := l.Journal.Get(taskID)
	if err != nil || !known || (e.Phase != Done && e.Phase != Reported) {
		return err
	}
	h, args, err := l.handlerOf(e)
	if f, ok := h.(Finisher); err == nil && ok && e.Result != nil {
		if e.Phase == Done {
			e.Phase = Reported
			if err := l.Journal.Put(e); err != nil {
				return err
			}
		}
		t, _ := peek(e.Signed)
		if err := f.Finish(ctx, Request{Task: t, Args: args, Resumed: true}, *e.Result); err != nil {
			return err
		}
	}
	e.Phase = Finished
	return l.Journal.Put(e)
}

func (l *Local) handlerOf(e Entry) (Handler, any, error) {
	t, ok := peek(e.Signed)
	if !ok {
		return nil, nil, errors.New("the journal holds a task that cannot be read")
	}
	h, args, refusal := l.Handlers.arguments(t)
	if refusal != nil {
		return nil, nil, refusal
	}
	return h, args, nil
}

// Drop implements Executor. A task that runs is not dropped.
func (l *Local) Drop(_ context.Context, taskID string) error {
	l.mu.Lock()
	busy := l.running == taskID
	l.mu.Unlock()
	e, known, err := l.Journal.Get(taskID)
	if err != nil || busy || !known || !slices.Contains([]Phase{Begun, Done}, e.Phase) {
		return err
	}
	e.Phase = Dropped
	return l.Journal.Put(e)
}
