package allocation_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"

	"github.com/slipway-cloud/slipway/activities/agenttask"
	allocationact "github.com/slipway-cloud/slipway/activities/allocation"
	accessact "github.com/slipway-cloud/slipway/activities/tenantaccess"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/workflows/allocation"
	"github.com/slipway-cloud/slipway/workflows/stage/stagetest"
)

// keysFixture is a change of keys, with what it sent, offered and stored.
type keysFixture struct {
	*fixture
	sent     [][]string // the sets of keys that the agent was to set
	offered  []accessact.OfferKeysIn
	recorded []allocationact.RecordKeysIn
}

func changeKeys(t *testing.T) *keysFixture {
	t.Helper()
	k := &keysFixture{fixture: setup(t, allocation.Keys, contract.KindAllocationKeys, lifecycle.AllocationActive, false)}
	k.In.NodeID, k.In.SiteID = "node_1", "site_1"
	k.facts.Former = []contract.AllocationKey{{Fingerprint: "SHA256:former", PublicKey: "ssh-ed25519 FORMER"}}
	k.Env.SetOnActivityStartedListener(func(info *activity.Info, _ context.Context, args converter.EncodedValues) {
		k.mu.Lock()
		defer k.mu.Unlock()
		switch info.ActivityType.Name {
		case "RunTask":
			var in agenttask.RunTaskIn
			var set spec.SetKeysArgs
			if args.Get(&in) == nil && in.Kind == lifecycle.TaskKindSetKeys && json.Unmarshal(in.Args, &set) == nil {
				k.sent = append(k.sent, set.Keys)
			}
		case "OfferKeys":
			var in accessact.OfferKeysIn
			if args.Get(&in) == nil {
				k.offered = append(k.offered, in)
			}
		case "RecordKeys":
			var in allocationact.RecordKeysIn
			if args.Get(&in) == nil {
				k.recorded = append(k.recorded, in)
			}
		}
	})
	return k
}

func TestKeys(t *testing.T) {
	t.Parallel()
	k := changeKeys(t)
	require.Equal(t, lifecycle.JobCompleted, k.Run().Status)
	require.Equal(t, contract.Stages(contract.KindAllocationKeys), stageNames(k.Store.Steps()))
	require.Equal(t, [][]string{{publicKey}}, k.sent, "exactly the keys in force")
	require.Len(t, k.offered, 2)
	require.Equal(t, []string{"ssh-ed25519 FORMER"}, k.offered[0].Keys)
	require.False(t, k.offered[0].Accepted, "former ones are refused")
	require.Equal(t, []string{publicKey}, k.offered[1].Keys)
	require.True(t, k.offered[1].Accepted)
	require.Equal(t, []string{"SHA256:former"}, k.recorded[0].Fingerprints)
	require.False(t, k.recorded[0].Accepted)
	require.Equal(t, []string{"SHA256:a"}, k.recorded[1].Fingerprints)
	moves := k.allocationMoves()
	require.Len(t, moves, 1)
	require.NotNil(t, moves[0].Connection)
	require.Equal(t, []any{"::1", 2222, "ssh-ed25519 BBBB"}, []any{moves[0].Connection.Host, moves[0].Connection.Port, moves[0].Connection.HostKey}, "where the node accepted the keys")
	moves[0].Connection = nil
	require.Equal(t, contract.AllocationMove{KeysProven: true}, moves[0], "the allocation stays where it is")
	require.Empty(t, k.Store.Moves(), "and so does the node")
}

// TestKeys_NoneIsLeft: the account keeps no key, which is proven of the former ones.
func TestKeys_NoneIsLeft(t *testing.T) {
	t.Parallel()
	k := changeKeys(t)
	k.facts.Keys = nil
	require.Equal(t, lifecycle.JobCompleted, k.Run().Status)
	require.Len(t, k.sent, 1)
	require.Empty(t, k.sent[0])
	require.Len(t, k.offered, 1)
}

