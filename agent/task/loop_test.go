package task

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/agent/protocol"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// fakeServer is a Server with one queue. A test sets its faults.
type fakeServer struct {
	mu      sync.Mutex
	plane   *plane
	queue   []protocol.Task
	held    map[string]protocol.Task
	dropped []string
	results map[string][]lifecycle.TaskResult
	renewed int
	claims  []protocol.ClaimRequest
	down    bool // nothing gets through
	lose    int  // answers of results to lose
	renew   error
	result  error
}

func newFakeServer(p *plane) *fakeServer {
	return &fakeServer{plane: p, held: map[string]protocol.Task{}, results: map[string][]lifecycle.TaskResult{}}
}

var errDown = errors.New("the network is cut")

func (d *fakeServer) Claim(ctx context.Context, r protocol.ClaimRequest) (protocol.ClaimResponse, int64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.claims = append(d.claims, r)
	if d.down {
		return protocol.ClaimResponse{}, 0, errDown
	}
	var out protocol.ClaimResponse
	for _, id := range r.Unfinished {
		if slices.Contains(d.dropped, id) {
			out.Dropped = append(out.Dropped, id)
		} else if _, held := d.held[id]; held {
			return out, 3, nil
		}
	}
	if len(d.queue) > 0 {
		next := d.queue[0]
		d.queue = d.queue[1:]
		d.held[next.ID] = next
		signed := d.plane.sign(next)
		out.Task = &signed
	}
	return out, 3, nil
}

func (d *fakeServer) Renew(_ context.Context, r protocol.RenewTaskRequest) (protocol.RenewTaskResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.renewed++
	if d.down {
		return protocol.RenewTaskResponse{}, errDown
	}
	return protocol.RenewTaskResponse{LeaseSeconds: d.held[r.TaskID].LeaseSeconds}, d.renew
}

func (d *fakeServer) Result(_ context.Context, r protocol.ResultRequest) (protocol.ResultResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.down:
		return protocol.ResultResponse{}, errDown
	case d.result != nil:
		return protocol.ResultResponse{}, d.result
	}
	d.results[r.TaskID] = append(d.results[r.TaskID], r.Result)
	delete(d.held, r.TaskID)
	if d.lose > 0 {
		d.lose--
		return protocol.ResultResponse{}, errDown
	}
	return protocol.ResultResponse{Status: lifecycle.TaskSucceeded}, nil
}

func (d *fakeServer) set(f func()) { d.mu.Lock(); defer d.mu.Unlock(); f() }

func (d *fakeServer) heard(id string) []lifecycle.TaskResult {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.results[id])
}

// runLoop runs a loop until the test ends or stop is called.
func runLoop(t *testing.T, d *fakeServer, e Executor) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	l := NewLoop(LoopConfig{Server: d, Executor: e, BootID: func() (string, error) { return boot1, nil }, Log: slog.New(slog.DiscardHandler),
		Wait: time.Millisecond, Backoff: 2 * time.Millisecond, MaxBackoff: 20 * time.Millisecond})
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	var once sync.Once
	var err error
	stop = func() error {
		once.Do(func() {
			cancel()
			select {
			case err = <-done:
			case <-time.After(runenv.Patience(10 * time.Second)):
				t.Error(runenv.Deadline + "the loop did not stop")
			}
		})
		return err
	}
	t.Cleanup(func() { _ = stop() })
	return stop
}

func (d *fakeServer) eventually(t *testing.T, what func() bool) {
	t.Helper()
	require.Eventually(t, func() bool { d.mu.Lock(); defer d.mu.Unlock(); return what() }, runenv.Patience(10*time.Second), 2*time.Millisecond)
}

func TestTheLoopTakesDoesAndReports(t *testing.T) {
	t.Parallel()
	p := newPlane(t)
	d, h := newFakeServer(p), &fixed{}
	d.queue = []protocol.Task{someTask("t1", lifecycle.TaskKindDrain), someTask("t2", "shell.run"), someTask("t3", lifecycle.TaskKindDrain)}
	d.lose = 1
	s := newSide(t, p, t.TempDir(), Registry{lifecycle.TaskKindDrain: h})
	stop := runLoop(t, d, s)
	d.eventually(t, func() bool { return len(d.results["t3"]) > 0 })
	require.NoError(t, stop())
	require.Len(t, d.heard("t1"), 2, "a lost answer makes the report come again")
	require.Equal(t, d.heard("t1")[0], d.heard("t1")[1])
	require.Equal(t, CodeUnsupported, d.heard("t2")[0].Code, "what is not known is answered, not passed over")
	require.Equal(t, 2, h.count())
	ids := map[string]bool{}
	for _, c := range d.claims {
		ids[c.ClaimID] = true
		require.Equal(t, boot1, c.BootID)
	}
	require.Len(t, ids, len(d.claims), "a claim that was answered is not named again")
}

func TestARefusalIsReportedAlsoAfterTheNetworkWasCut(t *testing.T) {
	t.Parallel()
	p := newPlane(t)
	d := newFakeServer(p)
	d.queue = []protocol.Task{someTask("t1", "shell.run")}
	d.result = errDown
	runLoop(t, d, newSide(t, p, t.TempDir(), Registry{}))
	d.eventually(t, func() bool { return len(d.claims) > 0 })
	d.set(func() { d.result = nil })
	d.eventually(t, func() bool { return len(d.results["t1"]) == 1 })
}

