package stagetest

import (
	"crypto/ed25519"
	"encoding/json"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"

	"github.com/slipway-cloud/slipway/activities/projection"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/internal/temporalx"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// Harness runs the workflow of one job on its store, in Temporal's test environment. An
// environment runs a workflow once; NewRun replaces it.
type Harness struct {
	T     *testing.T
	Env   *testsuite.TestWorkflowEnvironment
	Store *Store
	In    contract.JobInput

	workflow any
}

// New returns the harness of a job that was accepted with a request and never projected. The
// activities are structs whose methods are registered.
func New(t *testing.T, workflow any, kind contract.JobKind, request any, activities ...any) *Harness {
	t.Helper()
	h := &Harness{
		T: t, Store: &Store{snap: contract.Snapshot{Status: lifecycle.JobPending}}, workflow: workflow,
		In: contract.JobInput{JobID: "job_1", Kind: kind, NodeID: "node_1", SiteID: "site_1", Hostname: "gpu-7"},
	}
	h.SetRequest(request)
	h.NewRun(activities...)
	return h
}

// runLimit is the real time that a workflow may take, and standstill how long a worker may be
// stopped by a loaded machine before Temporal calls it a deadlock.
const (
	runLimit   = 30 * time.Second
	standstill = time.Minute
)

// NewRun makes the environment for another run of the job on what the store holds.
func (h *Harness) NewRun(activities ...any) {
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	h.Env = suite.NewTestWorkflowEnvironment()
	h.Env.SetTestTimeout(runLimit)
	h.Env.SetWorkerOptions(worker.Options{DeadlockDetectionTimeout: standstill, Interceptors: []interceptor.WorkerInterceptor{&temporalx.Heartbeats{}}})
	h.Env.RegisterActivity(&projection.Activities{Store: h.Store, PublicURL: "https://slipway.example"})
	for _, a := range activities {
		h.Env.RegisterActivityWithOptions(a, activity.RegisterOptions{SkipInvalidStructFunctions: true})
	}
	h.Env.RegisterWorkflow(h.workflow)
}

// SetRequest replaces the request that the job was accepted with.
func (h *Harness) SetRequest(request any) {
	h.T.Helper()
	raw, err := json.Marshal(request)
	require.NoError(h.T, err)
	h.Store.Update(func(snap *contract.Snapshot) { snap.Input = raw })
}

// Execute runs the workflow to its end and returns the error that it ended with.
func (h *Harness) Execute() error {
	h.T.Helper()
	h.Env.ExecuteWorkflow(h.workflow, h.In)
	last := h.Store.Last()
	require.True(h.T, h.Env.IsWorkflowCompleted(), "last state %s at %s: %+v", last.Status, last.Stage, last.Failure)
	return h.Env.GetWorkflowError()
}

// Run runs the job to its end and returns its result.
func (h *Harness) Run() contract.JobResult {
	h.T.Helper()
	require.NoError(h.T, h.Execute())
	var res contract.JobResult
	require.NoError(h.T, h.Env.GetWorkflowResult(&res))
	return res
}

// RunUntil runs the job, and goes on as if the run had been lost after d: the store holds what was
// stored by then, and copyOutside, called at that moment, returns the activities of the next run.
func (h *Harness) RunUntil(d time.Duration, copyOutside func() []any) {
	h.T.Helper()
	var kept *Store
	var activities []any
	h.After(d, func() { kept, activities = h.Store.Clone(), copyOutside() })
	_ = h.Execute()
	require.NotNil(h.T, kept, "the job ended before its run was lost")
	h.Store = kept
	h.NewRun(activities...)
}

// Plan runs a plan workflow and returns the plan. The test fails when the plan wrote anything.
func (h *Harness) Plan(workflow, in any) contract.Plan {
	h.T.Helper()
	h.Env.ExecuteWorkflow(workflow, in)
	require.True(h.T, h.Env.IsWorkflowCompleted())
	require.NoError(h.T, h.Env.GetWorkflowError())
	require.Zero(h.T, h.Store.Taken(), "a plan takes no job up")
	require.Empty(h.T, h.Store.Steps(), "a plan projects nothing")
	var p contract.Plan
	require.NoError(h.T, h.Env.GetWorkflowResult(&p))
	return p
}

// After calls f after d of virtual time.
func (h *Harness) After(d time.Duration, f func()) { h.Env.RegisterDelayedCallback(f, d) }

// Answer is what the sender of an action was told. Rejected is the validator's refusal, Err the
// handler's or the same.
type Answer struct {
	Result        contract.ActionResult
	Rejected, Err error
}

// Act sends an action as an Update after d of virtual time.
func (h *Harness) Act(d time.Duration, a lifecycle.Action, req contract.ActionRequest) *Answer {
	got := &Answer{}
	h.After(d, func() { h.Send(a, req, got) })
	return got
}

// Sign returns a proof that the store takes for proven.
func Sign() *contract.ActionProof {
	return &contract.ActionProof{KeyID: TestKey, Nonce: "n", Signature: make([]byte, ed25519.SignatureSize)}
}

// Unsigned is the idempotency key of a request that Send leaves without a proof.
const Unsigned = "unsigned"

// Send sends an action now. The actor is "ops" where the request names none, and accept_risk is
// signed.
func (h *Harness) Send(a lifecycle.Action, req contract.ActionRequest, got *Answer) {
	if req.Actor == "" {
		req.Actor = "ops"
	}
	if req.AcceptRisk && req.Proof == nil && req.IdempotencyKey != Unsigned {
		req.Proof = Sign()
	}
	h.Env.UpdateWorkflow(string(a), "", &testsuite.TestUpdateCallback{
		OnAccept: func() {},
		OnReject: func(err error) { got.Rejected, got.Err = err, err },
		OnComplete: func(v any, err error) {
			got.Err = err
			if r, ok := v.(contract.ActionResult); ok {
				got.Result = r
			}
		},
	}, req)
}

// LastAt returns the projection that is the newest after d of virtual time. It is filled in then.
func (h *Harness) LastAt(d time.Duration) *contract.Projection {
	p := new(contract.Projection)
	h.After(d, func() { *p = h.Store.Last() })
	return p
}

// Failure returns the error of an activity that failed with a class and is not to be repeated.
func Failure(class lifecycle.FailureClass) error { return FailureSaying(class, "it broke") }

// FailureSaying is Failure with a message.
func FailureSaying(class lifecycle.FailureClass, message string) error {
	return temporal.NewApplicationErrorWithOptions(message, string(class), temporal.ApplicationErrorOptions{NonRetryable: true})
}

// Row returns the row of a stage of a plan.
func Row(t *testing.T, p contract.Plan, stage string) contract.PlanRow {
	t.Helper()
	for _, r := range p.Rows {
		if r.Stage == stage {
			return r
		}
	}
	require.Fail(t, "the plan has no row", stage)
	return contract.PlanRow{}
}
