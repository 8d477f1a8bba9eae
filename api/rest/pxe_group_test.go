package rest_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// The device group of a PXE node decides what an admin decides; labels that
// decide nothing are an operator's too.
func TestTheDeviceGroupIsAnAdminsToSay(t *testing.T) {
	t.Parallel()
	w := newPXEWorld(t)
	n, path := w.ready(lifecycle.NodeActive)
	patch := func(labels map[string]any, headers ...header) answer {
		return w.do("PATCH", path, map[string]any{"labels": labels}, append(headers, anyVersion)...)
	}
	operator := w.as("operator")
	patch(map[string]any{"rack": "7", "device-group": "lab"}, operator).refused(problem.Forbidden)
	patch(map[string]any{"rack": "7", "device-group": nil}, operator).want(http.StatusOK) // it has none
	patch(map[string]any{"device-group": "lab"}).want(http.StatusOK)
	for name, group := range map[string]any{"changed": "other", "removed": nil, "emptied": ""} {
		p := patch(map[string]any{"device-group": group}, operator).refused(problem.Forbidden)
		require.Contains(t, p.Detail, "device-group", name)
	}
	patch(map[string]any{"rack": "8", "device-group": "lab"}, operator).want(http.StatusOK)
	now, err := w.store.Node(t.Context(), n.ID)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"rack": "8", "device-group": "lab"}, map[string]string(now.Labels))
	patch(map[string]any{"device-group": nil}).want(http.StatusOK)

	// A node that MAAS provisions is in no group.
	maas := "/api/v1/nodes/" + w.nodeIn(lifecycle.NodeActive).ID
	w.do("PATCH", maas, map[string]any{"labels": map[string]any{"device-group": "lab"}}, anyVersion, operator).want(http.StatusOK)
}
