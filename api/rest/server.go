// Package rest is the HTTP API for people and programs: chi routes, operations
// declared with huma so that OpenAPI 3.1, validation and reference come from the
// code, one file a resource. It asks: it writes intent, its audit row, its
// idempotency record and its outbox row in one transaction, and workflows carry
// it out (02-architecture "How one request flows").
package rest

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"
	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus"
	"go.temporal.io/sdk/client"

	"github.com/slipway-cloud/slipway/api/boot"
	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/internal/telemetry"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
)

// Workflows is what the API asks of Temporal; client.Client is one.
type Workflows interface {
	UpdateWorkflow(ctx context.Context, o client.UpdateWorkflowOptions) (client.WorkflowUpdateHandle, error)
	CheckHealth(ctx context.Context, r *client.CheckHealthRequest) (*client.CheckHealthResponse, error)
}

// Config is what a Server is made of. Store, Temporal and Secrets are needed;
// the rest has a sensible absence.
type Config struct {
	Store    *db.Store
	Temporal Workflows
	Secrets  providers.Secrets
	Auth     AuthConfig
	Health   *telemetry.Health    // nil: no /healthz, /readyz
	Metrics  *prometheus.Registry // nil: no /metrics
	Log      *slog.Logger         // nil drops
	// Plans makes plans, on the workers of TaskQueue ("" is the usual one). nil:
	// no plans.
	Plans     PlanEngine
	TaskQueue string
	// PublicURL is how people reach the API; it stands in the OpenAPI document.
	PublicURL string
	Version   string
	// MAASProbe proves that a site's region can be used; what it returns is
	// answered as JSON and must hold no secret. nil: sites cannot be probed.
	MAASProbe func(ctx context.Context, site spec.SiteSpec) (any, error)
	// AgentURL and AgentCAPEM are what the agent of a node that is bootstrapped
	// by hand is told, unless its profile says otherwise.
	AgentURL   string
	AgentCAPEM string
	// BootURL is how machines that boot from the network reach this server; ""
	// takes the address that each request was sent to.
	BootURL string
	// BootLimits bound what machines without a login may cause.
	BootLimits boot.Limits
	// ActionTimeout bounds the wait for a workflow's answer to an action; default
	// 20 s.
	ActionTimeout time.Duration
}

// Server is the API.
type Server struct {
	cfg    Config
	log    *slog.Logger
	router chi.Router
	api    huma.API
	access map[string]Role
	oidc   *oidcVerifier
	events *hub
	boot   *boot.Server
}

// New assembles the API. It fails when a route has no role or a role no route.
func New(cfg Config) (*Server, error) {
	if cfg.Store == nil || cfg.Temporal == nil || cfg.Secrets == nil {
		return nil, errors.New("the API needs a store, a Temporal client and a secret store")
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Version == "" {
		cfg.Version = "dev"
	}
	if cfg.ActionTimeout == 0 {
		cfg.ActionTimeout = actionLimit
	}
	s := &Server{cfg: cfg, log: cfg.Log, router: chi.NewRouter(), access: accessTable(), events: newHub(cfg.Store)}
	s.boot = boot.New(boot.Config{Store: cfg.Store, Log: cfg.Log, BaseURL: cfg.BootURL, Limits: cfg.BootLimits, AgentURL: cfg.AgentURL, AgentCAPEM: cfg.AgentCAPEM})
	if cfg.Auth.Issuer != "" {
		s.oidc = newOIDCVerifier(cfg.Auth)
	}
	s.router.Use(s.identify, s.recoverPanic, s.headers, s.deadline)
	s.router.NotFound(func(w http.ResponseWriter, r *http.Request) {
		s.answer(w, r, problem.New(problem.NotFound, "there is no "+r.URL.Path+"; /openapi.json lists what there is"))
	})
	s.router.MethodNotAllowed(func(w http.ResponseWriter, r *http.Request) {
		s.answer(w, r, problem.New(problem.MethodNotAllowed, r.Method+" is not possible here; the Allow header and /openapi.json say what is"))
	})
	s.api = humachi.New(s.router, s.humaConfig())
	s.register()
	s.plainRoutes()
	s.tidyDocument()
	return s, s.checkAccess()
}

// Handler serves the whole API.
func (s *Server) Handler() http.Handler { return s.router }

// OpenAPI is the API's document as YAML.
func (s *Server) OpenAPI() ([]byte, error) { return s.api.OpenAPI().YAML() }

func (s *Server) register() {
	s.registerVersion()
	s.registerSites()
	s.registerProfiles()
	s.registerRoCE()
	s.registerSKUs()
	s.registerSecrets()
	s.registerTokens()
	s.registerNodes()
	s.registerBootstrap()
	s.registerBMCs()
	s.registerRotations()
	s.registerOnboardings()
	s.registerPlans()
	s.registerJobs()
	s.registerBatches()
	s.registerEvents()
	s.registerAttention()
	s.registerDrift()
	s.registerCertificates()
	s.registerTasks()
	s.registerReport()
	s.registerPXENodes()
	s.registerInstallWorkflows()
	s.registerNodeActions()
	s.registerDecommissions()
}

func (s *Server) humaConfig() huma.Config {
	c := huma.DefaultConfig("Slipway", s.cfg.Version)
	c.CreateHooks = nil // no $schema in bodies
	c.SchemasPath, c.DocsPath = "", ""
	c.FieldsOptionalByDefault = true // what is left out gets its default; types mark what is required
	c.RejectUnknownQueryParameters = true
	c.Transformers = []huma.Transformer{s.transform}
	c.Info.Description = "The control plane of a GPU cloud: bare servers become active GPU nodes.\n\n" +
		"Every call but health, documentation and version needs a bearer token. POSTs that create need an Idempotency-Key. " +
		"Writes carry the version of what they change in If-Match. Errors are problem documents (RFC 9457)."
	c.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"bearer": {Type: "http", Scheme: "bearer", Description: "An API token (slp_...) or an OIDC token"},
	}
	if s.cfg.PublicURL != "" {
		c.Servers = []*huma.Server{{URL: s.cfg.PublicURL}}
	}
	return c
}

// plainRoutes are those that are no operations of the API.
func (s *Server) plainRoutes() {
	s.boot.Routes(s.router)
	s.router.Get("/docs", serveDocs)
	s.router.Get("/", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/docs", http.StatusSeeOther) })
	if s.cfg.Health != nil {
		h := s.cfg.Health.Handler()
		s.router.Get("/healthz", h.ServeHTTP)
		s.router.Get("/readyz", h.ServeHTTP)
		s.router.Head("/healthz", h.ServeHTTP)
		s.router.Head("/readyz", h.ServeHTTP)
	}
	if s.cfg.Metrics != nil {
		s.router.Get("/metrics", s.Protect(RoleViewer, telemetry.MetricsHandler(s.cfg.Metrics)).ServeHTTP)
	}
}

// Protect serves h to callers who have the role, and an error to all others.
func (s *Server) Protect(role Role, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, p := s.authorize(r, role); p != nil {
			s.answer(w, r, p)
			return
		}
		h.ServeHTTP(w, r)
	})
}
