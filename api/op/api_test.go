package op_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
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

// A body whose Content-Length is too large is not read.
func TestOperations_LeaveALargeBodyUnread(t *testing.T) {
	t.Parallel()
	api, err := op.New(op.Config{Store: &db.Store{}})
	require.NoError(t, err)
	api.Grant(op.Access{op.RoleNone: {"POST /things"}})
	op.Add(api, huma.Operation{OperationID: "things", Method: http.MethodPost, Path: "/things", MaxBodyBytes: 10},
		func(context.Context, *struct{ Body []int }) (*struct{}, error) { return nil, nil })
	require.NoError(t, api.Close())
	for text, want := range map[string]int{"[1,2,3]  ": http.StatusNoContent, "[1,2,3]   ": http.StatusRequestEntityTooLarge} {
		body, w := strings.NewReader(text), httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodPost, "/api/v1/things", body)
		r.Header.Set("Content-Type", "application/json")
		api.Handler().ServeHTTP(w, r)
		require.Equal(t, want, w.Code, w.Body)
		require.Equal(t, want == http.StatusNoContent, body.Len() == 0, "%d bytes are unread", body.Len())
	}
}
