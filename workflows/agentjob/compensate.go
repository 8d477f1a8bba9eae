package agentjob

import (
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/slipway-cloud/slipway/activities/agenttask"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/stage"
)

// revokeToken ends the token where no agent has used it. An identity that the agent has got stays.
func revokeToken(name string) func(workflow.Context, *ReissueState) error {
	return func(ctx workflow.Context, s *ReissueState) error {
		_, err := stage.Do(ctx, stage.KindLocalWork, "revoke the enrolment token", node.RevokeAgentToken, s.Job.At(name))
		return err
	}
}

func verifyTokenRevoked(ctx workflow.Context, s *ReissueState) (string, error) {
	f, err := stage.Do(ctx, stage.KindLocalWork, "no enrolment token can be used", node.CheckAgentTokenRevoked, s.Job.At(lifecycle.StageIssueAgentToken))
	return f.Note, err
}

// withdrawLimit is how long a clean-up waits for an update that the agent has begun: the agent
// finishes it or goes back by itself, and nothing of it is undone from here.
const withdrawLimit = 5 * time.Minute

func (s *UpdateState) awaitIn(ctx workflow.Context) agenttask.WaitForTasksIn {
	return agenttask.WaitForTasksIn{JobRef: s.Job.At(lifecycle.StageUpdateAgent), Until: stage.Within(ctx, withdrawLimit, taskMargin)}
}

func withdrawUpdate(ctx workflow.Context, s *UpdateState) error {
	in := agenttask.RevokeTasksIn{JobRef: s.Job.At(lifecycle.StageUpdateAgent)}
	if _, err := stage.Do(ctx, stage.KindLocalWork, "withdraw the update", agent.RevokeTasks, in); err != nil {
		return err
	}
	_, err := stage.Do(ctx, stage.KindPoll, "wait for what the agent has begun", agent.WaitForTasks, s.awaitIn(ctx))
	return err
}

func verifyUpdateWithdrawn(ctx workflow.Context, s *UpdateState) (string, error) {
	in := s.awaitIn(ctx)
	in.ObserveOnly = true
	f, err := stage.Do(ctx, stage.KindLocalWork, "no update is open", agent.WaitForTasks, in)
	if err != nil || f.Done {
		return "", err
	}
	return f.Note, nil
}
