package rest_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// TestAPXENodeIsAssignedASKU by an admin, for what it is held against.
func TestAPXENodeIsAssignedASKU(t *testing.T) {
	t.Parallel()
	w := newPXEWorld(t)
	sku := dbtest.SKU(t, w.store, dbtest.Named("a100x4"))
	n, path := w.bare(lifecycle.NodeActive)
	patch := func(body map[string]any, headers ...header) answer {
		t.Helper()
		return w.do("PATCH", path, body, append([]header{anyVersion}, headers...)...)
	}
	patch(map[string]any{"sku_id": sku.ID}, w.as("operator")).refused(problem.Forbidden)
	require.Contains(t, string(patch(map[string]any{"sku_id": "sku_none"}).refused(problem.Invalid).Errors[0].Message), "no such SKU")
	patch(map[string]any{"sku_id": sku.ID}).want(http.StatusOK)
	got, err := w.store.Node(t.Context(), n.ID)
	require.NoError(t, err)
	require.Equal(t, sku.ID, *got.SKUID)

	path = "/api/v1/nodes/" + dbtest.Node(t, w.store, dbtest.Active()).ID
	patch(map[string]any{"sku_id": sku.ID}).refused(problem.Conflict)
	_, path = w.bare(lifecycle.NodeRetired)
	patch(map[string]any{"sku_id": sku.ID}).refused(problem.IllegalTransition)
}
