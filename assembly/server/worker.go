package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/slipway-cloud/slipway/activities/agenttask"
	allocationact "github.com/slipway-cloud/slipway/activities/allocation"
	bmcact "github.com/slipway-cloud/slipway/activities/bmc"
	evidenceact "github.com/slipway-cloud/slipway/activities/evidence"
	"github.com/slipway-cloud/slipway/activities/isolation"
	maasact "github.com/slipway-cloud/slipway/activities/maas"
	machineact "github.com/slipway-cloud/slipway/activities/machine"
	nodeact "github.com/slipway-cloud/slipway/activities/node"
	"github.com/slipway-cloud/slipway/activities/nodestate"
	"github.com/slipway-cloud/slipway/activities/projection"
	"github.com/slipway-cloud/slipway/activities/tenantaccess"
	"github.com/slipway-cloud/slipway/assembly/server/relay"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/internal/poll"
	"github.com/slipway-cloud/slipway/internal/signing"
	"github.com/slipway-cloud/slipway/internal/temporalx"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/bmc/ipmi"
	"github.com/slipway-cloud/slipway/providers/bmc/redfish"
	"github.com/slipway-cloud/slipway/providers/maas"
	"github.com/slipway-cloud/slipway/providers/ssh"
	"github.com/slipway-cloud/slipway/workflows/agentjob"
	"github.com/slipway-cloud/slipway/workflows/allocation"
	"github.com/slipway-cloud/slipway/workflows/bmcrotation"
	"github.com/slipway-cloud/slipway/workflows/decommission"
	"github.com/slipway-cloud/slipway/workflows/instance"
	"github.com/slipway-cloud/slipway/workflows/machinerun"
	"github.com/slipway-cloud/slipway/workflows/onboarding"
	"github.com/slipway-cloud/slipway/workflows/paymentjob"
)

// RegisterWorkflows registers every workflow under its explicit name, pinned to the build that
// started it. The passes are among them, since an installation may have them among the jobs.
func RegisterWorkflows(r worker.WorkflowRegistry) {
	for _, row := range contract.Kinds {
		register(r, row.Workflow, jobWorkflows()[row.Kind])
	}
	register(r, contract.NodePowerWorkflow, allocation.ReadPower)
	register(r, contract.AllocationPlanWorkflow, allocation.Plan)
	register(r, contract.DecommissionPlanWorkflow, decommission.Plan)
	register(r, contract.PlanWorkflow, onboarding.Plan)
	registerPasses(r)
}

func register(r worker.WorkflowRegistry, name string, run any) {
	r.RegisterWorkflowWithOptions(run, workflow.RegisterOptions{Name: name, VersioningBehavior: workflow.VersioningBehaviorPinned})
}

// jobWorkflows are the functions of the workflows that contract.Kinds names.
func jobWorkflows() map[contract.JobKind]any {
	return map[contract.JobKind]any{
		contract.KindOnboarding: onboarding.Onboard, contract.KindBMCRotation: bmcrotation.Rotate,
		contract.KindDecommission: decommission.Decommission, contract.KindNodeOperation: decommission.NodeOperation,
		contract.KindAgentReissue: agentjob.Reissue, contract.KindAgentUpdate: agentjob.Update,
		contract.KindAllocationProvision: allocation.Provision, contract.KindAllocationRelease: allocation.Release, contract.KindAllocationKeys: allocation.Keys,
		contract.KindMachineRun: machinerun.Run, contract.KindInstanceCreate: instance.Create, contract.KindInstanceTerminate: instance.Terminate,
		contract.KindPaymentReconcile: paymentjob.PaymentReconcile,
	}
}

