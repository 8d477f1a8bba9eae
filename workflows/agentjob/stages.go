package agentjob

import (
	"encoding/json"
	"fmt"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/slipway-cloud/slipway/activities/agenttask"
	maasact "github.com/slipway-cloud/slipway/activities/maas"
	nodeact "github.com/slipway-cloud/slipway/activities/node"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/workflows/stage"
)

// Nil pointers: their methods only name the activities.
var (
	agent *agenttask.Activities
	maas  *maasact.Activities
	node  *nodeact.Activities
)

func reissueStages() []stage.Stage[ReissueState] {
	return []stage.Stage[ReissueState]{
		{Name: lifecycle.StageIssueAgentToken, Weight: 1, Deadline: 5 * time.Minute, Run: issueToken,
			Undo: revokeToken(lifecycle.StageIssueAgentToken), VerifyUndo: verifyTokenRevoked,
			Doc: "issue a one-time enrolment token for the node and seal it"},
		{Name: lifecycle.StageDeliverAgentToken, Weight: 2, Deadline: 15 * time.Minute, Run: deliverToken,
			Undo: revokeToken(lifecycle.StageDeliverAgentToken), VerifyUndo: verifyTokenRevoked,
			Doc: "write the token on the node over SSH, to the pinned host key alone, and restart the agent"},
		{Name: lifecycle.StageWaitNewIdentity, Weight: 3, Deadline: 15 * time.Minute, DeadlineClass: lifecycle.FailAgentNotEnrolled,
			Waits: true, Run: waitIdentity,
			Doc: "wait for the first heartbeat under the new identity, then delete the token"},
	}
}

func issueToken(ctx workflow.Context, s *ReissueState) error {
	f, err := stage.Do(ctx, stage.KindLocalWork, "issue an enrolment token", node.IssueAgentToken, s.Job.At(lifecycle.StageIssueAgentToken))
	if err == nil {
		s.Token = f
	}
	return err
}

// deliverToken reads the node's addresses first, where MAAS knows the node.
func deliverToken(ctx workflow.Context, s *ReissueState) error {
	in := nodeact.DeliverTokenIn{JobRef: s.Job.At(lifecycle.StageDeliverAgentToken), TokenRef: s.Token.Ref}
	if s.Request.SystemID != "" {
		m, err := stage.Do(ctx, stage.KindMAASCall, "read the node's addresses", maas.ObserveMachine, maasact.MachineIn{JobRef: in.JobRef, SystemID: s.Request.SystemID})
		if err != nil {
			return err
		}
		in.IPs = m.IPs
	}
	_, err := stage.Do(ctx, stage.KindNodeTask, "write the token on the node and restart the agent", node.DeliverAgentToken, in)
	return err
}

// waitIdentity has no look beforehand: a stage that is found done is not run, and the token would
// stay. A second try deletes it without waiting, since nothing can be read of a deleted token.
func waitIdentity(ctx workflow.Context, s *ReissueState) error {
	if !s.Agent.Done {
		in := nodeact.WaitIdentityIn{JobRef: s.Job.At(lifecycle.StageWaitNewIdentity), TokenRef: s.Token.Ref}
		f, err := stage.Do(ctx, stage.KindPoll, "wait for a heartbeat under the new identity", node.WaitForNewIdentity, in)
		if err != nil {
			return err
		}
		s.Agent = f
	}
	_, err := stage.Do(ctx, stage.KindLocalWork, "delete the used token", node.DiscardUserData, s.Job.At(lifecycle.StageWaitNewIdentity))
	return err
}

func updateStages() []stage.Stage[UpdateState] {
	return []stage.Stage[UpdateState]{
		{Name: lifecycle.StageUpdateAgent, Weight: 3, Deadline: 40 * time.Minute, Waits: true, Run: updateAgent, Observe: observeUpdate,
			Undo: withdrawUpdate, VerifyUndo: verifyUpdateWithdrawn,
			Doc: "have the agent check the release, install it and try it; it goes back by itself where the new version sends no heartbeat"},
		{Name: lifecycle.StageWaitAgentVersion, Weight: 1, Deadline: 10 * time.Minute, DeadlineClass: lifecycle.FailNodeTask,
			Waits: true, Run: waitVersion, Observe: observeVersion,
			Doc: "wait until the heartbeats name the new version"},
	}
}

// taskMargin lets the task expire before its stage does.
const taskMargin = 30 * time.Second

func (s *UpdateState) taskIn(ctx workflow.Context) (agenttask.RunTaskIn, error) {
	args, err := json.Marshal(spec.UpdateArgs{Manifest: s.Request.Manifest, ManifestSignature: s.Request.Signature, BinaryURL: s.Request.BinaryURL})
	if err != nil {
		return agenttask.RunTaskIn{}, fmt.Errorf("arguments of the update: %w", err)
	}
	info, _ := lifecycle.TaskKindOf(lifecycle.TaskKindUpdate)
	return agenttask.RunTaskIn{
		JobRef: s.Job.At(lifecycle.StageUpdateAgent), Kind: info.Kind, Args: args, Deadline: stage.Within(ctx, info.Deadline, taskMargin), TaskTries: s.Tries,
	}, nil
}

func updateAgent(ctx workflow.Context, s *UpdateState) error {
	in, err := s.taskIn(ctx)
	if err != nil {
		return err
	}
	if _, err = stage.Do(ctx, stage.KindAgentTask, string(in.Kind), agent.RunTask, in); err != nil {
		s.Tries.Failed(stage.ClassOf(err))
	}
	return err
}

func observeUpdate(ctx workflow.Context, s *UpdateState) (stage.Observation, error) {
	in, err := s.taskIn(ctx)
	if err != nil {
		return stage.Observation{}, err
	}
	in.ObserveOnly = true
	r, err := stage.Do(ctx, stage.KindLocalWork, "look at "+string(in.Kind), agent.RunTask, in)
	return stage.Observation{Done: r.OK, Note: r.Message}, err
}

func (s *UpdateState) versionIn() nodeact.WaitVersionIn {
	return nodeact.WaitVersionIn{JobRef: s.Job.At(lifecycle.StageWaitAgentVersion), Version: s.Request.Version}
}

func waitVersion(ctx workflow.Context, s *UpdateState) error {
	f, err := stage.Do(ctx, stage.KindPoll, "wait for a heartbeat of the new version", node.WaitForAgentVersion, s.versionIn())
	if err == nil {
		s.Agent = f
	}
	return err
}

func observeVersion(ctx workflow.Context, s *UpdateState) (stage.Observation, error) {
	in := s.versionIn()
	in.ObserveOnly = true
	f, err := stage.Do(ctx, stage.KindLocalWork, "look at the agent's version", node.WaitForAgentVersion, in)
	return stage.Observation{Done: f.Done, State: f.Version, Note: f.Note}, err
}
