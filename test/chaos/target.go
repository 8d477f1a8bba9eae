package chaos

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	simhw "github.com/slipway-cloud/slipway/sim/hw"
	"github.com/slipway-cloud/slipway/test/stack"
)

// Target is what one case's job works on: a machine at a site of its own, whose
// wires can be cut without the neighbours.
type Target struct {
	Stack   *stack.Stack
	Store   *db.Store
	Machine *simhw.Machine
	Host    string
	Site    db.Site
	Profile db.Profile
	SKU     db.SKU
	Job     db.Job
	Case    Case
	// DSN is for queries of a check, on a connection that is never terminated.
	DSN string
	// NodeID is the node that the case begins with, "" for none.
	NodeID string
	// Booted is a machine that no MAAS knows, with the one that takes its place
	// where the case migrates; nil in other cases.
	Booted, Fresh *stack.PXEServer

	clouds   *clouds // of a case of instances; nil in other cases
	instance string

	releases  *stack.ReleaseServer // of the agent
	updates   int                  // of the node's agent so far
	plans     *FaultPlans
	maas, bmc *wire
	mode      lifecycle.DecommissionMode
	before    effects // when the case began

	shared, sku db.SKU // whose tenants are not root; that of the case
	tenant      *stack.Tenant
	former      *stack.Tenant // a member whose key ends
	allocation  string        // of the tenant
	watched     *accessWatch
	run         runOf // of a plan on the machine
	log         *machineLog

	mu        sync.Mutex
	asked     sync.WaitGroup
	cancelled answer
	injected  sync.WaitGroup // faults of the agent on their way
	late      []string       // those that never came
	retried   map[int64]bool // parked steps that an operator sent on
	waited    map[int64]bool // those that were sent on when a BMC's window had ended

	givenBack  bool           // the tenant gave the node back in the midst of its provision
	operated   map[int64]bool // releases that had failed, and that an operator ended
	parkedOnce bool
	wrong      []string // what was wrong while a release had failed
}

// Overlaps is how often an activity of the job was begun while another execution
// of it lasted.
func (t *Target) Overlaps(activity string) int { return t.plans.Overlaps(t.jobID(), activity) }

// Executions is how often an activity of the job was begun.
func (t *Target) Executions(activity string) int { return t.plans.Executions(t.jobID(), activity) }

func (t *Target) jobID() string { t.mu.Lock(); defer t.mu.Unlock(); return t.Job.ID }

// answer is what became of a cancellation.
type answer string

const (
	notAsked answer = ""
	accepted answer = "accepted"
	refused  answer = "refused"
	unknown  answer = "unknown" // the answer never came
)

// stage makes the site, the machine's records and the wires of a case.
func (t *environment) stage(ctx context.Context, c Case) (*Target, error) {
	m, n, err := t.machine()
	if err != nil {
		return nil, err
	}
	target := &Target{
		Stack: t.stack, Store: t.store, Machine: m, Host: "gpu-" + m.Spec().ID, SKU: t.sku, Case: c, DSN: t.dsn, plans: t.plans, retried: map[int64]bool{},
		releases: t.releases, shared: t.shared, operated: map[int64]bool{}, log: newMachineLog(m),
	}
	target.log.add("case %s gets it", c)
	if err := target.lay(ctx); err != nil {
		return nil, err
	}
	siteSpec := t.stack.SiteSpec()
	siteSpec.MAASURL = strings.Replace(siteSpec.MAASURL, hostOf(siteSpec.MAASURL), target.maas.Address(), 1)
	if target.Site, err = t.store.CreateSite(ctx, "site-"+m.Spec().ID, siteSpec); err != nil {
		return nil, err
	}
	profile := t.stack.ProfileSpec()
	profile.PollInterval = spec.Duration(400 * time.Millisecond)
	profile.AgentUpdateKey = t.releases.PublicKey()
	profile.HardwareSyncInterval = spec.Duration(2 * 15 * time.Minute / speed) // long enough for a busy machine
	if target.Profile, err = t.store.CreateProfile(ctx, target.Site.ID, "standard", profile); err != nil {
		return nil, err
	}
	_, err = t.store.CreateRoCEAssignment(ctx, target.Site.ID, target.Host, stack.RoCEPorts(m, n))
	return target, err
}

// lay puts a wire before MAAS and one before the BMC.
func (t *Target) lay(ctx context.Context) error {
	var err error
	ctx = context.WithoutCancel(ctx) // they end with leave
	if t.maas, err = newWire(ctx, hostOf(t.Stack.Sims.URL)); err != nil {
		return err
	}
	siteSpec := t.Machine.Spec()
	if t.bmc, err = newWire(ctx, hostOf(siteSpec.BMCAddress)); err != nil {
		return err
	}
	t.Machine.SetBMC(strings.Replace(siteSpec.BMCAddress, hostOf(siteSpec.BMCAddress), t.bmc.Address(), 1), siteSpec.BMCUser, siteSpec.BMCPassword)
	return nil
}

