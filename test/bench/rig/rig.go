// Package rig runs Slipway's worker and outbox relay over the noop providers, on a real Temporal
// server and a real PostgreSQL, for the benchmarks and for recording the histories of
// workflows/replay. The registrations and the setup of the worker are those of package server; only
// the providers differ.
package rig

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/worker"

	"github.com/slipway-cloud/slipway/activities/agenttask"
	allocationact "github.com/slipway-cloud/slipway/activities/allocation"
	bmcact "github.com/slipway-cloud/slipway/activities/bmc"
	driftact "github.com/slipway-cloud/slipway/activities/drift"
	evidenceact "github.com/slipway-cloud/slipway/activities/evidence"
	instanceact "github.com/slipway-cloud/slipway/activities/instance"
	"github.com/slipway-cloud/slipway/activities/isolation"
	maasact "github.com/slipway-cloud/slipway/activities/maas"
	machineact "github.com/slipway-cloud/slipway/activities/machine"
	nodeact "github.com/slipway-cloud/slipway/activities/node"
	"github.com/slipway-cloud/slipway/activities/nodestate"
	paymentsact "github.com/slipway-cloud/slipway/activities/payments"
	"github.com/slipway-cloud/slipway/activities/projection"
	sweepact "github.com/slipway-cloud/slipway/activities/sweep"
	accessact "github.com/slipway-cloud/slipway/activities/tenantaccess"
	"github.com/slipway-cloud/slipway/assembly/devserver/temporal"
	"github.com/slipway-cloud/slipway/assembly/server"
	"github.com/slipway-cloud/slipway/assembly/server/relay"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/intent/onboarding"
	"github.com/slipway-cloud/slipway/internal/config"
	"github.com/slipway-cloud/slipway/internal/signing"
	"github.com/slipway-cloud/slipway/internal/temporalx"
	"github.com/slipway-cloud/slipway/internal/temporalx/payloadcodec"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers/secrets"
	"github.com/slipway-cloud/slipway/test/bench/noop"
)

// Rig is a running worker with a site that can onboard.
type Rig struct {
	Store    *db.Store
	Temporal client.Client
	Payloads *payloadcodec.Codec
	Queue    string
	Region   *noop.Region
	Site     db.Site
	Profile  db.Profile
	SKU      db.SKU

	script  Script // nil for none
	secrets *secrets.Secrets
	nodes   sync.Map // hostname to node id
	runs    sync.Map // job id to chan string, the run id

	mu       sync.Mutex
	revealed []string
}

// New starts a rig that ends with tb. Hooks of region must be set before.
func New(tb testing.TB, region *noop.Region, tune ...func(*spec.ProfileSpec)) *Rig {
	tb.Helper()
	return start(tb, region, nil, tune)
}

// NewScripted starts a rig whose activities answer by a script. Every activity of a worker can be
// answered so, also those for which the rig has no providers.
func NewScripted(tb testing.TB, script Script) *Rig {
	tb.Helper()
	return start(tb, &noop.Region{}, script, nil)
}

func start(tb testing.TB, region *noop.Region, script Script, tune []func(*spec.ProfileSpec)) *Rig {
	tb.Helper()
	r := &Rig{Store: dbtest.Store(tb), Queue: "rig-" + db.NewID("q"), Region: region, script: script}
	if region.Boot == nil {
		region.Boot = r.boot
	}
	var err error
	r.secrets, err = secrets.Open(tb.Context(), r.Store, secrets.Keeper{KeyFile: filepath.Join(tb.TempDir(), "secrets.key")},
		secrets.Options{OnReveal: r.reveal})
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = r.secrets.Close() })
	r.Payloads, err = payloadcodec.Open(tb.Context(), r.secrets, slog.New(slog.DiscardHandler), false)
	require.NoError(tb, err)
	r.Temporal = Temporal(tb, r.Payloads)
	r.seed(tb, tune)
	w := r.worker()
	require.NoError(tb, w.Start())
	tb.Cleanup(w.Stop)
	r.relay(tb)
	return r
}

// Defaults are the limits of a worker as it is configured out of the box.
func Defaults() worker.Options {
	c := config.Default().Worker
	return worker.Options{
		MaxConcurrentActivityExecutionSize: c.MaxConcurrentActivities, MaxConcurrentLocalActivityExecutionSize: c.MaxConcurrentLocalActivities,
		MaxConcurrentWorkflowTaskExecutionSize: c.MaxConcurrentWorkflowTasks, DisableRegistrationAliasing: true,
	}
}

