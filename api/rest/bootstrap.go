package rest

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/intent/agentjob"
	"github.com/slipway-cloud/slipway/intent/onboarding"
	"github.com/slipway-cloud/slipway/internal/cloudinit"
	"github.com/slipway-cloud/slipway/providers"
)

// NodeRequest makes a node that an operator installs: without MAAS, with a
// one-time token for its agent.
type NodeRequest struct {
	SiteID    string `json:"site_id" maxLength:"100" required:"true"`
	ProfileID string `json:"profile_id" maxLength:"100" required:"true" doc:"Says how long the token lives and where the agent reports"`
	SKUID     string `json:"sku_id" maxLength:"100" required:"true"`
	Hostname  string `json:"hostname" required:"true" maxLength:"253"`
}

// Bundle is what an operator puts on a node. Token and AgentConfig are shown once.
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

func (s *server) registerBootstrap() {
	tags := []string{"nodes"}
	op.Add(s.api, huma.Operation{
		OperationID: "create-node", Method: http.MethodPost, Path: "/admin/nodes", Tags: tags, Summary: "Bootstrap a node by hand",
		Description:   "Creates the node, a one-time enrolment token and the job that waits for the agent, and answers with what goes onto the node.",
		DefaultStatus: http.StatusCreated,
	}, s.createNode)
	op.Add(s.api, huma.Operation{
		OperationID: "reissue-bootstrap", Method: http.MethodPost, Path: "/admin/nodes/{id}/bootstrap", Tags: tags,
		Summary: "Issue a new bootstrap token", Description: "For a node bootstrapped by hand whose token was lost or has expired, while its job waits; and, for administrators, for a node in service " +
			"whose agent needs a new identity and that no SSH login reaches. Earlier tokens of the node end.",
		DefaultStatus: http.StatusCreated,
	}, s.reissueBootstrap)
}

// unseen is a bundle as it is kept for a replay.
func unseen(b Bundle) Bundle {
	b.Token = ""
	return b
}

func (s *server) createNode(ctx context.Context, in *struct {
	op.Key
	Body NodeRequest
}) (*op.Created[Bundle], error) {
	if _, err := in.Required(); err != nil {
		return nil, err
	}
	b := in.Body
	checked, err := onboarding.Check(ctx, s.store, onboarding.Request{SiteID: b.SiteID, ProfileID: b.ProfileID, SKUID: b.SKUID, Hostname: b.Hostname, Manual: true})
	if err != nil {
		return nil, err
	}
	return op.Create(ctx, s.api, in.Key, in.Body, unseen, func(tx *db.Tx) (*op.Created[Bundle], error) {
		job, node, err := onboarding.Accept(ctx, tx, checked, op.Actor(ctx))
		if err != nil {
			return nil, err
		}
		return s.bundle(ctx, tx, node, job.ID, checked.Profile)
	})
}

func (s *server) reissueBootstrap(ctx context.Context, in *struct {
	NodePath
	op.Key
}) (*op.Created[Bundle], error) {
	return op.Create(ctx, s.api, in.Key, in.ID, unseen, func(tx *db.Tx) (*op.Created[Bundle], error) {
		b, err := agentjob.ReissueBundle(ctx, tx, in.ID)
		if err != nil {
			return nil, err
		}
		if b.JobID == "" && !op.PrincipalOf(ctx).May(op.RoleAdmin) {
			return nil, problem.New(problem.Forbidden, "a bundle for a node that is in service needs role admin")
		}
		return s.bundle(ctx, tx, b.Node, b.JobID, b.Profile)
	})
}

// bundle issues the token and writes the agent's files.
func (s *server) bundle(ctx context.Context, tx *db.Tx, node db.Node, jobID string, profile db.Profile) (*op.Created[Bundle], error) {
	token, err := op.NewToken("")
	if err != nil {
		return nil, err
	}
	site, err := tx.Site(ctx, node.SiteID)
	if err != nil {
		return nil, err
	}
	spec := profile.Spec.WithDefaults()
	expires := time.Now().Add(time.Duration(spec.EnrollmentTokenTTLSeconds) * time.Second).UTC().Truncate(time.Second)
	if err := tx.IssueEnrollmentToken(ctx, node.ID, jobID, op.TokenHash(token), expires); err != nil {
		return nil, err
	}
	if err := op.Audit(ctx, tx, "node", node.ID, &node.ID, "issue_bootstrap", map[string]any{"job_id": jobID, "expires_at": expires}); err != nil {
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
	return &op.Created[Bundle]{
		Status: http.StatusCreated, Location: op.Prefix + "/nodes/" + node.ID, ETag: op.ETag(node.Version),
		Body: Bundle{
			Node: view, JobID: jobID, ServerURL: a.ServerURL, CAPEM: a.CAPEM, Token: token, TokenExpiresAt: expires, TokenPath: cloudinit.TokenPath,
			AgentConfig: string(config), ConfigPath: cloudinit.AgentConfigPath, Next: bundleNext,
		},
	}, nil
}
