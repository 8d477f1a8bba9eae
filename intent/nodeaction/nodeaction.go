// Package nodeaction accepts the actions on a node that MAAS or an operator provisions: drain,
// retire, reactivate, remove, quarantine, unquarantine and resume.
package nodeaction

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/intent/decommission"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// Request asks for an action on a node.
type Request struct {
	NodeID       string
	Action       lifecycle.NodeActionInfo
	Reason       string
	GraceSeconds int
	Version      int64 // of the node that the action is meant for; 0 is whichever is there
}

// Effect is what an action came to.
type Effect string

// The effects.
const (
	EffectNoop    Effect = "noop"    // it was so already, or is under way
	EffectMoved   Effect = "moved"   // the node's state changed
	EffectStarted Effect = "started" // a job was created
	EffectResumed Effect = "resumed" // its job or task was set going again
)

// Result is what an accepted action did.
type Result struct {
	Effect        Effect
	Node          db.Node
	JobID         string // the job that owns what follows
	Message       string
	intent.Advice // where something is left to do
}

// Check refuses a request that lacks its reason.
func Check(r Request) error {
	if r.Action.Reason && strings.TrimSpace(r.Reason) == "" {
		return intent.InvalidIf([]intent.Field{{Name: "reason", Message: "say why; it stands in the history"}})
	}
	return nil
}

// Accept decides under the node's lock and carries the action out: it moves the node, with its job
// where the action has one. An action that is done or under way changes nothing.
func Accept(ctx context.Context, tx *db.Tx, r Request, actor db.Actor) (Result, error) {
	d, err := decide(ctx, tx, r)
	if err != nil {
		return Result{}, err
	}
	if d.done != "" {
		return Result{Effect: EffectNoop, Node: d.node, JobID: d.jobID(), Message: d.done}, nil
	}
	actor.Comment = r.Reason
	switch r.Action.Action {
	case lifecycle.NodeActionDrain, lifecycle.NodeActionRetire, lifecycle.NodeActionRemove:
		return d.start(ctx, tx, actor)
	case lifecycle.NodeActionReactivate:
		if err := d.identityKept(ctx, tx); err != nil {
			return Result{}, err
		}
		return d.move(ctx, tx, lifecycle.Proof{lifecycle.NeedIdentityKept}, actor)
	case lifecycle.NodeActionUnquarantine:
		if err := d.provenHealthy(ctx, tx); err != nil {
			return Result{}, err
		}
		return d.move(ctx, tx, lifecycle.Proof{lifecycle.NeedEnrolled, lifecycle.NeedHealthy}, actor)
	case lifecycle.NodeActionQuarantine, lifecycle.NodeActionResume:
	}
	return d.move(ctx, tx, nil, actor)
}

// Allowed lists the actions that the node's state allows. busy says that a live job holds the node.
func Allowed(n db.Node, busy bool) []lifecycle.NodeAction {
	if n.Lifecycle != lifecycle.NodeMAAS.Lifecycle {
		return []lifecycle.NodeAction{}
	}
	return lifecycle.AllowedNodeActions(n.Status, busy)
}

// decision is an action on a node whose state was read under its lock.
type decision struct {
	Request
	node db.Node
	live *db.Job
	done string // why there is nothing to do, "" when there is
}

func decide(ctx context.Context, tx *db.Tx, r Request) (decision, error) {
	d := decision{Request: r}
	var err error
	if d.node, err = tx.LockNode(ctx, r.NodeID); err != nil {
		return d, err
	}
	if d.node.Lifecycle != lifecycle.NodeMAAS.Lifecycle {
		return d, decommission.RefusePXE(d.node, string(r.Action.Action))
	}
	live, err := tx.LiveJobOfNode(ctx, r.NodeID)
	if err == nil {
		d.live = &live
	} else if !errors.Is(err, db.ErrNotFound) {
		return d, err
	}
	if d.done = d.alreadyDone(); d.done != "" {
		return d, nil
	}
	if err := d.allowed(); err != nil {
		return d, err
	}
	if r.Version != 0 && r.Version != d.node.Version {
		return d, fmt.Errorf("node %s: %w", d.node.ID, db.ErrStale)
	}
	return d, nil
}

func (d decision) alreadyDone() string {
	if slices.Contains(d.Action.Done, d.node.Status) {
		return fmt.Sprintf("the node is %s already", d.node.Status)
	}
	if d.Action.Mode == "" || d.live == nil || !lifecycle.OwnsNodeState(d.live.Kind) {
		return ""
	}
	mode := intent.JobMode(*d.live)
	switch {
	case d.node.Status == lifecycle.NodeDraining && mode == string(d.Action.Mode),
		d.node.Status == lifecycle.NodeRemoving && d.Action.Mode == lifecycle.ModeRemove:
		return fmt.Sprintf("job %s (%s) is doing it", d.live.ID, mode)
	}
	return ""
}

