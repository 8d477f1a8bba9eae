package rest

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/intent/agentjob"
)

// ReissueAgentRequest asks for a new identity of a node's agent.
type ReissueAgentRequest struct {
	Reason string `json:"reason" required:"true" minLength:"1" maxLength:"2000" doc:"Why; it stands in the history and in the audit log"`
}

// SiteReissueRequest asks for new identities of the agents of a site.
type SiteReissueRequest struct {
	SiteID      string `json:"site_id" required:"true" minLength:"1" maxLength:"64"`
	Reason      string `json:"reason" required:"true" minLength:"1" maxLength:"2000" doc:"Why; it stands in the history and in the audit log"`
	MaxParallel int    `json:"max_parallel,omitempty" minimum:"1" maximum:"100" default:"10" doc:"Nodes at a time"`
	All         bool   `json:"all,omitempty" doc:"Every agent; otherwise those that are locked, silent or have a certificate that ended"`
}

// UpdateAgentRequest asks for another version of a node's agent.
type UpdateAgentRequest struct {
	Version string `json:"version" required:"true" minLength:"1" maxLength:"32" doc:"A release that was added, such as v1.2.3"`
	Reason  string `json:"reason" required:"true" minLength:"1" maxLength:"2000" doc:"Why; it stands in the history and in the audit log"`
}

// AgentReleaseRequest is a release of the agent as it was signed offline.
type AgentReleaseRequest struct {
	Manifest  []byte `json:"manifest" required:"true" maxLength:"5464" doc:"The signed manifest, byte for byte, in base64"`
	Signature []byte `json:"signature" required:"true" maxLength:"88" doc:"Its ed25519 signature, in base64"`
	BinaryURL string `json:"binary_url" required:"true" minLength:"1" maxLength:"2048" doc:"Where the nodes fetch the program: http or https, without a login"`
}

// AgentRelease is a stored release of the agent.
type AgentRelease struct {
	Version   string    `json:"version"`
	Manifest  []byte    `json:"manifest"`
	Signature []byte    `json:"signature"`
	BinaryURL string    `json:"binary_url"`
	CreatedBy string    `json:"created_by,omitempty"`
	CreatedAt time.Time `json:"created_at"`
}

func (s *server) registerAgentJobs() {
	tags := []string{"agents"}
	op.Add(s.api, huma.Operation{
		OperationID: "reissue-agent", Method: http.MethodPost, Path: "/nodes/{id}/actions/reissue-agent", Tags: tags, Summary: "Give a node's agent a new identity",
		Description: "For an agent that is locked, or whose certificate ended. The job writes a one-time enrolment token on the node over SSH, to the host key that is pinned for it and no other, " +
			"restarts the agent and waits for its first heartbeat under the new identity. The present identity works until the token is used. " +
			"A node that has a live job answers 409 with its id; so does a node that no such login reaches, with the other way.",
		DefaultStatus: http.StatusAccepted,
	}, s.reissueAgent)
	op.Add(s.api, huma.Operation{
		OperationID: "reissue-agents", Method: http.MethodPost, Path: "/admin/agent-reissues", Tags: tags, Summary: "Give the agents of a site new identities",
		Description:   "A batch with a job for each node, at most 500 nodes; those that a job holds come last. A node is accepted or rejected by itself. GET /admin/onboarding-batches/{id} shows the batch.",
		DefaultStatus: http.StatusAccepted,
	}, s.reissueAgents)
	op.Add(s.api, huma.Operation{
		OperationID: "update-agent", Method: http.MethodPost, Path: "/nodes/{id}/actions/update-agent", Tags: tags, Summary: "Install a release of the agent on a node",
		Description: "The agent checks the signature and the program, tries the new version and goes back by itself where that sends no heartbeat; the job then parks as node_task_failed, " +
			"and says so. It ends when the agent reports the version.",
		DefaultStatus: http.StatusAccepted,
	}, s.updateAgent)
	op.Add(s.api, huma.Operation{
		OperationID: "add-agent-release", Method: http.MethodPut, Path: "/admin/agent-releases/{version}", Tags: tags, Summary: "Add a signed release of the agent",
		Description: "A release does not change: the same again changes nothing, another one of the version answers 409. Nothing is fetched; the agents check the signature.",
	}, s.addAgentRelease)
	op.Add(s.api, huma.Operation{
		OperationID: "list-agent-releases", Method: http.MethodGet, Path: "/admin/agent-releases", Tags: tags, Summary: "List the releases of the agent",
	}, s.listAgentReleases)
}

