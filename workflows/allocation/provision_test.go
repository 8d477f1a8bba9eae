package allocation_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/allocation"
	"github.com/slipway-cloud/slipway/workflows/stage/stagetest"
)

func provision(t *testing.T, root bool) *fixture {
	t.Helper()
	return setup(t, allocation.Provision, contract.KindAllocationProvision, lifecycle.AllocationProvisioning, root)
}

func TestProvision(t *testing.T) {
	t.Parallel()
	f := provision(t, true)
	require.Equal(t, lifecycle.JobCompleted, f.Run().Status)
	require.Equal(t, contract.Stages(contract.KindAllocationProvision), stageNames(f.Store.Steps()))
	moves := f.allocationMoves()
	require.Len(t, moves, 1, "the allocation becomes active with the step that completes the job")
	require.Equal(t, lifecycle.AllocationActive, moves[0].To)
	require.Equal(t, "::1", moves[0].Connection.Host)
	require.Equal(t, 2222, moves[0].Connection.Port)
	require.Equal(t, "ubuntu/noble", moves[0].Image.ID)
	require.Equal(t, "node_1", f.Store.Last().NodeID, "the job has its node since the claim")
	for _, pair := range [][2]string{
		{"DisableHostInterfaces", "ProveLogin"}, {"KeepSettings", "ProveLogin"}, {"RetireCredentials", "ProveLogin"}, {"ProveLogin", "GiveAccess"},
		{"GiveAccess", "OfferKeys"},
	} {
		require.True(t, f.before(pair[0], pair[1]), "%s before %s: %v", pair[0], pair[1], f.Calls())
	}
	require.Empty(t, f.Store.Moves(), "the node stays as it is")
}

// TestProvision_FailsAtEachStage: a provision never parks. Before the keys may be on the node it
// goes back at once; from then on the release job cleans it, whatever the agent says.
func TestProvision_FailsAtEachStage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		activity string
		class    lifecycle.FailureClass
		clean    bool
		unsafe   bool // the node is taken out of service
	}{
		{"ObserveMachine", lifecycle.FailMAASRejected, true, true},
		{"ObserveMachine", lifecycle.FailMAASUnavailable, true, false},
		{"DisableHostInterfaces", lifecycle.FailBMCUnreachable, true, false},
		{"DisableHostInterfaces", lifecycle.FailBMCPinMismatch, true, true},
		{"KeepSettings", lifecycle.FailBMCAuthRejected, true, true},
		{"RetireCredentials", lifecycle.FailSecretUnavailable, true, false},
		{"ProveLogin", lifecycle.FailNodeTask, true, true},
		{"GiveAccess", lifecycle.FailStateDisagreement, false, true},
		{"OfferKeys", lifecycle.FailNodeTask, false, false},
		{"RecordKeys", lifecycle.FailStateDisagreement, false, false},
	} {
		t.Run(c.activity+"/"+string(c.class), func(t *testing.T) {
			t.Parallel()
			f := provision(t, true)
			f.fails(c.activity, c.class, always, nil)
			require.Equal(t, lifecycle.JobCancelled, f.Run().Status)
			require.NotContains(t, f.Store.Statuses(), lifecycle.JobFailedManual)
			moves := f.allocationMoves()
			require.Len(t, moves, 1)
			require.Equal(t, lifecycle.AllocationFailed, moves[0].To)
			require.Equal(t, c.class, moves[0].FailureClass)
			require.Equal(t, c.clean, moves[0].Clean)
			if c.unsafe {
				require.Equal(t, lifecycle.NodeQuarantined, stagetest.NodeMove(f.Store.Last()).To, "another tenant would meet the same node")
			} else {
				require.Nil(t, stagetest.NodeMove(f.Store.Last()))
			}
		})
	}
}

