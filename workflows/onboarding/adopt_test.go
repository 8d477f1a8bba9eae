package onboarding

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/testsuite"

	bmcact "github.com/slipway-cloud/slipway/activities/bmc"
	maasact "github.com/slipway-cloud/slipway/activities/maas"
	nodeact "github.com/slipway-cloud/slipway/activities/node"
	"github.com/slipway-cloud/slipway/activities/projection"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/workflows/contract"
)

// parked is a job that waits for a person at one stage, over an outside that
// answers every activity: with what the test set, or with a plain success.
type parked struct {
	env    *testsuite.TestWorkflowEnvironment
	mu     sync.Mutex
	snap   contract.Snapshot
	steps  []contract.Projection
	calls  []string
	answer map[string]func() (any, error) // by activity
}

func (p *parked) LoadJob(context.Context, contract.JobInput) (contract.Snapshot, error) {
	return p.snap, nil
}

func (p *parked) TakeJob(context.Context, contract.JobInput) (contract.Snapshot, error) {
	return p.snap, nil
}

func (p *parked) ProjectJob(_ context.Context, s contract.Projection) (contract.ProjectResult, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.steps = append(p.steps, s)
	return contract.ProjectResult{Applied: true, StoredSeq: s.Seq}, nil
}

func parkedAt(t *testing.T, name string, s State) *parked {
	t.Helper()
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	p := &parked{env: suite.NewTestWorkflowEnvironment(), answer: map[string]func() (any, error){}}
	s.Job = contract.JobRef{JobID: "job_1", NodeID: "node_1", SiteID: "site_1"}
	s.Request = contract.OnboardingInput{SiteID: "site_1", Hostname: "gpu-1"}
	cp, err := json.Marshal(map[string]any{"state": s})
	require.NoError(t, err)
	p.snap = contract.Snapshot{
		Seq: 7, Status: lifecycle.JobFailedManual, Stage: name, Checkpoint: cp,
		Failure: &contract.Failure{Class: lifecycle.FailStateDisagreement, Stage: name, Message: "look"},
	}
	for i, st := range stages() {
		row := contract.StageRow{Ordinal: i + 1, Name: st.Name, State: contract.StageSucceeded, Attempts: 1}
		p.snap.Stages = append(p.snap.Stages, row)
		if st.Name == name {
			break
		}
	}
	p.env.RegisterActivity(&projection.Activities{Store: p})
	for _, all := range []any{&maasact.Activities{}, &bmcact.Activities{}, &nodeact.Activities{}} {
		p.fakeAll(reflect.TypeOf(all))
	}
	p.env.RegisterWorkflow(Onboard)
	p.env.SetTestTimeout(20 * time.Second)
	return p
}

// fakeAll registers every activity of a struct under its name, with its types.
func (p *parked) fakeAll(of reflect.Type) {
	for m := range of.Methods() {
		if m.Type.NumIn() != 3 || m.Type.NumOut() != 2 {
			continue
		}
		typ := reflect.FuncOf([]reflect.Type{m.Type.In(1), m.Type.In(2)}, []reflect.Type{m.Type.Out(0), m.Type.Out(1)}, false)
		fake := reflect.MakeFunc(typ, func([]reflect.Value) []reflect.Value {
			out, err := p.answered(m.Name, m.Type.Out(0))
			failed := reflect.New(m.Type.Out(1)).Elem()
			if err != nil {
				failed.Set(reflect.ValueOf(err))
			}
			return []reflect.Value{out, failed}
		})
		p.env.RegisterActivityWithOptions(fake.Interface(), activity.RegisterOptions{Name: m.Name})
	}
}

func (p *parked) answered(name string, typ reflect.Type) (reflect.Value, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = append(p.calls, name)
	out := reflect.New(typ).Elem()
	if say := p.answer[name]; say != nil {
		v, err := say()
		if v != nil {
			out.Set(reflect.ValueOf(v))
		}
		return out, err
	}
	if done := reflect.Indirect(out); done.Kind() == reflect.Struct && done.FieldByName("Done").IsValid() {
		done.FieldByName("Done").SetBool(true)
	}
	return out, nil
}

