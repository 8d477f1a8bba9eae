package rest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/contract"
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
	Effect         NodeEffect             `json:"effect" enum:"noop,moved,started,resumed" doc:"noop: it was so already, or is under way; moved: the node's state changed; started: a job was created; resumed: its job or task was set going again"`
	Status         lifecycle.NodeStatus   `json:"status"`
	JobID          string                 `json:"job_id,omitempty" doc:"The job that owns what follows"`
	Message        string                 `json:"message" doc:"What was done, in a sentence"`
	AllowedActions []lifecycle.NodeAction `json:"allowed_actions" nullable:"false" doc:"The actions that the node's state allows now"`
	Version        int64                  `json:"version"`
}

// NodeEffect is what a node action came to.
type NodeEffect string

// The effects.
const (
	NodeEffectNoop    NodeEffect = "noop"
	NodeEffectMoved   NodeEffect = "moved"
	NodeEffectStarted NodeEffect = "started"
	NodeEffectResumed NodeEffect = "resumed"
)

type nodeActionInput struct {
	NodePath
	Match
	Key
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
func (s *Server) registerNodeActions() {
	for _, info := range lifecycle.NodeActions() {
		op := huma.Operation{
			OperationID: string(info.Action) + "-node", Method: http.MethodPost, Path: "/nodes/{id}/actions/" + string(info.Action), Tags: []string{"nodes"},
			Summary: strings.ToUpper(info.Doc[:1]) + info.Doc[1:], Description: nodeActionDoc, DefaultStatus: http.StatusOK,
		}
		if info.Mode != "" {
			op.Description = "Creates the job that owns the operation and moves the node, in one transaction, and answers 202. " + nodeActionDoc
		}
		add(s, op, func(ctx context.Context, in *nodeActionInput) (*Created[NodeActionAnswer], error) {
			if info.Action == lifecycle.NodeActionResume {
				return s.resumeNode(ctx, info, in)
			}
			return s.actOnNode(ctx, info, in)
		})
	}
}

func (s *Server) actOnNode(ctx context.Context, info lifecycle.NodeActionInfo, in *nodeActionInput) (*Created[NodeActionAnswer], error) {
	key, err := in.optional()
	if err != nil {
		return nil, err
	}
	ask := in.ask()
	if info.Reason && strings.TrimSpace(ask.Reason) == "" {
		return nil, problem.NewInvalid(problem.Field{Location: "body.reason", Message: "say why; it stands in the history"})
	}
	return once(ctx, s, key, nodeRequest{in.ID, ask}, nil, func(tx *db.Tx) (*Created[NodeActionAnswer], error) {
		a, err := s.judgeNode(ctx, tx, info, in)
		if err != nil {
			return nil, err
		}
		if a.noop != nil {
			return a.noop, nil
		}
		return s.doNodeAction(ctx, tx, a, ask)
	})
}

// nodeRequest is what a key stands for: the same key for another node is another
// request.
type nodeRequest struct {
	ID  string
	Ask NodeActionRequest
}

// judgement is an action on a node whose state was looked at under its lock.
type judgement struct {
	info lifecycle.NodeActionInfo
	node db.Node
	live *db.Job
	// noop is the answer where there is nothing to do.
	noop *Created[NodeActionAnswer]
}

// judgeNode decides whether the node's state and its jobs allow the action.
func (s *Server) judgeNode(ctx context.Context, tx *db.Tx, info lifecycle.NodeActionInfo, in *nodeActionInput) (judgement, error) {
	j := judgement{info: info}
	var err error
	if j.node, err = tx.LockNode(ctx, in.ID); err != nil {
		return j, err
	}
	if j.node.Lifecycle != lifecycle.NodeMAAS.Lifecycle {
		return j, statesInstead(j.node, string(info.Action))
	}
	live, err := tx.LiveJobOfNode(ctx, in.ID)
	if err == nil {
		j.live = &live
	} else if !errors.Is(err, db.ErrNotFound) {
		return j, err
	}
	if why := j.alreadySo(); why != "" {
		j.noop = j.answer(http.StatusOK, NodeEffectNoop, j.node, jobID(j.live), why)
		return j, nil
	}
	if err := j.allowed(); err != nil {
		return j, err
	}
	if in.IfMatch == "" {
		return j, nil
	}
	v, err := in.version(func() (int64, error) { return j.node.Version, nil })
	if err == nil && v != j.node.Version {
		err = fmt.Errorf("node %s: %w", j.node.ID, db.ErrStale)
	}
	return j, err
}

// statesInstead refuses what is asked of nodes that MAAS or a person provisions,
// and says how the others change.
func statesInstead(n db.Node, asked string) error {
	states := list(lifecycle.NodePXE.ReachableBy(n.Status, lifecycle.OwnerAdmin))
	if len(states) == 0 {
		return problem.New(problem.ActionRefused, fmt.Sprintf("node %s has lifecycle %s, which knows no %s, and it is %s for good", n.Hostname, n.Lifecycle, asked, n.Status)).Allow(states)
	}
	return problem.New(problem.ActionRefused, fmt.Sprintf("node %s has lifecycle %s, which knows no %s; set its state with slipway node state %s STATE, or POST %s/nodes/%s/state: "+
		"deprovisioning erases and retires it, retired takes it out as it is; the states that may be set now are listed",
		n.Hostname, n.Lifecycle, asked, n.Hostname, prefix, n.ID)).Allow(states)
}

// alreadySo says that the action is done or under way, "" when it is neither.
func (j judgement) alreadySo() string {
	if slices.Contains(j.info.Done, j.node.Status) {
		return fmt.Sprintf("the node is %s already", j.node.Status)
	}
	if j.info.Mode == "" || j.live == nil || !lifecycle.OwnsNodeState(j.live.Kind) {
		return ""
	}
	mode := inputOf(*j.live).Mode
	switch {
	case j.node.Status == lifecycle.NodeDraining && mode == string(j.info.Mode),
		j.node.Status == lifecycle.NodeRemoving && j.info.Mode == lifecycle.ModeRemove:
		return fmt.Sprintf("job %s (%s) is doing it", j.live.ID, mode)
	}
	return ""
}

// allowed refuses what the state or another job is in the way of.
func (j judgement) allowed() error {
	can := j.can()
	if j.live != nil && !j.info.BesideJob {
		return problem.New(problem.LiveJob, fmt.Sprintf("job %s (%s) is %s and holds node %s; wait for it to end, or cancel it, then %s",
			j.live.ID, whatOf(*j.live), j.live.Status, j.node.Hostname, j.info.Action)).With(j.live.ID).Allow(can)
	}
	if slices.Contains(j.info.From, j.node.Status) {
		return nil
	}
	return problem.New(problem.ActionRefused, fmt.Sprintf("node %s is %s, and %s is for a node that is %s%s",
		j.node.Hostname, j.node.Status, j.info.Action, lifecycle.OneOf(j.info.From), j.wayOut())).Allow(can)
}

// wayOut says what to do instead, where it is not among the allowed actions.
func (j judgement) wayOut() string {
	switch {
	case j.node.Status == lifecycle.NodeDeleted:
		return "; its identity never comes back: onboard the server anew, which makes a new node"
	case j.info.Action == lifecycle.NodeActionRemove:
		return "; retire it first"
	}
	return ""
}

func (j judgement) can() []string {
	out := []string{}
	for _, a := range allowedActions(j.node, j.live != nil) {
		out = append(out, string(a))
	}
	return out
}

// allowedActions are those of nodes that MAAS or a person provisions.
func allowedActions(n db.Node, busy bool) []lifecycle.NodeAction {
	if n.Lifecycle != lifecycle.NodeMAAS.Lifecycle {
		return []lifecycle.NodeAction{}
	}
	return lifecycle.AllowedNodeActions(n.Status, busy)
}

func (j judgement) answer(status int, e NodeEffect, n db.Node, job, message string) *Created[NodeActionAnswer] {
	out := &Created[NodeActionAnswer]{
		Status: status, ETag: etag(n.Version), Body: NodeActionAnswer{
			NodeID: n.ID, Action: j.info.Action, Effect: e, Status: n.Status, JobID: job, Message: message,
			AllowedActions: allowedActions(n, job != ""), Version: n.Version,
		},
	}
	if e == NodeEffectStarted {
		out.Location = prefix + "/admin/jobs/" + job
	}
	return out
}

// doNodeAction carries out what was judged.
func (s *Server) doNodeAction(ctx context.Context, tx *db.Tx, j judgement, ask NodeActionRequest) (*Created[NodeActionAnswer], error) {
	var proof lifecycle.Proof
	switch j.info.Action {
	case lifecycle.NodeActionReactivate:
		gone, err := tx.IdentityGone(ctx, j.node.ID)
		if err != nil {
			return nil, err
		}
		if gone != "" {
			return nil, problem.New(problem.ActionRefused, fmt.Sprintf(
				"node %s cannot be used again under its identity: %s; remove it, or decommission it fully, then onboard the server anew", j.node.Hostname, gone)).
				Allow([]string{string(lifecycle.NodeActionRemove)})
		}
		proof = lifecycle.Proof{lifecycle.NeedIdentityKept}
	case lifecycle.NodeActionUnquarantine:
		if err := s.provenHealthy(ctx, tx, j); err != nil {
			return nil, err
		}
		proof = lifecycle.Proof{lifecycle.NeedEnrolled, lifecycle.NeedHealthy}
	case lifecycle.NodeActionDrain, lifecycle.NodeActionRetire, lifecycle.NodeActionRemove:
		return s.startOperation(ctx, tx, j, ask)
	case lifecycle.NodeActionQuarantine, lifecycle.NodeActionResume:
	}
	a := s.actor(ctx)
	a.Comment = ask.Reason
	n, err := tx.TransitionNode(ctx, j.node.ID, *j.info.Move, proof, a)
	if err != nil {
		return nil, err
	}
	message := fmt.Sprintf("node %s went from %s to %s", n.Hostname, j.node.Status, n.Status)
	if dirty := db.SanitizeRequired(n); n.Status == lifecycle.NodeOffline && dirty != "" {
		message += "; it stays so: " + dirty
	} else if n.Status == lifecycle.NodeOffline {
		message += "; it becomes active when its agent is heard and its report is healthy"
	}
	return j.answer(http.StatusOK, NodeEffectMoved, n, jobID(j.live), message), nil
}

func (s *Server) provenHealthy(ctx context.Context, tx *db.Tx, j judgement) error {
	missing, err := tx.NodeHealth(ctx, j.node)
	if err != nil || len(missing) == 0 {
		return err
	}
	p := problem.New(problem.ActionRefused, fmt.Sprintf("node %s is not proven healthy: %s; mend it, then unquarantine", j.node.Hostname, strings.Join(missing, "; ")))
	for _, m := range missing {
		p.Errors = append(p.Errors, problem.Field{Location: "node", Message: m})
	}
	can := slices.DeleteFunc(j.can(), func(a string) bool { return a == string(lifecycle.NodeActionUnquarantine) })
	return p.Allow(can)
}

// startOperation creates the job that owns the operation and moves the node.
func (s *Server) startOperation(ctx context.Context, tx *db.Tx, j judgement, ask NodeActionRequest) (*Created[NodeActionAnswer], error) {
	in, err := decommissionInput(ctx, tx, j.node, j.info.Mode, j.node.Status)
	if err != nil {
		return nil, err
	}
	in.Reason, in.GraceSeconds = ask.Reason, ask.GraceSeconds
	job, n, err := s.startNodeJob(ctx, tx, j.node, in)
	if err != nil {
		return nil, err
	}
	return j.answer(http.StatusAccepted, NodeEffectStarted, n, job.ID, fmt.Sprintf("job %s was created; the node is %s", job.ID, n.Status)), nil
}

// decommissionInput is the request as a job takes it.
func decommissionInput(ctx context.Context, read interface {
	BMCOfNode(ctx context.Context, nodeID string) (db.BMC, error)
}, n db.Node, mode lifecycle.DecommissionMode, from lifecycle.NodeStatus) (contract.DecommissionInput, error) {
	in := contract.DecommissionInput{Mode: mode, NodeID: n.ID, Hostname: n.Hostname, SystemID: text(n.MAASSystemID), From: from}
	b, err := read.BMCOfNode(ctx, n.ID)
	if err == nil {
		in.BMCID = b.ID
	}
	if errors.Is(err, db.ErrNotFound) {
		err = nil
	}
	return in, err
}

func (s *Server) startNodeJob(ctx context.Context, tx *db.Tx, n db.Node, in contract.DecommissionInput) (db.Job, db.Node, error) {
	row, err := s.nodeJob(ctx, in)
	if err != nil {
		return db.Job{}, n, err
	}
	return tx.StartNodeJob(ctx, db.NodeJob{Mode: in.Mode, Node: n, Job: row})
}

// nodeJob is the job of a request, as it is to be created.
func (s *Server) nodeJob(ctx context.Context, in contract.DecommissionInput) (db.NewJob, error) {
	raw, err := json.Marshal(in)
	if err != nil {
		return db.NewJob{}, fmt.Errorf("decommission input: %w", err)
	}
	kind, id := contract.DecommissionKind(in.Mode), db.NewID("job")
	row := db.NewJob{ID: id, Kind: string(kind), Input: raw, WorkflowID: contract.JobWorkflowID(kind, id), Actor: s.actor(ctx)}
	row.Actor.Comment = in.Reason
	row.Actor.Metadata = map[string]any{"mode": string(in.Mode)}
	if in.PlanHash != "" {
		row.Actor.Metadata["plan_hash"] = in.PlanHash
	}
	return row, nil
}

// leaveNode takes a node back from a job that was cancelled before it began.
func (s *Server) leaveNode(ctx context.Context, tx *db.Tx, job db.Job, reason string) error {
	var in contract.DecommissionInput
	if !lifecycle.OwnsNodeState(job.Kind) || job.NodeID == nil || json.Unmarshal(job.Input, &in) != nil {
		return nil
	}
	a := s.actor(ctx)
	a.Comment, a.WorkflowID = reason, job.WorkflowID
	if a.Comment == "" {
		a.Comment = "job " + job.ID + " was cancelled before it began"
	}
	return tx.LeaveUnstarted(ctx, *job.NodeID, in.From, a)
}
