package sanitize

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

// Task is one task of the node's agent.
type Task struct {
	Stage string
	Kind  lifecycle.TaskKind
	Args  any
	Tries *contract.TaskTries
	// Limit is how long the agent may take; zero is the kind's own time.
	Limit time.Duration
}

// TaskMargin lets a task expire before its stage does.
const TaskMargin = 30 * time.Second

func (s *State) taskIn(ctx workflow.Context, a Task) (agenttask.RunTaskIn, error) {
	args, err := json.Marshal(s.withDrives(a.Args))
	if err != nil {
		return agenttask.RunTaskIn{}, fmt.Errorf("arguments of %s: %w", a.Kind, err)
	}
	info, _ := lifecycle.TaskKindOf(a.Kind)
	limit := info.Deadline
	if a.Limit > 0 {
		limit = a.Limit
	}
	until := stage.Within(ctx, limit, TaskMargin)
	return agenttask.RunTaskIn{JobRef: s.Job.At(a.Stage), Kind: a.Kind, Args: args, Deadline: until, TaskTries: *a.Tries}, nil
}

// withDrives adds to the arguments of a scrub or a validation the drives that the node was last
// read to have, and those that are protected.
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

// RunTask asks the agent and waits for the result. An agent that is silent is not
// asked: the task would only lie there until it expired.
func (s *State) RunTask(ctx workflow.Context, a Task) (lifecycle.TaskResult, error) {
	if err := s.ReadNode(ctx, a.Stage); err != nil {
		return lifecycle.TaskResult{}, err
	}
	if s.Node.Agent != contract.AgentAlive {
		return lifecycle.TaskResult{}, stage.Fail(lifecycle.FailNodeTask,
			"the node's agent cannot be asked for %s: %s; bring the node back so that its agent sends heartbeats, then retry the stage", a.Kind, s.UnreachableReason())
	}
	in, err := s.taskIn(ctx, a)
	if err != nil {
		return lifecycle.TaskResult{}, err
	}
	r, err := stage.Do(ctx, stage.KindAgentTask, string(a.Kind), agent.RunTask, in)
	if err != nil {
		a.Tries.Failed(stage.ClassOf(err))
	}
	return r, err
}

// ObserveTask tells whether the task of this round has succeeded.
func (s *State) ObserveTask(ctx workflow.Context, a Task) (lifecycle.TaskResult, error) {
	in, err := s.taskIn(ctx, a)
	if err != nil {
		return lifecycle.TaskResult{}, err
	}
	in.ObserveOnly = true
	return stage.Do(ctx, stage.KindLocalWork, "look at "+string(a.Kind), agent.RunTask, in)
}

// ReadNode reads the node and its agent as they are now.
func (s *State) ReadNode(ctx workflow.Context, at string) error {
	f, err := stage.Do(ctx, stage.KindLocalWork, "look at the node", nodeActs.ReadNodeFacts, s.Job.At(at))
	if err != nil {
		return err
	}
	s.RecordNode(f)
	if s.IsPXE() {
		return s.verifyNodeState()
	}
	return nil
}

// UnreachableReason says why the agent cannot be asked.
func (s *State) UnreachableReason() string {
	if s.Node.Note != "" {
		return s.Node.Note
	}
	return "it has never enrolled"
}
