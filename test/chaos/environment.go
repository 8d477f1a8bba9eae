package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"go.temporal.io/sdk/interceptor"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	tenancydb "github.com/slipway-cloud/slipway/db/tenancy"
	"github.com/slipway-cloud/slipway/internal/config"
	"github.com/slipway-cloud/slipway/lifecycle"
	simhw "github.com/slipway-cloud/slipway/sim/hw"
	maassim "github.com/slipway-cloud/slipway/sim/maas"
	"github.com/slipway-cloud/slipway/test/runenv"
	"github.com/slipway-cloud/slipway/test/stack"
)

// environment is a running system with a machine for each of its cases.
type environment struct {
	stack *stack.Stack
	plans *FaultPlans
	// store and dsn are the harness's own connections: what terminates the
	// product's database backends spares them.
	store   *db.Store
	dsn     string
	workers *workers
	sku     db.SKU   // whose tenants are root
	shared  db.SKU   // whose tenants are not
	targets sync.Map // job id to *Target

	agents   *wire // over which agents reach the control plane
	clouds   *clouds
	releases *stack.ReleaseServer

	// keeping are the nodes that are about to be kept; endKeeping ends the wait
	// for them.
	keeping     sync.WaitGroup
	keepingEnds context.CancelFunc
	keepingCtx  context.Context //nolint:containedctx // ends with endKeeping
	keepAtMost  int             // nodes of one state

	mu   sync.Mutex
	pool map[lifecycle.NodeStatus][]*Target
	// uncleanNodes are kept nodes that were not clean when a case was to begin with them.
	uncleanNodes []violation
	next         int // machine of MAAS
	booted       int // machines that boot from the network
	closes       []func()
}

// environmentOptions say what to build.
type environmentOptions struct {
	name     string
	machines int
	// processes is how many worker processes run; 0 runs one worker in this
	// process.
	processes int
	breaks    func(*stack.Stack) []interceptor.WorkerInterceptor // of a worker in this process
	log       io.Writer
	// keeps: cases begin with nodes in service, and those of earlier cases are kept
	// for them, as many of a state as there are cases atOnce.
	keeps  bool
	atOnce int
}

// speed is virtual seconds a second of the simulated site.
const speed = 300

// regionLimits are longer than those of a real region. At this speed its own limits would be
// seconds, and a busy machine must not look like broken hardware. For example, a release that the
// region gives up is sent again, and the harness counts it.
var regionLimits = maassim.Durations{DeployTimeout: 90 * time.Minute, NodeTimeout: 5 * time.Hour, ReleaseExpiry: 10 * time.Hour}

// revokeLimit is how long a release waits for a proof before it cuts the power. An agent that is
// asked has half of it.
const revokeLimit = 30 * time.Second

// ratePerHour is what a node costs, and credit what a tenant has, in minor units.
const (
	ratePerHour = 1993
	credit      = 1000 * ratePerHour
)

// applicationName keeps the harness's connections apart from the product's.
const applicationName = "chaos"

func newEnvironment(ctx context.Context, o environmentOptions) (*environment, error) {
	t := &environment{pool: map[lifecycle.NodeStatus][]*Target{}}
	t.keepingCtx, t.keepingEnds = context.WithCancel(ctx)
	if o.keeps {
		t.keepAtMost = o.atOnce
	}
	t.plans = newFaultPlans(t.inject)
	var stopClouds func()
	var err error
	if t.clouds, stopClouds, err = newClouds(ctx); err != nil {
		return nil, fmt.Errorf("environment %s: %w", o.name, err)
	}
	t.closes = append(t.closes, stopClouds)
	t.stack, err = stack.Start(ctx, stack.Options{
		Count: max(o.machines, 1), Speed: speed, NoWorker: true, NoAPI: true, TaskQueue: "chaos-" + o.name, TemporalUI: -1,
		TemporalEnv: "SLIPWAY_TEMPORAL_ADDRESS", DatabaseEnv: "TEST_DATABASE_URL", Log: o.log, Durations: regionLimits,
		OfflineAfter: time.Hour, // nodes without an agent, and machines that are slow
		Configure: func(c *config.Config) {
			c.Release.RevokeDeadline = runenv.Patience(revokeLimit)
			t.clouds.configure(c)
		},
	})
	if err != nil {
		t.close()
		return nil, fmt.Errorf("environment %s: %w", o.name, err)
	}
	t.closes = append(t.closes, t.stack.Close)
	if err := t.furnish(ctx, o); err != nil {
		t.close()
		return nil, fmt.Errorf("environment %s: %w", o.name, err)
	}
	return t, nil
}

