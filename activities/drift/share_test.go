package drift

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestPartsShare: every machine of a site is read within HealthEvery, whatever the size of the
// site.
func TestPartsShare(t *testing.T) {
	t.Parallel()
	p := DefaultPolicy()
	p.Every = 5 * time.Minute
	for all, want := range map[int]int{0: 20, 1000: 20, 10_000: 167, 1_000_000: 1000} {
		require.Equal(t, want, partsShare(all, p), all)
	}
}
