// Package stack runs the whole system on one machine: a private Postgres, an
// embedded Temporal server, a simulated site, and Slipway itself against them.
// The demo, `slipway-dev up` and the end-to-end tests all use it. Only what lies
// outside Slipway is simulated, and it says so.
package stack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/slipway-cloud/slipway/assembly/devserver/freeport"
	"github.com/slipway-cloud/slipway/assembly/devserver/identity"
	"github.com/slipway-cloud/slipway/assembly/devserver/pg"
	"github.com/slipway-cloud/slipway/assembly/devserver/temporal"
	"github.com/slipway-cloud/slipway/assembly/devserver/toolcache"
	"github.com/slipway-cloud/slipway/assembly/server"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/internal/config"
	simhw "github.com/slipway-cloud/slipway/sim/hw"
	maassim "github.com/slipway-cloud/slipway/sim/maas"
	stripesim "github.com/slipway-cloud/slipway/sim/stripe"
)

// Options say what to run.
type Options struct {
	// Dir keeps everything across runs; empty is a temporary folder that Close
	// removes.
	Dir string
	// Site names the simulated site, and its secrets are named after it; empty is "sim". Sites
	// that share a database need names of their own.
	Site string
	// Specs are the machines; nil takes Count GPU servers of all vendors, whose serial numbers,
	// MAC addresses and ids count on from FirstMachine.
	Specs               []simhw.Spec
	Count, FirstMachine int
	// PXE are machines that no MAAS knows and that boot from the network, see
	// PXEMachines; AddPXE adds others later.
	PXE []PXEMachine
	// SSHUser is the account that Slipway seeds on the nodes of the site; empty is ubuntu.
	SSHUser string
	// Speed is virtual seconds a second for MAAS and the machines.
	Speed     float64
	Durations maassim.Durations
	// Ports on 127.0.0.1; 0 picks free ones. TemporalUI below 0 is without UI.
	APIPort, AgentPort, TemporalPort, TemporalUI int
	// WithIdentity starts an identity provider, which users sign in at, on IdentityPort of
	// 127.0.0.1.
	WithIdentity bool
	IdentityPort int
	// WithPayments starts a simulated account at Stripe, on PaymentPort of 127.0.0.1.
	WithPayments bool
	PaymentPort  int
	// TemporalEnv and DatabaseEnv name variables with servers to share, as the
	// tests do; empty starts private ones.
	TemporalEnv, DatabaseEnv string
	// TemporalOnDisk keeps Temporal's state in a file, so that it can be paused.
	TemporalOnDisk bool
	TaskQueue      string
	// BuildID runs the worker under Worker Versioning, in a deployment that is
	// named like the task queue; empty runs it unversioned.
	BuildID   string
	Namespace string
	// Reconcile is how often the site is compared with what is known of it; 0 is
	// once, at the start: a pass would take faults that are meant for a job.
	Reconcile time.Duration
	// OfflineAfter is how long an active node may be silent; 0 is what Slipway
	// does out of the box.
	OfflineAfter time.Duration
	// Configure changes Slipway's configuration before it starts; nil leaves it as it is.
	Configure func(*config.Config)
	// Receiver is an endpoint on this machine that may be a webhook.
	Receiver *server.LocalReceiver
	// Worker and API run in this process unless switched off.
	NoWorker, NoAPI bool
	Progress        io.Writer // one line a step; nil for silence
	Log             io.Writer // Slipway's own log; nil drops it
}

// Stack is a running system.
type Stack struct {
	Options  Options
	Dir      string
	Postgres *pg.Server
	Temporal *temporal.Server
	Identity *identity.Provider // nil without Options.WithIdentity
	Stripe   *stripesim.Server  // nil without Options.WithPayments
	Sims     *Sims
	PXE      []*PXEServer
	App      *server.App
	Config   config.Config
	Database string
	Bin      string // folder of the programs built for the stack

	ctx    context.Context
	cancel context.CancelFunc
	roles  map[string]*role
	closes []func()
	pxe    *simhw.Fleet
	stripe account
}

// role is one of Slipway's own processes run inside this one.
type role struct {
	cancel context.CancelFunc
	done   chan error
}

// step is one part of bringing a stack up.
type step struct {
	what string
	do   func(context.Context) error
}

