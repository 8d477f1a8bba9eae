package runenv_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/test/runenv"
)

// TestSample_FollowsTheSeed: a seed chooses the same rows each time, every row has its turn with
// some seed, and a proof has them all.
func TestSample_FollowsTheSeed(t *testing.T) {
	rows := []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}
	t.Setenv(runenv.ProofVar, "")
	seen := map[int]bool{}
	for _, seed := range []string{"1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12"} {
		t.Setenv(runenv.SeedVar, seed)
		chosen := runenv.Sample(t, "SLIPWAY_NO_SUCH_SIZE", "rows", rows, 4)
		require.Len(t, chosen, 4)
		require.True(t, slices.IsSorted(chosen))
		require.Equal(t, chosen, runenv.Sample(t, "SLIPWAY_NO_SUCH_SIZE", "rows", rows, 4))
		for _, row := range chosen {
			seen[row] = true
		}
	}
	require.Len(t, seen, len(rows))
	require.Equal(t, rows, runenv.Sample(t, "SLIPWAY_NO_SUCH_SIZE", "rows", rows, 40), "no more than there are")
	t.Setenv(runenv.ProofVar, "fleet")
	require.Equal(t, rows, runenv.Sample(t, "SLIPWAY_NO_SUCH_SIZE", "rows", rows, 4))
}