// nodeAsk is a request about a node as its key stands for it.
type nodeAsk struct {
	ID  string
	Ask any
}

func (s *server) reissueAgent(ctx context.Context, in *struct {
	NodePath
	op.Key
	Body ReissueAgentRequest
}) (*op.Created[Job], error) {
	return op.Create(ctx, s.api, in.Key, nodeAsk{in.ID, in.Body}, nil, func(tx *db.Tx) (*op.Created[Job], error) {
		job, node, err := agentjob.Reissue(ctx, tx, in.ID, in.Body.Reason, nil, op.Actor(ctx))
		if err != nil {
			return nil, err
		}
		return s.acceptedJob("/admin/jobs/", job, node.Hostname), nil
	})
}

func (s *server) reissueAgents(ctx context.Context, in *struct {
	op.Key
	Body SiteReissueRequest
}) (*op.Created[Batch], error) {
	r := agentjob.SiteRequest{SiteID: in.Body.SiteID, Reason: in.Body.Reason, MaxParallel: in.Body.MaxParallel, All: in.Body.All}
	return op.Create(ctx, s.api, in.Key, in.Body, nil, func(tx *db.Tx) (*op.Created[Batch], error) {
		b, err := agentjob.ReissueSite(ctx, tx, r, whyRejected, op.Actor(ctx))
		if err != nil {
			return nil, err
		}
		meta := map[string]any{"batch_id": b.ID, "reason": r.Reason, "all": r.All}
		if err := op.Audit(ctx, tx, "site", r.SiteID, nil, "reissue_agents", meta); err != nil {
			return nil, err
		}
		view, err := batchView(ctx, tx, b, true)
		return &op.Created[Batch]{Status: http.StatusAccepted, Location: op.Prefix + "/admin/onboarding-batches/" + b.ID, Body: view}, err
	})
}

func (s *server) updateAgent(ctx context.Context, in *struct {
	NodePath
	op.Key
	Body UpdateAgentRequest
}) (*op.Created[Job], error) {
	return op.Create(ctx, s.api, in.Key, nodeAsk{in.ID, in.Body}, nil, func(tx *db.Tx) (*op.Created[Job], error) {
		job, node, err := agentjob.Update(ctx, tx, in.ID, in.Body.Version, in.Body.Reason, op.Actor(ctx))
		if err != nil {
			return nil, err
		}
		return s.acceptedJob("/admin/jobs/", job, node.Hostname), nil
	})
}

func (s *server) addAgentRelease(ctx context.Context, in *struct {
	Version string `path:"version" maxLength:"32" doc:"v1.2.3"`
	Body    AgentReleaseRequest
}) (*struct{ Body AgentRelease }, error) {
	var row db.AgentRelease
	err := s.store.Tx(ctx, func(tx *db.Tx) error {
		var err error
		row, err = agentjob.AddRelease(ctx, tx, agentjob.Release{
			Version: in.Version, Manifest: in.Body.Manifest, Signature: in.Body.Signature, BinaryURL: in.Body.BinaryURL,
		}, op.Actor(ctx))
		return err
	})
	if err != nil {
		return nil, err
	}
	return &struct{ Body AgentRelease }{releaseView(row)}, nil
}

func (s *server) listAgentReleases(ctx context.Context, in *struct{ op.Page }) (*op.Listed[AgentRelease], error) {
	after, err := in.After()
	if err != nil {
		return nil, err
	}
	rows, err := s.store.ListAgentReleases(ctx, after, in.Limit+1)
	if err != nil {
		return nil, err
	}
	return op.Paged(rows, in.Limit, func(r db.AgentRelease) string { return r.Version }, releaseView), nil
}

func releaseView(r db.AgentRelease) AgentRelease {
	return AgentRelease{Version: r.Version, Manifest: r.Manifest, Signature: r.Signature, BinaryURL: r.BinaryURL, CreatedBy: r.CreatedBy, CreatedAt: r.CreatedAt.UTC()}
}