func (t *environment) furnish(ctx context.Context, o environmentOptions) error {
	t.dsn = named(t.stack.Postgres.DSN(t.stack.Database))
	var err error
	if t.store, err = db.Open(ctx, t.dsn, db.CustomerLogin(named(t.stack.Config.Database.CustomerURL))); err != nil {
		return err
	}
	t.closes = append(t.closes, t.store.Close)
	if err := t.wireAgents(ctx); err != nil {
		return err
	}
	if t.releases, err = stack.NewReleaseServer(ctx); err != nil {
		return err
	}
	t.closes = append(t.closes, t.releases.Close)
	if err := t.stack.SeedSecrets(ctx); err != nil {
		return err
	}
	if t.sku, err = t.store.CreateSKU(ctx, "h100x8", t.stack.SKUSpec()); err != nil {
		return err
	}
	if t.shared, err = t.store.CreateSKU(ctx, "h100x8-shared", t.stack.SKUSpec()); err != nil {
		return err
	}
	if err := dbtest.SetTenantRootOf(ctx, t.store, t.shared.ID, false); err != nil {
		return err
	}
	if err := t.setPrices(ctx); err != nil {
		return err
	}
	if err := t.furnishClouds(ctx); err != nil {
		return err
	}
	t.stack.App.TuneInstances = tuneInstances
	if o.processes == 0 {
		all := []interceptor.WorkerInterceptor{&Interceptor{Injector: t.plans.Worker("here")}}
		if o.breaks != nil {
			all = append(all, o.breaks(t.stack)...)
		}
		t.stack.StartRole("worker", func(ctx context.Context) error { return t.stack.App.RunWorker(ctx, all...) })
		return nil
	}
	t.workers, err = startWorkers(ctx, t, o)
	if err != nil {
		return err
	}
	t.closes = append(t.closes, t.workers.stop)
	return nil
}

// setPrices gives both SKUs a price, so that tenants are charged.
func (t *environment) setPrices(ctx context.Context) error {
	c, err := pgx.Connect(ctx, t.dsn)
	if err != nil {
		return err
	}
	defer c.Close(ctx) //nolint:errcheck // a connection of the harness
	price := dbtest.Rate{From: time.Now().Add(-time.Hour), RateMinorPerHour: ratePerHour}
	for _, sku := range []db.SKU{t.sku, t.shared} {
		if err := dbtest.SetPricesOf(ctx, c, sku.ID, tenancydb.DefaultCurrency, price); err != nil {
			return fmt.Errorf("set the price of %s: %w", sku.Name, err)
		}
	}
	return nil
}

// named adds the harness's application name to a DSN of either form.
func named(dsn string) string {
	if u, err := url.Parse(dsn); err == nil && strings.HasPrefix(u.Scheme, "postgres") {
		q := u.Query()
		q.Set("application_name", applicationName)
		u.RawQuery = q.Encode()
		return u.String()
	}
	return dsn + " application_name=" + applicationName
}

// endKeeping ends the wait for nodes that are about to be kept: no case needs them.
func (t *environment) endKeeping() {
	t.keepingEnds()
	t.keeping.Wait()
}

// killed counts the worker processes that were killed.
func (t *environment) killed() int {
	if t.workers == nil {
		return 0
	}
	return t.workers.killed()
}

func (t *environment) close() {
	t.endKeeping()
	for i := len(t.closes) - 1; i >= 0; i-- {
		t.closes[i]()
	}
	t.closes = nil
}

// cutFor is how long a site is out of reach: less than what the budgets of
// automatic tries bear.
const cutFor = 3 * time.Second

// inject carries out the faults outside a worker.
func (t *environment) inject(ctx context.Context, worker, jobID string, h Fault) error {
	switch h.Kind {
	case WorkerKilled:
		if t.workers == nil {
			return fmt.Errorf("worker %s is this process and cannot be killed", worker)
		}
		return t.workers.kill(ctx, worker)
	case PostgresKilled:
		return t.terminateBackends(ctx)
	case SiteCut:
		if target := t.target(jobID); target != nil {
			target.cut(strings.HasPrefix(h.Variant, "refused"), cutFor)
		}
	case Cancel:
		if target := t.target(jobID); target != nil {
			target.cancel(ctx)
		}
	case ReleaseAsked:
		if target := t.target(jobID); target != nil {
			return target.askRelease(ctx)
		}
	case AgentKilled, AgentCut:
		if target := t.target(jobID); target != nil {
			t.injectAgentFault(ctx, target, h)
		}
	case CrashBefore, CrashAfter, AnswerLost, AnswerTwice, Timeout: // the worker's own affair
	}
	return nil
}

func (t *environment) target(jobID string) *Target {
	v, _ := t.targets.Load(jobID)
	target, _ := v.(*Target)
	return target
}

// terminateBackends ends every connection of the product to this database, as a
// failover would.
func (t *environment) terminateBackends(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	c, err := pgx.Connect(ctx, t.dsn)
	if err != nil {
		return err
	}
	defer c.Close(ctx) //nolint:errcheck // a connection of the harness
	if t.workers != nil {
		t.workers.cut()
	}
	_, err = c.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE datname = current_database() AND application_name <> $1 AND pid <> pg_backend_pid() AND backend_type = 'client backend'`, applicationName)
	return err
}

var errNoMachine = errors.New("no machine is left")

// machine hands out the next unused machine and its number.
func (t *environment) machine() (*simhw.Machine, int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := t.stack.Sims.Fleet.All()
	if t.next >= len(all) {
		return nil, 0, fmt.Errorf("%w: all %d are used up", errNoMachine, len(all))
	}
	t.next++
	return all[t.next-1], t.next - 1, nil
}
