package chaos

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWorkers_EndByThemselves: only a process that loses its connections while it starts may end.
func TestWorkers_EndByThemselves(t *testing.T) {
	t.Parallel()
	plans := newFaultPlans(nil)
	_, err := plans.Worker("1").Enter(t.Context(), "job_1", Point{})
	require.NoError(t, err)
	w := &workers{live: map[string]*hand{"1": {}, "2": {}, "3": {killed: true}}}
	for _, h := range []string{"1", "2"} {
		require.True(t, w.live[h].failed(plans.HasBegun(h)), h)
	}
	w.cut()
	require.True(t, w.live["1"].failed(plans.HasBegun("1")))
	require.False(t, w.live["2"].failed(plans.HasBegun("2")))
	require.False(t, w.live["3"].failed(plans.HasBegun("3")))
	plans.Died("1")
	require.False(t, plans.HasBegun("1"), "another process may have its number")
}
