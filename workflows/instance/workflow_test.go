package instance_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	instanceact "github.com/slipway-cloud/slipway/activities/instance"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/instance"
	"github.com/slipway-cloud/slipway/workflows/stage/stagetest"
)

type fixture struct {
	*stagetest.Harness
	stagetest.Activities
}

func newFixture(t *testing.T, workflow any, kind contract.JobKind) *fixture {
	t.Helper()
	f := &fixture{Harness: stagetest.New(t, workflow, kind, contract.InstanceInput{InstanceID: "inst_1"})}
	f.In.ResourceID, f.In.NodeID, f.In.SiteID = "inst_1", "", ""
	f.Register(f.Env, &instanceact.Activities{})
	facts := contract.InstanceFacts{Provider: "scaleway", Zone: "fr-par-2", StartupSeconds: 1800, Done: true}
	f.Answer("LoadInstance", func() (any, error) { return facts, nil })
	f.Answer("CheckCloud", func() (any, error) { facts := facts; facts.GrowsVolume = true; return facts, nil })
	f.Answer("CreateServer", func() (any, error) { facts := facts; facts.ServerID = "server-1"; return facts, nil })
	f.Answer("WaitForAddress", func() (any, error) { facts := facts; facts.IPAddress = "192.0.2.7"; return facts, nil })
	f.Answer("InstallWorker", func() (any, error) {
		return contract.InstancePhases{Done: true, Phases: lifecycle.WorkerPhases(), ExitStatus: "0", Version: "1", Checksum: "abc"}, nil
	})
	return f
}

func create(t *testing.T) *fixture {
	return newFixture(t, instance.Create, contract.KindInstanceCreate)
}

// fails has an activity fail with a class as often as times says.
func (f *fixture) fails(name string, class lifecycle.FailureClass, times int) {
	f.Answer(name, func() (any, error) {
		if times--; times >= 0 {
			return nil, stagetest.Failure(class)
		}
		return nil, nil
	})
}

// TestCreate_ToReady: each action is begun once, in order, and what the projections say of progress
// never goes back.
func TestCreate_ToReady(t *testing.T) {
	t.Parallel()
	f := create(t)
	require.Equal(t, lifecycle.JobCompleted, f.Run().Status)
	var actions []string
	reached := 0
	for _, p := range f.Store.Steps() {
		require.GreaterOrEqual(t, p.Reached, reached)
		reached = p.Reached
		require.Equal(t, "inst_1", p.Moves[0].ID)
		if p.Status == lifecycle.JobRunning && p.Stages[p.StageOrdinal-1].State == lifecycle.StageRunning {
			actions = append(actions, p.ActionType)
		}
	}
	var want []string
	for _, step := range lifecycle.InstanceCreateSteps() {
		want = append(want, step.ActionType)
	}
	require.Equal(t, want, actions)
	last := f.Store.Last()
	require.Equal(t, 100, last.Progress)
	require.Equal(t, "server-1", last.Metadata.ServerID)
	require.Equal(t, "192.0.2.7", last.Metadata.IPAddress)
	require.Empty(t, last.Metadata.Phases, "they are those of the installation alone")
}

// provisioning are the activities before the instance boots, with a failure of each that ends it.
var provisioning = []string{"CheckCloud", "CreateServer", "PersistServer", "ClaimVolumes", "GrowVolume"}