// TestProvision_HeldForAnHour holds a stage for an hour, at the login and once the keys are in: the
// node is taken back, and keys that went in are withdrawn and refused.
func TestProvision_HeldForAnHour(t *testing.T) {
	t.Parallel()
	for _, held := range []string{"ProveLogin", "OfferKeys", "RecordKeys"} {
		t.Run(held, func(t *testing.T) {
			t.Parallel()
			f := provision(t, true)
			readyBy := f.Env.Now().Add(30 * time.Minute)
			f.facts.ReadyBy = readyBy
			keysIn := held != "ProveLogin"
			first := true
			f.Hold(f.Env, held, func() time.Duration {
				if !first {
					return 0
				}
				first = false
				return time.Hour
			})
			require.Equal(t, lifecycle.JobCancelled, f.Run().Status)
			moves := f.allocationMoves()
			require.Len(t, moves, 1)
			require.Equal(t, lifecycle.AllocationFailed, moves[0].To, "never active")
			require.Equal(t, lifecycle.FailStageDeadline, moves[0].FailureClass)
			require.Equal(t, !keysIn, moves[0].Clean)
			require.Equal(t, keysIn, f.count("GiveAccess") > 0)
			if keysIn {
				// The activity that is held until the deadline never answers; the last answer is
				// that the keys are refused.
				require.Equal(t, map[string]int{"OfferKeys": 1, "RecordKeys": 2}[held], f.count("OfferKeys"))
			}
		})
	}
}

// TestProvision_AgentDoesNothing: an account that could not be removed is left to the release.
func TestProvision_AgentDoesNothing(t *testing.T) {
	t.Parallel()
	f := provision(t, true)
	asked := 0
	f.Answer("RunTask", func() (any, error) {
		if asked++; asked == 1 { // the credentials of the installation are retired
			return lifecycle.TaskResult{OK: true}, nil
		}
		return nil, stagetest.Failure(lifecycle.FailNodeTaskUncertain)
	})
	require.Equal(t, lifecycle.JobCancelled, f.Run().Status)
	move := f.allocationMoves()[0]
	require.False(t, move.Clean)
	require.Contains(t, move.Note, "account")
}

func TestProvision_NoCapacity(t *testing.T) {
	t.Parallel()
	f := provision(t, true)
	f.fails("ClaimNode", lifecycle.FailCapacity, always, nil)
	require.Equal(t, lifecycle.JobCancelled, f.Run().Status)
	require.Equal(t, lifecycle.FailCapacity, f.allocationMoves()[0].FailureClass)
	require.Equal(t, 1, f.count("ClaimNode"))
	require.Empty(t, f.Store.Moves())
}

// TestProvision_WaitsForANode: the wait of a day is no attempt of the stage and no step of the job.
// The claim is called again when its error says so.
func TestProvision_WaitsForANode(t *testing.T) {
	t.Parallel()
	f := provision(t, true)
	looks, begun := 0, f.Env.Now()
	f.Answer("ClaimNode", func() (any, error) {
		if looks++; looks <= 300 {
			return nil, temporal.NewApplicationErrorWithOptions("none is free", string(lifecycle.FailCapacity), temporal.ApplicationErrorOptions{NextRetryDelay: time.Minute})
		}
		return f.facts, nil
	})
	require.Equal(t, lifecycle.JobCompleted, f.Run().Status)
	require.Equal(t, 301, f.count("ClaimNode"))
	require.GreaterOrEqual(t, f.Env.Now().Sub(begun), 300*time.Minute)
	require.Equal(t, 1, f.Store.Last().Stages[0].Attempts)
}

