package task

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/agent/protocol"
	"github.com/slipway-cloud/slipway/lifecycle"
)

func TestWhatIsNotOursIsRefused(t *testing.T) {
	t.Parallel()
	p, other := newPlane(t), newPlane(t)
	h := &fixed{}
	s := newSide(t, p, t.TempDir(), Registry{lifecycle.TaskKindDrain: h})
	drain := func(change func(*protocol.Task)) protocol.SignedTask {
		task := someTask("t1", lifecycle.TaskKindDrain)
		change(&task)
		return p.sign(task)
	}
	keep := func(*protocol.Task) {}
	tampered := drain(keep)
	tampered.Payload = []byte(strings.Replace(string(tampered.Payload), `"grace_seconds":1`, `"grace_seconds":0`, 1))
	unknown := drain(keep)
	unknown.KeyID = "k9"
	bare := drain(keep)
	bare.Payload = []byte(`{}`)
	for name, c := range map[string]struct {
		signed protocol.SignedTask
		code   string
		says   string
	}{
		"another key":        {other.sign(someTask("t1", lifecycle.TaskKindDrain)), CodeRefused, "signature"},
		"an unknown key":     {unknown, CodeRefused, `key "k9", which does not count`},
		"tampered":           {tampered, CodeRefused, "signature"},
		"no task":            {bare, CodeRefused, "signature"},
		"another node":       {drain(func(t *protocol.Task) { t.NodeID = "node-2" }), CodeRefused, `for node "node-2"`},
		"another boot":       {drain(func(t *protocol.Task) { t.BootID = "boot-0" }), CodeRefused, `for boot "boot-0"`},
		"another generation": {drain(func(t *protocol.Task) { t.Generation = 2 }), CodeRefused, "generation 2"},
		"too late":           {drain(func(t *protocol.Task) { t.Deadline = time.Now().Add(-time.Second) }), CodeExpired, "deadline"},
		"unknown kind":       {drain(func(t *protocol.Task) { t.Kind = "shell.run" }), CodeUnsupported, `"shell.run"`},
		"unknown version":    {drain(func(t *protocol.Task) { t.SchemaVersion = 2 }), CodeUnsupported, "version 1"},
		"no handler":         {p.sign(someTask("t1", lifecycle.TaskKindScrub)), CodeUnsupported, "gpu.scrub"},
		"bad arguments":      {drain(func(t *protocol.Task) { t.Args = json.RawMessage(`{"grace_seconds":-1}`) }), CodeArguments, "grace_seconds"},
		"more arguments":     {drain(func(t *protocol.Task) { t.Args = json.RawMessage(`{"grace_seconds":1,"command":"id"}`) }), CodeArguments, "command"},
	} {
		res := s.do(t, c.signed)
		require.False(t, res.OK, name)
		require.Equal(t, c.code, res.Code, name)
		require.Contains(t, res.Message, c.says, name)
	}
	require.Zero(t, h.count(), "nothing was done")
	open, err := s.Pending(t.Context())
	require.NoError(t, err)
	require.Empty(t, open)
}

func TestAKeyThatEndedBeginsNothingAndEndsWhatItBegan(t *testing.T) {
	t.Parallel()
	p, dir := newPlane(t), t.TempDir()
	h := &fixed{res: func(context.Context, Request, *Recorder) lifecycle.TaskResult {
		runtime.Goexit()
		return lifecycle.TaskResult{}
	}}
	reg := Registry{lifecycle.TaskKindDrain: h}
	s := newSide(t, p, dir, reg)
	begun := p.sign(someTask("t1", lifecycle.TaskKindDrain))
	over := make(chan struct{})
	go func() { defer close(over); _, _ = s.Execute(t.Context(), begun, 3, Control{}) }() // the process ends in the middle
	<-over
	ended := time.Now().Add(-time.Second)
	p.keys[0].Until = &ended
	h.res = nil
	s = newSide(t, p, dir, reg)
	require.Equal(t, CodeRefused, s.do(t, p.sign(someTask("t2", lifecycle.TaskKindDrain))).Code)
	forged := begun
	forged.Payload = []byte(strings.Replace(string(begun.Payload), `"grace_seconds":1`, `"grace_seconds":0`, 1))
	require.Equal(t, CodeRefused, s.do(t, forged).Code)
	require.True(t, s.do(t, begun).OK, "the journal holds it as it was verified")
	require.Equal(t, 2, h.count())
}

