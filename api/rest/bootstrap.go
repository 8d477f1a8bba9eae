package rest

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/internal/cloudinit"
	"github.com/slipway-cloud/slipway/providers"
)

// NodeRequest makes a node that a person installs: without MAAS, with a
// one-time token for its agent.
type NodeRequest struct {
	SiteID    string `json:"site_id" required:"true"`
	ProfileID string `json:"profile_id" required:"true" doc:"Says how long the token lives and where the agent reports"`
	SKUID     string `json:"sku_id" required:"true"`
	Hostname  string `json:"hostname" required:"true"`
}

// Bundle is what a person puts on a node. Token and AgentConfig are shown once.
type Bundle struct {
	Node           Node      `json:"node"`
	JobID          string    `json:"job_id" doc:"The job that waits for the node's agent"`
	ServerURL      string    `json:"server_url" doc:"Where the agent enrols and reports"`
	CAPEM          string    `json:"ca_pem" doc:"The certificate by which the agent knows the server"`
	Token          string    `json:"token,omitempty" doc:"One-time enrolment token, shown once; not in a replayed answer"`
	TokenExpiresAt time.Time `json:"token_expires_at"`
	TokenPath      string    `json:"token_path" doc:"Where the token goes on the node"`
	AgentConfig    string    `json:"agent_config" doc:"The agent's configuration file"`
	ConfigPath     string    `json:"config_path" doc:"Where the configuration goes on the node"`
	Next           string    `json:"next" doc:"What to do"`
}

const bundleNext = "Put token and configuration into files on the node that only root can read, and run deploy/agent/install.sh --binary slipway-agent --sha256 SUM --config CONFIG --token TOKEN; " +
	"it installs both halves of the agent and starts them. The job ends when the agent has enrolled and its report meets the SKU."

func (s *Server) registerBootstrap() {
	tags := []string{"nodes"}
	add(s, huma.Operation{
		OperationID: "create-node", Method: http.MethodPost, Path: "/admin/nodes", Tags: tags, Summary: "Bootstrap a node by hand",
		Description:   "Creates the node, a one-time enrolment token and the job that waits for the agent, and answers with what goes onto the node.",
		DefaultStatus: http.StatusCreated,
	}, s.createNode)
	add(s, huma.Operation{
		OperationID: "reissue-bootstrap", Method: http.MethodPost, Path: "/admin/nodes/{id}/bootstrap", Tags: tags,
		Summary: "Issue a new bootstrap token", Description: "For a node bootstrapped by hand whose token was lost or has expired. Earlier tokens of the node end.",
		DefaultStatus: http.StatusCreated,
	}, s.reissueBootstrap)
}

// unseen is a bundle as it is kept for a replay.
func unseen(b Bundle) Bundle {
	b.Token = ""
	return b
}

func (s *Server) createNode(ctx context.Context, in *struct {
	Key
	Body NodeRequest
}) (*Created[Bundle], error) {
	if _, err := in.required(); err != nil {
		return nil, err
	}
	r := OnboardingRequest{SiteID: in.Body.SiteID, ProfileID: in.Body.ProfileID, SKUID: in.Body.SKUID, Hostname: in.Body.Hostname}
	a, err := s.check(ctx, r, true, "body.")
	if err != nil {
		return nil, err
	}
	return idempotent(ctx, s, in.Key, in.Body, unseen, func(tx *db.Tx) (*Created[Bundle], error) {
		job, node, err := s.accept(ctx, tx, a)
		if err != nil {
			return nil, err
		}
		return s.bundle(ctx, tx, node, job.ID, a.profile)
	})
}

func (s *Server) reissueBootstrap(ctx context.Context, in *struct {
	NodePath
	Key
}) (*Created[Bundle], error) {
	return idempotent(ctx, s, in.Key, in.ID, unseen, func(tx *db.Tx) (*Created[Bundle], error) {
		node, err := tx.LockNode(ctx, in.ID)
		if err != nil {
			return nil, err
		}
		job, err := tx.LiveJobOfNode(ctx, in.ID)
		if err != nil && !errors.Is(err, db.ErrNotFound) {
			return nil, err
		}
		if err != nil || !isManual(job) || node.ProfileID == nil {
			return nil, problem.New(problem.Conflict, "a token is issued only while a job waits for a node that is bootstrapped by hand; create the node anew (slipway node bootstrap, or POST "+prefix+"/admin/nodes)").With(job.ID)
		}
		profile, err := tx.Profile(ctx, *node.ProfileID)
		if err != nil {
			return nil, err
		}
		return s.bundle(ctx, tx, node, job.ID, profile)
	})
}

// bundle issues the token and writes the agent's files.
func (s *Server) bundle(ctx context.Context, tx *db.Tx, node db.Node, jobID string, profile db.Profile) (*Created[Bundle], error) {
	token, err := newToken("")
	if err != nil {
		return nil, err
	}
	site, err := tx.Site(ctx, node.SiteID)
	if err != nil {
		return nil, err
	}
	spec := profile.Spec.WithDefaults()
	expires := time.Now().Add(time.Duration(spec.EnrollmentTokenTTLSeconds) * time.Second).UTC().Truncate(time.Second)
	if err := tx.IssueEnrollmentToken(ctx, node.ID, jobID, tokenHash(token), expires); err != nil {
		return nil, err
	}
	if err := s.audit(ctx, tx, "node", node.ID, &node.ID, "issue_bootstrap", map[string]any{"job_id": jobID, "expires_at": expires}); err != nil {
		return nil, err
	}
	a := cloudinit.Agent{
		ServerURL: s.cfg.AgentURL, CAPEM: s.cfg.AgentCAPEM, NodeID: node.ID, Token: providers.NewSecret(token), Simulated: node.Simulated,
		HeartbeatInterval: spec.AgentHeartbeatInterval.D(), UpdateKey: spec.AgentUpdateKey,
	}
	if user := site.Spec.SSHUser; user != "" {
		a.PlatformUsers = []string{user}
	}
	if spec.AgentURL != "" {
		a.ServerURL = spec.AgentURL
	}
	config, err := a.ConfigFile()
	if err != nil {
		return nil, err
	}
	view := nodeView(node)
	view.LiveJobID = jobID
	return &Created[Bundle]{
		Status: http.StatusCreated, Location: prefix + "/nodes/" + node.ID, ETag: etag(node.Version),
		Body: Bundle{
			Node: view, JobID: jobID, ServerURL: a.ServerURL, CAPEM: a.CAPEM, Token: token, TokenExpiresAt: expires, TokenPath: cloudinit.TokenPath,
			AgentConfig: string(config), ConfigPath: cloudinit.AgentConfigPath, Next: bundleNext,
		},
	}, nil
}
