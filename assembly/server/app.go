// Package server assembles Slipway's processes from its parts: what slipwayd
// runs, and what the dev stack and the tests run inside themselves.
package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.temporal.io/sdk/client"

	instanceact "github.com/slipway-cloud/slipway/activities/instance"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/internal/config"
	"github.com/slipway-cloud/slipway/internal/nodeca"
	"github.com/slipway-cloud/slipway/internal/poll"
	"github.com/slipway-cloud/slipway/internal/telemetry"
	"github.com/slipway-cloud/slipway/internal/temporaltls"
	"github.com/slipway-cloud/slipway/internal/temporalx"
	"github.com/slipway-cloud/slipway/internal/temporalx/payloadcodec"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/secrets"
)

// Version is the build's version; the linker sets it.
var Version = "dev"

// App is what every process has.
type App struct {
	Config   config.Config
	Log      *slog.Logger
	Redactor *telemetry.Redactor
	Metrics  *prometheus.Registry
	Health   *telemetry.Health
	Store    *db.Store
	Secrets  *secrets.Secrets
	Payloads *payloadcodec.Codec
	Temporal client.Client
	// Maintenance speaks for the namespace of the Schedules and their passes. It is Temporal itself
	// where the configuration names one namespace for both.
	Maintenance client.Client

	CA *nodeca.CA
	// Receiver may be a webhook beside public addresses. No setting sets it, and Run refuses it.
	Receiver *LocalReceiver

	// TuneInstances changes what the activities of instances use: their pauses, and the way to
	// workers. No setting sets it, and Run refuses it.
	TuneInstances func(*instanceact.Activities)

	// Clusters speaks to Kubernetes clusters; without it no machine joins one. UseClusters sets it.
	clusters  providers.ClusterJoin
	servesAPI atomic.Bool
	machines  providers.MachineAdapters
	simulated simulated
}

// openTimeout bounds the wait for the database when a process starts.
const openTimeout = 2 * time.Minute

// redactionLinger is how long secrets stay known to the log redactor after the call that used them.
const redactionLinger = 10 * time.Second

// Open connects what the configuration names. It waits for the database for a
// while, since after a power cut everything starts at once; Temporal is
// connected when it is first needed.
func Open(ctx context.Context, cfg config.Config, logTo io.Writer) (*App, error) {
	red := &telemetry.Redactor{Linger: redactionLinger}
	log, err := telemetry.NewLogger(logTo, cfg.Log.Level, cfg.Log.Format, red)
	if err != nil {
		return nil, err
	}
	log = telemetry.CountOutages(log, outageOf)
	metrics, err := telemetry.NewRegistry(Version, "")
	if err != nil {
		return nil, err
	}
	a := &App{Config: cfg, Log: log, Redactor: red, Metrics: metrics, Health: telemetry.NewHealth(log), machines: machineAdapters(cfg.Machine)}
	if a.Store, err = openStore(ctx, cfg, log); err != nil {
		return nil, err
	}
	if err := checkDatabaseUser(ctx, a.Store, cfg.Database.AllowPrivilegedUser, log); err != nil {
		a.Close()
		return nil, err
	}
	if err := a.Health.AddReady("database", 3*time.Second, a.Store.Ping); err != nil {
		a.Close()
		return nil, err
	}
	if err := a.Metrics.Register(newGauges(a.Store.Trouble, log)); err != nil {
		a.Close()
		return nil, fmt.Errorf("register the gauges: %w", err)
	}
	if err := a.Metrics.Register(newDriftGauges(a.Store, log)); err != nil {
		a.Close()
		return nil, fmt.Errorf("register the gauges of drift: %w", err)
	}
	a.Secrets, err = secrets.Open(ctx, a.Store, secrets.Keeper{URL: cfg.Secrets.Keeper, KeyFile: cfg.Secrets.KeyFile},
		secrets.Options{OnReveal: red.Use, Previous: PreviousKeeper(cfg), Own: ownSecrets(cfg), Protected: protectedServices(cfg)})
	if err != nil {
		a.Close()
		return nil, fmt.Errorf("secret keeper: %w", err)
	}
	if a.Payloads, err = openPayloadCodec(ctx, cfg, a.Secrets, log); err != nil {
		a.Close()
		return nil, err
	}
	if err := a.dialTemporal(); err != nil {
		a.Close()
		return nil, err
	}
	if a.CA, err = openCA(ctx, cfg, a.Secrets); err != nil {
		a.Close()
		return nil, err
	}
	return a, nil
}

