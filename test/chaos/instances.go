package chaos

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	instanceact "github.com/slipway-cloud/slipway/activities/instance"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	tenancydb "github.com/slipway-cloud/slipway/db/tenancy"
	"github.com/slipway-cloud/slipway/intent/instance"
	"github.com/slipway-cloud/slipway/intent/tenancy"
	"github.com/slipway-cloud/slipway/internal/config"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/instance/mock"
	cloudsim "github.com/slipway-cloud/slipway/sim/cloud"
	simhw "github.com/slipway-cloud/slipway/sim/hw"
)

// InstanceJobs are the sets of the jobs of instances: one that makes a server at a cloud provider,
// and one that deletes it with all that is billed.
func InstanceJobs() []*ScenarioSet { return []*ScenarioSet{instanceCreate(), instanceTerminate()} }

// instanceStages are the activities of the stages of a creation, in pairs.
func instanceStages() []Point {
	return remote(
		lifecycle.StageAcceptCreate, "LoadInstance", lifecycle.StageCheckProvider, "CheckCloud", lifecycle.StageCreateServer, "CreateServer",
		lifecycle.StagePersistServer, "PersistServer", lifecycle.StageClaimVolume, "ClaimVolumes", lifecycle.StageResizeVolume, "GrowVolume",
		lifecycle.StageServerCreated, "BeginBoot", lifecycle.StageStartServer, "PrepareServer", lifecycle.StageStartServer, "StartServer",
		lifecycle.StageGetAddress, "WaitForAddress", lifecycle.StageVerifyGroup, "VerifySecurityGroup", lifecycle.StageWaitSSH, "WaitForSSH",
		lifecycle.StageInstallWorker, "InstallWorker", lifecycle.StageWaitHTTP, "WaitForVLLM", lifecycle.StageWaitModel, "WaitForModel",
		lifecycle.StageWarmUp, "WarmUpModel", lifecycle.StageCheckHealth, "CheckHealth", lifecycle.StageInstanceReady, "LoadInstance",
	)
}

// The paths on which the provider does something else than usual.
const (
	pathLost  = "lost"  // the answer to the order of the server is lost, and lists show it later
	pathQuota = "quota" // the order is refused
	pathGone  = "gone"  // the answers to deletions are lost
)

func instanceCreate() *ScenarioSet {
	kind := contract.KindInstanceCreate
	deleted := remote(lifecycle.StageCreateServer, "StopServer", lifecycle.StageCreateServer, "DeleteServer", lifecycle.StageCreateServer, "DeleteResources",
		lifecycle.StageCreateServer, "ReadLeft")
	ordered := remote(lifecycle.StageCreateServer, "CreateServer", lifecycle.StagePersistServer, "PersistServer")
	compensated := append(slices.Clone(deleted), project(string(lifecycle.JobCompensating)), project(string(lifecycle.JobCancelled)))
	undone := func(name string, at Point) Path {
		return Path{Name: name, Cloud: true, NoCancel: true, First: []Fault{{Point: at, Kind: Cancel, Variant: "before"}}, Points: compensated, Check: checkInstance}
	}
	return &ScenarioSet{
		Name: string(kind), Kind: kind, Stages: contract.Stages(kind), Start: startInstance, Also: compensated,
		Strata: []Kind{CrashAfter, AnswerLost, WorkerKilled, SiteCut, Cancel},
		Paths: []Path{
			{Name: "plain", Cloud: true, Points: append(instanceStages(), projectionsOf(kind)...), Check: checkInstance},
			{Name: pathLost, Cloud: true, Points: ordered, Check: checkInstance},
			{
				Name: pathQuota, Cloud: true, NoCancel: true, Points: append(compensated, ordered[0]),
				Ends: []lifecycle.JobStatus{lifecycle.JobCancelled}, Check: checkInstance,
			},
			undone("undone_made", ordered[1]),
			undone("undone_loading", Point{Stage: lifecycle.StageWaitModel, Activity: "WaitForModel"}),
		},
	}
}

func instanceTerminate() *ScenarioSet {
	kind := contract.KindInstanceTerminate
	points := append(remote(
		lifecycle.StageAcceptTerminate, "LoadInstance", lifecycle.StageDrainInstance, "DrainInstance", lifecycle.StageStopServer, "StopServer",
		lifecycle.StageDeleteServer, "DeleteServer", lifecycle.StageDeleteVolumes, "DeleteResources", lifecycle.StageProveDeleted, "ProveDeleted",
	), projectionsOf(kind)...)
	return &ScenarioSet{
		Name: string(kind), Kind: kind, Stages: contract.Stages(kind), Start: startTermination, Strata: []Kind{AnswerLost, WorkerKilled, SiteCut},
		Also: remote("job", "LoadInstance"), // asked before a cancel is refused
		Paths: []Path{
			{Name: "plain", Cloud: true, Points: points, Prepare: prepareReady, Check: checkTerminated},
			{Name: pathGone, Cloud: true, Points: points, Prepare: prepareReady, Check: checkTerminated},
		},
	}
}

