package op_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/db"
)

// An API whose access table and routes differ does not start.
func TestClose_ChecksTheAccessTable(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rows  []op.Access
		error string
	}{
		"complete":            {[]op.Access{{op.RoleViewer: {"GET /things"}}}, ""},
		"route without role":  {nil, "route GET /api/v1/things has no role"},
		"role without route":  {[]op.Access{{op.RoleViewer: {"GET /things", "PUT /things"}}}, "routes that do not exist: [PUT /api/v1/things]"},
		"granted in two rows": {[]op.Access{{op.RoleViewer: {"GET /things"}}, {op.RoleAdmin: {"GET /things"}}}, "has two roles, viewer and admin"},
	} {
		api, err := op.New(op.Config{Store: &db.Store{}})
		require.NoError(t, err)
		for _, r := range c.rows {
			api.Grant(r)
		}
		op.Add(api, huma.Operation{OperationID: "things", Method: http.MethodGet, Path: "/things"},
			func(context.Context, *struct{}) (*struct{}, error) { return nil, nil })
		err = api.Close()
		if c.error == "" {
			require.NoError(t, err, name)
			continue
		}
		require.ErrorContains(t, err, c.error, name)
	}
}
