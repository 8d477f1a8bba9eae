package decommission

import (
	"encoding/json"
	"fmt"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/slipway-cloud/slipway/activities/agenttask"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/workflows/stage"
)

// agentTask is one task of the node's agent.
type agentTask struct {
	stage string
	kind  lifecycle.TaskKind
	args  any
	tries *contract.TaskTries
	// limit is how long the agent may take; zero is the kind's own time.
	limit time.Duration
}

// taskMargin lets a task expire before its stage does.
const taskMargin = 30 * time.Second

func (s *State) taskIn(ctx workflow.Context, a agentTask) (agenttask.RunTaskIn, error) {
	args, err := json.Marshal(s.withDrives(a.args))
	if err != nil {
		return agenttask.RunTaskIn{}, fmt.Errorf("arguments of %s: %w", a.kind, err)
	}
	info, _ := lifecycle.TaskKindOf(a.kind)
	limit := info.Deadline
	if a.limit > 0 {
		limit = a.limit
	}
	until := stage.Within(ctx, limit, taskMargin)
	return agenttask.RunTaskIn{JobRef: s.Job.At(a.stage), Kind: a.kind, Args: args, Deadline: until, TaskTries: *a.tries}, nil
}

// withDrives adds to the arguments of a scrub or a validation the drives that the node was last read
// to have, and those that are protected.
func (s *State) withDrives(args any) any {
	switch v := args.(type) {
	case spec.ScrubArgs:
		v.ExpectedDrives, v.ProtectSerials = s.Node.Drives, s.Node.ProtectSerials
		return v
	case spec.ValidateArgs:
		v.ExpectedDrives, v.ProtectSerials = s.Node.Drives, s.Node.ProtectSerials
		return v
	}
	return args
}

// runTask asks the agent and waits for the result. An agent that is silent is not
// asked: the task would only lie there until it expired.
func (s *State) runTask(ctx workflow.Context, a agentTask) (lifecycle.TaskResult, error) {
	if err := s.readNode(ctx, a.stage); err != nil {
		return lifecycle.TaskResult{}, err
	}
	if s.Node.Agent != contract.AgentAlive {
		return lifecycle.TaskResult{}, stage.Fail(lifecycle.FailNodeTask,
			"the node's agent cannot be asked for %s: %s; bring the node back so that its agent sends heartbeats, then retry the stage", a.kind, s.unreachableReason())
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

// observeTask tells whether the task of this round has succeeded.
func (s *State) observeTask(ctx workflow.Context, a agentTask) (lifecycle.TaskResult, error) {
	in, err := s.taskIn(ctx, a)
	if err != nil {
		return lifecycle.TaskResult{}, err
	}
	in.ObserveOnly = true
	return stage.Do(ctx, stage.KindLocalWork, "look at "+string(a.kind), agent.RunTask, in)
}

// readNode reads the node and its agent as they are now.
func (s *State) readNode(ctx workflow.Context, at string) error {
	f, err := stage.Do(ctx, stage.KindLocalWork, "look at the node", nodeActs.ReadNodeFacts, s.Job.At(at))
	if err != nil {
		return err
	}
	s.recordNode(f)
	if s.pxe() {
		return s.verifyNodeState()
	}
	return nil
}

// unreachableReason says why the agent cannot be asked.
func (s *State) unreachableReason() string {
	if s.Node.Note != "" {
		return s.Node.Note
	}
	return "it has never enrolled"
}