// TestCreate_GivesUp: what the provider refuses before the instance boots deletes everything that
// may have been made, and ends the job with its failure.
func TestCreate_GivesUp(t *testing.T) {
	t.Parallel()
	for _, class := range []lifecycle.FailureClass{lifecycle.FailCloudQuota, lifecycle.FailCloudCapacity, lifecycle.FailCloudRejected} {
		for _, name := range provisioning {
			t.Run(string(class)+" at "+name, func(t *testing.T) {
				t.Parallel()
				f := create(t)
				f.fails(name, class, 99)
				require.Equal(t, lifecycle.JobCancelled, f.Run().Status)
				last := f.Store.Last()
				require.Equal(t, class, stagetest.MoveOf[contract.InstanceProgress](last, contract.SubjectInstance).GaveUp.Class)
				require.Zero(t, last.Progress)
				if name == "CheckCloud" {
					require.NotContains(t, f.Calls(), "DeleteServer", "nothing was made")
					return
				}
				calls := f.Calls()
				i := slices.Index(calls, "StopServer")
				require.Equal(t, []string{"StopServer", "DeleteServer", "DeleteResources", "ReadLeft"}, calls[i:i+4])
			})
		}
	}
}

// booting are the activities while the instance boots.
var booting = []string{
	"PrepareServer", "StartServer", "WaitForAddress", "VerifySecurityGroup", "WaitForSSH", "InstallWorker", "WaitForVLLM", "WaitForModel", "WarmUpModel", "CheckHealth",
}

// TestCreate_ParksWhileBooting: each failure at each stage of the startup keeps the server, and the
// job goes on from there when an operator retries it.
func TestCreate_ParksWhileBooting(t *testing.T) {
	t.Parallel()
	for _, class := range []lifecycle.FailureClass{
		lifecycle.FailInstanceStartup, lifecycle.FailAgentChecksum, lifecycle.FailWorkerInstall, lifecycle.FailCloudCapacity, lifecycle.FailCloudUnavailable,
	} {
		for _, name := range booting {
			t.Run(string(class)+" at "+name, func(t *testing.T) {
				t.Parallel()
				f := create(t)
				f.fails(name, class, lifecycle.Failure(class).AutoAttempts)
				var parked contract.Projection
				f.After(12*time.Hour, func() { parked = f.Store.Last() })
				f.Act(13*time.Hour, lifecycle.ActionRetryStage, contract.ActionRequest{})
				require.Equal(t, lifecycle.JobCompleted, f.Run().Status)
				require.True(t, parked.Status.Parked(), parked.Status)
				require.Equal(t, class, parked.Failure.Class)
				require.Zero(t, parked.Progress)
				require.NotContains(t, f.Calls(), "DeleteServer")
				require.Equal(t, 1, count(f.Calls(), "CreateServer"), "the server stays the one that it is")
			})
		}
	}
}

func count(all []string, name string) int {
	n := 0
	for _, each := range all {
		if each == name {
			n++
		}
	}
	return n
}

// TestCreate_Uncertain parks before anything else is made: an unknown outcome is looked at.
func TestCreate_Uncertain(t *testing.T) {
	t.Parallel()
	f := create(t)
	f.fails("CreateServer", lifecycle.FailCloudUncertain, 1)
	f.Act(time.Hour, lifecycle.ActionCancel, contract.ActionRequest{})
	require.Equal(t, lifecycle.JobCancelled, f.Run().Status)
	require.NotContains(t, f.Calls(), "PersistServer")
	require.Contains(t, f.Calls(), "DeleteServer", "what may have been made is deleted")
	require.Nil(t, stagetest.MoveOf[contract.InstanceProgress](f.Store.Last(), contract.SubjectInstance).GaveUp)
}

// TestCreate_CancelDeletesEverything: a cancellation while the instance boots leaves nothing, and
// what cannot be deleted parks it.
func TestCreate_CancelDeletesEverything(t *testing.T) {
	t.Parallel()
	f := create(t)
	f.fails("WaitForVLLM", lifecycle.FailInstanceStartup, 9)
	left := 5
	f.Answer("ReadLeft", func() (any, error) {
		if left--; left > 0 {
			return contract.InstanceFacts{Note: "volume vol-1"}, nil
		}
		return contract.InstanceFacts{Done: true}, nil
	})
	f.Act(10*time.Hour, lifecycle.ActionCancel, contract.ActionRequest{})
	var parked contract.Projection
	f.After(20*time.Hour, func() { parked = f.Store.Last() })
	f.Act(21*time.Hour, lifecycle.ActionResume, contract.ActionRequest{})
	require.Equal(t, lifecycle.JobCancelled, f.Run().Status)
	require.Equal(t, lifecycle.FailCompensation, parked.Failure.Class)
	require.Contains(t, parked.Failure.Message, "volume vol-1")
}

