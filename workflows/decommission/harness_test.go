package decommission_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"

	"github.com/slipway-cloud/slipway/activities/agenttask"
	bmcact "github.com/slipway-cloud/slipway/activities/bmc"
	evidenceact "github.com/slipway-cloud/slipway/activities/evidence"
	maasact "github.com/slipway-cloud/slipway/activities/maas"
	nodeact "github.com/slipway-cloud/slipway/activities/node"
	nodestateact "github.com/slipway-cloud/slipway/activities/nodestate"
	"github.com/slipway-cloud/slipway/activities/projection"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/workflows/contract"
	"github.com/slipway-cloud/slipway/workflows/decommission"
)

// memory is a projection store that also moves the node as the database does.
type memory struct {
	mu   sync.Mutex
	snap contract.Snapshot
	last contract.Projection
	out  *site
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
	if p.Node != nil {
		if err := m.out.follow(*p.Node); err != nil {
			return contract.ProjectResult{}, temporal.NewNonRetryableApplicationError(err.Error(), string(lifecycle.FailStateDisagreement), err)
		}
	}
	m.last = p
	m.snap = contract.Snapshot{
		Seq: p.Seq, Status: p.Status, Stage: p.Stage, Failure: p.Failure, Stages: p.Stages, Reached: p.Reached,
		Frozen: p.Frozen, Adopted: p.Adopted, Checkpoint: p.Checkpoint, Input: m.snap.Input,
	}
	return contract.ProjectResult{Applied: true, StoredSeq: p.Seq}, nil
}

// site is everything outside: the node's record, its agent, MAAS, the BMC.
type site struct {
	mu        sync.Mutex
	lifecycle string
	facts     contract.LeavingFacts
	machine   string // in MAAS
	ours      bool   // deployed by this job
	power     string
	calls     []string
	states    []lifecycle.NodeStatus
	fail      map[string][]error
	done      map[string]bool // tasks that succeeded
	erased    bool
	// unproven is what the next certificates say.
	unproven []string
	certs    int
	outcome  contract.DeployOutcome
	dark     string // as the last certificate was told
	known    []lifecycle.DeviceResult
	net      network
}

func (w *site) follow(m contract.NodeMove) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	path := lifecycle.NodePath(w.lifecycle, w.facts.Status, m.To, m.Via, m.Owner)
	if len(path) == 0 {
		if m.Soft {
			return nil
		}
		return &lifecycle.IllegalTransitionError{Resource: "node", From: string(w.facts.Status), To: string(m.To)}
	}
	for _, to := range path {
		if edge, ok := lifecycle.NodeEdge(w.lifecycle, w.facts.Status, to, m.Owner); ok {
			machine, _ := lifecycle.NodeMachine(w.lifecycle)
			if err := machine.Check(edge, w.facts.Status, m.Owner, m.Proof); err != nil {
				return err
			}
			w.states = append(w.states, to)
		}
		w.facts.Status = to
	}
	return nil
}

// does notes a call and answers with the next failure of that name, or does it.
func does[O any](w *site, name string, effect func() O) (O, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = append(w.calls, name)
	if q := w.fail[name]; len(q) > 0 {
		w.fail[name] = q[1:]
		var none O
		return none, q[0]
	}
	return effect(), nil
}

// looks are calls that change nothing and are not noted.
func looks[O any](w *site, effect func() O) (O, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return effect(), nil
}

func (w *site) ReadNodeFacts(context.Context, contract.JobRef) (contract.LeavingFacts, error) {
	return looks(w, func() contract.LeavingFacts { return w.facts })
}

func (w *site) LoadNodeConfig(context.Context, maasact.NodeConfigIn) (contract.LeavingConfig, error) {
	return does(w, "config", func() contract.LeavingConfig {
		return contract.LeavingConfig{KeepUsers: []string{"ubuntu"}, KeepKeys: []string{"ssh-ed25519 AAAA"}, ProfileID: "prof_1", SKUID: "sku_1"}
	})
}

func (w *site) RunTask(_ context.Context, in agenttask.RunTaskIn) (lifecycle.TaskResult, error) {
	key := in.Stage + "/" + string(in.Kind)
	if in.ObserveOnly {
		return looks(w, func() lifecycle.TaskResult { return lifecycle.TaskResult{OK: w.done[key], BootID: "boot-1"} })
	}
	return does(w, string(in.Kind), func() lifecycle.TaskResult {
		w.done[key] = true
		return lifecycle.TaskResult{OK: true, BootID: w.facts.BootID}
	})
}

func (w *site) RevokeTasks(context.Context, agenttask.RevokeTasksIn) (agenttask.RevokeTasksOut, error) {
	return does(w, "withdraw", func() agenttask.RevokeTasksOut { return agenttask.RevokeTasksOut{} })
}

