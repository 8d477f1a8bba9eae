package db

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/slipway-cloud/slipway/db/gen"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// Projection is the whole visible state of a job at one step of its workflow.
type Projection struct {
	JobID             string
	Seq               int64 // the projection applies only when this is higher than the stored one
	RunID             string
	Status            lifecycle.JobStatus
	Stage             string
	StageOrdinal      int
	Attempt           int
	FailureClass      lifecycle.FailureClass
	FailedStage       string
	Message           string
	RecommendedAction lifecycle.Action
	NextStep          string
	WaitingOutside    bool
	Frozen            bool
	Adopted           bool
	Observed          *lifecycle.Observed
	ProgressPercent   int
	ReachedPercent    int
	StageDeadline     *time.Time
	// Checkpoint is the workflow's own state as JSON; empty keeps the last.
	Checkpoint json.RawMessage
	Stages     []lifecycle.StageRow
	// Actor causes the change of status; its owner is job unless it is system.
	Actor Actor
	// At is when the workflow made the step; nil is now. ActionType ("" is the stage's name) and
	// Metadata describe the try that begins with it.
	At         *time.Time
	ActionType string
	Metadata   lifecycle.ActionMetadata
	// Did completes the metadata of the try that ends with the step.
	Did lifecycle.ActionMetadata
	// Entries are further audit rows, such as those of actions. An empty resource stands for the
	// job.
	Entries []Entry
	// MovesOnce says that the step has a move that the end of a job makes once.
	MovesOnce bool
	// Fingerprint is the same for the same step when its workflow task is lost and runs again.
	Fingerprint string
}

// Projected is the result of a projection.
type Projected struct {
	Applied bool
	// Repeated says that the same run has stored this step before.
	Repeated bool
	// Ended is the status with which the job has ended, if the step asks for another, or moves
	// something. Nothing is written then.
	Ended lifecycle.JobStatus
	// Seq, RunID and Pass are those that the job has now.
	Seq   int64
	RunID string
	Pass  int
}

// NodeMove moves the node of a job. Without a named transition it is the one that leads to To and
// that the owner of Actor may make.
type NodeMove struct {
	Transition string
	To         lifecycle.NodeStatus
	// Via lists the states between the node's state and To. Each gets an audit row of its own in
	// this transaction.
	Via   []lifecycle.NodeStatus
	Proof lifecycle.Proof
	Actor Actor
}

// ProjectJob applies one step in one transaction: status with its audit row, columns, stages,
// further audit rows and event. A step whose Seq is not higher than the stored one changes nothing
// and returns no error, so that a late or repeated projection is harmless. A change of status that
// is no edge of the lifecycle is refused, and nothing is written. When a lost workflow is started
// again, the new run continues the sequence from Job.Seq.
//
// A workflow task that is lost runs again and repeats each step that it stored, not only the last
// one. It may also take another way, because an action has come meanwhile: a step is repeated only
// if its fingerprint is the stored one. If the job has ended by the way that it took first, another
// status is not an error but an answer: the run has nothing more to do.
func (tx *Tx) ProjectJob(ctx context.Context, p Projection) (Projected, error) {
	j, err := tx.LockJob(ctx, p.JobID)
	if err != nil {
		return Projected{}, err
	}
	out := Projected{Seq: j.Seq, RunID: j.RunID, Pass: PassOf(j.Compensations)}
	if p.Seq <= j.Seq {
		out.Repeated = p.repeats(j)
		return out, nil
	}
	if lifecycle.Job.Terminal(j.Status) && (p.Status != j.Status || p.MovesOnce) {
		out.Ended = j.Status
		return out, nil
	}
	var rest queue // one round trip for all statements without an answer
	if err := tx.projectStatus(ctx, &rest, j, p); err != nil {
		return out, err
	}
	if err := projectColumns(ctx, &rest, j, p); err != nil {
		return out, err
	}
	if err := rest.send(ctx, tx.dbtx); err != nil {
		return out, MapError("project job "+p.JobID, err)
	}
	for _, e := range p.Entries {
		if e.ResourceKind == "" {
			e.ResourceKind, e.ResourceID, e.NodeID = "job", j.ID, j.NodeID
		}
		if err := tx.AppendAudit(ctx, e); err != nil {
			return out, err
		}
	}
	if p.Status == lifecycle.JobCompensating && j.Status != p.Status {
		out.Pass++
	}
	out.Applied, out.Seq, out.RunID = true, p.Seq, p.RunID
	return out, nil
}

// maxRecentSteps bounds how many steps a job remembers: more than one workflow task stores.
const maxRecentSteps = 32

func (p Projection) step() string { return fmt.Sprintf("%d:%s", p.Seq, p.Fingerprint) }

// recentSteps returns the last steps of the projection's run, with its own as the newest.
func (p Projection) recentSteps(j Job) []string {
	var before []string
	if j.RunID == p.RunID {
		before = j.RecentSteps[max(0, len(j.RecentSteps)-maxRecentSteps+1):]
	}
	return append(slices.Clone(before), p.step())
}