func TestACopyOfATaskIsNotDoneAgain(t *testing.T) {
	t.Parallel()
	p, dir := newPlane(t), t.TempDir()
	h := &fixed{}
	reg := Registry{lifecycle.TaskKindDrain: h, lifecycle.TaskKindScrub: h}
	s := newSide(t, p, dir, reg)
	first := someTask("t1", lifecycle.TaskKindDrain)
	res := s.do(t, p.sign(first))
	require.True(t, res.OK)
	require.Equal(t, "work", res.Steps[0].Name)
	require.Equal(t, res, s.do(t, p.sign(first)))

	second := attempt(first, 2)
	require.Equal(t, res, s.do(t, p.sign(second)), "a result whose report was lost is given under the next lease")
	open, err := s.Pending(t.Context())
	require.NoError(t, err)
	require.Equal(t, "lease-t1-2", open[0].LeaseID)
	require.Equal(t, CodeRefused, s.do(t, p.sign(first)).Code, "the older delivery counts no longer")

	require.NoError(t, s.Acknowledge(t.Context(), "t1"))
	require.NoError(t, s.Journal.Close())
	s = newSide(t, p, dir, reg) // and after a restart
	require.Equal(t, res.Steps[0].StartedAt, s.do(t, p.sign(second)).Steps[0].StartedAt)
	require.Equal(t, 1, h.count())

	// A dropped task is refused, but a new attempt of it is not.
	require.NoError(t, s.Journal.Put(Entry{TaskID: "t2", Kind: lifecycle.TaskKindDrain, Attempt: 1, Phase: Begun, Deadline: time.Now().Add(time.Hour)}))
	require.NoError(t, s.Drop(t.Context(), "t2"))
	require.Equal(t, CodeRefused, s.do(t, p.sign(someTask("t2", lifecycle.TaskKindDrain))).Code)
	require.True(t, s.do(t, p.sign(attempt(someTask("t2", lifecycle.TaskKindDrain), 2))).OK)

	// A generation never goes back, whatever the other half says.
	newer := someTask("t3", lifecycle.TaskKindDrain)
	newer.Generation = 4
	res, err = s.Execute(t.Context(), p.sign(newer), 4, Control{})
	require.NoError(t, err)
	require.True(t, res.OK)
	require.Contains(t, s.do(t, p.sign(someTask("t4", lifecycle.TaskKindDrain))).Message, "4 was seen already")
}

// resumable is a handler with a Resume.
type resumable struct {
	fixed
	resumed []Request
}

func (r *resumable) Resume(_ context.Context, q Request, _ *Recorder) lifecycle.TaskResult {
	r.resumed = append(r.resumed, q)
	return lifecycle.TaskResult{OK: true, Message: "looked"}
}

func TestWhatARestartFinds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kind     lifecycle.TaskKind
		rebooted bool
		late     bool
		code     string
		runs     int
		resumes  int
		err      error
	}{
		"a drain is done again":                    {kind: lifecycle.TaskKindDrain, runs: 1},
		"a drain of another boot is left":          {kind: lifecycle.TaskKindDrain, rebooted: true, err: ErrForgotten},
		"a drain past its deadline":                {kind: lifecycle.TaskKindDrain, late: true, code: CodeExpired},
		"a scrub without a second look":            {kind: lifecycle.TaskKindScrub, code: CodeUncertain},
		"a scrub of another boot":                  {kind: lifecycle.TaskKindScrub, rebooted: true, code: CodeUncertain},
		"an update is looked at":                   {kind: lifecycle.TaskKindUpdate, resumes: 1},
		"an update over a reboot and its deadline": {kind: lifecycle.TaskKindUpdate, rebooted: true, late: true, resumes: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlane(t)
			h, r := &fixed{}, &resumable{}
			s := newSide(t, p, t.TempDir(), Registry{lifecycle.TaskKindDrain: h, lifecycle.TaskKindScrub: h, lifecycle.TaskKindUpdate: r})
			begun := someTask("t1", c.kind)
			if c.late {
				begun.Deadline = time.Now().Add(-time.Minute)
			}
			require.NoError(t, s.Journal.Put(Entry{TaskID: "t1", Kind: c.kind, Attempt: 1, LeaseID: begun.LeaseID, BootID: boot1, Deadline: begun.Deadline,
				Signed: p.sign(begun), Phase: Begun}))
			if c.rebooted {
				s.boot = "boot-2"
			}
			res, err := s.Execute(t.Context(), p.sign(begun), 9, Control{}) // the certificate was renewed meanwhile
			require.ErrorIs(t, err, c.err)
			require.Equal(t, c.code, res.Code)
			require.Equal(t, c.err == nil && c.code == "", res.OK)
			require.Equal(t, c.runs, h.count())
			require.Len(t, r.resumed, c.resumes)
			for _, q := range r.resumed {
				require.Equal(t, []bool{true, c.rebooted, c.late}, []bool{q.Resumed, q.Rebooted, q.Expired})
			}
			open, err := s.Pending(t.Context())
			require.NoError(t, err)
			require.Len(t, open, map[bool]int{true: 0, false: 1}[c.err != nil])
		})
	}
}

