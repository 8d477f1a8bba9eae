package chaos

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"go.temporal.io/sdk/client"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
	simnode "github.com/slipway-cloud/slipway/sim/node"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// wireAgents has the agents of the nodes reach the agent API over a wire, and
// starts the APIs.
func (t *environment) wireAgents(ctx context.Context) error {
	cfg := &t.stack.Config.Agent
	w, err := newWire(context.WithoutCancel(ctx), cfg.Listen)
	if err != nil {
		return err
	}
	t.agents = w
	t.closes = append(t.closes, w.close)
	cfg.PublicURL = "https://" + w.Address()
	t.stack.App.Config.Agent.PublicURL = cfg.PublicURL
	t.stack.StartRole("api", t.stack.App.RunAPI)
	if !eventually(ctx, time.Minute, func() bool {
		var d net.Dialer
		c, err := d.DialContext(ctx, "tcp", cfg.Listen)
		return err == nil && c.Close() == nil
	}) {
		return errors.New("the agent API does not answer")
	}
	return nil
}

const (
	takesTask = 90 * time.Second       // how long an agent may take to be given a task
	working   = 120 * time.Millisecond // how long it works before it is killed in the midst
)

// injectAgentFault waits until the task of a point is where the variant wants it.
func (t *environment) injectAgentFault(ctx context.Context, target *Target, h Fault) {
	target.injected.Add(1)
	ctx = context.WithoutCancel(ctx)
	go func() {
		defer target.injected.Done()
		if !eventually(ctx, takesTask, func() bool { return target.taskIs(ctx, h) }) {
			target.missed(h)
			return
		}
		switch {
		case h.Kind == AgentCut && h.Variant == "unanswered":
			t.agents.silence(cutFor)
		case h.Kind == AgentCut:
			t.agents.cut(h.Variant == "refused", cutFor)
		default:
			if h.Variant == "working" {
				pause(ctx, working)
			}
			target.killAgent(ctx)
		}
	}()
}

// taskIs reports whether the stage's task has been taken by the agent, or has
// ended where that is waited for.
func (t *Target) taskIs(ctx context.Context, h Fault) bool {
	tasks, err := t.Store.ListTasks(ctx, db.TaskFilter{JobID: t.jobID()}, "", pageOfTasks)
	if err != nil {
		return false
	}
	for _, one := range tasks {
		if !strings.HasPrefix(one.IdempotencyKey, t.jobID()+"/"+h.Point.Stage+"/") {
			continue
		}
		if h.Variant == "done" {
			return lifecycle.NodeTask.Terminal(one.Status)
		}
		return one.Status != lifecycle.TaskQueued
	}
	return false
}

const pageOfTasks = 50

// killAgent ends the node's agent with SIGKILL; its unit starts it again.
func (t *Target) killAgent(ctx context.Context) {
	systems := []*simnode.Node{t.Stack.Sims.Nodes[t.Machine.Spec().ID]}
	if t.Booted != nil {
		systems = []*simnode.Node{t.Booted.Disk, t.Booted.Live}
	}
	eventually(ctx, 5*time.Second, func() bool {
		return slices.ContainsFunc(systems, func(n *simnode.Node) bool {
			pid := n.AgentPID()
			return pid > 0 && syscall.Kill(-pid, syscall.SIGKILL) == nil
		})
	})
	eventually(ctx, 5*time.Second, func() bool { return t.shortenLease(ctx) == nil })
}

// shortLease is how long the lease of a killed agent's task lasts. An agent that
// finds the task in its journal renews the lease after a quarter of a minute; to
// wait for the rest of the minute for one that does not shows nothing more.
const shortLease = 30 * time.Second

func (t *Target) shortenLease(ctx context.Context) error {
	c, err := pgx.Connect(ctx, t.DSN)
	if err != nil {
		return err
	}
	defer c.Close(ctx) //nolint:errcheck // a connection of the harness
	_, err = c.Exec(ctx, `UPDATE node_tasks SET lease_until = least(lease_until, now() + make_interval(secs => $2))
		WHERE job_id = $1 AND lease_until IS NOT NULL`, t.jobID(), runenv.Patience(shortLease).Seconds())
	return err
}

// retries does what the runbook of node_task_uncertain asks of an operator, and reports that it
// did. An agent that is killed between the moment when a task is handed out and the moment when its
// journal holds it knows nothing of the task. The server does not hand out a task again by itself
// when the task must not be repeated: it is right that an operator decides, once for each such
// kill. On a busy machine the kill may come when the agent already has the task of the next stage.
// The effects of the task are counted as in any other case.
func (t *Target) retries(ctx context.Context, job db.Job) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if job.FailureClass != lifecycle.FailNodeTaskUncertain || t.retried[job.Seq] {
		return t.retried[job.Seq]
	}
	info, _ := lifecycle.TaskKindOf(askedIn(job.FailedStage))
	deaths := 0
	for _, h := range t.Case.Faults {
		deaths += one(h.Kind == AgentKilled && !info.Redeliver)
	}
	if len(t.retried) >= deaths {
		return false
	}
	if t.retryStage(ctx, job, "the agent was killed before it had begun", client.WorkflowUpdateStageAccepted) != nil {
		return false
	}
	t.retried[job.Seq] = true
	return true
}

func (t *Target) missed(h Fault) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.late = append(t.late, fmt.Sprintf("%s: the agent was never given the task", h))
}
