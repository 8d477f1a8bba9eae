package decommission_test

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/activities/agenttask"
	bmcact "github.com/slipway-cloud/slipway/activities/bmc"
	evidenceact "github.com/slipway-cloud/slipway/activities/evidence"
	maasact "github.com/slipway-cloud/slipway/activities/maas"
	nodeact "github.com/slipway-cloud/slipway/activities/node"
	nodestateact "github.com/slipway-cloud/slipway/activities/nodestate"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/workflows/decommission"
	"github.com/slipway-cloud/slipway/workflows/stage/stagetest"
)

// site simulates everything outside of the workflow: the node's record, its agent, MAAS and the
// BMC.
type site struct {
	mu        sync.Mutex
	lifecycle string
	facts     contract.DecommissionFacts
	machine   string // in MAAS
	ours      bool   // deployed by this job
	ended     nodestateact.AllocationIn
	releasing bool // the tenant has asked for the release; nobody has freed the node
	power     string
	calls     []string
	states    []lifecycle.NodeStatus
	fail      map[string][]error
	done      map[string]bool // tasks that succeeded
	erased    bool
	// unproven is what the next certificates say.
	unproven    []string
	certs       int
	outcome     contract.DeployOutcome
	unreachable string // of the last certificate
	known       []lifecycle.DeviceResult
	unmarked    []string // allocations whose mark MAAS was to take off
	recorded    bool
	net         network
	// scrubs are the arguments of the tasks of kind gpu.scrub; drives returns what an agent says of
	// those that a task names.
	scrubs []spec.ScrubArgs
	drives func([]spec.ExpectedDrive) error
	// changed is what the BMC shows otherwise than before the tenant. bmcChecked is what the last
	// certificate was told.
	changed    []string
	bmcChecked bool
	// passes has the pass of each task that was asked for.
	passes []int
}

// moveNode moves the node as the database does.
func (w *site) moveNode(m contract.NodeMove) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	passed, err := stagetest.MoveNode(w.lifecycle, w.facts.Status, m)
	if len(passed) > 0 {
		w.states = append(w.states, passed...)
		w.facts.Status = passed[len(passed)-1]
	}
	return err
}

// does records a call. It returns the next injected failure of that name, or the result of effect.
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

// looks returns the result of effect without recording a call, for calls that change nothing.
func looks[O any](w *site, effect func() O) (O, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return effect(), nil
}

func (w *site) ReadNodeFacts(context.Context, contract.JobRef) (contract.DecommissionFacts, error) {
	return looks(w, func() contract.DecommissionFacts { return w.facts })
}

func (w *site) LoadNodeConfig(context.Context, maasact.NodeConfigIn) (contract.DecommissionConfig, error) {
	return does(w, "config", func() contract.DecommissionConfig {
		return contract.DecommissionConfig{KeepUsers: []string{"ubuntu"}, KeepKeys: []string{"ssh-ed25519 AAAA"}, ProfileID: "prof_1", SKUID: "sku_1"}
	})
}

func (w *site) RunTask(_ context.Context, in agenttask.RunTaskIn) (lifecycle.TaskResult, error) {
	key := in.Stage + "/" + string(in.Kind)
	if !in.ObserveOnly {
		w.passes = append(w.passes, in.Pass)
	}
	if in.ObserveOnly {
		return looks(w, func() lifecycle.TaskResult { return lifecycle.TaskResult{OK: w.done[key], BootID: "boot-1"} })
	}
	var args spec.ScrubArgs
	if in.Kind == lifecycle.TaskKindScrub || in.Kind == lifecycle.TaskKindValidate {
		_ = json.Unmarshal(in.Args, &args)
	}
	if in.Kind == lifecycle.TaskKindScrub {
		w.scrubs = append(w.scrubs, args)
	}
	if w.drives != nil && (in.Kind == lifecycle.TaskKindScrub || in.Kind == lifecycle.TaskKindValidate) {
		if err := w.drives(args.ExpectedDrives); err != nil {
			return lifecycle.TaskResult{}, err
		}
	}
	return does(w, string(in.Kind), func() lifecycle.TaskResult {
		w.done[key] = true
		return lifecycle.TaskResult{OK: true, BootID: w.facts.BootID}
	})
}

func (w *site) RevokeTasks(context.Context, agenttask.RevokeTasksIn) (agenttask.RevokeTasksOut, error) {
	return does(w, "withdraw", func() agenttask.RevokeTasksOut { return agenttask.RevokeTasksOut{} })
}

func (w *site) WaitForTasks(context.Context, agenttask.WaitForTasksIn) (contract.DecommissionFacts, error) {
	return looks(w, func() contract.DecommissionFacts { return contract.DecommissionFacts{Done: true} })
}

func (w *site) CheckNothingErased(context.Context, contract.JobRef) (contract.DecommissionFacts, error) {
	return looks(w, func() contract.DecommissionFacts {
		return contract.DecommissionFacts{Done: !slices.Contains(w.calls, "gpu.scrub")}
	})
}

// endAllocation ends the allocation as the database does.
func (w *site) endAllocation() {
	left := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	w.facts.AllocationID, w.facts.TenantLeft = "", &left
}

func (w *site) EndAllocation(_ context.Context, in nodestateact.AllocationIn) (contract.DecommissionFacts, error) {
	w.ended = in
	if _, err := looks(w, func() int { w.endAllocation(); return 0 }); err != nil { // a failure of it is an answer that was lost
		return contract.DecommissionFacts{}, err
	}
	return does(w, "free", func() contract.DecommissionFacts { return w.facts })
}