// Start brings everything up in order, saying what it does. On failure what was
// started is stopped again.
func Start(ctx context.Context, o Options) (*Stack, error) {
	s := &Stack{Options: o, roles: map[string]*role{}}
	s.ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return s.bringUp(ctx, []step{
		{"preparing the folder", s.folder},
		{"building the programs (the first time some minutes)", s.build},
		{"starting PostgreSQL", s.postgres},
		{"starting Temporal", s.temporal},
		{"starting the simulated site (MAAS region, BMCs, machines)", s.sims},
		{"starting Slipway", s.slipway},
		{"starting the machines that boot from the network", s.machines},
	})
}

// NewSite starts another simulated site on the database, the Temporal server, the API and the
// worker of s. Of the options it uses those of the site and its machines. The returned stack owns
// only its machines and its folder: Close stops these and leaves the rest running.
func (s *Stack) NewSite(ctx context.Context, o Options) (*Stack, error) {
	site := &Stack{
		Options: o, roles: map[string]*role{}, Postgres: s.Postgres, Temporal: s.Temporal, App: s.App, Config: s.Config,
		Database: s.Database, Bin: s.Bin,
	}
	site.ctx, site.cancel = context.WithCancel(s.ctx)
	return site.bringUp(ctx, []step{
		{"preparing the folder", site.folder},
		{"starting the simulated site (MAAS region, BMCs, machines)", site.sims},
		{"starting the machines that boot from the network", site.machines},
	})
}

func (s *Stack) bringUp(ctx context.Context, steps []step) (*Stack, error) {
	if len(s.Options.PXE) == 0 {
		steps = steps[:len(steps)-1]
	}
	for _, step := range steps {
		began := time.Now()
		s.say("%s ...", step.what)
		if err := step.do(ctx); err != nil {
			s.Close()
			return nil, fmt.Errorf("%s: %w", step.what, err)
		}
		s.say("%s: done in %s", step.what, time.Since(began).Round(10*time.Millisecond))
	}
	return s, nil
}

func (s *Stack) say(format string, args ...any) {
	if s.Options.Progress != nil {
		fmt.Fprintf(s.Options.Progress, "  "+format+"\n", args...)
	}
}

func (s *Stack) onClose(f func()) { s.closes = append(s.closes, f) }

// Close stops everything, newest first. It may be called on a half-started
// stack, and twice.
func (s *Stack) Close() {
	for name := range s.roles {
		_ = s.StopRole(name)
	}
	for i := len(s.closes) - 1; i >= 0; i-- {
		s.closes[i]()
	}
	s.closes = nil
	s.cancel()
}

func (s *Stack) folder(context.Context) error {
	if s.Options.Dir != "" {
		s.Dir = s.Options.Dir
		return os.MkdirAll(s.Dir, 0o750)
	}
	dir, err := os.MkdirTemp("", "slipway-stack-")
	if err != nil {
		return err
	}
	s.Dir = dir
	s.onClose(func() { _ = os.RemoveAll(dir) })
	return nil
}

// programs are built once by each process; all its stacks run the same.
var programs struct {
	sync.Mutex
	dir    string
	agents map[string]string // by version
}

// build compiles the programs that run as processes of their own.
func (s *Stack) build(ctx context.Context) error {
	programs.Lock()
	defer programs.Unlock()
	if s.Bin = programs.dir; s.Bin != "" {
		return nil
	}
	root, err := toolcache.Root()
	if err != nil {
		return err
	}
	dir := filepath.Join(root, "bin")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", dir+string(filepath.Separator), "./cmd/slipway-agent", "./cmd/slipwayd", "./cmd/slipway")
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("go build: %w\n%s", err, strings.TrimSpace(string(out)))
	}
	s.Bin, programs.dir = dir, dir
	return nil
}

