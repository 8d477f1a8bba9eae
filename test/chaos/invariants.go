package chaos

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"go.temporal.io/api/enums/v1"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
)

//go:embed invariants.sql
var invariantsSQL string

// invariant is a named query whose rows are violations: whose (may be NULL), and
// a sentence.
type invariant struct{ name, sql string }

func invariants() []invariant {
	var out []invariant
	for _, part := range strings.Split(invariantsSQL, "-- name: ")[1:] {
		name, sql, _ := strings.Cut(part, "\n")
		out = append(out, invariant{strings.TrimSpace(name), strings.TrimSpace(sql)})
	}
	return out
}

// violation is a broken invariant; whose is a job id, a node id or "".
type violation struct{ whose, text string }

// settle is how long the outbox gets to drain, and the ends of tasks to be told,
// before they are looked at: what a relay claimed before its database was taken
// away is due again after its lease.
const settle = 90 * time.Second

// violations asks every invariant of an environment: those of the database, the audit chains, what
// is billed at the cloud, that free nodes are clean, and that jobs and workflows know of each
// other.
func (t *environment) violations(ctx context.Context) ([]violation, error) {
	c, err := pgx.Connect(ctx, t.dsn)
	if err != nil {
		return nil, err
	}
	defer c.Close(ctx) //nolint:errcheck // a connection of the harness
	eventually(ctx, settle, func() bool {
		var open int
		return c.QueryRow(ctx, `SELECT (SELECT count(*) FROM outbox WHERE done_at IS NULL) + (SELECT count(*) FROM node_tasks
			WHERE told_at IS NULL AND waiter_activity_id <> '' AND status NOT IN ('queued', 'dispatched'))`).Scan(&open) == nil && open == 0
	})
	var out []violation
	for _, i := range invariants() {
		found, err := broken(ctx, c, i)
		if err != nil {
			return nil, fmt.Errorf("invariant %s: %w", i.name, err)
		}
		out = append(out, found...)
	}
	audit, err := t.brokenChains(ctx)
	if err != nil {
		return nil, err
	}
	billed, err := t.billedWithoutRow(ctx)
	if err != nil {
		return nil, err
	}
	unclean, err := t.freeUnclean(ctx)
	if err != nil {
		return nil, err
	}
	lost, err := t.lostWorkflows(ctx, c)
	return slices.Concat(out, audit, billed, unclean, lost), err
}

func broken(ctx context.Context, c *pgx.Conn, i invariant) ([]violation, error) {
	rows, err := c.Query(ctx, i.sql)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (violation, error) {
		var whose *string
		var text string
		err := row.Scan(&whose, &text)
		v := violation{text: i.name + ": " + text}
		if whose != nil {
			v.whose = *whose
		}
		return v, err
	})
}

// brokenChains verifies every audit chain.
func (t *environment) brokenChains(ctx context.Context) ([]violation, error) {
	var out []violation
	var after db.Chain
	for {
		chains, err := t.store.AuditChains(ctx, after, 500)
		if err != nil || len(chains) == 0 {
			return out, err
		}
		for _, one := range chains {
			seq, err := t.store.VerifyAudit(ctx, one.ResourceKind, one.ResourceID)
			if err != nil {
				return out, err
			}
			if seq != 0 {
				out = append(out, violation{one.ResourceID, fmt.Sprintf("audit_chain: %s is broken at %d", one.ResourceKind, seq)})
			}
		}
		after = chains[len(chains)-1]
	}
}

// lostWorkflows holds jobs against their workflows: a job that is not at its end
// has one that runs, and one at its end has one that ended without a failure.
func (t *environment) lostWorkflows(ctx context.Context, c *pgx.Conn) ([]violation, error) {
	rows, err := c.Query(ctx, `SELECT id, status, workflow_id FROM jobs`)
	if err != nil {
		return nil, err
	}
	type row struct{ ID, Status, WorkflowID string }
	jobs, err := pgx.CollectRows(rows, pgx.RowToStructByPos[row])
	if err != nil {
		return nil, err
	}
	var out []violation
	for _, j := range jobs {
		ended := lifecycle.Job.Terminal(lifecycle.JobStatus(j.Status))
		var state enums.WorkflowExecutionStatus
		runs := func() bool { return state == enums.WORKFLOW_EXECUTION_STATUS_RUNNING }
		// The last projection comes before the workflow's own end. When its worker was killed
		// between the two, the workflow task times out after ten seconds and goes to another
		// worker.
		eventually(ctx, 30*time.Second, func() bool {
			state, err = t.workflowState(ctx, j.WorkflowID)
			return err == nil && runs() != ended
		})
		if err != nil {
			return nil, err
		}
		switch {
		case runs() == ended:
			out = append(out, violation{j.ID, fmt.Sprintf("jobs_have_workflows: the job is %s and its workflow is %s", j.Status, state)})
		case state == enums.WORKFLOW_EXECUTION_STATUS_FAILED:
			why := t.stack.App.Temporal.GetWorkflow(ctx, j.WorkflowID, "").Get(ctx, nil)
			out = append(out, violation{j.ID, fmt.Sprintf("jobs_have_workflows: the job is %s and its workflow failed: %v", j.Status, why)})
		}
	}
	return out, nil
}

// workflowState asks Temporal for the state of a workflow's last run.
func (t *environment) workflowState(ctx context.Context, id string) (enums.WorkflowExecutionStatus, error) {
	res, err := t.stack.App.Temporal.DescribeWorkflowExecution(ctx, id, "")
	if err != nil {
		return 0, fmt.Errorf("describe workflow %s: %w", id, err)
	}
	return res.GetWorkflowExecutionInfo().GetStatus(), nil
}