// TestKeys_OffersAllFormerKeys: one activity offers at most 20.
func TestKeys_OffersAllFormerKeys(t *testing.T) {
	t.Parallel()
	k := changeKeys(t)
	for i := range 44 {
		k.facts.Former = append(k.facts.Former, contract.AllocationKey{Fingerprint: fmt.Sprint("SHA256:", i), PublicKey: fmt.Sprint("ssh-ed25519 ", i)})
	}
	require.Equal(t, lifecycle.JobCompleted, k.Run().Status)
	require.Equal(t, []int{20, 20, 5, 1}, []int{len(k.offered[0].Keys), len(k.offered[1].Keys), len(k.offered[2].Keys), len(k.offered[3].Keys)})
	require.Len(t, k.recorded[0].Fingerprints, 45)
}

// TestKeys_NotProven: an agent that answers OK and does nothing, one that is silent, and a node
// that does not answer. The job ends and keeps nobody from the node; nothing is recorded as
// refused.
func TestKeys_NotProven(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		activity string
		class    lifecycle.FailureClass
		stage    string
	}{
		{"OfferKeys", lifecycle.FailNodeTask, lifecycle.StageProveKeys}, // as of an agent that did nothing
		{"OfferKeys", lifecycle.FailSSHSeed, lifecycle.StageProveKeys},
		{"RunTask", lifecycle.FailNodeTaskUncertain, lifecycle.StageSetKeys},
		{"RecordKeys", lifecycle.FailStoreUnavailable, lifecycle.StageProveKeys},
	} {
		t.Run(c.activity+"/"+string(c.class), func(t *testing.T) {
			t.Parallel()
			k := changeKeys(t)
			k.fails(c.activity, c.class, always, nil)
			require.Equal(t, lifecycle.JobCancelled, k.Run().Status)
			require.NotContains(t, k.Store.Statuses(), lifecycle.JobFailedManual)
			require.NotContains(t, k.Store.Statuses(), lifecycle.JobFailedRetryable)
			moves := k.allocationMoves()
			require.Len(t, moves, 1)
			require.False(t, moves[0].KeysProven)
			require.Equal(t, []string{string(c.class), c.stage}, []string{string(moves[0].FailureClass), moves[0].FailureStage})
			require.Greater(t, k.count(c.activity), 1, "it is tried again")
			require.Positive(t, k.count("RevokeTasks"), "no set of keys that nobody has taken comes later")
			if c.activity != "RecordKeys" {
				require.Empty(t, k.recorded)
			}
		})
	}
}

// TestKeys_RecordsTheFormerOnesFirst: a node that does not accept a key in force says nothing of
// those that it refuses.
func TestKeys_RecordsTheFormerOnesFirst(t *testing.T) {
	t.Parallel()
	k := changeKeys(t)
	offers := 0
	k.Answer("OfferKeys", func() (any, error) {
		if offers++; offers == 1 {
			return accessact.OfferedKeys{Done: true}, nil
		}
		return accessact.OfferedKeys{}, nil
	})
	require.Equal(t, lifecycle.JobCancelled, k.Run().Status)
	require.Equal(t, []string{"SHA256:former"}, k.recorded[0].Fingerprints)
	for _, r := range k.recorded {
		require.False(t, r.Accepted)
	}
}

// TestKeys_SendsOneSet: keys that change while the job runs are those of the next one, so that a
// try of this one never sends an older set after a newer one.
func TestKeys_SendsOneSet(t *testing.T) {
	t.Parallel()
	k := changeKeys(t)
	tries := 0
	k.Answer("RunTask", func() (any, error) {
		if tries++; tries == 1 {
			k.mu.Lock()
			k.facts.Keys = nil
			k.mu.Unlock()
			return nil, stagetest.Failure(lifecycle.FailNodeTask)
		}
		return lifecycle.TaskResult{OK: true}, nil
	})
	require.Equal(t, lifecycle.JobCompleted, k.Run().Status)
	require.Equal(t, [][]string{{publicKey}, {publicKey}}, k.sent)
}

