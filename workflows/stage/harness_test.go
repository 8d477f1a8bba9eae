package stage_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/slipway-cloud/slipway/activities/projection"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/contract"
	"github.com/slipway-cloud/slipway/workflows/stage"
)

// memory is the store: it refuses what the database refuses.
type memory struct {
	mu      sync.Mutex
	snap    contract.Snapshot
	last    contract.Projection
	moves   []contract.NodeMove
	audit   []contract.ActionEntry
	steps   []step
	outside *outside
	states  []lifecycle.JobStatus
	writes  int
	failing int // so many writes fail first
	unread  int // so many reads fail first
	beaten  int // so many writes find that another run was faster
	refuse  func(contract.Projection) error
}

// step is a projection as it was stored, and how much had been done outside.
type step struct {
	contract.Projection
	calls int
}

// auditedBy finds the audit rows of one person with the steps that stored them.
func (m *memory) auditedBy(actor string) (entries []contract.ActionEntry, at []int) {
	for i, s := range m.steps {
		for _, e := range s.Actions {
			if e.Actor == actor {
				entries, at = append(entries, e), append(at, i)
			}
		}
	}
	return entries, at
}

func (m *memory) LoadJob(context.Context, contract.JobInput) (contract.Snapshot, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.unread > 0 {
		m.unread--
		return contract.Snapshot{}, errors.New("database away")
	}
	return m.snap, nil
}

func (m *memory) TakeJob(ctx context.Context, in contract.JobInput) (contract.Snapshot, error) {
	return m.LoadJob(ctx, in)
}

func (m *memory) ProjectJob(_ context.Context, p contract.Projection) (contract.ProjectResult, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.failing > 0 {
		m.failing--
		return contract.ProjectResult{}, errors.New("database away")
	}
	if m.refuse != nil {
		if err := m.refuse(p); err != nil {
			return contract.ProjectResult{}, err
		}
	}
	if m.beaten > 0 {
		m.beaten--
		m.snap.Seq = p.Seq + 1
	}
	if p.Seq <= m.snap.Seq {
		return contract.ProjectResult{StoredSeq: m.snap.Seq}, nil
	}
	if p.Status != m.snap.Status {
		if _, err := lifecycle.JobTransition(m.snap.Status, p.Status); err != nil {
			return contract.ProjectResult{}, err
		}
		m.states = append(m.states, p.Status)
	}
	m.writes++
	m.last = p
	m.snap = contract.Snapshot{
		Seq: p.Seq, Status: p.Status, Stage: p.Stage, Failure: p.Failure, Stages: p.Stages, Reached: p.Reached,
		Frozen: p.Frozen, Adopted: p.Adopted, Checkpoint: p.Checkpoint, Input: m.snap.Input,
	}
	if p.Node != nil {
		m.moves = append(m.moves, *p.Node)
	}
	m.audit = append(m.audit, p.Actions...)
	m.steps = append(m.steps, step{p, len(m.outside.made(""))})
	return contract.ProjectResult{Applied: true, StoredSeq: p.Seq}, nil
}

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
		return "", failure(lifecycle.FailMAASUnavailable)
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
			{Name: "one", Weight: 1, Run: do("one"), Observe: look("one"), Undo: do("undo-one"), Remains: left("one")},
			{Name: "two", Weight: 2, Run: do("two"), Observe: look("two"), Undo: do("undo-two"), Remains: left("two")},
			{Name: "wait", Weight: 5, Run: do("wait"), Observe: look("wait"), Waits: true, Deadline: time.Hour,
				Adoptable: []string{"Deploying"}, DeadlineClass: lifecycle.FailDeployTimeout},
			{Name: "never", Weight: 1, Run: do("never"), Skip: func(*state) string { return "not needed" }},
			{Name: "last", Weight: 1, Run: do("last"), Undo: do("undo-last"), Remains: left("last")},
		},
		Init:      func(s *state, raw []byte) error { return json.Unmarshal(raw, s) },
		Started:   func(*state) *contract.NodeMove { return &contract.NodeMove{To: lifecycle.NodeEnrolling} },
		Succeeded: func(*state) *contract.NodeMove { return &contract.NodeMove{To: lifecycle.NodeActive} },
		Blocked:   func(*state) *contract.NodeMove { return &contract.NodeMove{To: lifecycle.NodeQuarantined} },
		Cancelled: func(*state) *contract.NodeMove { return &contract.NodeMove{To: lifecycle.NodeQuarantined} },
		Reset:     func(s *state) { *s = state{Resets: s.Resets + 1} },
	}
}

