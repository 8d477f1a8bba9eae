package stage_test

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"testing"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/workflow"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/stage"
	"github.com/slipway-cloud/slipway/workflows/stage/stagetest"
)

// outside is what the stages' activities touch.
type outside struct {
	mu    sync.Mutex
	calls []string
	fail  map[string][]error  // errors to answer with, in order, per call
	found map[string]string   // observed state per stage; "done" is Done
	block map[string]bool     // calls that wait until cancelled or released
	left  map[string][]string // what proofs find, in order; the last stays
	all   []string            // calls and proofs
	hooks []func()            // run once, when a call waits
}

func (o *outside) Touch(ctx context.Context, name string) (string, error) {
	o.mu.Lock()
	o.calls, o.all = append(o.calls, name), append(o.all, name)
	var err error
	if q := o.fail[name]; len(q) > 0 {
		err, o.fail[name] = q[0], q[1:]
	}
	o.mu.Unlock()
	if err != nil {
		return "", err
	}
	if o.blocks(name) {
		o.waits()
	}
	for o.blocks(name) {
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-time.After(time.Millisecond):
			activity.RecordHeartbeat(ctx)
		}
	}
	return name, nil
}

func (o *outside) blocks(name string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.block[name]
}

// waits tells those who wait for the moment when a call waits.
func (o *outside) waits() {
	o.mu.Lock()
	hooks := o.hooks
	o.hooks = nil
	o.mu.Unlock()
	for _, f := range hooks {
		f()
	}
}

// release lets go what is blocked.
func (o *outside) release() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.block = map[string]bool{}
}

// Left is what a proof reads; "error" fails it.
func (o *outside) Left(_ context.Context, name string) (string, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all = append(o.all, "left-"+name)
	q := o.left[name]
	if len(q) == 0 {
		return "", nil
	}
	if len(q) > 1 {
		o.left[name] = q[1:]
	}
	if q[0] == "error" {
		return "", stagetest.Failure(lifecycle.FailMAASUnavailable)
	}
	return q[0], nil
}

func (o *outside) isLeft(name string, what ...string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.left[name] = what
}

func (o *outside) Look(_ context.Context, name string) (string, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.calls = append(o.calls, "look:"+name)
	return o.found[name], nil
}

func (o *outside) made(prefix string) []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var out []string
	for _, c := range o.calls {
		if len(c) >= len(prefix) && c[:len(prefix)] == prefix {
			out = append(out, c)
		}
	}
	return out
}

var acts *outside

type state struct {
	Trail  []string `json:"trail"`
	Resets int      `json:"resets"`
}

func do(name string) func(workflow.Context, *state) error {
	return func(ctx workflow.Context, s *state) error {
		_, err := stage.Do(ctx, stage.KindMAASCall, name, acts.Touch, name)
		if err == nil {
			s.Trail = append(s.Trail, name)
		}
		return err
	}
}

func look(name string) func(workflow.Context, *state) (stage.Observation, error) {
	return func(ctx workflow.Context, _ *state) (stage.Observation, error) {
		got, err := stage.Do(ctx, stage.KindMAASCall, name, acts.Look, name)
		return stage.Observation{Done: got == "done", State: got, Note: got}, err
	}
}

func left(name string) func(workflow.Context, *state) (string, error) {
	return func(ctx workflow.Context, _ *state) (string, error) {
		return stage.Do(ctx, stage.KindMAASCall, name, acts.Left, name)
	}
}

// job has a plain stage, one that can be undone, one that waits, one skipped
// and a last one.
func job() stage.Job[state] {
	return stage.Job[state]{
		Kind: contract.KindOnboarding,
		Stages: []stage.Stage[state]{
			{Name: "one", Weight: 1, Run: do("one"), Observe: look("one"), Undo: do("undo-one"), VerifyUndo: left("one")},
			{Name: "two", Weight: 2, Run: do("two"), Observe: look("two"), Undo: do("undo-two"), VerifyUndo: left("two")},
			{Name: "wait", Weight: 5, Run: do("wait"), Observe: look("wait"), Waits: true, Deadline: time.Hour,
				Adoptable: []string{"Deploying"}, DeadlineClass: lifecycle.FailDeployTimeout},
			{Name: "never", Weight: 1, Run: do("never"), Skip: func(*state) string { return "not needed" }},
			{Name: "last", Weight: 1, Run: do("last"), Undo: do("undo-last"), VerifyUndo: left("last")},
		},
		Init:      func(s *state, raw []byte) error { return json.Unmarshal(raw, s) },
		Started:   func(*state) *contract.Move { return contract.NodeMove{To: lifecycle.NodeEnrolling}.Move() },
		Succeeded: func(*state) *contract.Move { return contract.NodeMove{To: lifecycle.NodeActive}.Move() },
		Blocked:   func(*state) *contract.Move { return contract.NodeMove{To: lifecycle.NodeQuarantined}.Move() },
		Cancelled: func(*state) *contract.Move { return contract.NodeMove{To: lifecycle.NodeQuarantined}.Move() },
		Reset:     func(s *state) { *s = state{Resets: s.Resets + 1} },
	}
}

func testJob(ctx workflow.Context, in contract.JobInput) (contract.JobResult, error) {
	return stage.Run(ctx, job(), in)
}

// fixture is the test job with the outside that its stages touch.
type fixture struct {
	*stagetest.Harness
	out *outside
	// callsAt is how many calls had been made outside when each step was stored.
	callsAt []int
}

func setup(t *testing.T) *fixture {
	t.Helper()
	b := &fixture{Harness: stagetest.New(t, testJob, contract.KindOnboarding, struct{}{})}
	b.newOutside()
	return b
}

// newOutside starts another run of the job with an outside of its own.
func (b *fixture) newOutside() {
	b.out = &outside{fail: map[string][]error{}, found: map[string]string{}, block: map[string]bool{}, left: map[string][]string{}}
	b.Store.OnProject = func(contract.Projection) { b.callsAt = append(b.callsAt, len(b.out.made(""))) }
	b.NewRun(b.out)
}

// waiting is the moment when a call waits outside; waiting-d is d later.
const waiting = time.Duration(-1)

// after runs f after a delay of virtual time, or of real time from waiting on.
func (b *fixture) after(d time.Duration, f func()) {
	if d >= 0 {
		b.After(d, f)
		return
	}
	b.out.mu.Lock()
	defer b.out.mu.Unlock()
	b.out.hooks = append(b.out.hooks, func() { b.After(waiting-d, f) })
}

// at sends an action at a time as after takes it.
func (b *fixture) at(d time.Duration, a lifecycle.Action, req contract.ActionRequest) *stagetest.Answer {
	got := &stagetest.Answer{}
	b.after(d, func() { b.Send(a, req, got) })
	return got
}

func times(n int, err error) []error { return slices.Repeat([]error{err}, n) }
