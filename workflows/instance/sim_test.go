package instance_test

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"

	instanceact "github.com/slipway-cloud/slipway/activities/instance"
	"github.com/slipway-cloud/slipway/activities/projection"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	instancedb "github.com/slipway-cloud/slipway/db/instance"
	instanceintent "github.com/slipway-cloud/slipway/intent/instance"
	"github.com/slipway-cloud/slipway/internal/temporalx"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/instance/mock"
	"github.com/slipway-cloud/slipway/providers/instance/scaleway"
	"github.com/slipway-cloud/slipway/providers/secrets"
	cloudsim "github.com/slipway-cloud/slipway/sim/cloud"
	simhw "github.com/slipway-cloud/slipway/sim/hw"
	"github.com/slipway-cloud/slipway/test/runenv"
	"github.com/slipway-cloud/slipway/workflows/instance"
)

const (
	simKey     = "00000000-0000-4000-8000-5ec0e7000001"
	simProject = "00000000-0000-4000-8000-000000000002"
	speed      = 600
)

// simRig is an instance of a project, with the activities of the product, a real database and a
// simulated provider.
type simRig struct {
	*testing.T
	store  *db.Store
	sim    *cloudsim.Server
	worker *fakeWorker
	acts   *instanceact.Activities
	row    instancedb.Instance
	job    db.Job
	url    string // of the simulated account
	// cancelled are the jobs that a pass has asked to end.
	cancelled []string
	clock     *lookClock
}

// lookClock is a clock that each look at what is not there yet moves on by half a minute, so that a
// startup takes too long without anybody waiting for it.
type lookClock struct {
	mu sync.Mutex
	at time.Time
}

func (c *lookClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(30 * time.Second)
	return c.at
}

func (c *lookClock) set(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = at
}

var operator = db.Actor{Owner: lifecycle.OwnerAdmin, ID: "op"}

func newSimRig(t *testing.T) *simRig { return newSimRigWith(t, cloudsim.Options{}, nil) }

// newSimRigWith makes one whose account and provider are changed first.
func newSimRigWith(t *testing.T, opt cloudsim.Options, change func(*instanceact.Provider)) *simRig {
	t.Helper()
	opt.SecretKey, opt.ProjectID, opt.Clock = simKey, simProject, simhw.NewClock(speed)
	sim, err := cloudsim.New(opt)
	require.NoError(t, err)
	at, stop, err := sim.Start(t.Context(), "127.0.0.1:0", "")
	require.NoError(t, err)
	t.Cleanup(stop)
	r := &simRig{T: t, store: dbtest.Store(t), sim: sim, worker: &fakeWorker{checksum: mock.Checksum}, clock: &lookClock{at: time.Now()}, url: at.URL()}
	sealed, err := secrets.Open(t.Context(), r.store, secrets.Keeper{KeyFile: filepath.Join(t.TempDir(), "key")}, secrets.Options{})
	require.NoError(t, err)
	r.acts = &instanceact.Activities{
		Store: r.store, Secrets: sealed, Log: slog.New(slog.DiscardHandler), HeartbeatURL: "https://agents.example", Poll: 10 * time.Millisecond,
		Now: r.clock.now,
		Open: func(context.Context, string) (instanceact.Provider, error) {
			c, err := scaleway.Open(providers.CloudAccount{
				URL: at.URL(), ProjectID: simProject, AccessKey: "SCWXXXXXXXXXXXXXXXXX", SecretKey: providers.NewSecret(simKey), Rule: providers.SimulatedAddresses(),
			}, "test")
			sources := providers.CloudSources{SSH: []string{"192.0.2.0/24"}, Worker: []string{"192.0.2.0/24"}}
			p := instanceact.Provider{Name: "scaleway", Cloud: c, Worker: r.worker, Sources: sources, Lag: time.Second}
			if change != nil {
				change(&p)
			}
			return p, err
		},
		Places: [][2]string{{"scaleway", cloudsim.Zone}},
		Cancel: func(_ context.Context, job db.Job) error { r.cancelled = append(r.cancelled, job.ID); return nil },
	}
	r.make("one")
	return r
}