// asks has a person act, calls the job off afterwards and returns what the
// person was told and the step that stored it.
func (p *parked) asks(t *testing.T, a lifecycle.Action, ask contract.ActionRequest) (*contract.Projection, error) {
	t.Helper()
	ask.Actor = "anna"
	var told error
	act := func(d time.Duration, a lifecycle.Action, ask contract.ActionRequest, done func(error)) {
		p.env.RegisterDelayedCallback(func() {
			p.env.UpdateWorkflow(string(a), "", &testsuite.TestUpdateCallback{
				OnAccept: func() {}, OnReject: done, OnComplete: func(_ any, err error) { done(err) },
			}, ask)
		}, d)
	}
	act(time.Minute, a, ask, func(err error) { told = err })
	act(1000*time.Hour, lifecycle.ActionCancel, contract.ActionRequest{Actor: "end"}, func(error) {})
	p.env.ExecuteWorkflow(Onboard, contract.JobInput{JobID: "job_1", Kind: contract.KindOnboarding, NodeID: "node_1", SiteID: "site_1"})
	require.True(t, p.env.IsWorkflowCompleted())
	for _, s := range p.steps {
		if slices.ContainsFunc(s.Actions, func(e contract.ActionEntry) bool { return e.Actor == "anna" }) {
			return &s, told
		}
	}
	require.Fail(t, "the action left no audit row")
	return nil, told
}

// pair is a stage and what is observed at it. A done one is the stage's own
// outcome; a listed one is named as adoptable.
type pair struct {
	stage, state string
	foreign      bool // the machine does not carry this job's mark
	done         bool // what the stage's own activity says of its outcome
	adopted      bool
}

// pairs is the list as it is meant, written down apart from the stages' table.
var pairs = []pair{
	{contract.StageCommission, "Commissioning", false, false, true}, {contract.StageCommission, "Testing", false, false, true},
	{contract.StageCommission, "Ready", false, false, true}, {contract.StageCommission, "Allocated", false, false, true},
	{contract.StageCommission, "Deploying", false, false, true}, {contract.StageCommission, "Deployed", false, false, true},
	{contract.StageCommission, "New", false, false, false}, {contract.StageCommission, "Failed commissioning", false, false, false},
	{contract.StageCommission, "Broken", false, false, false}, {contract.StageCommission, "absent", false, false, false},

	{contract.StageWaitReady, "Ready", false, false, true}, {contract.StageWaitReady, "Allocated", false, false, true},
	{contract.StageWaitReady, "Deploying", false, false, true}, {contract.StageWaitReady, "Deployed", false, false, true},
	{contract.StageWaitReady, "Commissioning", false, false, false}, {contract.StageWaitReady, "Failed testing", false, false, false},

	{contract.StageConfigureStorage, "Ready", false, true, true}, {contract.StageConfigureStorage, "Ready", false, false, false},
	{contract.StageApplyRoCE, "Ready", false, true, true}, {contract.StageApplyRoCE, "Ready", false, false, false},
	{contract.StageEnsurePXE, "Ready", false, true, true}, {contract.StageEnsurePXE, "Ready", false, false, false},

	{contract.StageDeploy, "Deployed", false, true, true}, {contract.StageDeploy, "Deploying", false, false, true},
	{contract.StageDeploy, "Deployed", true, false, false}, {contract.StageDeploy, "Ready", false, false, false},
	{contract.StageDeploy, "Failed deployment", false, false, false},

	{contract.StageWaitDeployed, "Deployed", false, false, true}, {contract.StageWaitDeployed, "Deployed", true, false, false},
	{contract.StageWaitDeployed, "Deploying", false, false, false}, {contract.StageWaitDeployed, "Failed deployment", false, false, false},

	{contract.StageWaitHWSync, "Deployed", false, true, true}, {contract.StageWaitHWSync, "Deployed", false, false, false},
}

// lookingFor is the activity by which a stage observes.
var lookingFor = map[string]string{
	contract.StageCommission: "ObserveMachine", contract.StageWaitReady: "ObserveMachine", contract.StageConfigureStorage: "ConfigureStorage",
	contract.StageApplyRoCE: "ApplyRoCE", contract.StageEnsurePXE: "EnsurePXEInterfaceAuto", contract.StageDeploy: "DeployMachine",
	contract.StageWaitDeployed: "ObserveMachine", contract.StageWaitHWSync: "WaitForHardwareSync",
}