// Close frees what Open took; it may be called on a half-open App.
func (a *App) Close() {
	if a.Maintenance != nil && a.Maintenance != a.Temporal {
		a.Maintenance.Close()
	}
	if a.Temporal != nil {
		a.Temporal.Close()
	}
	if a.Secrets != nil {
		if err := a.Secrets.Close(); err != nil {
			a.Log.Warn("secret keeper not closed", "error", err)
		}
	}
	if a.Store != nil {
		a.Store.Close()
	}
}

// PreviousKeeper returns the keeper of before a change, if the configuration names one.
func PreviousKeeper(cfg config.Config) []secrets.Keeper {
	if cfg.Secrets.PreviousKeeper == "" && cfg.Secrets.PreviousKeyFile == "" {
		return nil
	}
	return []secrets.Keeper{{URL: cfg.Secrets.PreviousKeeper, KeyFile: cfg.Secrets.PreviousKeyFile}}
}

func openStore(ctx context.Context, cfg config.Config, log *slog.Logger) (*db.Store, error) {
	until := time.Now().Add(openTimeout)
	for {
		s, err := db.Open(ctx, cfg.Database.URL, db.Log(log), db.RenewGrace(cfg.Agent.RenewGrace), db.CustomerLogin(cfg.Database.CustomerURL))
		if err == nil || time.Now().After(until) || ctx.Err() != nil {
			return s, err
		}
		log.Warn("database not reachable yet; waiting", "error", err)
		if err := poll.Sleep(ctx, 2*time.Second); err != nil {
			return nil, err
		}
	}
}

// checkDatabaseUser refuses to serve as a database user that could rewrite the audit log, unless
// the configuration allows it.
func checkDatabaseUser(ctx context.Context, s *db.Store, allow bool, log *slog.Logger) error {
	if err := s.CheckCustomerUser(ctx); err != nil { // never allowed: one customer could reach another
		return err
	}
	err := s.CheckUser(ctx)
	if allow && errors.Is(err, db.ErrPrivilegedUser) {
		log.Warn("serving with too many rights in the database, as database.allow_privileged_user says", "error", err)
		return nil
	}
	if errors.Is(err, db.ErrPrivilegedUser) {
		return fmt.Errorf("%w; keep this user for migrations, in database.owner_url", err)
	}
	return err
}

func openPayloadCodec(ctx context.Context, cfg config.Config, s *secrets.Secrets, log *slog.Logger) (*payloadcodec.Codec, error) {
	plain := cfg.Temporal.PayloadCodec == config.PayloadsPlain
	if plain {
		log.Warn("payloads are NOT encrypted: Temporal and its database hold inputs, results and failures as plain text; temporal.payload_codec says so")
	}
	return payloadcodec.Open(ctx, s, log, plain)
}

// dialTemporal makes the clients of both namespaces.
func (a *App) dialTemporal() error {
	o, err := temporalOptions(a.Config, a.Log, a.Payloads)
	if err != nil {
		return err
	}
	if a.Temporal, err = temporalx.Dial(o); err != nil {
		return err
	}
	a.Maintenance = a.Temporal
	if name := a.Config.Temporal.PassNamespace(); name != o.Namespace {
		o.Namespace = name
		a.Maintenance, err = temporalx.Dial(o)
	}
	return err
}

func temporalOptions(cfg config.Config, log *slog.Logger, payloads *payloadcodec.Codec) (temporalx.ClientOptions, error) {
	o := temporalx.ClientOptions{
		Address: cfg.Temporal.Address, Namespace: cfg.Temporal.Namespace, Log: telemetry.TemporalLogger(log), Payloads: payloads,
	}
	if cfg.Temporal.TLS.Enabled {
		c := cfg.Temporal.TLS
		t, err := temporaltls.Client(temporaltls.ClientOptions{CAFile: c.CAFile, CertFile: c.CertFile, KeyFile: c.KeyFile, ServerName: c.ServerName})
		if err != nil {
			return o, err
		}
		o.TLS = t
	}
	if f := cfg.Temporal.APIKeyFile; f != "" {
		key, err := os.ReadFile(f)
		if err != nil {
			return o, fmt.Errorf("temporal.api_key_file: %w", err)
		}
		o.APIKey = strings.TrimSpace(string(key))
	}
	return o, nil
}

// outageOf names the system that err says is away, for the log.
func outageOf(err error) string {
	if db.IsOutage(err) {
		return "database"
	}
	return ""
}
