package lifecycle_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/lifecycle"
)

func TestNodePath(t *testing.T) {
	t.Parallel()
	via := []lifecycle.NodeStatus{lifecycle.NodeOffline}
	for name, c := range map[string]struct {
		from, to lifecycle.NodeStatus
		owner    lifecycle.Owner
		want     []lifecycle.NodeStatus
	}{
		"there already":         {lifecycle.NodeQuarantined, lifecycle.NodeQuarantined, lifecycle.OwnerDecommission, []lifecycle.NodeStatus{lifecycle.NodeQuarantined}},
		"by way of offline":     {lifecycle.NodeDraining, lifecycle.NodeQuarantined, lifecycle.OwnerDecommission, []lifecycle.NodeStatus{lifecycle.NodeOffline, lifecycle.NodeQuarantined}},
		"directly":              {lifecycle.NodeOffline, lifecycle.NodeQuarantined, lifecycle.OwnerDecommission, []lifecycle.NodeStatus{lifecycle.NodeQuarantined}},
		"not this owner's":      {lifecycle.NodeDraining, lifecycle.NodeQuarantined, lifecycle.OwnerDrain, nil},
		"no way at all":         {lifecycle.NodeRetired, lifecycle.NodeQuarantined, lifecycle.OwnerDecommission, nil},
		"an operator drains it": {lifecycle.NodeQuarantined, lifecycle.NodeDraining, lifecycle.OwnerAdmin, []lifecycle.NodeStatus{lifecycle.NodeDraining}},
		"not the workflow's":    {lifecycle.NodeQuarantined, lifecycle.NodeDraining, lifecycle.OwnerDecommission, nil},
	} {
		require.Equal(t, c.want, lifecycle.NodePath(lifecycle.NodeMAAS.Lifecycle, c.from, c.to, via, c.owner), name)
	}
	retired := []lifecycle.NodeStatus{lifecycle.NodeRetired}
	require.Equal(t, retired, lifecycle.NodePath(lifecycle.NodePXE.Lifecycle, lifecycle.NodeDeprovisioning, lifecycle.NodeRetired, nil, lifecycle.OwnerDecommission))
	require.Nil(t, lifecycle.NodePath(lifecycle.NodeMAAS.Lifecycle, lifecycle.NodeDeprovisioning, lifecycle.NodeRetired, nil, lifecycle.OwnerDecommission), "each lifecycle has its own edges")
	require.Nil(t, lifecycle.NodePath(lifecycle.NodePXE.Lifecycle, lifecycle.NodeDeprovisioning, lifecycle.NodeActive, nil, lifecycle.OwnerDecommission), "no way back")
}