func (r *simRig) make(name string) {
	r.Helper()
	project := dbtest.Project(r, r.store)
	require.NoError(r, r.store.Tx(r.Context(), func(tx *db.Tx) error {
		var err error
		r.row, r.job, err = instanceintent.Make(r.Context(), tx, instanceintent.Create{
			ProjectID:    project.ID,
			InstanceSpec: spec.InstanceSpec{Name: name, Provider: "scaleway", Zone: cloudsim.Zone, Type: "L4-1-24G", Model: "acme/small"},
			Offers:       []instanceintent.Offer{{Provider: "scaleway", Zones: []string{cloudsim.Zone}, Image: cloudsim.ImageLabel}},
		}, operator)
		return err
	}))
}

func (r *simRig) fault(f cloudsim.Fault) {
	r.Helper()
	_, err := r.sim.AddFault(f)
	require.NoError(r, err)
}

// run runs a job of the instance. signals are sent, one after the other, ten hours apart: to a job
// that is parked.
func (r *simRig) run(job db.Job, signals ...lifecycle.Action) instancedb.Instance {
	r.Helper()
	var later []func(*testsuite.TestWorkflowEnvironment)
	for _, a := range signals {
		later = append(later, func(env *testsuite.TestWorkflowEnvironment) {
			env.SignalWorkflow(string(a), contract.ActionRequest{Actor: "ops"})
		})
	}
	return r.runAnd(job, later...)
}

// runAnd runs a job of the instance, and does something every ten hours: when it is parked.
func (r *simRig) runAnd(job db.Job, later ...func(*testsuite.TestWorkflowEnvironment)) instancedb.Instance {
	r.Helper()
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := suite.NewTestWorkflowEnvironment()
	env.SetTestTimeout(2 * time.Minute)
	// The activities are real ones on a real database: without heartbeats the environment ends one
	// after ten seconds.
	env.SetWorkerOptions(worker.Options{DeadlockDetectionTimeout: time.Minute, Interceptors: []interceptor.WorkerInterceptor{&temporalx.Heartbeats{}}})
	env.RegisterActivity(&projection.Activities{Store: projection.NewDatabase(r.store), PublicURL: "https://slipway.example"})
	env.RegisterActivity(r.acts)
	env.RegisterWorkflow(instance.Create)
	env.RegisterWorkflow(instance.Terminate)
	for i, do := range later {
		env.RegisterDelayedCallback(func() {
			r.clock.set(env.Now())
			do(env)
		}, time.Duration(i+1)*10*time.Hour)
	}
	in := contract.JobInput{JobID: job.ID, Kind: contract.JobKind(job.Kind), ResourceID: r.row.ID}
	var workflow any = instance.Create
	if in.Kind == contract.KindInstanceTerminate {
		workflow = instance.Terminate
	}
	env.ExecuteWorkflow(workflow, in)
	require.True(r, env.IsWorkflowCompleted())
	err := env.GetWorkflowError()
	var late *temporal.TimeoutError
	if errors.As(err, &late) { // its ten years went by, which are short where a real server boots slowly
		require.NoError(r, err, runenv.Deadline+"the time of the workflow is over")
	}
	require.NoError(r, err)
	return r.read()
}

func (r *simRig) read() instancedb.Instance {
	r.Helper()
	i, err := instancedb.Get(r.Context(), r.store, r.row.ID)
	require.NoError(r, err)
	return i
}

func (r *simRig) terminate() instanceintent.Terminated {
	r.Helper()
	var out instanceintent.Terminated
	require.NoError(r, r.store.Tx(r.Context(), func(tx *db.Tx) error {
		var err error
		out, err = instanceintent.Terminate(r.Context(), tx, r.row.ID, "not needed", operator)
		return err
	}))
	return out
}

// logged returns how often each action type succeeded.
func (r *simRig) logged() map[string]int {
	r.Helper()
	rows, err := instancedb.ListActions(r.Context(), r.store, r.row.ID, "", 200)
	require.NoError(r, err)
	out := map[string]int{}
	for _, a := range rows {
		if a.Status == lifecycle.ActionSuccess {
			out[a.ActionType]++
		}
	}
	return out
}

func (r *simRig) moves() []string {
	r.Helper()
	rows, err := instancedb.ListHistory(r.Context(), r.store, r.row.ID)
	require.NoError(r, err)
	out, before, last := []string{}, "", time.Now().Add(-time.Hour)
	for _, m := range rows {
		out = append(out, m.ToStatus)
		require.Equal(r, before, m.FromStatus, "the move to %s", m.ToStatus)
		require.WithinRange(r, m.CreatedAt, last, time.Now().Add(time.Minute))
		before, last = m.ToStatus, m.CreatedAt
		require.True(r, m.FromStatus == "" || m.Reason != "", "the move to %s has no reason", m.ToStatus)
	}
	return out
}