func (s *Stack) postgres(ctx context.Context) error {
	o := pg.Options{Log: s.Options.Progress}
	if s.Options.Dir != "" {
		o.Dir, o.Durable = filepath.Join(s.Dir, "postgres"), true
	}
	var err error
	if s.Options.DatabaseEnv != "" {
		s.Postgres, err = pg.Acquire(ctx, s.Options.DatabaseEnv, o)
	} else {
		s.Postgres, err = pg.Start(ctx, o)
	}
	if err != nil {
		return err
	}
	s.onClose(func() { _ = s.Postgres.Stop() })
	s.Database = "slipway"
	if s.Options.Dir == "" {
		s.Database += "_" + randomHex(6) // others may share the server
	}
	return s.Postgres.CreateDatabase(ctx, s.Database)
}

func (s *Stack) temporal(ctx context.Context) error {
	o := temporal.Options{FrontendPort: s.Options.TemporalPort, UIPort: max(s.Options.TemporalUI, 0), Progress: s.Options.Progress}
	if s.Options.TemporalUI == 0 {
		port, err := freeport.Find(ctx)
		if err != nil {
			return err
		}
		o.UIPort = port
	}
	if s.Options.TemporalOnDisk || s.Options.Dir != "" {
		o.DB = filepath.Join(s.Dir, "temporal.db")
	}
	var err error
	if s.Options.TemporalEnv != "" {
		s.Temporal, err = temporal.Acquire(ctx, s.Options.TemporalEnv, o)
	} else {
		s.Temporal, err = temporal.Start(ctx, o)
	}
	if err != nil {
		return err
	}
	s.onClose(func() { _ = s.Temporal.Stop() })
	if s.Options.Namespace != "" {
		if err := s.Temporal.EnsureNamespace(ctx, s.Options.Namespace); err != nil {
			return err
		}
		return s.Temporal.EnsureNamespace(ctx, config.Temporal{Namespace: s.Options.Namespace}.PassNamespace())
	}
	return nil
}

// appLogin is the user that Slipway connects as, with the rights of a serving process.
const appLogin = "slipway_dev_app"

// customerLogin is the user for requests of customers.
const customerLogin = "slipway_dev_customer"

func (s *Stack) sims(ctx context.Context) error {
	var err error
	s.Sims, err = StartSims(s.ctx, SimOptions{
		Specs: s.Options.Specs, Count: s.Options.Count, FirstMachine: s.Options.FirstMachine, Speed: s.Options.Speed, Dir: filepath.Join(s.Dir, "nodes"),
		AgentBinary: filepath.Join(s.Bin, "slipway-agent"), Log: slog.New(slog.NewTextHandler(orDiscard(s.Options.Log), nil)),
		Durations: s.Options.Durations,
	})
	if err != nil {
		return err
	}
	s.onClose(s.Sims.Stop)
	s.pxe = simhw.NewFleet(s.ctx, s.Sims.Fleet.Clock())
	return ctx.Err()
}

func orDiscard(w io.Writer) io.Writer {
	if w == nil {
		return io.Discard
	}
	return w
}

func (s *Stack) slipway(ctx context.Context) error {
	cfg, err := s.configure(ctx)
	if err != nil {
		return err
	}
	s.Config = cfg
	owner := cfg
	owner.Database.OwnerURL = s.Postgres.DSN(s.Database)
	if _, err := server.Migrate(ctx, owner, server.NewCA{}); err != nil {
		return err
	}
	if err := s.Postgres.EnsureLogin(ctx, appLogin, db.RoleApp); err != nil {
		return err
	}
	if err := s.Postgres.EnsureLogin(ctx, customerLogin, db.RoleCustomer); err != nil {
		return err
	}
	if err := s.openApp(ctx); err != nil {
		return err
	}
	s.onClose(func() { s.App.Close() })
	if err := s.seedPayments(ctx); err != nil {
		return err
	}
	if s.Options.Dir == "" && !s.Options.NoWorker {
		// The server may be shared and outlive this stack: nothing shall go on firing there.
		s.onClose(func() { _ = s.App.RemoveSchedules(s.ctx) })
	}
	return s.serve(ctx)
}

