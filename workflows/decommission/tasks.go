package decommission

import (
	"encoding/json"
	"fmt"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/slipway-cloud/slipway/activities/agenttask"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/contract"
	"github.com/slipway-cloud/slipway/workflows/stage"
)

// ask is one task of the node's agent.
type ask struct {
	stage string
	kind  lifecycle.TaskKind
	args  any
	tries *contract.TaskTries
	// limit is how long the agent may take; zero is the kind's own time.
	limit time.Duration
}

// taskMargin lets a task expire before its stage does.
const taskMargin = 30 * time.Second

func (s *State) taskIn(ctx workflow.Context, a ask) (agenttask.RunTaskIn, error) {
	args, err := json.Marshal(a.args)
	if err != nil {
		return agenttask.RunTaskIn{}, fmt.Errorf("arguments of %s: %w", a.kind, err)
	}
	info, _ := lifecycle.TaskKindOf(a.kind)
	limit := info.Deadline
	if a.limit > 0 {
		limit = a.limit
	}
	until := workflow.Now(ctx).Add(limit)
	if last := stage.DeadlineAt(ctx).Add(-taskMargin); until.After(last) {
		until = last
	}
	return agenttask.RunTaskIn{JobRef: s.ref(a.stage), Kind: a.kind, Args: args, Deadline: until, TaskTries: *a.tries}, nil
}

// run asks the agent and waits for the result. An agent that is silent is not
// asked: the task would only lie there until it expired.
func (s *State) run(ctx workflow.Context, a ask) (lifecycle.TaskResult, error) {
	if err := s.look(ctx, a.stage); err != nil {
		return lifecycle.TaskResult{}, err
	}
	if s.Node.Agent != contract.AgentAlive {
		return lifecycle.TaskResult{}, stage.Fail(lifecycle.FailNodeTask,
			"the node's agent cannot be asked for %s: %s; bring the node back so that its agent sends heartbeats, then retry the stage", a.kind, s.silence())
	}
	in, err := s.taskIn(ctx, a)
	if err != nil {
		return lifecycle.TaskResult{}, err
	}
	r, err := stage.Do(ctx, stage.KindAgentTask, string(a.kind), agent.RunTask, in)
	if err != nil {
		a.tries.Failed(stage.ClassOf(err))
	}
	return r, err
}

// observe tells whether the task of this round has succeeded.
func (s *State) observe(ctx workflow.Context, a ask) (lifecycle.TaskResult, error) {
	in, err := s.taskIn(ctx, a)
	if err != nil {
		return lifecycle.TaskResult{}, err
	}
	in.ObserveOnly = true
	return stage.Do(ctx, stage.KindLocalWork, "look at "+string(a.kind), agent.RunTask, in)
}

// look reads the node and its agent as they are now.
func (s *State) look(ctx workflow.Context, at string) error {
	f, err := stage.Do(ctx, stage.KindLocalWork, "look at the node", nodestate.ReadNodeFacts, s.ref(at))
	if err != nil {
		return err
	}
	s.learn(f)
	if s.pxe() {
		return s.held()
	}
	return nil
}

// silence says why the agent cannot be asked.
func (s *State) silence() string {
	if s.Node.Note != "" {
		return s.Node.Note
	}
	return "it has never enrolled"
}

// withdraw takes back the tasks that no agent has begun, and waits for the end
// of those that it has: what a node does is not called back.
func withdraw(ctx workflow.Context, s *State) error {
	in := agenttask.RevokeTasksIn{JobRef: s.Job}
	if _, err := stage.Do(ctx, stage.KindLocalWork, "withdraw tasks", agent.RevokeTasks, in); err != nil {
		return err
	}
	_, err := stage.Do(ctx, stage.KindPoll, "wait for what the agent has begun", agent.WaitForTasks, s.settleIn(ctx, false))
	return err
}

// stopDraining is withdraw for the stages that end a tenant: whether one was
// ended is read anew, as the answer that said so may have been lost.
func stopDraining(ctx workflow.Context, s *State) error {
	if err := withdraw(ctx, s); err != nil || s.pxe() {
		return err
	}
	f, err := stage.Do(ctx, stage.KindLocalWork, "did a tenant leave", nodestate.ReadNodeFacts, s.Job)
	if err == nil {
		s.learn(f)
	}
	return err
}

// tasksRemain proves withdraw.
func tasksRemain(ctx workflow.Context, s *State) (string, error) {
	left, err := stage.Do(ctx, stage.KindLocalWork, "no task of the job is open", agent.WaitForTasks, s.settleIn(ctx, true))
	if err != nil || left.Done {
		return "", err
	}
	return left.Note, nil
}

// spent withdraws what can be, without waiting for an erasure, which may take
// half a day, and marks that the node is not what it was once an agent has begun
// to erase.
func spent(name string) func(workflow.Context, *State) error {
	return func(ctx workflow.Context, s *State) error {
		if _, err := stage.Do(ctx, stage.KindLocalWork, "withdraw tasks", agent.RevokeTasks, agenttask.RevokeTasksIn{JobRef: s.Job}); err != nil {
			return err
		}
		begun, err := stage.Do(ctx, stage.KindLocalWork, "was anything erased", agent.CheckNothingErased, s.Job)
		if err == nil && !begun.Done {
			s.Spent = name
		}
		return err
	}
}