// TestInstance_ToReadyAndGone takes an instance through its life at the simulated provider: each
// action is logged once, and nothing is billed at its end.
func TestInstance_ToReadyAndGone(t *testing.T) {
	t.Parallel()
	r := newSimRig(t)
	i := r.run(r.job)
	require.Equal(t, lifecycle.InstanceReady, i.Status)
	require.Equal(t, []int{100, 100}, []int{i.ProgressPercent, i.ReachedPercent})
	require.Empty(t, i.ErrorCode)
	require.NotEmpty(t, i.HostKey)
	require.NotNil(t, i.AgentVerifiedAt)
	require.NotNil(t, i.LastHealthCheck)
	logged := r.logged()
	for _, step := range lifecycle.InstanceCreateSteps() {
		want := 1
		if step.ActionType == lifecycle.ActHealthCheck {
			want = 2 // the stage, and the first check that it made
		}
		require.Equal(t, want, logged[step.ActionType], step.ActionType)
	}
	kinds := map[string]int{}
	for _, b := range r.sim.Billed() {
		kinds[b.Kind]++
		require.Contains(t, b.Tags, "slipway-instance="+i.ID)
	}
	require.Equal(t, map[string]int{"server": 1, "volume": 1, "security_group": 1}, kinds)

	ended := r.terminate()
	require.Equal(t, lifecycle.InstanceDraining, ended.Instance.Status)
	i = r.run(*ended.Job)
	require.Equal(t, lifecycle.InstanceTerminated, i.Status)
	require.Zero(t, i.ProgressPercent)
	require.Empty(t, r.sim.Billed())
	require.Equal(t, []string{"provisioning", "booting", "ready", "draining", "terminating", "terminated"}, r.moves())
	logged = r.logged()
	for _, name := range []string{"REQUEST_TERMINATE", "PROVIDER_STOP", "PROVIDER_DELETE", "PROVIDER_DELETE_VOLUME", "INSTANCE_TERMINATED"} {
		require.Equal(t, 1, logged[name], name)
	}
	require.Equal(t, lifecycle.InstanceTerminated, r.terminate().Instance.Status, "it can be repeated")
	_, err := r.acts.Secrets.Resolve(t.Context(), providers.SecretRef("instances/"+i.ID+"/worker"), providers.OwnUse())
	require.Equal(t, providers.KindNotFound, providers.KindOf(err), "the credentials end with the instance")
}

// TestInstance_OneServer: an order whose answer is lost, with a list that lags a minute, gives one
// server.
func TestInstance_OneServer(t *testing.T) {
	t.Parallel()
	for _, name := range []string{cloudsim.FaultReset, cloudsim.FaultInternalError} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newSimRig(t)
			r.fault(cloudsim.Fault{Name: cloudsim.FaultListLag, Params: map[string]string{"delay": "60s"}})
			r.fault(cloudsim.Fault{Name: name, Op: "create_server"})
			require.Equal(t, lifecycle.InstanceReady, r.run(r.job).Status)
			require.Equal(t, 1, r.sim.Counts().ServersMade)
		})
	}
	t.Run("never answered", func(t *testing.T) {
		t.Parallel()
		r := newSimRig(t)
		r.fault(cloudsim.Fault{Name: cloudsim.FaultReset, Op: "create_server", Phase: "before_commit", Count: -1})
		var parked db.Job
		i := r.runAnd(r.job, func(env *testsuite.TestWorkflowEnvironment) {
			var err error
			parked, err = r.store.Job(t.Context(), r.job.ID)
			require.NoError(t, err)
			sends(lifecycle.ActionCancel)(env)
		})
		require.Contains(t, parked.Message, "was ordered 2 times without an answer")
		require.Equal(t, lifecycle.InstanceProvisioningFailed, i.Status)
		require.Zero(t, r.sim.Counts().ServersMade)
		require.Empty(t, r.sim.Billed())
	})
}

