package bmcrotation_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	bmcact "github.com/slipway-cloud/slipway/activities/bmc"
	maasact "github.com/slipway-cloud/slipway/activities/maas"
	"github.com/slipway-cloud/slipway/activities/projection"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/bmcrotation"
	"github.com/slipway-cloud/slipway/workflows/contract"
)

// memory is the store: it refuses what the database refuses.
type memory struct {
	mu    sync.Mutex
	snap  contract.Snapshot
	last  contract.Projection
	audit []contract.ActionEntry
	moves int
}

func (m *memory) LoadJob(context.Context, contract.JobInput) (contract.Snapshot, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.snap, nil
}

func (m *memory) TakeJob(ctx context.Context, in contract.JobInput) (contract.Snapshot, error) {
	return m.LoadJob(ctx, in)
}

func (m *memory) ProjectJob(_ context.Context, p contract.Projection) (contract.ProjectResult, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p.Status != m.snap.Status {
		if _, err := lifecycle.JobTransition(m.snap.Status, p.Status); err != nil {
			return contract.ProjectResult{}, err
		}
	}
	m.last = p
	m.snap = contract.Snapshot{
		Seq: p.Seq, Status: p.Status, Stage: p.Stage, Failure: p.Failure, Stages: p.Stages, Reached: p.Reached,
		Frozen: p.Frozen, Adopted: p.Adopted, Checkpoint: p.Checkpoint, Input: m.snap.Input,
	}
	m.audit = append(m.audit, p.Actions...)
	if p.Node != nil {
		m.moves++
	}
	return contract.ProjectResult{Applied: true, StoredSeq: p.Seq}, nil
}

// rack is a BMC, what Slipway has stored of its logins, and what MAAS holds.
type rack struct {
	mu                   sync.Mutex
	current, candidate   string // stored slots, by reference
	onBMC, inMAAS        string // whose password each has
	calls                []string
	fail                 map[string][]error
	wrongInMAAS, noLogin bool // at some moment; see safe
	lies                 int  // undos that do nothing and say that they did
}

// note keeps a call, answers with the next failure of that name, and looks
// whether the two slots still hold what the BMC takes.
func (r *rack) note(name string) error {
	r.calls = append(r.calls, name)
	r.noLogin = r.noLogin || r.onBMC != r.current && r.onBMC != r.candidate
	if q := r.fail[name]; len(q) > 0 {
		r.fail[name] = q[1:]
		return q[0]
	}
	return nil
}

func (r *rack) does(name string, effect func()) (contract.RotationFacts, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.note(name); err != nil {
		return contract.RotationFacts{}, err
	}
	effect()
	return contract.RotationFacts{CurrentRef: r.current, CandidateRef: r.candidate, Committed: r.current == "bmc/new"}, nil
}

func (r *rack) PrepareRotation(context.Context, bmcact.RotateIn) (contract.RotationFacts, error) {
	return r.does("prepare", func() {
		if r.current != "bmc/new" {
			r.candidate = "bmc/new"
		}
	})
}

func (r *rack) ApplyRotation(context.Context, bmcact.RotateIn) (contract.RotationFacts, error) {
	return r.does("apply", func() { r.onBMC = "bmc/new" })
}

func (r *rack) VerifyRotation(context.Context, bmcact.RotateIn) (contract.RotationFacts, error) {
	return r.does("verify", func() {})
}

func (r *rack) CommitRotation(context.Context, bmcact.RotateIn) (contract.RotationFacts, error) {
	return r.does("commit", func() { r.current, r.candidate = "bmc/new", "" })
}

func (r *rack) UndoRotation(context.Context, bmcact.RotateIn) (contract.RotationFacts, error) {
	return r.does("undo", func() {
		if r.lies > 0 { // it says that it is done
			r.lies--
			return
		}
		r.current, r.candidate = r.onBMC, ""
	})
}

func (r *rack) CheckRotationEnded(context.Context, bmcact.RotateIn) (contract.RotationFacts, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, "check")
	if r.candidate != "" {
		return contract.RotationFacts{Note: "the candidate " + r.candidate + " is left"}, nil
	}
	return contract.RotationFacts{Undone: true}, nil
}

func (r *rack) UpdatePowerLogin(_ context.Context, in maasact.PowerLoginIn) (contract.MachineFacts, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if in.ObserveOnly {
		r.calls = append(r.calls, "look")
		return contract.MachineFacts{Done: r.inMAAS == in.CredentialRef, Status: "outdated"}, nil
	}
	if err := r.note("maas:" + in.CredentialRef); err != nil {
		return contract.MachineFacts{}, err
	}
	r.wrongInMAAS = r.wrongInMAAS || in.CredentialRef != r.onBMC
	r.inMAAS = in.CredentialRef
	return contract.MachineFacts{Done: true, Status: "current", Power: "on"}, nil
}