// RegisterActivities registers every activity over the app's own providers.
func (a *App) RegisterActivities(r worker.ActivityRegistry) {
	opts := activity.RegisterOptions{}
	r.RegisterActivityWithOptions(&projection.Activities{Store: projection.NewDatabase(a.Store), PublicURL: a.Config.API.PublicURL}, opts)
	r.RegisterActivityWithOptions(a.maasActivities(), opts)
	bmcs := a.bmcActivities()
	r.RegisterActivityWithOptions(bmcs, opts)
	r.RegisterActivityWithOptions(&nodeact.Activities{
		Store: a.Store, Secrets: a.Secrets, SSH: ssh.New(), AgentURL: a.Config.Agent.PublicURL, AgentCAPEM: string(a.CA.CertPEM()),
	}, opts)
	r.RegisterActivityWithOptions(&agenttask.Activities{Store: a.Store}, opts)
	r.RegisterActivityWithOptions(&tenantaccess.Activities{Store: a.Store, Secrets: a.Secrets, SSH: ssh.New()}, opts)
	r.RegisterActivityWithOptions(&allocationact.Activities{
		Store: a.Store, RevokeDeadline: a.Config.Release.RevokeDeadline, MaxDeliver: a.Config.Release.MaxDeliver,
		ProvisionDeadline: a.Config.Allocation.ProvisionDeadline,
	}, opts)
	r.RegisterActivityWithOptions(&machineact.Activities{Store: a.Store, Secrets: a.Secrets, Adapters: a.machines, Login: ssh.ResolveLogin, Power: bmcs, StepLog: a.Config.Machine.StepLog()}, opts)
	r.RegisterActivityWithOptions(&isolation.Activities{Store: a.Store, Policy: a.isolation()}, opts)
	r.RegisterActivityWithOptions(&nodestate.Activities{Store: a.Store, Secrets: a.Secrets}, opts)
	r.RegisterActivityWithOptions(&evidenceact.Activities{Store: a.Store, Ring: &signing.Ring{Store: a.Store, Secrets: a.Secrets}}, opts)
	a.registerPassActivities(r)
}

func (a *App) bmcActivities() *bmcact.Activities {
	openers := map[string]providers.BMCOpener{"redfish": redfish.Opener{}, "ipmi": ipmi.Opener{}}
	return &bmcact.Activities{Store: a.Store, Secrets: a.Secrets, Openers: openers, Copies: a.Secrets, Held: maasact.HeldLogin(a.maasActivities())}
}

func (a *App) maasActivities() *maasact.Activities {
	return &maasact.Activities{Store: a.Store, Secrets: a.Secrets, Opener: maas.Opener{Options: maas.Options{Log: a.Log}}}
}

// registerPassActivities registers the activities of the workflows that Schedules start.
func (a *App) registerPassActivities(r worker.ActivityRegistry) {
	opts := activity.RegisterOptions{}
	r.RegisterActivityWithOptions(a.driftActivities(a.bmcActivities()), opts)
	r.RegisterActivityWithOptions(a.sweepActivities(), opts)
	r.RegisterActivityWithOptions(a.billingActivities(), opts)
	r.RegisterActivityWithOptions(a.paymentActivities(), opts)
	r.RegisterActivityWithOptions(a.instanceActivities(), opts)
}

// heartbeatFlush lets an activity's cancellation arrive within a second.
const heartbeatFlush = time.Second

// workerOptions are the options of every worker; extra interceptors go first.
func (a *App) workerOptions(extra ...interceptor.WorkerInterceptor) worker.Options {
	w := a.Config.Worker
	o := worker.Options{
		MaxConcurrentActivityExecutionSize:      w.MaxConcurrentActivities,
		MaxConcurrentLocalActivityExecutionSize: w.MaxConcurrentLocalActivities,
		MaxConcurrentWorkflowTaskExecutionSize:  w.MaxConcurrentWorkflowTasks,
		WorkerStopTimeout:                       w.StopTimeout,
		DeadlockDetectionTimeout:                w.DeadlockTimeout,
		MaxHeartbeatThrottleInterval:            heartbeatFlush,
		DefaultHeartbeatThrottleInterval:        heartbeatFlush,
		DisableRegistrationAliasing:             true,
		Interceptors: append(extra, &temporalx.Heartbeats{},
			&temporalx.Timeline{Recorder: timeline{a.Store, a.Config.Machine.StepLog()}, Log: a.Log}),
	}
	if t := a.Config.Temporal; t.BuildID != "" {
		o.DeploymentOptions = worker.DeploymentOptions{
			UseVersioning: true, Version: worker.WorkerDeploymentVersion{DeploymentName: t.DeploymentName, BuildID: t.BuildID},
			DefaultVersioningBehavior: workflow.VersioningBehaviorPinned,
		}
	}
	return o
}