// TestCreate_Refuses: an instance that has a server gets no other, and nothing is taken on trust.
func TestCreate_Refuses(t *testing.T) {
	t.Parallel()
	for _, a := range []lifecycle.Action{lifecycle.ActionRerun, lifecycle.ActionRestartClean, lifecycle.ActionAdopt} {
		t.Run(string(a), func(t *testing.T) {
			t.Parallel()
			f := create(t)
			f.fails("WaitForModel", lifecycle.FailInstanceStartup, 1)
			refused := f.Act(10*time.Hour, a, contract.ActionRequest{AcceptRisk: a == lifecycle.ActionAdopt, Reason: "why"})
			f.Act(11*time.Hour, lifecycle.ActionRetryStage, contract.ActionRequest{})
			require.Equal(t, lifecycle.JobCompleted, f.Run().Status)
			require.Error(t, refused.Err)
			require.Equal(t, 1, count(f.Calls(), "CreateServer"))
		})
	}
}

// TestCreate_EachTryHasItsTime: a startup that failed by its timeout has the whole time again.
func TestCreate_EachTryHasItsTime(t *testing.T) {
	t.Parallel()
	f := create(t)
	f.fails("WaitForVLLM", lifecycle.FailInstanceStartup, 1)
	f.Act(50*time.Hour, lifecycle.ActionResume, contract.ActionRequest{})
	require.Equal(t, lifecycle.JobCompleted, f.Run().Status)
	require.Equal(t, 2, count(f.Calls(), "WaitForVLLM"))
}

// TestTerminate_InOrder: the server goes before its volumes, and the end is proven.
func TestTerminate_InOrder(t *testing.T) {
	t.Parallel()
	f := newFixture(t, instance.Terminate, contract.KindInstanceTerminate)
	require.Equal(t, lifecycle.JobCompleted, f.Run().Status)
	require.Equal(t, []string{"LoadInstance", "DrainInstance", "StopServer", "DeleteServer", "DeleteResources", "ProveDeleted"}, f.Calls())
}

// TestTerminate_EndsWithItsInstance: one whose instance has ended another way may be cancelled.
func TestTerminate_EndsWithItsInstance(t *testing.T) {
	t.Parallel()
	f := newFixture(t, instance.Terminate, contract.KindInstanceTerminate)
	f.Answer("LoadInstance", func() (any, error) {
		return contract.InstanceFacts{Status: lifecycle.InstanceTerminated, Done: true}, nil
	})
	f.fails("ProveDeleted", lifecycle.FailStateDisagreement, 9)
	f.Act(time.Hour, lifecycle.ActionCancel, contract.ActionRequest{})
	require.Equal(t, lifecycle.JobCancelled, f.Run().Status)
}

// TestTerminate_OnlyGoesForward: it parks at every stage that fails, is not taken back, and goes
// on.
func TestTerminate_OnlyGoesForward(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"StopServer", "DeleteServer", "DeleteResources", "ProveDeleted"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, instance.Terminate, contract.KindInstanceTerminate)
			f.fails(name, lifecycle.FailStateDisagreement, 1)
			cancelled := f.Act(time.Hour, lifecycle.ActionCancel, contract.ActionRequest{})
			f.Act(2*time.Hour, lifecycle.ActionRetryStage, contract.ActionRequest{})
			require.Equal(t, lifecycle.JobCompleted, f.Run().Status)
			require.Error(t, cancelled.Err)
			require.Equal(t, 2, count(f.Calls(), name))
		})
	}
}
