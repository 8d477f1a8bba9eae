package db

import (
	"context"
	"fmt"
	"time"

	"github.com/slipway-cloud/slipway/db/gen"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// AgentGrant is leave for a PXE node to install its agent.
type AgentGrant struct {
	Node     Node
	Workflow InstallWorkflow // whose agent it is
}

// GrantAgent makes the enrolment token of a PXE node, by its hash, for who shows
// a boot token, by its hash: the node's other enrolment tokens end, so that an
// answer that was lost is made good by asking again. It is given while the boot
// token's attempt runs and has been reported as started, and afterwards, to the
// newest attempt of the newest round, until an agent has enrolled since the boot
// token was made. ErrNotFound: not, or no longer. *ConflictError: not yet. A
// workflow without an agent is returned and nothing is made.
func (tx *Tx) GrantAgent(ctx context.Context, boot, enrolment []byte, life time.Duration) (AgentGrant, error) {
	t, err := tx.PXETokenByHash(ctx, boot)
	if err != nil {
		return AgentGrant{}, err
	}
	n, err := tx.LockNode(ctx, t.NodeID)
	if err != nil {
		return AgentGrant{}, err
	}
	// Under the lock: a new round has dropped it meanwhile.
	if t, err = tx.PXETokenByHash(ctx, boot); err != nil {
		return AgentGrant{}, err
	}
	p, err := tx.PXENode(ctx, n.ID)
	if err != nil {
		return AgentGrant{}, err
	}
	workflowID, err := tx.agentWorkflow(ctx, t, n, p)
	if err != nil {
		return AgentGrant{}, err
	}
	w, err := tx.InstallWorkflow(ctx, workflowID)
	if err != nil || w.Spec.Agent == nil {
		return AgentGrant{Node: n, Workflow: w}, err
	}
	now, err := tx.Clock(ctx)
	if err != nil {
		return AgentGrant{}, err
	}
	if err := tx.IssueEnrollmentToken(ctx, n.ID, "", enrolment, now.Add(life)); err != nil {
		return AgentGrant{}, err
	}
	if err := tx.q.TrimEnrollmentTokens(ctx, n.ID); err != nil {
		return AgentGrant{}, MapError("enrolment tokens of node "+n.ID, err)
	}
	if w.Spec.Agent.Simulated {
		if err := tx.q.MarkSimulated(ctx, n.ID); err != nil {
			return AgentGrant{}, MapError("node "+n.ID, err)
		}
	}
	return AgentGrant{Node: n, Workflow: w}, tx.UsePXEToken(ctx, boot)
}

// agentWorkflow is the workflow whose agent the holder of a boot token may
// install now.
func (tx *Tx) agentWorkflow(ctx context.Context, t PXEToken, n Node, p PXENode) (string, error) {
	if TicketHolds(t, n, p) {
		if !lifecycle.AdmitsAgent(n.Lifecycle, n.Status) {
			return "", &ConflictError{What: "state", Existing: n.ID, Message: "the node is " + string(n.Status) + ", in which no agent enrols; report the installation as started first"}
		}
		if id, ok := BootWorkflow(n, p); ok {
			return id, nil
		}
	}
	id, ok := installedBy(n, p)
	if !ok || t.Round != p.Round {
		return "", notGranted(n)
	}
	newest, err := tx.q.NewestPXEAttempt(ctx, gen.NewestPXEAttemptParams{NodeID: n.ID, Round: p.Round})
	if err != nil {
		return "", MapError("boot tokens of node "+n.ID, err)
	}
	if t.Attempt != int(newest) {
		return "", notGranted(n)
	}
	enrolled, err := tx.q.EnrolledSince(ctx, gen.EnrolledSinceParams{NodeID: n.ID, Since: t.CreatedAt})
	if err != nil {
		return "", MapError("enrolment tokens of node "+n.ID, err)
	}
	if enrolled {
		return "", notGranted(n)
	}
	return id, nil
}

func notGranted(n Node) error {
	return fmt.Errorf("the agent of node %s: %w", n.ID, ErrNotFound)
}

// installedBy is the workflow that has installed the system which a node boots
// for the first times now, while its agent may be still to come.
func installedBy(n Node, p PXENode) (workflowID string, ok bool) {
	done := p.NetbootPurpose == lifecycle.NetbootInstall && p.NetbootDoneAt != nil && p.NetbootWorkflowID != nil
	switch {
	case n.Status == lifecycle.NodeMigrating && done:
		return *p.NetbootWorkflowID, true
	case (n.Status == lifecycle.NodeInstalled || n.Status == lifecycle.NodeActive) && p.InstallWorkflowID != nil:
		return *p.InstallWorkflowID, true
	}
	return "", false
}
