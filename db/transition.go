package db

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	"github.com/slipway-cloud/slipway/db/gen"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// CommitTransition is the commit point of every state change that has an audit row. The caller
// holds the lock of the row and supplies the state that it found there. CommitTransition returns
// *lifecycle.IllegalTransitionError when lifecycle refuses t. Otherwise it calls commit, which
// writes the guarded update, the audit row and the event in one statement.
func CommitTransition[S lifecycle.State](
	m lifecycle.Machine[S], t lifecycle.Transition[S], from S, proof lifecycle.Proof, a Actor, commit func(AuditStamp) error,
) error {
	if err := m.Check(t, from, a.Owner, proof); err != nil {
		return err
	}
	st, err := a.Stamp(proof)
	if err != nil {
		return err
	}
	return commit(st)
}

// TransitionNode moves a node. It returns *lifecycle.IllegalTransitionError when the node's state,
// the owner or a missing proof forbids it, ErrNotFound when there is no such node. A repetition is
// refused, since the node is no longer in the state that the transition leaves.
func (tx *Tx) TransitionNode(ctx context.Context, id string, t lifecycle.Transition[lifecycle.NodeStatus], proof lifecycle.Proof, a Actor) (Node, error) {
	n, err := tx.LockNode(ctx, id)
	if err != nil {
		return Node{}, err
	}
	return tx.moveNode(ctx, n, t, proof, a)
}

func (tx *Tx) moveNode(ctx context.Context, n Node, t lifecycle.Transition[lifecycle.NodeStatus], proof lifecycle.Proof, a Actor) (Node, error) {
	m, err := nodeMachine(n.Lifecycle)
	if err != nil {
		return Node{}, err
	}
	if err := requireSanitized(n, t); err != nil {
		return Node{}, err
	}
	from := n.Status
	err = CommitTransition(m, t, from, proof, a, func(st AuditStamp) error {
		n.Status = t.To
		payload, err := nodePayload(n, from, t.Name)
		if err != nil {
			return err
		}
		row, err := tx.q.MoveNode(ctx, gen.MoveNodeParams{
			ID: n.ID, FromState: string(from), ToState: t.To, Version: n.Version, Name: t.Name, Payload: payload,
			AuditID: st.AuditID, TriggeredBy: st.TriggeredBy, Owner: st.Owner, ActorID: st.ActorID, Comment: st.Comment,
			Metadata: st.Metadata, WorkflowID: st.WorkflowID,
		})
		n.Version, n.StateChangedAt, n.UpdatedAt = row.Version, row.StateChangedAt, row.StateChangedAt
		return MapError("move node "+n.ID, err)
	})
	if err != nil {
		return Node{}, err
	}
	tx.moves = append(tx.moves, nodeMove{n, from, t.Name, a})
	if err := tx.endIdentityOf(ctx, n); err != nil {
		return Node{}, err
	}
	if n.Lifecycle == lifecycle.NodePXE.Lifecycle {
		return n, tx.settlePXE(ctx, n)
	}
	if n.Status != lifecycle.NodeDeleted {
		return n, nil
	}
	// The mark that a tenant left the node stays when it is deleted: the machine may come back as
	// another node, with his disks and his BMC. A node of a cluster gets it.
	return n, MapError("node "+n.ID, tx.q.MarkClusterNode(ctx, n.ID))
}

func nodeMachine(name string) (lifecycle.Machine[lifecycle.NodeStatus], error) {
	if m, known := lifecycle.NodeMachine(name); known {
		return m, nil
	}
	return lifecycle.Machine[lifecycle.NodeStatus]{}, fmt.Errorf("node lifecycle %q is unknown to this program; run the release that wrote it, or a later one", name)
}

func nodePayload(n Node, from lifecycle.NodeStatus, name string) (json.RawMessage, error) {
	return json.Marshal(map[string]any{
		"node_id": n.ID, "hostname": n.Hostname, "site_id": n.SiteID, "from": from, "status": n.Status, "transition": name,
	})
}

// TransitionJob moves a job, by the same rules as TransitionNode. A running workflow moves its job
// by ProjectJob. TransitionJob is for the sweeper, and for cancelling a job that has not started.
func (tx *Tx) TransitionJob(ctx context.Context, id string, t lifecycle.Transition[lifecycle.JobStatus], proof lifecycle.Proof, a Actor) (Job, error) {
	j, err := tx.LockJob(ctx, id)
	if err != nil {
		return Job{}, err
	}
	if err := closeStages(ctx, tx.q, j, t.To, a.Comment); err != nil {
		return Job{}, err
	}
	return tx.moveJob(ctx, j, t, proof, a)
}

// closeStages fails a stage that still runs while its job ends or is parked, and the stage's try.
func closeStages(ctx context.Context, q *gen.Queries, j Job, to lifecycle.JobStatus, why string) error {
	if !lifecycle.Job.Terminal(to) && !to.Parked() {
		return nil
	}
	message := ClipText(cmp.Or(why, "the job ended while the stage ran"), MaxMessage)
	err := q.LoseStage(ctx, gen.LoseStageParams{JobID: j.ID, Message: message, FailureClass: j.FailureClass})
	return MapError("close the stages of job "+j.ID, err)
}

func (tx *Tx) moveJob(ctx context.Context, j Job, t lifecycle.Transition[lifecycle.JobStatus], proof lifecycle.Proof, a Actor) (Job, error) {
	from := j.Status
	err := CommitTransition(lifecycle.Job, t, from, proof, a, func(st AuditStamp) error {
		j.Status = t.To
		payload, err := jobPayload(j, from)
		if err != nil {
			return err
		}
		row, err := tx.q.MoveJob(ctx, gen.MoveJobParams{
			ID: j.ID, FromState: string(from), ToState: t.To, Terminal: lifecycle.Job.Terminal(t.To), Version: j.Version, Name: t.Name,
			Payload: payload, AuditID: st.AuditID, TriggeredBy: st.TriggeredBy, Owner: st.Owner, ActorID: st.ActorID, Comment: st.Comment,
			Metadata: st.Metadata, WorkflowID: st.WorkflowID,
		})
		j.Version, j.UpdatedAt, j.StartedAt, j.FinishedAt = row.Version, row.UpdatedAt, row.StartedAt, row.FinishedAt
		return MapError("move job "+j.ID, err)
	})
	if err != nil {
		return Job{}, err
	}
	return j, nil
}

func jobPayload(j Job, from lifecycle.JobStatus) (json.RawMessage, error) {
	return json.Marshal(map[string]any{
		"job_id": j.ID, "kind": j.Kind, "node_id": j.NodeID, "site_id": j.SiteID, "batch_id": j.BatchID, "from": from, "status": j.Status,
		"stage": j.Stage, "progress_percent": j.ProgressPercent, "reached_percent": j.ReachedPercent, "failure_class": j.FailureClass,
		"needs_human": j.Status.Parked(),
	})
}