func (r *Rig) worker() worker.Worker {
	log := slog.New(slog.DiscardHandler)
	o := Defaults()
	o.MaxHeartbeatThrottleInterval, o.DefaultHeartbeatThrottleInterval = time.Second, time.Second
	o.Interceptors = []interceptor.WorkerInterceptor{&temporalx.Heartbeats{}, &temporalx.Timeline{Recorder: timeline{r.Store}, Log: log}}
	if r.script != nil {
		o.Interceptors = append(o.Interceptors, &scripted{script: r.script})
	}
	w := worker.New(r.Temporal, r.Queue, o)
	server.RegisterWorkflows(w)
	opts := activity.RegisterOptions{}
	if r.script != nil {
		w.RegisterActivityWithOptions(&driftact.Activities{}, opts)
		w.RegisterActivityWithOptions(&sweepact.Activities{}, opts)
		w.RegisterActivityWithOptions(&paymentsact.Activities{}, opts)
		w.RegisterActivityWithOptions(&instanceact.Activities{}, opts)
		w.RegisterActivityWithOptions(&isolation.Activities{}, opts)
		w.RegisterActivityWithOptions(&machineact.Activities{}, opts)
	}
	w.RegisterActivityWithOptions(&projection.Activities{Store: projection.NewDatabase(r.Store)}, opts)
	w.RegisterActivityWithOptions(&maasact.Activities{Store: r.Store, Secrets: r.secrets, Opener: r.Region}, opts)
	w.RegisterActivityWithOptions(&bmcact.Activities{Store: r.Store, Secrets: r.secrets, Opener: noop.BMCs{}}, opts)
	w.RegisterActivityWithOptions(&nodeact.Activities{
		Store: r.Store, Secrets: r.secrets, SSH: noop.Nodes{}, AgentURL: "https://127.0.0.1:8443", AgentCAPEM: AgentCA(),
	}, opts)
	w.RegisterActivityWithOptions(&agenttask.Activities{Store: r.Store}, opts)
	w.RegisterActivityWithOptions(&allocationact.Activities{Store: r.Store}, opts)
	w.RegisterActivityWithOptions(&accessact.Activities{Store: r.Store, Secrets: r.secrets}, opts)
	w.RegisterActivityWithOptions(&nodestate.Activities{Store: r.Store, Secrets: r.secrets}, opts)
	w.RegisterActivityWithOptions(&evidenceact.Activities{Store: r.Store, Ring: &signing.Ring{Store: r.Store, Secrets: r.secrets}}, opts)
	return w
}

// relay starts the jobs that Accept wrote, as the worker process does.
func (r *Rig) relay(tb testing.TB) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	done := make(chan struct{})
	rl := &relay.Relay{
		Store: r.Store, Starter: r, Name: r.Queue, Log: slog.New(slog.DiscardHandler),
		Tasks: temporalx.Completions{Client: r.Temporal, Namespace: temporal.Namespace},
	}
	go func() {
		defer close(done)
		rl.Run(ctx)
	}()
	tb.Cleanup(func() {
		cancel()
		<-done
	})
}

// StartJob implements relay.Starter and tells Accept's caller the run.
func (r *Rig) StartJob(ctx context.Context, in contract.JobInput, summary string) (string, error) {
	id, err := temporalx.Jobs{Client: r.Temporal, TaskQueue: r.Queue}.StartJob(ctx, in, summary)
	if err != nil {
		return "", err
	}
	select {
	case r.started(in.JobID) <- id:
	default: // started again: there is one already
	}
	return id, nil
}

// started is where the run of a job is told once the relay has started it.
func (r *Rig) started(jobID string) chan string {
	ch, _ := r.runs.LoadOrStore(jobID, make(chan string, 1))
	return ch.(chan string)
}

// Await returns the workflow's run of a job that was accepted, once the relay has started it. It
// can be called once for each job.
func (r *Rig) Await(ctx context.Context, kind contract.JobKind, jobID string) (client.WorkflowRun, error) {
	defer r.runs.Delete(jobID)
	wait, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	select {
	case id := <-r.started(jobID):
		return r.Temporal.GetWorkflow(ctx, contract.JobWorkflowID(kind, jobID), id), nil
	case <-wait.Done():
		return nil, fmt.Errorf("job %s was not started within %s: %w", jobID, startLimit, wait.Err())
	}
}

const startLimit = 30 * time.Second

// Run accepts the onboarding of a node in one transaction, as the API does, and
// returns the workflow's run once the relay has started it.
func (r *Rig) Run(ctx context.Context, n Node) (jobID string, run client.WorkflowRun, err error) {
	jobID = db.NewID("job")
	err = r.Store.Tx(ctx, func(tx *db.Tx) error {
		_, err := onboarding.Start(ctx, tx, db.NewJob{ID: jobID, NodeID: &n.ID, Actor: operator}, n.Input)
		return err
	})
	if err != nil {
		return jobID, nil, err
	}
	run, err = r.Await(ctx, contract.KindOnboarding, jobID)
	return jobID, run, err
}

// timeline keeps a node's outside calls, as package server's does.
type timeline struct{ store *db.Store }

// RecordCall implements temporalx.Recorder.
func (t timeline) RecordCall(ctx context.Context, c temporalx.Call) error {
	nodeID := c.Ref.NodeID
	return t.store.AppendAudit(ctx, db.Entry{
		ResourceKind: "node", ResourceID: nodeID, NodeID: &nodeID, Kind: db.EntryCall, Name: c.Activity,
		Actor: db.Actor{Owner: lifecycle.OwnerJob, Comment: c.Message, WorkflowID: c.WorkflowID, Metadata: map[string]any{
			"activity": c.Activity, "stage": c.Ref.Stage, "attempt": c.Attempt, "took_ms": c.Took.Milliseconds(), "outcome": c.Outcome,
			"job_id": c.Ref.JobID, "note": c.Note,
		}},
	})
}