func TestAnUncertainTaskIsDoneAgainWhenAPersonAsks(t *testing.T) {
	t.Parallel()
	p := newPlane(t)
	h := &fixed{}
	s := newSide(t, p, t.TempDir(), Registry{lifecycle.TaskKindScrub: h})
	begun := someTask("t1", lifecycle.TaskKindScrub)
	require.NoError(t, s.Journal.Put(Entry{TaskID: "t1", Kind: begun.Kind, Attempt: 1, BootID: boot1, Deadline: begun.Deadline, Signed: p.sign(begun), Phase: Begun}))
	require.Equal(t, CodeUncertain, s.do(t, p.sign(begun)).Code)
	require.Equal(t, CodeUncertain, s.do(t, p.sign(begun)).Code, "the same delivery has the same answer")
	require.Zero(t, h.count())
	require.NoError(t, s.Acknowledge(t.Context(), "t1"))
	require.True(t, s.do(t, p.sign(attempt(begun, 2))).OK)
	require.Equal(t, 1, h.count())
}

func twoSteps(between func()) func(context.Context, Request, *Recorder) lifecycle.TaskResult {
	return func(ctx context.Context, _ Request, steps *Recorder) lifecycle.TaskResult {
		err := steps.Do(ctx, "one", func(context.Context) (string, error) { between(); return "", nil })
		return steps.End(errors.Join(err, steps.Do(ctx, "two", func(context.Context) (string, error) { return "", nil })))
	}
}

func TestWithoutALeaseNoStepBeginsButAScrubGoesOn(t *testing.T) {
	t.Parallel()
	for _, kind := range []lifecycle.TaskKind{lifecycle.TaskKindDrain, lifecycle.TaskKindScrub} {
		p, halt := newPlane(t), make(chan struct{})
		h := &fixed{res: twoSteps(func() { close(halt) })}
		s := newSide(t, p, t.TempDir(), Registry{kind: h})
		var seen []string
		res, err := s.Execute(t.Context(), p.sign(someTask("t1", kind)), 3, Control{Halt: halt, Progress: func(step string) { seen = append(seen, step) }})
		e, _ := get(t, s.Journal, "t1")
		if kind == lifecycle.TaskKindScrub {
			require.NoError(t, err)
			require.True(t, res.OK)
			require.Equal(t, []string{"one", "two"}, seen)
			require.Equal(t, Done, e.Phase)
			continue
		}
		require.ErrorIs(t, err, ErrInterrupted)
		require.Equal(t, []string{"one"}, seen)
		require.Equal(t, Begun, e.Phase, "it is gone on with when the server says so")
		h.res = twoSteps(func() {})
		require.True(t, s.do(t, p.sign(someTask("t1", kind))).OK)
	}
}

func TestAnEndingAgentLeavesATaskBegun(t *testing.T) {
	t.Parallel()
	p := newPlane(t)
	ctx, cancel := context.WithCancel(t.Context())
	s := newSide(t, p, t.TempDir(), Registry{lifecycle.TaskKindScrub: &fixed{res: twoSteps(cancel)}})
	_, err := s.Execute(ctx, p.sign(someTask("t1", lifecycle.TaskKindScrub)), 3, Control{})
	require.ErrorIs(t, err, ErrInterrupted)
	e, _ := get(t, s.Journal, "t1")
	require.Equal(t, Begun, e.Phase)
}