// bundle is one test's world.
type bundle struct {
	t     *testing.T
	env   *testsuite.TestWorkflowEnvironment
	store *memory
	rack  *rack
	in    contract.JobInput
}

func setup(t *testing.T) *bundle {
	t.Helper()
	input, err := json.Marshal(contract.BMCRotationInput{BMCID: "bmc_1", Hostname: "gpu-1"})
	require.NoError(t, err)
	b := &bundle{
		t:     t,
		store: &memory{snap: contract.Snapshot{Status: lifecycle.JobPending, Input: input}},
		rack:  &rack{current: "bmc/old", onBMC: "bmc/old", inMAAS: "bmc/old", fail: map[string][]error{}},
		in:    contract.JobInput{JobID: "job_1", Kind: contract.KindBMCRotation, NodeID: "node_1", SiteID: "site_1"},
	}
	b.anew()
	return b
}

// anew is another run of the same job.
func (b *bundle) anew() {
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	b.env = suite.NewTestWorkflowEnvironment()
	b.env.SetTestTimeout(20 * time.Second)
	b.env.RegisterActivity(&projection.Activities{Store: b.store})
	b.env.RegisterActivity(b.rack)
	b.env.RegisterWorkflow(bmcrotation.Rotate)
}

// run executes the job to its end.
func (b *bundle) run() lifecycle.JobStatus {
	b.t.Helper()
	b.env.ExecuteWorkflow(bmcrotation.Rotate, b.in)
	require.True(b.t, b.env.IsWorkflowCompleted(), "last state %s at %s", b.store.last.Status, b.store.last.Stage)
	require.NoError(b.t, b.env.GetWorkflowError())
	var res contract.JobResult
	require.NoError(b.t, b.env.GetWorkflowResult(&res))
	return res.Status
}

// lost runs the job until it is parked and forgets that run: what is stored and
// what is outside are as they were.
func (b *bundle) lost() {
	b.t.Helper()
	store, out := &memory{}, &rack{fail: map[string][]error{}}
	b.env.RegisterDelayedCallback(func() {
		store.snap, store.last = b.store.snap, b.store.last
		out.current, out.candidate, out.onBMC, out.inMAAS = b.rack.current, b.rack.candidate, b.rack.onBMC, b.rack.inMAAS
	}, 30*time.Minute)
	b.at(time.Hour, lifecycle.ActionCancel, false)
	b.run()
	require.True(b.t, store.snap.Status.Parked())
	b.store, b.rack = store, out
	b.anew()
}

// at sends an action after a delay of virtual time; its refusal is kept.
func (b *bundle) at(d time.Duration, a lifecycle.Action, risk bool) *error {
	refused := new(error)
	ask := contract.ActionRequest{Actor: "ops", Reason: "test", AcceptRisk: risk}
	b.env.RegisterDelayedCallback(func() {
		b.env.UpdateWorkflow(string(a), "", &testsuite.TestUpdateCallback{
			OnAccept: func() {}, OnReject: func(err error) { *refused = err },
			OnComplete: func(_ any, err error) {
				if err != nil {
					*refused = err
				}
			},
		}, ask)
	}, d)
	return refused
}

// parked is the projection seen after d.
func (b *bundle) parked(d time.Duration) *contract.Projection {
	p := new(contract.Projection)
	b.env.RegisterDelayedCallback(func() {
		b.store.mu.Lock()
		defer b.store.mu.Unlock()
		*p = b.store.last
	}, d)
	return p
}

func failure(c lifecycle.FailureClass) error {
	return temporal.NewApplicationErrorWithOptions("it broke", string(c), temporal.ApplicationErrorOptions{NonRetryable: true})
}

// safe checks what must hold whatever happened: a stored login that works, and
// MAAS never given one that does not.
func (b *bundle) safe() {
	b.t.Helper()
	require.False(b.t, b.rack.noLogin, "at some moment no stored login was the BMC's")
	require.False(b.t, b.rack.wrongInMAAS, "MAAS was given a login that the BMC did not take")
	require.Zero(b.t, b.store.moves, "the node's state is none of a rotation's business")
}

func (b *bundle) made(names ...string) []string {
	var out []string
	for _, c := range b.rack.calls {
		if slices.Contains(names, c) {
			out = append(out, c)
		}
	}
	return out
}