func (w *site) WaitForTasks(context.Context, agenttask.WaitForTasksIn) (agenttask.TasksDone, error) {
	return looks(w, func() agenttask.TasksDone { return agenttask.TasksDone{Done: true} })
}

func (w *site) CheckNothingErased(context.Context, contract.JobRef) (agenttask.TasksDone, error) {
	return looks(w, func() agenttask.TasksDone {
		return agenttask.TasksDone{Done: !slices.Contains(w.calls, "gpu.scrub")}
	})
}

// vacate ends the allocation as the database does.
func (w *site) vacate() {
	left := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	w.facts.AllocationID, w.facts.TenantLeft = "", &left
}

func (w *site) EndAllocation(context.Context, nodestateact.AllocationIn) (contract.LeavingFacts, error) {
	if _, err := looks(w, func() int { w.vacate(); return 0 }); err != nil { // a failure of it is an answer that was lost
		return contract.LeavingFacts{}, err
	}
	return does(w, "free", func() contract.LeavingFacts { return w.facts })
}

func (w *site) WaitForAllocationEnd(context.Context, nodestateact.AllocationIn) (contract.LeavingFacts, error) {
	return does(w, "vacancy", func() contract.LeavingFacts { w.vacate(); return w.facts })
}

func (w *site) WaitForNewBoot(context.Context, nodestateact.NewBootIn) (contract.LeavingFacts, error) {
	return does(w, "fresh", func() contract.LeavingFacts { w.facts.BootID = "boot-2"; return w.facts })
}

func (w *site) MoveNode(_ context.Context, in nodestateact.MoveIn) (contract.LeavingFacts, error) {
	err := w.follow(contract.NodeMove{To: in.To, Owner: in.Owner, Proof: in.Proof})
	if err != nil {
		return contract.LeavingFacts{}, failure(lifecycle.FailStateDisagreement)
	}
	return does(w, "move:"+string(in.To), func() contract.LeavingFacts { return w.facts })
}

func (w *site) CertifyNode(_ context.Context, in evidenceact.CertifyIn) (contract.CertificateFacts, error) {
	return does(w, "certify", func() contract.CertificateFacts {
		w.certs++
		w.dark, w.known = in.AgentUnreachable, in.InitialDisks
		if len(w.unproven) == 0 {
			w.facts.TenantLeft = nil
		}
		return contract.CertificateFacts{CertificateID: "cert_1", Verdict: "clean", Unproven: w.unproven}
	})
}

func (w *site) RevokeIdentity(context.Context, contract.JobRef) (contract.LeavingFacts, error) {
	return does(w, "identity", func() contract.LeavingFacts { return contract.LeavingFacts{Done: true} })
}

func (w *site) CheckIdentityRevoked(context.Context, contract.JobRef) (contract.LeavingFacts, error) {
	return looks(w, func() contract.LeavingFacts {
		return contract.LeavingFacts{Done: slices.Contains(w.calls, "identity")}
	})
}

func (w *site) DeleteNodeSecrets(context.Context, contract.JobRef) (contract.LeavingFacts, error) {
	return does(w, "secrets", func() contract.LeavingFacts { w.facts.BMCID = ""; return contract.LeavingFacts{Done: true} })
}

func (w *site) powered(name, want string, observe bool) (contract.PowerFacts, error) {
	if observe {
		return looks(w, func() contract.PowerFacts {
			return contract.PowerFacts{State: w.power, Done: w.power == want, By: name}
		})
	}
	return does(w, name+":"+want, func() contract.PowerFacts {
		w.power = want
		return contract.PowerFacts{State: want, Done: true, By: name}
	})
}

func (w *site) PowerOffByMAAS(_ context.Context, in maasact.MachineIn) (contract.PowerFacts, error) {
	return w.powered("maas", "off", in.ObserveOnly)
}

func (w *site) PowerOnByMAAS(_ context.Context, in maasact.MachineIn) (contract.PowerFacts, error) {
	return w.powered("maas", "on", in.ObserveOnly)
}

func (w *site) PowerOffByBMC(_ context.Context, in bmcact.PowerIn) (contract.PowerFacts, error) {
	return w.powered("bmc", "off", in.ObserveOnly)
}

func (w *site) PowerCycleByBMC(context.Context, bmcact.PowerIn) (contract.PowerFacts, error) {
	f, err := w.powered("bmc", "on", false)
	if err == nil && w.lifecycle == lifecycle.NodePXE.Lifecycle {
		w.restart()
	}
	return f, err
}

func (w *site) seen() contract.MachineFacts {
	return contract.MachineFacts{SystemID: w.facts.SystemID, Status: w.machine, Foreign: !w.ours, Power: w.power, Done: true}
}

func (w *site) ObserveMachine(context.Context, maasact.MachineIn) (contract.MachineFacts, error) {
	return looks(w, w.seen)
}