func TestHandlersThatMisbehave(t *testing.T) {
	t.Parallel()
	p := newPlane(t)
	huge := func(context.Context, Request, *Recorder) lifecycle.TaskResult {
		res := lifecycle.TaskResult{OK: true, Message: strings.Repeat("m", 1<<20), Output: json.RawMessage(`"` + strings.Repeat("o", 1<<20) + `"`)}
		for range 1000 {
			res.Steps = append(res.Steps, lifecycle.StepResult{Name: "s", Detail: strings.Repeat("d", 4000)})
		}
		return res
	}
	s := newSide(t, p, t.TempDir(), Registry{lifecycle.TaskKindDrain: &fixed{res: huge},
		lifecycle.TaskKindScrub: Func(func(context.Context, Request, *Recorder) lifecycle.TaskResult { panic("at fault") })})
	res := s.do(t, p.sign(someTask("t1", lifecycle.TaskKindDrain)))
	require.LessOrEqual(t, size(res), maxResult)
	require.Equal(t, boot1, res.BootID)
	require.Equal(t, CodeInternal, s.do(t, p.sign(someTask("t2", lifecycle.TaskKindScrub))).Code)

	late := someTask("t3", lifecycle.TaskKindDrain)
	late.Deadline = time.Now().Add(30 * time.Millisecond)
	s.Handlers[lifecycle.TaskKindDrain] = Func(func(ctx context.Context, _ Request, steps *Recorder) lifecycle.TaskResult {
		return steps.End(steps.Do(ctx, "wait", func(ctx context.Context) (string, error) { <-ctx.Done(); return "", ctx.Err() }))
	})
	require.Equal(t, CodeExpired, s.do(t, p.sign(late)).Code)
}

// finisher removes a file when the server has the result.
type finisher struct {
	fixed
	file string
	err  error
}

func (f *finisher) Finish(context.Context, Request, lifecycle.TaskResult) error {
	_ = os.Remove(f.file)
	return f.err
}

func TestWhatFollowsTheReportWaitsForItAndIsRepeated(t *testing.T) {
	t.Parallel()
	p, dir := newPlane(t), t.TempDir()
	f := &finisher{file: filepath.Join(t.TempDir(), "identity"), err: errors.New("disk away")}
	require.NoError(t, os.WriteFile(f.file, nil, 0o600))
	s := newSide(t, p, dir, Registry{lifecycle.TaskKindUninstall: f})
	require.True(t, s.do(t, p.sign(someTask("t1", lifecycle.TaskKindUninstall))).OK)
	require.FileExists(t, f.file, "nothing is removed before the server has the result")
	require.ErrorContains(t, s.Acknowledge(t.Context(), "t1"), "disk away")
	require.NoFileExists(t, f.file)
	require.NoError(t, s.Journal.Close())
	s = newSide(t, p, dir, Registry{lifecycle.TaskKindUninstall: f})
	open, err := s.Pending(t.Context())
	require.NoError(t, err)
	require.Equal(t, Reported, open[0].Phase)
	f.err = ErrUninstalled
	require.ErrorIs(t, s.Acknowledge(t.Context(), "t1"), ErrUninstalled)
}

func TestOneTaskAtATime(t *testing.T) {
	t.Parallel()
	p, begun, goOn := newPlane(t), make(chan struct{}), make(chan struct{})
	h := &fixed{res: twoSteps(func() { close(begun); <-goOn })}
	s := newSide(t, p, t.TempDir(), Registry{lifecycle.TaskKindDrain: h})
	results := make(chan lifecycle.TaskResult, 2)
	same := p.sign(someTask("t1", lifecycle.TaskKindDrain))
	go func() { res, _ := s.Execute(t.Context(), same, 3, Control{}); results <- res }()
	<-begun
	_, err := s.Execute(t.Context(), p.sign(someTask("t2", lifecycle.TaskKindDrain)), 3, Control{})
	require.ErrorIs(t, err, ErrBusy)
	require.NoError(t, s.Drop(t.Context(), "t1"), "what runs is not dropped")
	go func() { res, _ := s.Execute(t.Context(), same, 3, Control{}); results <- res }() // a network half that was started again
	close(goOn)
	require.Equal(t, <-results, <-results)
	require.Equal(t, 1, h.count())
}