// TestProvision_HostileRoot: a tenant who keeps the node from taking or proving his keys has no
// node taken out of service: the release cleans it.
func TestProvision_HostileRoot(t *testing.T) {
	t.Parallel()
	f := provision(t, true)
	given := false
	f.Answer("GiveAccess", func() (any, error) {
		given = true
		return contract.AllocationFacts{}, nil
	})
	f.Answer("RunTask", func() (any, error) {
		if given { // his keys may be in: he ends the agent
			return nil, stagetest.Failure(lifecycle.FailNodeTaskUncertain)
		}
		return lifecycle.TaskResult{OK: true, BootID: "boot-1"}, nil
	})
	require.Equal(t, lifecycle.JobCancelled, f.Run().Status)
	require.Nil(t, stagetest.NodeMove(f.Store.Last()))
	require.Equal(t, lifecycle.StageInstallKeys, f.allocationMoves()[0].FailureStage)
	require.False(t, f.allocationMoves()[0].Clean, "the release has to clean it")
}

// TestProvision_ReleasedMeanwhile asks for the release at each look: the job stops there.
func TestProvision_ReleasedMeanwhile(t *testing.T) {
	t.Parallel()
	for at, last := range []string{"ReadNodeFacts", "DisableHostInterfaces", "KeepSettings", "RetireCredentials", "RunTask", "ProveLogin", "GiveAccess"} {
		t.Run(last, func(t *testing.T) {
			t.Parallel()
			f := provision(t, true)
			looks := 0
			f.Answer("ReadAllocation", func() (any, error) {
				facts := f.facts
				facts.ReleaseRequested = looks >= at
				looks++
				return facts, nil
			})
			require.Equal(t, lifecycle.JobCancelled, f.Run().Status)
			move := f.allocationMoves()[0]
			require.Empty(t, move.FailureClass)
			require.Nil(t, stagetest.NodeMove(f.Store.Last()), "nothing is wrong with the node")
			require.False(t, f.count("GiveAccess") > 0 && move.Clean)
		})
	}
}

// TestProvision_IsNotHeldWithKeys: no operator's action keeps a provision standing, or takes it
// past a proof.
func TestProvision_IsNotHeldWithKeys(t *testing.T) {
	t.Parallel()
	for _, a := range []lifecycle.Action{lifecycle.ActionMarkManual, lifecycle.ActionAdopt} {
		t.Run(string(a), func(t *testing.T) {
			t.Parallel()
			f := provision(t, true)
			f.fails("ReadAllocation", lifecycle.FailInternal, 2, f.facts)
			answer := f.at(time.Second, a)
			require.Equal(t, lifecycle.JobCompleted, f.Run().Status)
			require.Error(t, answer.Err)
		})
	}
}

func TestProvision_OperatorCancels(t *testing.T) {
	t.Parallel()
	f := provision(t, true)
	f.fails("ReadAllocation", lifecycle.FailInternal, 2, f.facts)
	answer := f.at(time.Second, lifecycle.ActionCancel)
	require.Equal(t, lifecycle.JobCancelled, f.Run().Status)
	require.NoError(t, answer.Err)
	require.True(t, f.allocationMoves()[0].Clean)
}

// TestProvision_UnfitNode: what the claim saw in the database is looked at again.
func TestProvision_UnfitNode(t *testing.T) {
	t.Parallel()
	left := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	for name, change := range map[string]func(*contract.DecommissionFacts){
		"another allocation": func(n *contract.DecommissionFacts) { n.AllocationID = "alc_2" },
		"not active":         func(n *contract.DecommissionFacts) { n.Status = lifecycle.NodeOffline },
		"silent agent":       func(n *contract.DecommissionFacts) { n.Agent = contract.AgentSilent },
		"a tenant left":      func(n *contract.DecommissionFacts) { n.TenantLeft = &left },
		"not MAAS's":         func(n *contract.DecommissionFacts) { n.SystemID = "" },
		"protected drives":   func(n *contract.DecommissionFacts) { n.ProtectSerials = []string{"D9"} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := provision(t, true)
			change(&f.node)
			require.Equal(t, lifecycle.JobCancelled, f.Run().Status)
			require.Equal(t, lifecycle.FailStateDisagreement, f.allocationMoves()[0].FailureClass)
			require.Zero(t, f.count("RunTask"), "nothing was asked of the node")
		})
	}
}
