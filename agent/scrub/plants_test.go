package scrub_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/lifecycle/spec"
	simnode "github.com/slipway-cloud/slipway/sim/node"
)

// TestScrub_LeavesWhatOnlyRootCanHide: a scrub of a system that stays takes away all that a tenant
// without root leaves, and nothing of what one with root has hidden in the system: such a node has
// to be installed again.
func TestScrub_LeavesWhatOnlyRootCanHide(t *testing.T) {
	t.Parallel()
	w := newNodeFixture(t)
	w.machine.SetBootEntries()
	traces := func() []simnode.Trace {
		all, err := w.node.Traces()
		require.NoError(t, err)
		return slices.DeleteFunc(all, func(one simnode.Trace) bool {
			return !strings.HasPrefix(one.At, "/") || strings.HasPrefix(one.At, "/sys/") // the firmware's
		})
	}
	w.node.SetTenant("alloc_1")
	require.NoError(t, w.node.OccupyWithoutPlants())
	require.Contains(t, traces(), simnode.Trace{At: "/home/tenant1/data", Tenant: "alloc_1"})
	require.Contains(t, traces(), simnode.Trace{At: "/dev/nvme0n1", Tenant: "alloc_1"})
	res := w.scrub(spec.ScrubArgs{})
	require.True(t, res.OK, "%s", res.Message)
	w.restart()
	require.Empty(t, traces(), "nothing of a tenant without root is left")

	w.run = "job_2"
	w.node.SetTenant("alloc_2")
	require.NoError(t, w.node.Occupy())
	res = w.scrub(spec.ScrubArgs{})
	require.True(t, res.OK, "the scrub cannot know: %s", res.Message)
	w.restart()
	left := traces()
	require.NotEmpty(t, left)
	for _, one := range left {
		require.Equal(t, "alloc_2", one.Tenant, one.At)
	}
	for _, at := range []string{"/usr/sbin/sshd", "/etc/ssh/sshd_config.d/50-tenant.conf", "/usr/bin/ls"} {
		require.Contains(t, left, simnode.Trace{At: at, Tenant: "alloc_2"})
	}
}
