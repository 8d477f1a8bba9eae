package agentjob_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/activities/agenttask"
	maasact "github.com/slipway-cloud/slipway/activities/maas"
	nodeact "github.com/slipway-cloud/slipway/activities/node"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/agentjob"
	"github.com/slipway-cloud/slipway/workflows/stage"
	"github.com/slipway-cloud/slipway/workflows/stage/stagetest"
)

// agentCase is a kind of job with what it calls when all goes well and when it is cancelled.
type agentCase struct {
	workflow any
	kind     contract.JobKind
	request  any
	calls    []string
	last     string // the activity at which it is cancelled
	undone   []string
}

func agentCases() []agentCase {
	return []agentCase{
		{
			workflow: agentjob.Reissue, kind: contract.KindAgentReissue, request: contract.AgentReissueInput{Hostname: "gpu-1", SystemID: "abc", Reason: "test"},
			calls: []string{"IssueAgentToken", "ObserveMachine", "DeliverAgentToken", "WaitForNewIdentity", "DiscardUserData"}, last: "WaitForNewIdentity",
			undone: []string{"RevokeAgentToken", "CheckAgentTokenRevoked"},
		},
		{
			workflow: agentjob.Update, kind: contract.KindAgentUpdate, request: contract.AgentUpdateInput{Hostname: "gpu-1", Version: "v1.2.3", Manifest: []byte("{}")},
			calls: []string{"RunTask", "WaitForAgentVersion"}, last: "WaitForAgentVersion", undone: []string{"RevokeTasks", "WaitForTasks"},
		},
	}
}

type fixture struct {
	*stagetest.Harness
	stagetest.Activities
}

func (c agentCase) fixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{Harness: stagetest.New(t, c.workflow, c.kind, c.request)}
	f.Register(f.Env, &nodeact.Activities{}, &maasact.Activities{}, &agenttask.Activities{})
	return f
}

func TestAgentJobs(t *testing.T) {
	t.Parallel()
	for _, c := range agentCases() {
		t.Run(string(c.kind), func(t *testing.T) {
			t.Parallel()
			f := c.fixture(t)
			require.Equal(t, lifecycle.JobCompleted, f.Run().Status)
			require.Equal(t, c.calls, f.Calls())
			require.Empty(t, f.Store.Moves(), "the node's state does not change")
		})
	}
	var names []string
	for _, s := range agentjob.ReissueJob(contract.JobInput{}).Stages {
		names = append(names, s.Name)
	}
	require.Equal(t, contract.Stages(contract.KindAgentReissue), names)
	names = nil
	for _, s := range agentjob.UpdateJob(contract.JobInput{}).Stages {
		names = append(names, s.Name)
	}
	require.Equal(t, contract.Stages(contract.KindAgentUpdate), names)
}

// TestAgentJobs_ParkAndGoOn lets each activity fail once: the job parks with the class and ends
// well when the stage is retried.
func TestAgentJobs_ParkAndGoOn(t *testing.T) {
	t.Parallel()
	for _, c := range agentCases() {
		for _, call := range c.calls {
			t.Run(string(c.kind)+"/"+call, func(t *testing.T) {
				t.Parallel()
				f := c.fixture(t)
				failed := false
				f.Answer(call, func() (any, error) {
					if failed {
						return nil, nil
					}
					failed = true
					return nil, stagetest.Failure(lifecycle.FailStateDisagreement)
				})
				parked := f.LastAt(30 * time.Minute)
				f.Act(time.Hour, lifecycle.ActionRetryStage, contract.ActionRequest{Actor: "anna", Reason: "test"})
				require.Equal(t, lifecycle.JobCompleted, f.Run().Status)
				require.Equal(t, lifecycle.FailStateDisagreement, parked.Failure.Class)
			})
		}
	}
}

// TestReissue_DeletesItsTokenOnASecondTry: a token that could not be deleted is deleted by the
// retry, also where the identity was seen before.
func TestReissue_DeletesItsTokenOnASecondTry(t *testing.T) {
	t.Parallel()
	f := agentCases()[0].fixture(t)
	f.Answer("WaitForNewIdentity", func() (any, error) { return contract.AgentSeen{Done: true}, nil })
	tries := 0
	f.Answer("DiscardUserData", func() (any, error) {
		if tries++; tries == 1 {
			return nil, stagetest.Failure(lifecycle.FailStateDisagreement)
		}
		return nil, nil
	})
	f.Act(time.Hour, lifecycle.ActionRetryStage, contract.ActionRequest{Actor: "anna", Reason: "test"})
	require.Equal(t, lifecycle.JobCompleted, f.Run().Status)
	require.Equal(t, []string{"IssueAgentToken", "ObserveMachine", "DeliverAgentToken", "WaitForNewIdentity", "DiscardUserData", "DiscardUserData"}, f.Calls())
}

func TestAgentJobs_CancelCleansUp(t *testing.T) {
	t.Parallel()
	for _, c := range agentCases() {
		t.Run(string(c.kind), func(t *testing.T) {
			t.Parallel()
			f := c.fixture(t)
			f.Answer(c.last, func() (any, error) { return nil, stagetest.Failure(lifecycle.FailStateDisagreement) })
			f.Act(time.Hour, lifecycle.ActionCancel, contract.ActionRequest{Actor: "anna", Reason: "test"})
			require.Equal(t, lifecycle.JobCancelled, f.Run().Status)
			require.Subset(t, f.Calls(), c.undone)
		})
	}
}

// TestUpdate_FailureMakesAnotherTask: the failed task's key is not used again.
func TestUpdate_FailureMakesAnotherTask(t *testing.T) {
	t.Parallel()
	s := agentjob.UpdateState{}
	s.Tries.Failed(stage.ClassOf(stagetest.Failure(lifecycle.FailNodeTask)))
	require.Equal(t, 1, s.Tries.Round)
	agentjob.UpdateJob(contract.JobInput{}).Reset(&s)
	require.Equal(t, 2, s.Tries.Round, "nor after a clean restart")
}