const (
	cloudKey     = "00000000-0000-4000-8000-5ec0e7000001"
	cloudProject = "00000000-0000-4000-8000-000000000002"
	cloudKeyRef  = "chaos/cloud"
	cloudModel   = "acme/small"
	cloudType    = "L4-1-24G"
)

// clouds is the simulated account of an environment, with the project that all its instances are
// of.
type clouds struct {
	sim     *cloudsim.Server
	url     string
	project string
}

// newClouds starts an account.
func newClouds(ctx context.Context) (*clouds, func(), error) {
	sim, err := cloudsim.New(cloudsim.Options{SecretKey: cloudKey, ProjectID: cloudProject, Clock: simhw.NewClock(speed)})
	if err != nil {
		return nil, nil, err
	}
	at, stop, err := sim.Start(context.WithoutCancel(ctx), "127.0.0.1:0", "") // it ends with the environment
	if err != nil {
		return nil, nil, err
	}
	return &clouds{sim: sim, url: at.URL()}, stop, nil
}

// configure names the account in the settings of the product.
func (c *clouds) configure(cfg *config.Config) {
	i := &cfg.Instance
	i.ScalewayProjectID, i.ScalewayAccessKey, i.ScalewayKeyRef, i.ScalewayURL = cloudProject, "SCWXXXXXXXXXXXXXXXXX", cloudKeyRef, c.url
	i.ScalewayZones, i.ScalewayImage, i.Installation = cloudsim.Zone, cloudsim.ImageLabel, "chaos"
	i.SSHSources, i.WorkerSources = "192.0.2.0/24", "192.0.2.0/24"
}

// misbehaves makes the account misbehave in what is about one instance, and returns what ends it.
func (c *clouds) misbehaves(instance string, f cloudsim.Fault) (end func(), err error) {
	f.Tag = instanceTag + instance
	id, err := c.sim.AddFault(f)
	return func() { c.sim.ClearFaults(id) }, err
}

// cut has calls about one instance get no answer for a while: refused, nothing comes of them; else
// what they ask for is done.
func (c *clouds) cut(instance string, refuse bool, d time.Duration) {
	phase := "after_commit"
	if refuse {
		phase = "before_commit"
	}
	if end, err := c.misbehaves(instance, cloudsim.Fault{Name: cloudsim.FaultReset, Phase: phase, Count: -1}); err == nil {
		time.AfterFunc(d, end)
	}
}

// instanceEnv is the account in the settings of a worker process.
func instanceEnv(i config.Instance) []string {
	return []string{
		"SLIPWAY_INSTANCE_SCALEWAY_PROJECT_ID=" + i.ScalewayProjectID, "SLIPWAY_INSTANCE_SCALEWAY_ACCESS_KEY=" + i.ScalewayAccessKey,
		"SLIPWAY_INSTANCE_SCALEWAY_KEY_REF=" + i.ScalewayKeyRef, "SLIPWAY_INSTANCE_SCALEWAY_URL=" + i.ScalewayURL,
		"SLIPWAY_INSTANCE_SCALEWAY_ZONES=" + i.ScalewayZones, "SLIPWAY_INSTANCE_SCALEWAY_IMAGE=" + i.ScalewayImage,
		"SLIPWAY_INSTANCE_INSTALLATION=" + i.Installation, "SLIPWAY_INSTANCE_SSH_SOURCES=" + i.SSHSources,
		"SLIPWAY_INSTANCE_WORKER_SOURCES=" + i.WorkerSources,
	}
}

// furnishClouds stores the key of the account, and makes the project of the instances.
func (t *environment) furnishClouds(ctx context.Context) error {
	use := spec.SecretUse{Kind: spec.SecretCloudKey, Networks: []string{"127.0.0.0/8"}}
	if _, err := t.stack.App.Store.SetSecretUse(ctx, cloudKeyRef, use); err != nil {
		return fmt.Errorf("state the use of the cloud's key: %w", err)
	}
	if _, err := t.stack.App.Secrets.Put(ctx, cloudKeyRef, providers.NewSecret(cloudKey)); err != nil {
		return fmt.Errorf("store the cloud's key: %w", err)
	}
	return t.store.Tx(ctx, func(tx *db.Tx) error {
		account, err := tenancydb.CreateAccount(ctx, tx, db.NewID("account"), 1)
		if err != nil {
			return err
		}
		p, err := tenancy.CreateProject(ctx, tx, tenancy.NewProject{AccountID: account.ID, Name: "instances"}, bootedBy)
		t.clouds.project = p.ID
		return err
	})
}

// The pauses of the product are seconds, and the lists of a provider lag for a minute and a half.
const (
	cloudPoll = 200 * time.Millisecond
	cloudLag  = 4 * time.Second
)