func (c pair) job(t *testing.T) *parked {
	t.Helper()
	p := parkedAt(t, c.stage, State{
		Machine: contract.MachineFacts{SystemID: "abc", Status: "Ready"},
		Site:    contract.SiteFacts{Profile: spec.ProfileSpec{RequireHWSync: true, EnablePhase2RoCE: true}.WithDefaults()},
	})
	first := true
	p.answer[lookingFor[c.stage]] = func() (any, error) {
		f := contract.MachineFacts{SystemID: "abc", Status: c.state, Foreign: c.foreign, Done: c.done || !first}
		first = false
		return f, nil
	}
	return p
}

// TestEveryPairOfStageAndObservedState: the listed are adopted, any other is
// refused with the pair named, and a person may still accept it with a reason.
func TestEveryPairOfStageAndObservedState(t *testing.T) {
	t.Parallel()
	unlisted := map[string]bool{}
	for _, c := range pairs {
		unlisted[c.stage] = unlisted[c.stage] || !c.adopted
		t.Run(fmt.Sprintf("%s/%s/foreign=%v/done=%v", c.stage, c.state, c.foreign, c.done), func(t *testing.T) {
			t.Parallel()
			step, err := c.job(t).asks(t, lifecycle.ActionAdopt, contract.ActionRequest{Reason: "seen"})
			at := slices.Index(contract.OnboardingStages, c.stage)
			if c.adopted {
				require.NoError(t, err)
				require.Equal(t, lifecycle.JobRunning, step.Status)
				require.True(t, step.Adopted)
				require.Equal(t, contract.StageAdopted, step.Stages[at].State)
				require.Equal(t, "adopted: "+c.state, step.Stages[at].Message)
				require.Equal(t, at+2, step.StageOrdinal)
				return
			}
			refused, ok := contract.RefusalOf(err)
			require.True(t, ok, "%v", err)
			require.Contains(t, refused.Reason, fmt.Sprintf("(%s, %s) is not a pair that may be adopted", c.stage, c.state))
			require.Equal(t, lifecycle.JobFailedManual, step.Status)
			require.Equal(t, lifecycle.EffectRefuse, step.Actions[0].Effect)
			require.False(t, step.Adopted)

			step, err = c.job(t).asks(t, lifecycle.ActionAdopt, contract.ActionRequest{Reason: "I stand in front of it", AcceptRisk: true})
			require.NoError(t, err)
			require.Equal(t, contract.StageAdopted, step.Stages[at].State)
			require.Equal(t, "I stand in front of it", step.Actions[0].Reason)
		})
	}
	for _, st := range stages() {
		require.Equal(t, st.Observe != nil, unlisted[st.Name], "%s: an unlisted pair for each stage that observes", st.Name)
		for _, state := range st.Adoptable {
			require.True(t, slices.ContainsFunc(pairs, func(c pair) bool { return c.stage == st.Name && c.state == state && c.adopted && !c.done }), state)
		}
	}
}

// TestAStageThatObservesNothingIsNotAdopted, at whatever risk.
func TestAStageThatObservesNothingIsNotAdopted(t *testing.T) {
	t.Parallel()
	for _, st := range stages() {
		if st.Observe != nil {
			continue
		}
		t.Run(st.Name, func(t *testing.T) {
			t.Parallel()
			p := parkedAt(t, st.Name, State{})
			step, err := p.asks(t, lifecycle.ActionAdopt, contract.ActionRequest{Reason: "sure", AcceptRisk: true})
			require.ErrorContains(t, err, "stage "+st.Name+" has no outside state to observe")
			require.Equal(t, lifecycle.JobFailedManual, step.Status)
		})
	}
}

// TestAnOutsideThatCannotBeSeenIsNotAdopted.
func TestAnOutsideThatCannotBeSeenIsNotAdopted(t *testing.T) {
	t.Parallel()
	p := parkedAt(t, contract.StageWaitReady, State{Machine: contract.MachineFacts{SystemID: "abc"}})
	p.answer["ObserveMachine"] = func() (any, error) { return nil, unavailable() }
	_, err := p.asks(t, lifecycle.ActionAdopt, contract.ActionRequest{Reason: "sure", AcceptRisk: true})
	require.ErrorContains(t, err, "the outside could not be observed: MAAS is away")
}
