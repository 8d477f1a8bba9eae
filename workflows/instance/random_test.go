package instance_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/lifecycle"
	cloudsim "github.com/slipway-cloud/slipway/sim/cloud"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// randomFaults returns faults of calls that an instance needs, each a few times.
func randomFaults(rng *rand.Rand) []cloudsim.Fault {
	requests := []string{
		cloudsim.FaultInternalError, cloudsim.FaultUnavailable, cloudsim.FaultRateLimited, cloudsim.FaultReset, cloudsim.FaultReset, cloudsim.FaultForbidden,
	}
	others := []string{cloudsim.FaultQuota, cloudsim.FaultOutOfStock, cloudsim.FaultFallsBack, cloudsim.FaultListLag}
	calls := []string{
		"create_server", "create_server", "create_group", "set_rules", "list_servers", "get_server", "server_action", "update_volume", "set_user_data",
		"delete_server", "delete_volume", "delete_group", "list_volumes", "list_groups", "",
	}
	var out []cloudsim.Fault
	for range 2 + rng.IntN(5) {
		if rng.IntN(4) == 0 {
			out = append(out, cloudsim.Fault{Name: others[rng.IntN(len(others))]})
			continue
		}
		f := cloudsim.Fault{
			Name: requests[rng.IntN(len(requests))], Op: calls[rng.IntN(len(calls))], Count: 1 + rng.IntN(3), Phase: []string{"before_commit", "after_commit", ""}[rng.IntN(3)],
		}
		if f.Name == cloudsim.FaultRateLimited || f.Name == cloudsim.FaultForbidden {
			f.Phase = "" // a provider refuses before it does anything, and a refused order may be given again at once
		}
		out = append(out, f)
	}
	return out
}

// answers returns how often the faults can park a job: once for each answer.
func answers(faults []cloudsim.Fault) int {
	n := 1
	for _, f := range faults {
		n += f.Count
	}
	return n
}

// TestInstance_RandomFaults: whatever fails, and however often an operator tries again or cancels,
// an instance never has two servers, and its end leaves nothing that is billed.
func TestInstance_RandomFaults(t *testing.T) {
	t.Parallel()
	seed := runenv.Seed(t)
	for n := range runenv.Scale(t, "SLIPWAY_TEST_INSTANCES", 6, 60) {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, uint64(n))) //nolint:gosec // repeatable
			r := newSimRig(t)
			faults := randomFaults(rng)
			for _, f := range faults {
				r.fault(f)
			}
			t.Logf("seed %d, faults %+v", seed, faults)
			often := func(a lifecycle.Action) []lifecycle.Action {
				return slices.Repeat([]lifecycle.Action{a}, answers(faults))
			}
			retry := lifecycle.ActionRetryStage
			r.run(r.job, append([]lifecycle.Action{retry, retry, retry, lifecycle.ActionCancel}, often(lifecycle.ActionResume)...)...)
			require.LessOrEqual(t, r.sim.Counts().ServersMade, 1)
			if ended := r.terminate(); ended.Job != nil {
				r.run(*ended.Job, often(retry)...)
			}
			require.Equal(t, lifecycle.InstanceTerminated, r.read().Status)
			require.Empty(t, r.sim.Billed())
			require.LessOrEqual(t, r.sim.Counts().ServersMade, 1)
		})
	}
}