func testJob(ctx workflow.Context, in contract.JobInput) (contract.JobResult, error) {
	return stage.Run(ctx, job(), in)
}

// bundle is one test's world.
type bundle struct {
	env   *testsuite.TestWorkflowEnvironment
	store *memory
	out   *outside
}

func setup(t *testing.T) *bundle {
	t.Helper()
	return setupOn(t, &memory{snap: contract.Snapshot{Status: lifecycle.JobPending, Input: []byte(`{}`)}})
}

// setupOn is another run of a job that left its state in store.
func setupOn(t *testing.T, store *memory) *bundle {
	t.Helper()
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	b := &bundle{
		env:   suite.NewTestWorkflowEnvironment(),
		store: store,
		out:   &outside{fail: map[string][]error{}, found: map[string]string{}, block: map[string]bool{}, left: map[string][]string{}},
	}
	b.store.outside = b.out
	b.env.SetTestTimeout(20 * time.Second)
	b.env.RegisterActivity(&projection.Activities{Store: b.store})
	b.env.RegisterActivity(b.out)
	b.env.RegisterWorkflow(testJob)
	return b
}

var input = contract.JobInput{JobID: "job_1", Kind: contract.KindOnboarding, NodeID: "node_1", SiteID: "site_1"}

// run executes the job to its end.
func (b *bundle) run(t *testing.T) contract.JobResult {
	t.Helper()
	b.env.ExecuteWorkflow(testJob, input)
	require.True(t, b.env.IsWorkflowCompleted(), "last state %s at %s", b.store.last.Status, b.store.last.Stage)
	require.NoError(t, b.env.GetWorkflowError())
	var res contract.JobResult
	require.NoError(t, b.env.GetWorkflowResult(&res))
	return res
}

// answer is what an update came to.
type answer struct {
	result   contract.ActionResult
	rejected error
	err      error
}

// waiting is the moment when a call waits outside; waiting-d is d later.
const waiting = time.Duration(-1)

// after runs f after a delay of virtual time, or of real time from waiting on.
func (b *bundle) after(d time.Duration, f func()) {
	if d >= 0 {
		b.env.RegisterDelayedCallback(f, d)
		return
	}
	b.out.mu.Lock()
	defer b.out.mu.Unlock()
	b.out.hooks = append(b.out.hooks, func() { b.env.RegisterDelayedCallback(f, waiting-d) })
}

// at sends an action at a time as after takes it.
func (b *bundle) at(d time.Duration, a lifecycle.Action, ask contract.ActionRequest) *answer {
	got := &answer{}
	if ask.Actor == "" {
		ask.Actor = "ops"
	}
	b.after(d, func() {
		b.env.UpdateWorkflow(string(a), "", &testsuite.TestUpdateCallback{
			OnAccept: func() {},
			OnReject: func(err error) { got.rejected = err },
			OnComplete: func(v any, err error) {
				got.err = err
				if r, ok := v.(contract.ActionResult); ok {
					got.result = r
				}
			},
		}, ask)
	})
	return got
}

func failure(c lifecycle.FailureClass) error { return failureSaying(c, "it broke") }

func failureSaying(c lifecycle.FailureClass, msg string) error {
	return temporal.NewApplicationErrorWithOptions(msg, string(c), temporal.ApplicationErrorOptions{NonRetryable: true})
}

func times(n int, err error) []error {
	out := make([]error, n)
	for i := range out {
		out[i] = err
	}
	return out
}