func hostOf(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return raw
	}
	return u.Host
}

// accept takes the job that was accepted for the target.
func (t *Target) accept(job db.Job) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.Job = job
}

// workflowID is known before the job is.
func (t *Target) workflowID() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return contract.JobWorkflowID(t.Case.Job, t.Job.ID)
}

func (t *Target) cut(refuse bool, d time.Duration) {
	if t.clouds != nil {
		t.clouds.cut(t.instance, refuse, d)
		return
	}
	if t.maas != nil {
		t.maas.cut(refuse, d)
	}
	t.bmc.cut(refuse, d)
}

// leave frees what the case used; its counters and rows stay.
func (t *Target) leave() {
	if t.watched != nil {
		t.watched.end()
	}
	if t.Machine != nil {
		if n := t.Stack.Sims.Nodes[t.Machine.Spec().ID]; n != nil {
			n.Close()
		}
	}
	for _, s := range []*stack.PXEServer{t.Booted, t.Fresh} {
		if s != nil {
			s.Close()
		}
	}
	if t.maas != nil {
		t.maas.close()
	}
	if t.bmc != nil {
		t.bmc.close()
	}
}

const (
	cancelHead   = 150 * time.Millisecond // how long a boundary waits for the request to arrive
	cancelAnswer = 2 * time.Minute
)

// cancel asks for a cancellation as an operator does, and does not wait for the
// answer: the boundary that is injected is what the job has to leave first.
func (t *Target) cancel(ctx context.Context) {
	t.mu.Lock()
	t.cancelled = unknown
	t.asked.Add(1)
	t.mu.Unlock()
	go func() {
		defer t.asked.Done()
		ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), cancelAnswer)
		defer stop()
		got := t.ask(ctx)
		t.mu.Lock()
		t.cancelled = got
		t.mu.Unlock()
	}()
	pause(ctx, cancelHead)
}

// retryStage asks for another try of a parked job's stage, and waits until the workflow has come as
// far as until says.
func (t *Target) retryStage(ctx context.Context, job db.Job, reason string, until client.WorkflowUpdateStage) error {
	_, err := t.Stack.App.Temporal.UpdateWorkflow(ctx, client.UpdateWorkflowOptions{
		WorkflowID: contract.JobWorkflowID(contract.JobKind(job.Kind), job.ID), UpdateName: string(lifecycle.ActionRetryStage),
		WaitForStage: until, Args: []any{contract.ActionRequest{Actor: "chaos", Reason: reason}},
	})
	return err
}

func (t *Target) ask(ctx context.Context) answer {
	h, err := t.Stack.App.Temporal.UpdateWorkflow(ctx, client.UpdateWorkflowOptions{
		WorkflowID: t.workflowID(), UpdateName: string(lifecycle.ActionCancel), UpdateID: "chaos-cancel",
		WaitForStage: client.WorkflowUpdateStageCompleted,
		Args:         []any{contract.ActionRequest{Actor: "chaos", Reason: "an operator's change of mind", IdempotencyKey: "chaos"}},
	})
	var res contract.ActionResult
	if err == nil {
		err = h.Get(ctx, &res)
	}
	var gone *serviceerror.NotFound
	switch {
	case err == nil && res.Effect == lifecycle.EffectCancel:
		return accepted
	case err == nil, errors.As(err, &gone), strings.Contains(err.Error(), "refused"), strings.Contains(err.Error(), "completed"):
		return refused // it came when the job had ended
	}
	return unknown
}

// expected lists the ends that the job may come to; ends are those of its path, none for completed.
func (t *Target) expected(ends []lifecycle.JobStatus) []lifecycle.JobStatus {
	t.asked.Wait()
	t.mu.Lock()
	defer t.mu.Unlock()
	switch t.cancelled {
	case accepted:
		return []lifecycle.JobStatus{lifecycle.JobCancelled}
	case unknown:
		return []lifecycle.JobStatus{lifecycle.JobCancelled, lifecycle.JobCompleted}
	case refused, notAsked:
	}
	if len(ends) > 0 {
		return ends
	}
	return []lifecycle.JobStatus{lifecycle.JobCompleted}
}

// nodeID is the node that the case is about, "" before its job has one.
func (t *Target) nodeID() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.Job.NodeID != nil {
		return *t.Job.NodeID
	}
	return t.NodeID
}

// SystemID is the machine's id in MAAS, "" before it has one.
func (t *Target) SystemID(ctx context.Context) (string, error) {
	n, err := t.Store.Node(ctx, *t.Job.NodeID)
	if err != nil {
		return "", fmt.Errorf("read the node of %s: %w", t.Job.ID, err)
	}
	if n.MAASSystemID == nil {
		return "", nil
	}
	return *n.MAASSystemID, nil
}
