package grpc_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/grpc"
	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/db/dbtest"
)

// The calls of a principal to the gRPC API and to the REST API count together for its rate.
func TestRates_OfBothAPIsAreOne(t *testing.T) {
	t.Parallel()
	store := dbtest.Store(t)
	api, err := op.New(op.Config{Store: store, PrincipalRate: 1})
	require.NoError(t, err)
	api.Grant(op.Access{op.RoleViewer: {"POST /things"}})
	op.Add(api, huma.Operation{OperationID: "things", Method: http.MethodPost, Path: "/things"},
		func(context.Context, *struct{}) (*struct{}, error) { return nil, nil })
	grpc.Register(api, grpc.Config{Offers: fakeOffers})
	require.NoError(t, api.Close())
	srv := httptest.NewServer(api.Handler())
	t.Cleanup(srv.Close)
	token, err := op.CreateToken(t.Context(), store, "viewer", []string{"viewer"}, time.Hour)
	require.NoError(t, err)
	w := &world{t: t, store: store, url: srv.URL}
	// A slow machine may earn a token between two calls. A rate of its own would allow five
	// operations.
	for range 4 {
		for range 100 {
			if status, _ := w.post("/slipway.v1.MachineService/ListMachines", "{}", token); status == http.StatusTooManyRequests {
				break
			}
		}
		if status, body := w.post("/api/v1/things", "{}", token); status == http.StatusTooManyRequests {
			require.Contains(t, string(body), "retry_after_seconds")
			return
		}
	}
	t.Error("the operation was allowed each time after a call was refused")
}