// TestKeys_AllocationIsReleased: the job ends by itself, and sends nothing more.
func TestKeys_AllocationIsReleased(t *testing.T) {
	t.Parallel()
	k := changeKeys(t)
	k.Answer("RunTask", func() (any, error) {
		k.mu.Lock()
		k.facts.Status = lifecycle.AllocationReleasing
		k.mu.Unlock()
		return lifecycle.TaskResult{OK: true}, nil
	})
	require.Equal(t, lifecycle.JobCancelled, k.Run().Status)
	require.Empty(t, k.offered)
	require.Empty(t, k.allocationMoves()[0].FailureClass)
}

// TestKeys_Cancelled: a release cancels a job that waits for a silent agent, and nothing else stops
// it.
func TestKeys_Cancelled(t *testing.T) {
	t.Parallel()
	k := changeKeys(t)
	k.Hold(k.Env, "RunTask", func() time.Duration { return time.Hour })
	frozen, adopted := k.at(time.Second, lifecycle.ActionMarkManual), k.at(2*time.Second, lifecycle.ActionAdopt)
	cancelled := k.at(10*time.Second, lifecycle.ActionCancel)
	began := k.Env.Now()
	require.Equal(t, lifecycle.JobCancelled, k.Run().Status)
	require.Error(t, frozen.Err)
	require.Error(t, adopted.Err)
	require.NoError(t, cancelled.Err)
	require.Less(t, k.Env.Now().Sub(began), time.Minute)
}

// TestPlan_Keys says how many keys the job would set and prove.
func TestPlan_Keys(t *testing.T) {
	t.Parallel()
	l := occupied(false)
	l.facts.Status = lifecycle.AllocationActive
	l.facts.Former = []contract.AllocationKey{{Fingerprint: "SHA256:c"}}
	p, rows := l.plans(t, contract.KindAllocationKeys)
	require.Equal(t, "The job would run to its end.", p.Summary)
	require.Contains(t, steps(rows[lifecycle.StageSetKeys]), "put 2 keys")
	require.Contains(t, steps(rows[lifecycle.StageProveKeys]), "1 former keys refused")
	l.facts.Status = lifecycle.AllocationReleasing
	_, rows = l.plans(t, contract.KindAllocationKeys)
	require.Equal(t, contract.PlannedSkip, rows[lifecycle.StageSetKeys].Planned)
}

// TestRelease_ProvesFormerKeys: a key that was withdrawn while the allocation was active is refused
// too.
func TestRelease_ProvesFormerKeys(t *testing.T) {
	t.Parallel()
	f := setup(t, allocation.Release, contract.KindAllocationRelease, lifecycle.AllocationReleasing, false)
	f.facts.Keys, f.facts.Former = nil, []contract.AllocationKey{{Fingerprint: "SHA256:former", PublicKey: "ssh-ed25519 FORMER"}}
	var offered []string
	f.Env.SetOnActivityStartedListener(func(info *activity.Info, _ context.Context, args converter.EncodedValues) {
		var in accessact.OfferKeysIn
		if info.ActivityType.Name == "OfferKeys" && args.Get(&in) == nil {
			offered = append(offered, in.Keys...)
		}
	})
	require.Equal(t, lifecycle.JobCompleted, f.Run().Status)
	require.Equal(t, []string{"ssh-ed25519 FORMER"}, offered)
}

// TestProvision_EveryKeyHasEnded: nobody could log in, and nothing was on the node: it is free at
// once.
func TestProvision_EveryKeyHasEnded(t *testing.T) {
	t.Parallel()
	f := provision(t, false)
	f.facts.Keys = nil
	require.Equal(t, lifecycle.JobCancelled, f.Run().Status)
	moves := f.allocationMoves()
	require.Equal(t, lifecycle.AllocationFailed, moves[0].To)
	require.True(t, moves[0].Clean)
	require.Zero(t, f.count("GiveAccess"))
	require.Nil(t, stagetest.NodeMove(f.Store.Last()), "the node is not to blame")
}