// RunWorker serves the task queue and relays the outbox until ctx ends, then
// stops gracefully: activities in flight get the stop timeout.
func (a *App) RunWorker(ctx context.Context, extra ...interceptor.WorkerInterceptor) error {
	if err := a.Health.AddReady("temporal", 3*time.Second, a.temporalReady); err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	opts := a.workerOptions(extra...)
	// A worker that the server turns away stops for good; a process that stays
	// up without one would look well and do nothing.
	opts.OnFatalError = func(err error) { stop(fmt.Errorf("the Temporal worker stopped: %w", err)) }
	w, err := temporalx.StartWorker(ctx, func() worker.Worker {
		w := worker.New(a.Temporal, a.Config.Temporal.TaskQueue, opts)
		RegisterWorkflows(w)
		a.RegisterActivities(w)
		return w
	}, func(err error) {
		a.Log.Warn("temporal not reachable yet; waiting", "address", a.Config.Temporal.Address, "error", err)
	})
	if err != nil {
		return err
	}
	defer w.Stop()
	if err := a.promote(ctx, a.Temporal); err != nil {
		return err
	}
	host, _ := os.Hostname()
	jobs := temporalx.Jobs{Client: a.Temporal, TaskQueue: a.Config.Temporal.TaskQueue}
	r := &relay.Relay{
		Store: a.Store, Starter: jobs, Claims: jobs,
		Tasks: temporalx.Completions{Client: a.Temporal, Namespace: a.Config.Temporal.Namespace},
		Name:  fmt.Sprintf("%s/%d", host, os.Getpid()), Log: a.Log, Poll: a.Config.Relay.Poll, Lease: a.Config.Relay.Lease,
		Started: a.counter("slipway_relay_started_total", "Workflows started from the outbox."),
		Failed:  a.counter("slipway_relay_failed_total", "Starts from the outbox that failed and will be repeated."),
	}
	a.Log.Info("worker runs", "task_queue", a.Config.Temporal.TaskQueue, "build", a.Config.Temporal.BuildID)
	go r.Housekeep(ctx)
	go r.CheckAudit(ctx)
	go a.Payloads.RefreshKeys(ctx)
	deliverer := a.deliverer(r.Name)
	var rest sync.WaitGroup
	rest.Go(func() { deliverer.Run(ctx) })
	rest.Go(func() { a.maintain(ctx, opts) })
	rest.Go(func() { a.Campaigns().Run(ctx) })
	rest.Go(func() { a.MachineProbes().Run(ctx) })
	if a.clusters != nil || a.Config.Machine.Simulated {
		rest.Go(func() { a.ClusterPasses().Run(ctx) })
	}
	r.Run(ctx)
	// The deliverer stores what it has sent before the process ends, or it would be sent again.
	// Each of its steps has a deadline, and a worker that stops has one too.
	rest.Wait()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// temporalReady: a worker without Temporal is of no use. A process that serves
// the API as well accepts work meanwhile, and must go on getting it.
func (a *App) temporalReady(ctx context.Context) error {
	if a.servesAPI.Load() {
		return nil
	}
	_, err := a.Temporal.CheckHealth(ctx, &client.CheckHealthRequest{})
	return err
}

// promote makes this build the current version of its deployment, so that new
// jobs run on it; jobs under way stay with the build they began on. An older
// build that is started again beside a newer one, to finish its own jobs, does
// not take over.
func (a *App) promote(ctx context.Context, c client.Client) error {
	t := a.Config.Temporal
	if t.BuildID == "" {
		return nil
	}
	h := c.WorkerDeploymentClient().GetHandle(t.DeploymentName)
	until := time.Now().Add(time.Minute)
	for {
		done, err := promoteOnce(ctx, h, t.BuildID)
		if done || ctx.Err() != nil {
			return ctx.Err()
		}
		if time.Now().After(until) {
			return fmt.Errorf("make build %s of %s current: %w", t.BuildID, t.DeploymentName, err)
		}
		// The server learns of a version when its first poll arrives.
		if err := poll.Sleep(ctx, 200*time.Millisecond); err != nil {
			return err
		}
	}
}

func promoteOnce(ctx context.Context, h client.WorkerDeploymentHandle, build string) (bool, error) {
	d, err := h.Describe(ctx, client.WorkerDeploymentDescribeOptions{})
	if err != nil {
		return false, err
	}
	current := d.Info.RoutingConfig.CurrentVersion
	if current != nil && current.BuildID == build {
		return true, nil
	}
	var ours, theirs time.Time
	for _, v := range d.Info.VersionSummaries {
		switch {
		case v.Version.BuildID == build:
			ours = v.CreateTime
		case current != nil && v.Version.BuildID == current.BuildID:
			theirs = v.CreateTime
		}
	}
	if ours.IsZero() {
		return false, errors.New("the server does not know this build yet")
	}
	if ours.Before(theirs) {
		return true, nil // a newer build is current
	}
	_, err = h.SetCurrentVersion(ctx, client.WorkerDeploymentSetCurrentVersionOptions{BuildID: build, IgnoreMissingTaskQueues: true})
	return err == nil, err
}

func (a *App) counter(name, help string) prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	if err := a.Metrics.Register(c); err != nil {
		a.Log.Warn("metric not registered", "metric", name, "error", err)
	}
	return c
}