func TestACutLongerThanTheLease(t *testing.T) {
	t.Parallel()
	for _, kind := range []lifecycle.TaskKind{lifecycle.TaskKindDrain, lifecycle.TaskKindScrub} {
		p := newPlane(t)
		d := newFakeServer(p)
		task := someTask("t1", kind)
		task.LeaseSeconds = 0.08
		d.queue = []protocol.Task{task}
		cut := make(chan struct{})
		var first sync.Once
		h := &fixed{res: func(ctx context.Context, _ Request, steps *Recorder) lifecycle.TaskResult {
			err := steps.Do(ctx, "one", func(context.Context) (string, error) {
				first.Do(func() {
					d.set(func() { d.down = true })
					if halt := steps.Halt(); halt != nil {
						<-halt // the lease runs out
					} else {
						d.eventually(t, func() bool { return d.renewed > 8 })
					}
					close(cut)
				})
				return "", nil
			})
			return steps.End(errors.Join(err, steps.Do(ctx, "two", func(context.Context) (string, error) { return "", nil })))
		}}
		s := newSide(t, p, t.TempDir(), Registry{kind: h})
		stop := runLoop(t, d, s)
		<-cut
		if kind == lifecycle.TaskKindScrub {
			require.Eventually(t, func() bool { e, _, err := s.Journal.Get("t1"); return err == nil && e.Phase == Done }, runenv.Patience(10*time.Second), 2*time.Millisecond)
		} else { // the server gave the delivery up and hands the task out again
			d.set(func() { delete(d.held, "t1"); d.queue = []protocol.Task{attempt(task, 2)} })
		}
		d.set(func() { d.down = false })
		d.eventually(t, func() bool { return len(d.results["t1"]) > 0 })
		require.NoError(t, stop())
		require.True(t, d.heard("t1")[0].OK)
		require.Len(t, d.heard("t1")[0].Steps, 2)
		require.Equal(t, map[bool]int{true: 1, false: 2}[kind == lifecycle.TaskKindScrub], h.count(), "a scrub goes on; a drain stops and is done again")
	}
}

func TestALeaseThatTheServerTookStopsATask(t *testing.T) {
	t.Parallel()
	for _, lost := range []error{ErrLeaseLost, ErrTaskEnded, ErrShutOut} {
		p := newPlane(t)
		d := newFakeServer(p)
		task := someTask("t1", lifecycle.TaskKindDrain)
		task.LeaseSeconds = 0.2
		d.queue, d.renew = []protocol.Task{task}, lost
		halted := make(chan struct{})
		var once sync.Once
		h := &fixed{res: func(_ context.Context, _ Request, steps *Recorder) lifecycle.TaskResult {
			<-steps.Halt()
			once.Do(func() { close(halted) })
			return steps.End(ErrHalted)
		}}
		s := newSide(t, p, t.TempDir(), Registry{lifecycle.TaskKindDrain: h})
		stop := runLoop(t, d, s)
		<-halted
		d.set(func() { d.dropped = []string{"t1"}; d.held = map[string]protocol.Task{} })
		require.Eventually(t, func() bool { e, _, err := s.Journal.Get("t1"); return err == nil && e.Phase == Dropped }, runenv.Patience(10*time.Second), 2*time.Millisecond)
		require.NoError(t, stop())
		require.Empty(t, d.heard("t1"))
	}
}

func TestAResultThatComesTooLateWaitsAndDoesNotHoldOthersUp(t *testing.T) {
	t.Parallel()
	p := newPlane(t)
	d, h := newFakeServer(p), &fixed{}
	d.queue, d.result = []protocol.Task{someTask("t1", lifecycle.TaskKindDrain)}, ErrLeaseLost
	s := newSide(t, p, t.TempDir(), Registry{lifecycle.TaskKindDrain: h})
	runLoop(t, d, s)
	d.eventually(t, func() bool {
		return len(d.claims) > 2 && slices.Equal(d.claims[len(d.claims)-1].Unfinished, []string{"t1"})
	})
	d.set(func() {
		d.result, d.held = nil, map[string]protocol.Task{}
		d.queue = []protocol.Task{someTask("t2", lifecycle.TaskKindDrain), attempt(someTask("t1", lifecycle.TaskKindDrain), 2)}
	})
	d.eventually(t, func() bool { return len(d.results["t1"]) == 1 && len(d.results["t2"]) == 1 })
	require.Equal(t, 2, h.count(), "it was not done again")
}

func TestARemovedNodeFinishesItsUninstall(t *testing.T) {
	t.Parallel()
	p := newPlane(t)
	d := newFakeServer(p)
	d.queue, d.result = []protocol.Task{someTask("t1", lifecycle.TaskKindUninstall)}, ErrShutOut
	s := newSide(t, p, t.TempDir(), Registry{lifecycle.TaskKindUninstall: &finisher{err: ErrUninstalled}})
	ctx, cancel := context.WithTimeout(t.Context(), runenv.Patience(10*time.Second))
	defer cancel()
	l := NewLoop(LoopConfig{Server: d, Executor: s, BootID: func() (string, error) { return boot1, nil }, Log: slog.New(slog.DiscardHandler), Wait: time.Millisecond})
	require.ErrorIs(t, l.Run(ctx), ErrUninstalled)
}