// allowed refuses what the state or another job does not allow.
func (d decision) allowed() error {
	if d.live != nil && !d.Action.AllowsJob(d.node.Status) {
		return &intent.Refusal{Kind: intent.LiveJob, Existing: d.live.ID, Allowed: d.can(), Detail: fmt.Sprintf(
			"job %s (%s) is %s and holds node %s; wait for it to end, or cancel it, then %s",
			d.live.ID, intent.JobLabel(*d.live), d.live.Status, d.node.Hostname, d.Action.Action)}
	}
	if slices.Contains(d.Action.From, d.node.Status) {
		return nil
	}
	return &intent.Refusal{Kind: intent.ActionRefused, Allowed: d.can(), Detail: fmt.Sprintf("node %s is %s, and %s is for a node that is %s%s",
		d.node.Hostname, d.node.Status, d.Action.Action, lifecycle.OneOf(d.Action.From), d.alternative())}
}

// alternative says what to do instead, where it is not among the allowed actions.
func (d decision) alternative() string {
	switch {
	case d.node.Status == lifecycle.NodeDeleted:
		return "; its identity never comes back: onboard the server again, which makes a new node"
	case d.Action.Action == lifecycle.NodeActionRemove:
		return "; retire it first"
	}
	return ""
}

func (d decision) can() []string {
	out := []string{}
	for _, a := range Allowed(d.node, d.live != nil) {
		out = append(out, string(a))
	}
	return out
}

func (d decision) jobID() string {
	if d.live == nil {
		return ""
	}
	return d.live.ID
}

func (d decision) identityKept(ctx context.Context, tx *db.Tx) error {
	gone, err := tx.IdentityGone(ctx, d.node.ID)
	if err != nil || gone == "" {
		return err
	}
	unable, err := tx.AgentUnable(ctx, d.node.ID)
	if err != nil {
		return err
	}
	if unable != "" {
		return &intent.Refusal{Kind: intent.ActionRefused, Allowed: []string{string(lifecycle.NodeActionRemove)},
			Advice: intent.Advice{Reason: intent.ReasonIdentityGone, Hostname: d.node.Hostname},
			Detail: fmt.Sprintf("node %s cannot be used again under its identity: %s", d.node.Hostname, unable)}
	}
	return &intent.Refusal{Kind: intent.ActionRefused, Allowed: []string{string(lifecycle.NodeActionRemove)}, Detail: fmt.Sprintf(
		"node %s cannot be used again under its identity: %s; remove it, or decommission it fully, then onboard the server again", d.node.Hostname, gone)}
}

func (d decision) provenHealthy(ctx context.Context, tx *db.Tx) error {
	missing, err := tx.NodeHealth(ctx, d.node)
	if err != nil || len(missing) == 0 {
		return err
	}
	r := &intent.Refusal{Kind: intent.ActionRefused,
		Detail: fmt.Sprintf("node %s is not proven healthy: %s; fix it, then unquarantine", d.node.Hostname, strings.Join(missing, "; "))}
	for _, m := range missing {
		r.Fields = append(r.Fields, intent.Field{Name: "node", Message: m})
	}
	if db.SanitizeRequired(d.node) != "" {
		r.Advice = sanitize(d.node)
	}
	r.Allowed = slices.DeleteFunc(d.can(), func(a string) bool { return a == string(lifecycle.NodeActionUnquarantine) })
	return r
}

func (d decision) move(ctx context.Context, tx *db.Tx, proof lifecycle.Proof, actor db.Actor) (Result, error) {
	n, err := tx.TransitionNode(ctx, d.node.ID, d.Action.MoveFrom(d.node.Status), proof, actor)
	if err != nil {
		return Result{}, err
	}
	message := fmt.Sprintf("node %s went from %s to %s", n.Hostname, d.node.Status, n.Status)
	if why := db.SanitizeRequired(n); n.Status == lifecycle.NodeOffline && why != "" {
		return Result{EffectMoved, n, d.jobID(), message + "; it stays so: " + why, sanitize(n)}, nil
	} else if n.Status == lifecycle.NodeOffline {
		message += "; it becomes active when its agent is heard and its report is healthy"
	}
	return Result{Effect: EffectMoved, Node: n, JobID: d.jobID(), Message: message}, nil
}

func sanitize(n db.Node) intent.Advice {
	return intent.Advice{Reason: intent.ReasonSanitize, Hostname: n.Hostname}
}

// start creates the job that owns the operation and moves the node.
func (d decision) start(ctx context.Context, tx *db.Tx, actor db.Actor) (Result, error) {
	in, err := decommission.Input(ctx, tx, d.node, d.Action.Mode, d.node.Status)
	if err != nil {
		return Result{}, err
	}
	in.Reason, in.GraceSeconds = d.Reason, d.GraceSeconds
	job, n, err := decommission.Start(ctx, tx, "", d.node, in, actor)
	if err != nil {
		return Result{}, err
	}
	return Result{Effect: EffectStarted, Node: n, JobID: job.ID, Message: fmt.Sprintf("job %s was created; the node is %s", job.ID, n.Status)}, nil
}