func (s *Stack) configure(ctx context.Context) (config.Config, error) {
	cfg := config.Default()
	cfg.Machine.Simulated, cfg.Machine.Providers = true, "dc-1=fake"
	cfg.Instance.MockDuration = 10 * time.Second // instances can be tried without a cloud provider
	bootPort := 0
	ports := []*int{&s.Options.APIPort, &s.Options.AgentPort, &bootPort}
	for _, p := range ports {
		if *p == 0 {
			var err error
			if *p, err = freeport.Find(ctx); err != nil {
				return cfg, err
			}
		}
	}
	var err error
	if cfg.Database.URL, err = s.Postgres.LoginDSN(s.Database, appLogin); err != nil {
		return cfg, err
	}
	if cfg.Database.CustomerURL, err = s.Postgres.LoginDSN(s.Database, customerLogin); err != nil {
		return cfg, err
	}
	cfg.Temporal.Address, cfg.Temporal.Namespace = s.Temporal.Address(), temporal.Namespace
	if s.Options.Namespace != "" {
		cfg.Temporal.Namespace = s.Options.Namespace
	}
	if s.Options.TaskQueue != "" {
		cfg.Temporal.TaskQueue = s.Options.TaskQueue
	}
	if s.Options.BuildID != "" {
		cfg.Temporal.BuildID, cfg.Temporal.DeploymentName = s.Options.BuildID, cfg.Temporal.TaskQueue
	}
	cfg.Portal.TemporalUIURL = s.Temporal.UI()
	cfg.API.Listen, cfg.API.PublicURL = loopback(s.Options.APIPort), "http://"+loopback(s.Options.APIPort)
	cfg.Boot.Listen = loopback(bootPort)
	cfg.Agent.Listen, cfg.Agent.PublicURL = loopback(s.Options.AgentPort), "https://"+loopback(s.Options.AgentPort)
	cfg.Agent.CADir = filepath.Join(s.Dir, "ca")
	cfg.Secrets.KeyFile = filepath.Join(s.Dir, "secrets.key")
	cfg.Log.Format = "text"
	cfg.Worker.DeadlockTimeout = time.Minute // a whole region shares these cores, and a laptop sleeps
	if s.Options.OfflineAfter > 0 {
		cfg.Agent.OfflineAfter = s.Options.OfflineAfter
	}
	if cfg.Reconcile.Every = s.Options.Reconcile; cfg.Reconcile.Every == 0 {
		cfg.Reconcile.Every = 24 * time.Hour
	}
	if s.Options.TemporalUI >= 0 {
		cfg.Portal.TemporalUIURL = s.Temporal.UI()
	}
	if s.Options.WithIdentity {
		if err := s.startIdentity(ctx, &cfg); err != nil {
			return cfg, err
		}
	}
	if s.Options.WithPayments {
		if err := s.startPayments(&cfg); err != nil {
			return cfg, err
		}
	}
	if s.Options.Configure != nil {
		s.Options.Configure(&cfg)
	}
	return cfg, cfg.Validate(config.PartDatabase, config.PartTemporal, config.PartAPI, config.PartAgent, config.PartSecrets, config.PartWorker)
}

// StartRole runs one of Slipway's processes inside this one.
func (s *Stack) StartRole(name string, run func(context.Context) error) {
	ctx, cancel := context.WithCancel(s.ctx)
	r := &role{cancel: cancel, done: make(chan error, 1)}
	s.roles[name] = r
	go func() { r.done <- run(ctx) }()
}

// StopRole stops one gracefully and returns what it ended with.
func (s *Stack) StopRole(name string) error {
	r := s.roles[name]
	if r == nil {
		return nil
	}
	delete(s.roles, name)
	r.cancel()
	select {
	case err := <-r.done:
		if errors.Is(err, context.Canceled) {
			return nil
		}
		return err
	case <-time.After(30 * time.Second):
		return fmt.Errorf("%s did not stop within 30 s", name)
	}
}

// ready waits until the APIs answer.
func (s *Stack) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	addrs := []string{s.Config.API.Listen, s.Config.Boot.Listen, s.Config.Agent.Listen}
	if s.Options.NoAPI {
		addrs = nil
	}
	for _, addr := range addrs {
		for {
			var d net.Dialer
			c, err := d.DialContext(ctx, "tcp", addr)
			if err == nil {
				_ = c.Close()
				break
			}
			for name, r := range s.roles {
				select {
				case rerr := <-r.done:
					return fmt.Errorf("%s ended: %w", name, rerr)
				default:
				}
			}
			if ctx.Err() != nil {
				return fmt.Errorf("%s does not answer: %w", addr, err)
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	return nil
}
