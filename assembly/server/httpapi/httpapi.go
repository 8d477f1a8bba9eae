// Package httpapi assembles the listener for people, programs and machines that boot: the REST
// areas and their peers on one op.API. A new area is registered here.
package httpapi

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slipway-cloud/slipway/api/boot"
	"github.com/slipway-cloud/slipway/api/grpc"
	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/portal"
	"github.com/slipway-cloud/slipway/api/rest"
	"github.com/slipway-cloud/slipway/api/rest/cluster"
	"github.com/slipway-cloud/slipway/api/rest/hardware"
	"github.com/slipway-cloud/slipway/api/rest/instance"
	"github.com/slipway-cloud/slipway/api/rest/tenancy"
	"github.com/slipway-cloud/slipway/api/webhook"
	"github.com/slipway-cloud/slipway/intent/allocation"
	instanceintent "github.com/slipway-cloud/slipway/intent/instance"
	"github.com/slipway-cloud/slipway/internal/telemetry"
	"github.com/slipway-cloud/slipway/loops/paymentsync"
	"github.com/slipway-cloud/slipway/providers/stripe"
)

// Config is the configuration of each part. All parts share the store and the log of the API, and
// tell agents the same server.
type Config struct {
	API    op.Config
	REST   rest.Config
	Boot   boot.Config
	Portal portal.Config
	Events tenancy.EventsConfig
	Launch allocation.Policy // the zero value is the default
	// Billing is what the settings say of money; the zero value is the default.
	Billing tenancy.BillingConfig
	// Instances are the providers at which instances may be made.
	Instances []instanceintent.Offer
	// InstanceLimit is how many live instances each project may have by requests of its members.
	InstanceLimit int
	// Payments asks the payment provider, and Webhooks checks what it tells. nil: there are no
	// payments.
	Payments *paymentsync.Syncer
	// Machines serves the gRPC API. Its engine is the one of the REST API.
	Machines grpc.Config
	Webhooks *stripe.Verifier
	Health   *telemetry.Health    // nil: no /healthz, /readyz
	Metrics  *prometheus.Registry // nil: no /metrics
}

// New registers every area. It fails when a route has no role or a role no route.
func New(cfg Config) (*op.API, error) {
	api, err := op.New(cfg.API)
	if err != nil {
		return nil, err
	}
	if err := rest.Register(api, cfg.REST); err != nil {
		return nil, err
	}
	tenancy.Register(api)
	tenancy.RegisterEvents(api, cfg.Events)
	engine := rest.NewEngine(api, cfg.REST)
	tenancy.RegisterBilling(api, cfg.Billing)
	tenancy.RegisterPayments(api, cfg.Payments)
	webhook.Register(api, cfg.Webhooks)
	cluster.Register(api)
	hardware.Register(api)
	instance.Register(api, instance.Config{Offers: cfg.Instances, CustomerLimit: cfg.InstanceLimit, AskJob: engine.AskJob})
	tenancy.RegisterAllocations(api, tenancy.AllocationsConfig{AskJob: engine.AskJob, ReadPower: engine.ReadPower, Policy: cfg.Launch})
	cfg.Machines.AskJob = engine.AskAtOnce
	grpc.Register(api, cfg.Machines)
	cfg.Boot.Store, cfg.Boot.Log = api.Store(), api.Log()
	cfg.Boot.AgentURL, cfg.Boot.AgentCAPEM = cfg.REST.AgentURL, cfg.REST.AgentCAPEM
	boot.New(cfg.Boot).Register(api)
	cfg.Portal.PublicURL = cfg.API.PublicURL
	if err := portal.Register(api, cfg.Portal); err != nil {
		return nil, err
	}
	r := api.Router()
	if cfg.Health != nil {
		h := cfg.Health.Handler()
		for _, path := range []string{op.HealthPath, op.ReadyPath} {
			r.Get(path, h.ServeHTTP)
			r.Head(path, h.ServeHTTP)
		}
	}
	if cfg.Metrics != nil {
		if err := cfg.Metrics.Register(api.Refusals()); err != nil {
			return nil, fmt.Errorf("register the metrics of the API: %w", err)
		}
		r.Get("/metrics", api.RequireRole(op.RoleViewer, telemetry.MetricsHandler(cfg.Metrics)))
	}
	return api, api.Close()
}
