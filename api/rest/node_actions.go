package rest

import (
	"context"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/intent/nodeaction"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// NodeActionRequest says why, and how long what runs may take to end.
type NodeActionRequest struct {
	Reason       string `json:"reason,omitempty" maxLength:"2000" doc:"Why; it stands in the history. quarantine needs one"`
	GraceSeconds int    `json:"grace_seconds,omitempty" minimum:"0" maximum:"86400" doc:"With drain and retire: how long what runs on the node may take to end"`
}

// NodeActionAnswer is what an accepted action did.
type NodeActionAnswer struct {
	NodeID         string                 `json:"node_id"`
	Action         lifecycle.NodeAction   `json:"action"`
	Effect         nodeaction.Effect      `json:"effect" enum:"noop,moved,started,resumed" doc:"noop: it was so already, or is under way; moved: the node's state changed; started: a job was created; resumed: its job or task was set going again"`
	Status         lifecycle.NodeStatus   `json:"status"`
	JobID          string                 `json:"job_id,omitempty" doc:"The job that owns what follows"`
	Message        string                 `json:"message" doc:"What was done, in a sentence"`
	AllowedActions []lifecycle.NodeAction `json:"allowed_actions" nullable:"false" doc:"The actions that the node's state allows now"`
	Version        int64                  `json:"version"`
}

type nodeActionInput struct {
	NodePath
	op.Match
	op.Key
	Body *NodeActionRequest
}

func (in *nodeActionInput) ask() NodeActionRequest {
	if in.Body == nil {
		return NodeActionRequest{}
	}
	return *in.Body
}

const nodeActionDoc = "Repeating an action that is done, or under way, answers 200 and does nothing. A refused one answers 409 with the actions that are allowed now, or with the live job " +
	"that holds the node. If-Match is optional. What each action means is in docs/states/node_actions.md."

// registerNodeActions makes each action an operation of its own, so that each
// has its role in the access table.
func (s *server) registerNodeActions() {
	for _, info := range lifecycle.NodeActions() {
		o := huma.Operation{
			OperationID: string(info.Action) + "-node", Method: http.MethodPost, Path: "/nodes/{id}/actions/" + string(info.Action), Tags: []string{"nodes"},
			Summary: strings.ToUpper(info.Doc[:1]) + info.Doc[1:], Description: nodeActionDoc, DefaultStatus: http.StatusOK,
		}
		if info.Mode != "" {
			o.Description = "Creates the job that owns the operation and moves the node, in one transaction, and answers 202. " + nodeActionDoc
		}
		op.Add(s.api, o, func(ctx context.Context, in *nodeActionInput) (*op.Created[NodeActionAnswer], error) {
			if info.Action == lifecycle.NodeActionResume {
				return s.resumeNode(ctx, info, in)
			}
			return s.actOnNode(ctx, info, in)
		})
	}
}

func (s *server) actOnNode(ctx context.Context, info lifecycle.NodeActionInfo, in *nodeActionInput) (*op.Created[NodeActionAnswer], error) {
	key, err := in.Optional()
	if err != nil {
		return nil, err
	}
	r, err := in.intent(info)
	if err != nil {
		return nil, err
	}
	if err := nodeaction.Check(r); err != nil {
		return nil, err
	}
	return op.WithIdempotency(ctx, s.api, key, nodeRequest{in.ID, in.ask()}, nil, func(tx *db.Tx) (*op.Created[NodeActionAnswer], error) {
		res, err := nodeaction.Accept(ctx, tx, r, op.Actor(ctx))
		if err != nil {
			return nil, err
		}
		return nodeActionAnswer(info.Action, res), nil
	})
}

// intent is the request as an intent takes it. If-Match is optional.
func (in *nodeActionInput) intent(info lifecycle.NodeActionInfo) (nodeaction.Request, error) {
	ask := in.ask()
	r := nodeaction.Request{NodeID: in.ID, Action: info, Reason: ask.Reason, GraceSeconds: ask.GraceSeconds}
	if in.IfMatch == "" {
		return r, nil
	}
	var err error
	r.Version, err = in.Version(op.AnyVersion)
	return r, err
}

// nodeRequest is what a key stands for: the same key for another node is another
// request.
type nodeRequest struct {
	ID  string
	Ask NodeActionRequest
}

func nodeActionAnswer(action lifecycle.NodeAction, r nodeaction.Result) *op.Created[NodeActionAnswer] {
	out := &op.Created[NodeActionAnswer]{
		Status: http.StatusOK, ETag: op.ETag(r.Node.Version), Body: NodeActionAnswer{
			NodeID: r.Node.ID, Action: action, Effect: r.Effect, Status: r.Node.Status, JobID: r.JobID, Message: r.Message + problem.Hint(r.Advice),
			AllowedActions: nodeaction.Allowed(r.Node, r.JobID != ""), Version: r.Node.Version,
		},
	}
	if r.Effect == nodeaction.EffectStarted {
		out.Status, out.Location = http.StatusAccepted, op.Prefix+"/admin/jobs/"+r.JobID
	}
	return out
}
