package bmc

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLookTTL: a look has ended and noted its outcome before another may take its lease, so that
// two never log in to a BMC at once.
func TestLookTTL(t *testing.T) {
	t.Parallel()
	require.Greater(t, lookTTL, LookLimit+noteLimit)
	require.Less(t, lookPartsLimit+lookLogsLimit, turnLimit)
}

// TestKeptProblems: the critical ones come first, in one order, and those beyond the bound are
// counted.
func TestKeptProblems(t *testing.T) {
	t.Parallel()
	var all []string
	for i := range 150 {
		all = append(all, fmt.Sprintf("fan %03d: Warning", i))
	}
	got := keptProblems(append(all, "GPU 3: Critical"))
	require.Len(t, got, maxKept+1)
	require.Equal(t, []string{"GPU 3: Critical", "fan 000: Warning"}, got[:2])
	require.Equal(t, "51 more parts that are not well", got[maxKept])
}