func (w *site) ProbeRegion(context.Context, contract.JobRef) (contract.MachineFacts, error) {
	return does(w, "probe", w.seen)
}

func (w *site) LoadSiteConfig(context.Context, maasact.LoadSiteIn) (contract.SiteFacts, error) {
	return does(w, "site", func() contract.SiteFacts { return contract.SiteFacts{Profile: spec.ProfileSpec{}.WithDefaults()} })
}

func (w *site) ReadMachineBeforeRelease(context.Context, maasact.MachineIn) (contract.ReleaseFacts, error) {
	return does(w, "before", func() contract.ReleaseFacts { return contract.ReleaseFacts{MachineFacts: w.seen(), LastEvent: 7} })
}

func (w *site) EraseAndRelease(context.Context, maasact.EraseAndReleaseIn) (contract.ReleaseFacts, error) {
	return does(w, "release", func() contract.ReleaseFacts {
		w.machine, w.power, w.erased, w.ours = "Ready", "off", true, false
		w.facts.Agent = contract.AgentSilent // the agent is gone with its disk
		return contract.ReleaseFacts{MachineFacts: w.seen(), Erased: true}
	})
}

func (w *site) RemoveMachine(_ context.Context, in maasact.RemoveMachineIn) (contract.MachineFacts, error) {
	gone := contract.MachineFacts{Status: "absent", Done: true}
	if in.ObserveOnly {
		return looks(w, func() contract.MachineFacts { gone.Done = w.machine == "absent"; return gone })
	}
	return does(w, "record", func() contract.MachineFacts { w.machine = "absent"; return gone })
}

func (w *site) ReturnToReady(context.Context, maasact.ReleaseIn) (contract.MachineFacts, error) {
	return does(w, "ready", func() contract.MachineFacts { w.machine, w.ours = "Ready", false; return w.seen() })
}

func (w *site) ConfigureStorage(context.Context, maasact.StorageIn) (contract.MachineFacts, error) {
	return does(w, "storage", w.seen)
}

func (w *site) EnsurePXEInterfaceAuto(context.Context, maasact.NetworkIn) (contract.MachineFacts, error) {
	return does(w, "pxe", w.seen)
}

func (w *site) RenderCloudInit(context.Context, nodeact.RenderIn) (contract.UserData, error) {
	return does(w, "render", func() contract.UserData { return contract.UserData{Ref: "userdata/job_1/1"} })
}

func (w *site) DeployMachine(context.Context, maasact.DeployIn) (contract.MachineFacts, error) {
	return does(w, "deploy", func() contract.MachineFacts { w.machine, w.ours = "Deploying", true; return w.seen() })
}

func (w *site) WaitForDeployed(context.Context, maasact.WaitDeployedIn) (maasact.DeployedFacts, error) {
	return does(w, "deployed", func() maasact.DeployedFacts {
		if w.outcome == contract.DeployFailed {
			w.machine = "Failed deployment"
			return maasact.DeployedFacts{MachineFacts: w.seen(), Outcome: w.outcome}
		}
		w.facts.Agent = contract.AgentAlive
		w.machine, w.power, w.facts.BootID = "Deployed", "on", "boot-9"
		return maasact.DeployedFacts{MachineFacts: w.seen(), Outcome: contract.DeployOK}
	})
}

func (w *site) ClassifyDeployFailure(context.Context, maasact.ClassifyIn) (maasact.Classified, error) {
	return does(w, "classify", func() maasact.Classified {
		return maasact.Classified{MachineFacts: w.seen(), Class: lifecycle.FailDeploy, Message: "curtin"}
	})
}

func (w *site) WaitForAgent(context.Context, nodeact.WaitAgentIn) (contract.AgentFacts, error) {
	return does(w, "agent", func() contract.AgentFacts { return contract.AgentFacts{Enrolled: true, Healthy: true} })
}

func (w *site) DiscardUserData(context.Context, contract.JobRef) (contract.UserData, error) {
	return does(w, "discard", func() contract.UserData { return contract.UserData{} })
}

func (w *site) RevokeBootstrap(context.Context, contract.JobRef) (contract.UserData, error) {
	return does(w, "bootstrap", func() contract.UserData { return contract.UserData{} })
}

// bundle is one test's world.
type bundle struct {
	t     *testing.T
	env   *testsuite.TestWorkflowEnvironment
	store *memory
	site  *site
	in    contract.JobInput
}