// repeats reports whether the projection's run has stored this very step.
func (p Projection) repeats(j Job) bool {
	return j.RunID == p.RunID && slices.Contains(j.RecentSteps, p.step())
}

// projectStatus moves the job when its status differs. Otherwise it only emits an event that the
// job has progressed.
func (tx *Tx) projectStatus(ctx context.Context, rest *queue, j Job, p Projection) error {
	from := j.Status
	j.Stage, j.FailureClass = p.Stage, p.FailureClass
	j.ProgressPercent, j.ReachedPercent = p.ProgressPercent, p.ReachedPercent
	if p.Status == from {
		payload, err := jobPayload(j, from)
		if err != nil {
			return err
		}
		return rest.statements().AppendEvent(ctx, Event{ResourceKind: "job", ResourceID: j.ID, NodeID: j.NodeID, Type: "job.progress", Payload: payload})
	}
	t, err := lifecycle.JobTransition(from, p.Status)
	if err != nil {
		return err
	}
	a := p.Actor
	if a.Owner != lifecycle.OwnerSystem {
		a.Owner = lifecycle.OwnerJob
	}
	if a.WorkflowID == "" {
		a.WorkflowID = j.WorkflowID
	}
	_, err = tx.moveJob(ctx, j, t, nil, a)
	return err
}

func projectColumns(ctx context.Context, rest *queue, j Job, p Projection) error {
	q := rest.statements().q
	err := q.ProjectJob(ctx, gen.ProjectJobParams{
		ID: p.JobID, Seq: p.Seq, RunID: p.RunID, Stage: p.Stage, StageOrdinal: p.StageOrdinal, Attempt: p.Attempt, FailureClass: p.FailureClass,
		FailedStage: p.FailedStage, Message: ClipText(p.Message, MaxMessage), RecommendedAction: p.RecommendedAction,
		NextStep: ClipText(p.NextStep, MaxMessage), WaitingOutside: p.WaitingOutside, Frozen: p.Frozen, Adopted: p.Adopted, Observed: p.Observed,
		ProgressPercent: p.ProgressPercent, ReachedPercent: p.ReachedPercent, StageDeadlineAt: p.StageDeadline,
		Checkpoint: orNull(p.Checkpoint), RecentSteps: p.recentSteps(j),
	})
	if err != nil {
		return MapError("project job "+p.JobID, err)
	}
	if len(p.Stages) > 0 {
		rows := slices.Clone(p.Stages)
		for i := range rows {
			rows[i].Message = ClipText(rows[i].Message, MaxMessage)
		}
		params, err := stageParams(p, rows)
		if err != nil {
			return fmt.Errorf("stages of job %s: %w", p.JobID, err)
		}
		if err := q.ProjectStages(ctx, params); err != nil {
			return MapError("project stages of job "+p.JobID, err)
		}
	}
	j.FailureClass = p.FailureClass
	return closeStages(ctx, q, j, p.Status, p.Message)
}

func orNull(b json.RawMessage) json.RawMessage {
	if len(b) == 0 {
		return nil
	}
	return CleanJSON(b)
}

// MoveJobNode moves a locked node for its job, unless it is there already.
func (tx *Tx) MoveJobNode(ctx context.Context, n Node, m NodeMove) error {
	for _, to := range append(slices.Clone(m.Via), m.To) {
		step := m
		step.To = to
		t, err := step.find(n, m.Actor.Owner)
		if err != nil {
			return err
		}
		if t.To == n.Status {
			continue
		}
		if n, err = tx.moveNode(ctx, n, t, m.Proof, m.Actor); err != nil {
			return err
		}
	}
	return nil
}

func (m NodeMove) find(n Node, owner lifecycle.Owner) (lifecycle.Transition[lifecycle.NodeStatus], error) {
	machine, err := nodeMachine(n.Lifecycle)
	if err != nil {
		return lifecycle.Transition[lifecycle.NodeStatus]{}, err
	}
	if m.Transition == "" && m.To == n.Status {
		return lifecycle.Transition[lifecycle.NodeStatus]{To: m.To}, nil
	}
	var found *lifecycle.Transition[lifecycle.NodeStatus]
	for _, t := range machine.Transitions {
		if m.Transition != "" {
			if t.Name == m.Transition {
				return t, nil
			}
			continue
		}
		if t.To == m.To && slices.Contains(t.From, n.Status) && (found == nil || slices.Contains(t.Owners, owner)) {
			found = &t
		}
	}
	if found == nil {
		return lifecycle.Transition[lifecycle.NodeStatus]{}, &lifecycle.IllegalTransitionError{
			Resource: "node", From: string(n.Status), To: string(m.To), Reason: "there is no such transition " + m.Transition,
			Allowed: machine.Reachable(n.Status),
		}
	}
	return *found, nil
}