func (w *site) WaitForAllocationEnd(context.Context, nodestateact.AllocationIn) (contract.DecommissionFacts, error) {
	return does(w, "allocation.wait", func() contract.DecommissionFacts {
		if !w.releasing {
			w.endAllocation()
		}
		return w.facts
	})
}

func (w *site) WaitForNewBoot(context.Context, nodestateact.NewBootIn) (contract.DecommissionFacts, error) {
	return does(w, "fresh", func() contract.DecommissionFacts { w.facts.BootID = "boot-2"; return w.facts })
}

func (w *site) MoveNode(_ context.Context, in nodestateact.MoveIn) (contract.DecommissionFacts, error) {
	err := w.moveNode(contract.NodeMove{To: in.To, Owner: in.Owner, Proof: in.Proof})
	if err != nil {
		return contract.DecommissionFacts{}, stagetest.Failure(lifecycle.FailStateDisagreement)
	}
	return does(w, "move:"+string(in.To), func() contract.DecommissionFacts { return w.facts })
}

func (w *site) CertifyNode(_ context.Context, in evidenceact.CertifyIn) (contract.CertificateFacts, error) {
	return does(w, "certify", func() contract.CertificateFacts {
		w.certs++
		w.unreachable, w.known, w.recorded, w.bmcChecked = in.AgentUnreachable, in.InitialDisks, in.DisksRecorded, in.BMCChecked
		if len(w.unproven) == 0 {
			w.facts.TenantLeft = nil
		}
		return contract.CertificateFacts{CertificateID: "cert_1", Verdict: "clean", Unproven: w.unproven}
	})
}

func (w *site) RevokeIdentity(context.Context, contract.JobRef) (contract.DecommissionFacts, error) {
	return does(w, "identity", func() contract.DecommissionFacts { return contract.DecommissionFacts{Done: true} })
}

func (w *site) CheckIdentityRevoked(context.Context, contract.JobRef) (contract.DecommissionFacts, error) {
	return looks(w, func() contract.DecommissionFacts {
		return contract.DecommissionFacts{Done: slices.Contains(w.calls, "identity")}
	})
}

func (w *site) DeleteNodeSecrets(context.Context, contract.JobRef) (contract.DecommissionFacts, error) {
	return does(w, "secrets", func() contract.DecommissionFacts { w.facts.BMCID = ""; return contract.DecommissionFacts{Done: true} })
}

func (w *site) powered(name, want string, observe bool) (contract.PowerFacts, error) {
	if observe {
		return looks(w, func() contract.PowerFacts {
			return contract.PowerFacts{State: w.power, Done: w.power == want, ReportedBy: name}
		})
	}
	return does(w, name+":"+want, func() contract.PowerFacts {
		w.power = want
		return contract.PowerFacts{State: want, Done: true, ReportedBy: name}
	})
}

func (w *site) PowerOffByMAAS(_ context.Context, in maasact.MachineIn) (contract.PowerFacts, error) {
	return w.powered("maas", "off", in.ObserveOnly)
}

func (w *site) ClearAllocation(_ context.Context, in maasact.HolderIn) (contract.MachineFacts, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unmarked = append(w.unmarked, in.AllocationID)
	return contract.MachineFacts{SystemID: in.SystemID, Done: true}, nil
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

// fixture is a decommission on a site.
type fixture struct {
	*stagetest.Harness
	site *site
}

func setup(t *testing.T, mode lifecycle.DecommissionMode) *fixture {
	t.Helper()
	w := &site{
		facts: contract.DecommissionFacts{
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
	b := &fixture{Harness: stagetest.New(t, decommission.Decommission, contract.DecommissionKind(mode), request, w), site: w}
	b.Store.MoveNode = w.moveNode
	return b
}

func (b *fixture) run() lifecycle.JobStatus { return b.Run().Status }

// loseRun runs the job until it is parked and loses that run: what is stored and what is outside
// are as they were.
func (b *fixture) loseRun() {
	b.T.Helper()
	b.at(time.Hour, lifecycle.ActionCancel)
	b.RunUntil(30*time.Minute, func() []any {
		w := b.site
		w.mu.Lock()
		defer w.mu.Unlock()
		b.site = &site{facts: w.facts, machine: w.machine, ours: w.ours, power: w.power, erased: w.erased,
			fail: map[string][]error{}, done: maps.Clone(w.done), lifecycle: w.lifecycle, net: w.net}
		return []any{b.site}
	})
	b.Store.MoveNode = b.site.moveNode
	require.True(b.T, b.Store.Snapshot().Status.Parked())
}

// at sends an action after a delay of virtual time, with accept_risk where risk is given.
func (b *fixture) at(d time.Duration, a lifecycle.Action, risk ...bool) *stagetest.Answer {
	return b.Act(d, a, contract.ActionRequest{Reason: "test", AcceptRisk: len(risk) > 0})
}

// parkedJob is a projection, with the node's state and the calls up to that moment.
type parkedJob struct {
	contract.Projection
	node  lifecycle.NodeStatus
	calls []string
}

// parkedAt returns what is seen after d.
func (b *fixture) parkedAt(d time.Duration) *parkedJob {
	p := new(parkedJob)
	b.After(d, func() {
		p.Projection = b.Store.Last()
		b.site.mu.Lock()
		p.node, p.calls = b.site.facts.Status, slices.Clone(b.site.calls)
		b.site.mu.Unlock()
	})
	return p
}

func (b *fixture) calls() string { return strings.Join(b.site.calls, " ") }

func (b *fixture) count(name string) int {
	n := 0
	for _, c := range b.site.calls {
		if c == name {
			n++
		}
	}
	return n
}