func setup(t *testing.T, mode lifecycle.DecommissionMode) *bundle {
	t.Helper()
	w := &site{
		facts: contract.LeavingFacts{
			Status: lifecycle.NodeDraining, Hostname: "gpu-1", SystemID: "abc123", BMCID: "bmc_1", Agent: contract.AgentAlive, BootID: "boot-1",
			MACs: []string{"02:00:00:00:00:01"},
		},
		machine: "Deployed", power: "on", fail: map[string][]error{}, done: map[string]bool{}, lifecycle: lifecycle.NodeMAAS.Lifecycle,
	}
	request := contract.DecommissionInput{Mode: mode, NodeID: "node_1", Hostname: "gpu-1", From: lifecycle.NodeActive, GraceSeconds: 60}
	if mode == lifecycle.ModeRemove {
		w.facts.Status, request.From = lifecycle.NodeRemoving, lifecycle.NodeRetired
	}
	if info, _ := lifecycle.DecommissionModeOf(mode); info.Lifecycle == lifecycle.NodePXE.Lifecycle {
		w.lifecycle, w.facts.Status, w.facts.SystemID = info.Lifecycle, info.Enters, ""
		w.net.planned = &contract.HardwareFacts{MACs: []string{"02:00:00:00:00:02"}, Serial: "S2"}
		request.EraseOld = true
	}
	input, err := json.Marshal(request)
	require.NoError(t, err)
	b := &bundle{
		t: t, store: &memory{snap: contract.Snapshot{Status: lifecycle.JobPending, Input: input}, out: w}, site: w,
		in: contract.JobInput{JobID: "job_1", Kind: contract.DecommissionKind(mode), NodeID: "node_1", SiteID: "site_1"},
	}
	b.anew()
	return b
}

// anew is another run of the same job.
func (b *bundle) anew() {
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	b.env = suite.NewTestWorkflowEnvironment()
	b.env.SetTestTimeout(30 * time.Second)
	b.env.SetWorkerOptions(worker.Options{DeadlockDetectionTimeout: time.Minute}) // a machine that stands still is no deadlock
	b.env.RegisterActivity(&projection.Activities{Store: b.store})
	b.env.RegisterActivityWithOptions(b.site, activity.RegisterOptions{SkipInvalidStructFunctions: true})
	b.env.RegisterWorkflow(decommission.Decommission)
}

func (b *bundle) run() lifecycle.JobStatus {
	b.t.Helper()
	b.env.ExecuteWorkflow(decommission.Decommission, b.in)
	require.True(b.t, b.env.IsWorkflowCompleted(), "last state %s at %s: %+v", b.store.last.Status, b.store.last.Stage, b.store.last.Failure)
	require.NoError(b.t, b.env.GetWorkflowError())
	var res contract.JobResult
	require.NoError(b.t, b.env.GetWorkflowResult(&res))
	return res.Status
}

// lost runs the job until it is parked and forgets that run: what is stored and
// what is outside are as they were.
func (b *bundle) lost() {
	b.t.Helper()
	var snap contract.Snapshot
	var there site
	b.env.RegisterDelayedCallback(func() {
		b.store.mu.Lock()
		snap = b.store.snap
		b.store.mu.Unlock()
		b.site.mu.Lock()
		there = site{facts: b.site.facts, machine: b.site.machine, ours: b.site.ours, power: b.site.power, erased: b.site.erased,
			fail: map[string][]error{}, done: map[string]bool{}, lifecycle: b.site.lifecycle, net: b.site.net}
		for k, v := range b.site.done {
			there.done[k] = v
		}
		b.site.mu.Unlock()
	}, 30*time.Minute)
	b.at(time.Hour, lifecycle.ActionCancel)
	b.run()
	require.True(b.t, snap.Status.Parked())
	b.site = &site{facts: there.facts, machine: there.machine, ours: there.ours, power: there.power, erased: there.erased, fail: there.fail, done: there.done,
		lifecycle: there.lifecycle, net: there.net}
	b.store = &memory{snap: snap, out: b.site}
	b.anew()
}

// at sends an action after a delay of virtual time; its refusal is kept.
func (b *bundle) at(d time.Duration, a lifecycle.Action, risk ...bool) *error {
	refused := new(error)
	ask := contract.ActionRequest{Actor: "ops", Reason: "test", AcceptRisk: len(risk) > 0}
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

// parked is what is seen after d.
type parked struct {
	contract.Projection
	node lifecycle.NodeStatus
}

func (b *bundle) parked(d time.Duration) *parked {
	p := new(parked)
	b.env.RegisterDelayedCallback(func() {
		b.store.mu.Lock()
		p.Projection = b.store.last
		b.store.mu.Unlock()
		b.site.mu.Lock()
		p.node = b.site.facts.Status
		b.site.mu.Unlock()
	}, d)
	return p
}

func failure(c lifecycle.FailureClass) error {
	return temporal.NewApplicationErrorWithOptions("it broke", string(c), temporal.ApplicationErrorOptions{NonRetryable: true})
}

func (b *bundle) calls() string { return strings.Join(b.site.calls, " ") }

func (b *bundle) count(name string) int {
	n := 0
	for _, c := range b.site.calls {
		if c == name {
			n++
		}
	}
	return n
}