// tuneInstances has a worker's activities look more often, and reach workers that serve at once: no
// server of the simulated account can be logged in to.
func tuneInstances(a *instanceact.Activities) {
	open := a.Open
	a.Poll = cloudPoll
	a.Open = func(ctx context.Context, name string) (instanceact.Provider, error) {
		p, err := open(ctx, name)
		p.Worker, p.Simulated, p.Lag = servingWorker{}, true, cloudLag
		return p, err
	}
}

// servingWorker is a worker that serves.
type servingWorker struct{}

var _ providers.Worker = servingWorker{}

func (servingWorker) ReachSSH(context.Context, providers.WorkerTarget) (bool, error) {
	return true, nil
}

func (servingWorker) Install(context.Context, providers.WorkerTarget, providers.WorkerInstall) (providers.WorkerPhases, error) {
	return providers.WorkerPhases{Done: lifecycle.WorkerPhases(), ExitStatus: "0", Info: mock.AgentInfo()}, nil
}

func (servingWorker) Readyz(context.Context, providers.WorkerTarget) (bool, error) { return true, nil }

func (servingWorker) Models(context.Context, providers.WorkerTarget) ([]string, error) {
	return []string{cloudModel}, nil
}

func (servingWorker) Complete(context.Context, providers.WorkerTarget, string) error { return nil }

func (servingWorker) Info(context.Context, providers.WorkerTarget) (providers.WorkerInfo, error) {
	return mock.AgentInfo(), nil
}

// stageInstance makes the target of a case of instances, which needs no machine.
func (t *environment) stageInstance(c Case) *Target {
	return &Target{Stack: t.stack, Store: t.store, Case: c, DSN: t.dsn, plans: t.plans, retried: map[int64]bool{}, clouds: t.clouds}
}

// makeInstance accepts an instance, as the API does, and has its account do what the path says.
func (t *Target) makeInstance(ctx context.Context, tx *db.Tx) (db.Job, error) {
	i, job, err := instance.Make(ctx, tx, instance.Create{
		ProjectID: t.clouds.project, Offers: t.Stack.App.InstanceOffers(),
		InstanceSpec: spec.InstanceSpec{
			Name: strings.ToLower(db.NewID("chaos")[6:]), Provider: "scaleway", Zone: cloudsim.Zone, Type: cloudType, Model: cloudModel,
		},
	}, bootedBy)
	if err != nil {
		return job, err
	}
	t.instance = i.ID
	for _, f := range accountFaults(t.Case.Path) {
		if _, err := t.clouds.misbehaves(i.ID, f); err != nil {
			return job, err
		}
	}
	return job, nil
}

// accountFaults are what the account does to the instance of a path.
func accountFaults(path string) []cloudsim.Fault {
	switch path {
	case pathLost:
		return []cloudsim.Fault{
			{Name: cloudsim.FaultInternalError, Op: "create_server", Phase: "after_commit"},
			{Name: cloudsim.FaultListLag, Params: map[string]string{"delay": (cloudLag * speed / 2).String()}},
		}
	case pathQuota:
		return []cloudsim.Fault{{Name: cloudsim.FaultQuota, Op: "create_server", Count: -1}}
	case pathGone:
		return []cloudsim.Fault{
			{Name: cloudsim.FaultInternalError, Op: "delete_server", Phase: "after_commit"},
			{Name: cloudsim.FaultReset, Op: "delete_volume", Phase: "after_commit"},
			{Name: cloudsim.FaultInternalError, Op: "delete_group", Phase: "after_commit"},
		}
	}
	return nil
}

func startInstance(ctx context.Context, tx *db.Tx, t *Target) (db.Job, error) {
	return t.makeInstance(ctx, tx)
}

// prepareReady makes an instance that is ready.
func prepareReady(ctx context.Context, t *Target) error {
	var job db.Job
	err := t.Store.Tx(ctx, func(tx *db.Tx) (err error) {
		job, err = t.makeInstance(ctx, tx)
		return err
	})
	if err != nil {
		return err
	}
	eventually(ctx, preparation, func() bool {
		if got, err := t.Store.Job(ctx, job.ID); err == nil {
			job = got
		}
		pause(ctx, lookEvery)
		return job.Status.Parked() || lifecycle.Job.Terminal(job.Status)
	})
	if job.Status != lifecycle.JobCompleted {
		return fmt.Errorf("the job that makes an instance is %s at %s: %s %s", job.Status, job.Stage, job.FailureClass, job.Message)
	}
	return nil
}

func startTermination(ctx context.Context, tx *db.Tx, t *Target) (db.Job, error) {
	r, err := instance.Terminate(ctx, tx, t.instance, "chaos", bootedBy)
	if err != nil {
		return db.Job{}, err
	}
	if r.Job == nil {
		return db.Job{}, fmt.Errorf("no job ends instance %s, which is %s", t.instance, r.Instance.Status)
	}
	return *r.Job, nil
}
