package allocation_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/activities/allocation"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// TestDescribeInstance_HasTheAddressesOfTheNode: a tenant's metadata has the first address of each
// kind that MAAS or the agent has named.
func TestDescribeInstance_HasTheAddressesOfTheNode(t *testing.T) {
	t.Parallel()
	store := dbtest.Store(t)
	acts := &allocation.Activities{Store: store}
	for _, source := range []lifecycle.AddressSource{lifecycle.AddressesOfMAAS, lifecycle.AddressesOfAgent} {
		node := dbtest.FreeNode(t, store)
		a := dbtest.Occupy(t, store, node.ID)
		in := contract.AllocationRef{JobRef: contract.JobRef{NodeID: node.ID}, AllocationID: a.ID}
		doc, err := acts.DescribeInstance(t.Context(), in)
		require.NoError(t, err)
		require.Equal(t, []string{"", "", ""}, []string{doc.LocalIPv4, doc.PublicIPv4, doc.IPv6})
		require.NoError(t, store.SetNodeAddresses(t.Context(), node.ID, db.NodeAddresses{
			Source: source, IPs: []string{"10.0.0.7", "10.0.0.8", "2001:db8::7", "203.0.113.7", "203.0.113.8"},
		}))
		doc, err = acts.DescribeInstance(t.Context(), in)
		require.NoError(t, err)
		require.Equal(t, []string{"10.0.0.7", "203.0.113.7", "2001:db8::7"}, []string{doc.LocalIPv4, doc.PublicIPv4, doc.IPv6})
	}
}