// TestInstance_ProvisioningFails: what the provider refuses leaves nothing that is billed, and its
// code.
func TestInstance_ProvisioningFails(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		fault cloudsim.Fault
		code  string
	}{
		"quota":         {cloudsim.Fault{Name: cloudsim.FaultQuota, Op: "create_server", Count: -1}, "CLOUD_QUOTA"},
		"rejected":      {cloudsim.Fault{Name: cloudsim.FaultForbidden, Op: "create_server", Count: -1}, "CLOUD_REJECTED"},
		"volume broken": {cloudsim.Fault{Name: cloudsim.FaultVolumeError}, "CLOUD_REJECTED"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newSimRig(t)
			r.fault(tc.fault)
			i := r.run(r.job)
			require.Equal(t, lifecycle.InstanceProvisioningFailed, i.Status)
			require.Equal(t, tc.code, i.ErrorCode)
			require.NotEmpty(t, i.ErrorMessage)
			require.NotNil(t, i.FailedAt)
			require.Zero(t, i.ProgressPercent)
			require.Empty(t, r.sim.Billed())
			ended := r.terminate()
			require.Equal(t, lifecycle.InstanceTerminated, r.run(*ended.Job).Status)
		})
	}
}

// TestInstance_StartupFails: the server stays, the code says why, and a retry takes it to ready.
func TestInstance_StartupFails(t *testing.T) {
	t.Parallel()
	t.Run("capacity", func(t *testing.T) {
		t.Parallel()
		r := newSimRig(t)
		r.fault(cloudsim.Fault{Name: cloudsim.FaultFallsBack, Count: 3})
		i := r.run(r.job, lifecycle.ActionRetryStage)
		require.Equal(t, lifecycle.InstanceReady, i.Status)
		require.Equal(t, []string{"provisioning", "booting", "startup_failed", "booting", "ready"}, r.moves())
		require.Equal(t, 1, r.sim.Counts().ServersMade)
	})
	t.Run("wrong checksum", func(t *testing.T) {
		t.Parallel()
		r := newSimRig(t)
		r.worker.checksum = strings.Repeat("f", 64)
		var parked instancedb.Instance
		i := r.runAnd(r.job, func(env *testsuite.TestWorkflowEnvironment) {
			parked = r.read()
			sends(lifecycle.ActionCancel)(env)
		})
		require.Equal(t, lifecycle.InstanceStartupFailed, parked.Status)
		require.Equal(t, lifecycle.InstanceChecksumFailed, parked.ErrorCode)
		require.Empty(t, r.sim.Billed(), "the cancellation deleted the server")
		require.Equal(t, lifecycle.InstanceTerminated, i.Status)
		require.Equal(t, []string{"provisioning", "booting", "startup_failed", "terminating", "terminated"}, r.moves())
		require.Nil(t, r.terminate().Job, "nothing is left to terminate")
		var closed bool
		require.NoError(t, r.store.DBTX().QueryRow(t.Context(), "SELECT closed_at IS NOT NULL FROM usage_records WHERE instance_id = $1", i.ID).Scan(&closed))
		require.True(t, closed, "what was held back of the balance is free again")
	})
	t.Run("installation", func(t *testing.T) {
		t.Parallel()
		r := newSimRig(t)
		r.worker.install = &providers.Error{Kind: providers.KindExit, Op: "ssh.install", Message: "ended with exit status 7"}
		var i instancedb.Instance
		r.runAnd(r.job, func(env *testsuite.TestWorkflowEnvironment) {
			i = r.read()
			sends(lifecycle.ActionCancel)(env)
		})
		require.Equal(t, "WORKER_INSTALL_FAILED", i.ErrorCode)
		require.Contains(t, i.ErrorMessage, "exit status 7")
		require.Equal(t, lifecycle.StageInstallWorker, i.FailedStage)
	})
}

// TestInstance_TerminatedWhileItIsMade: the creation ends, deletes everything and leaves the
// instance terminated, without a second job.
func TestInstance_TerminatedWhileItIsMade(t *testing.T) {
	t.Parallel()
	r := newSimRig(t)
	ended := r.terminate()
	require.Equal(t, lifecycle.InstanceTerminating, ended.Instance.Status)
	require.Equal(t, lifecycle.ActionCancel, ended.Action)
	require.Equal(t, r.job.ID, ended.Job.ID)
	i := r.run(r.job)
	require.Equal(t, lifecycle.InstanceTerminated, i.Status)
	require.Zero(t, r.sim.Counts().ServersMade, "an instance that is to end gets no server")
	require.Empty(t, r.sim.Billed())
}
