// Package rest is today's area of the HTTP API for people and programs: nodes, jobs, inventory and
// operations, one file a resource. It writes a request, its audit row, its idempotency record and
// its outbox row in one transaction, and workflows carry it out.
package rest

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"go.temporal.io/sdk/client"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/internal/signing"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
)

// Workflows is what the API asks of Temporal; client.Client is one.
type Workflows interface {
	UpdateWorkflow(ctx context.Context, o client.UpdateWorkflowOptions) (client.WorkflowUpdateHandle, error)
	CheckHealth(ctx context.Context, r *client.CheckHealthRequest) (*client.CheckHealthResponse, error)
	SignalWorkflow(ctx context.Context, workflowID, runID, signal string, arg any) error
}

// Config is what the area needs besides the API. Temporal and Secrets are required.
type Config struct {
	Temporal Workflows
	Secrets  providers.Secrets
	// Plans makes plans, on the workers of TaskQueue ("" is the usual one). nil:
	// no plans.
	Plans     PlanEngine
	TaskQueue string
	// MAASProbe proves that a site's region can be used; what it returns is
	// answered as JSON and must hold no secret. nil: sites cannot be probed.
	MAASProbe func(ctx context.Context, siteID string, site spec.SiteSpec) (any, error)
	// AgentURL and AgentCAPEM are what the agent of a node that is bootstrapped
	// by hand is told, unless its profile says otherwise.
	AgentURL   string
	AgentCAPEM string
	// NodeCARef names the secret that holds the node CA; "" where a folder does.
	NodeCARef string
	// ActionTimeout bounds the wait for a workflow's answer to an action; default
	// 20 s.
	ActionTimeout time.Duration
	// SignIn is how programs on users' machines sign in. Without a ClientID they need API tokens.
	SignIn SignIn
}

// server holds what the handlers share.
type server struct {
	api    *op.API
	cfg    Config
	store  *db.Store
	log    *slog.Logger
	signer *signing.Ring
	eta    db.Estimator
}

// Register declares the area's operations.
func Register(api *op.API, cfg Config) error {
	if cfg.Temporal == nil || cfg.Secrets == nil {
		return errors.New("the REST API needs a Temporal client and a secret store")
	}
	s := newServer(api, cfg)
	api.Grant(access())
	api.RequireStepUp(stepUps()...)
	s.register()
	return nil
}

func newServer(api *op.API, cfg Config) *server {
	if cfg.ActionTimeout == 0 {
		cfg.ActionTimeout = actionLimit
	}
	s := &server{api: api, cfg: cfg, store: api.Store(), log: api.Log()}
	s.signer = &signing.Ring{Store: s.store, Secrets: cfg.Secrets}
	return s
}

func (s *server) register() {
	s.registerVersion()
	s.registerSignIn()
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
	s.registerPXENodes()
	s.registerInstallWorkflows()
	s.registerNodeActions()
	s.registerNodeDrives()
	s.registerDecommissions()
	s.registerAgentJobs()
	s.registerStats()
	s.registerAudit()
	s.registerAuditVerify()
}
