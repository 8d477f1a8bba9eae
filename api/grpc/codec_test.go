package grpc

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/op"
	slipwayv1 "github.com/slipway-cloud/slipway/proto/gen/slipway/v1"
	"github.com/slipway-cloud/slipway/proto/gen/slipway/v1/slipwayv1connect"
)

// echoPlans answers CreatePlan with the decoded plan.
type echoPlans struct {
	slipwayv1connect.UnimplementedPlanServiceHandler
}

func (echoPlans) CreatePlan(_ context.Context, r *connect.Request[slipwayv1.CreatePlanRequest]) (*connect.Response[slipwayv1.Plan], error) {
	p, err := planFromProto(r.Msg.GetPlan())
	if err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, err)
	}
	return connect.NewResponse(planToProto(p)), nil
}

// One handler speaks the API's JSON and gRPC.
func TestWithJSON_NamesOfTheProtoFile(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.Handle(slipwayv1connect.NewPlanServiceHandler(echoPlans{}, WithJSON()))
	server := httptest.NewUnstartedServer(mux)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	post := func(body string) (int, map[string]any) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+slipwayv1connect.PlanServiceCreatePlanProcedure, bytes.NewBufferString(body))
		require.NoError(t, err)
		r.Header.Set("Content-Type", "application/json")
		answer, err := server.Client().Do(r)
		require.NoError(t, err)
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		var out map[string]any
		require.NoError(t, json.Unmarshal(text, &out), string(text))
		return answer.StatusCode, out
	}
	for _, name := range []string{"plan_id", "planId"} {
		status, got := post(`{"plan": {"` + name + `": "p-1", "steps": [{"name": "a", "max_retries": 0, "reboot": {"mode": "bmc"}}]}}`)
		require.Equal(t, http.StatusOK, status, got)
		require.Equal(t, map[string]any{
			"plan_id": "p-1", "display_name": "", "startable_by": "",
			"steps": []any{map[string]any{"name": "a", "max_retries": 0.0, "reboot": map[string]any{"mode": "bmc"}}},
		}, got)
	}
	for _, body := range []string{`{"plan": {"plan": "p-1"}}`, `{`, ``, `{"plan": {"plan_id": "p-1", "steps": [{"name": "a", "firmware": {}}]}}`} {
		status, got := post(body)
		require.Equal(t, http.StatusBadRequest, status, body)
		require.Equal(t, "invalid_argument", got["code"], body)
	}

	client := slipwayv1connect.NewPlanServiceClient(server.Client(), server.URL, connect.WithGRPC())
	p, err := client.CreatePlan(t.Context(), connect.NewRequest(&slipwayv1.CreatePlanRequest{Plan: &slipwayv1.Plan{
		PlanId: "p-1", Steps: []*slipwayv1.Step{{Name: "a", Kind: &slipwayv1.Step_Join{Join: &slipwayv1.KubeadmJoin{}}}},
	}}))
	require.NoError(t, err)
	require.Equal(t, "p-1", p.Msg.GetPlanId())
	_, err = client.GetPlan(t.Context(), connect.NewRequest(&slipwayv1.GetPlanRequest{}))
	require.Equal(t, connect.CodeUnimplemented, connect.CodeOf(err))
}

func TestJSONCodec_RefusesOtherValues(t *testing.T) {
	t.Parallel()
	_, err := jsonCodec{}.Marshal(7)
	require.Error(t, err)
	require.Error(t, jsonCodec{}.Unmarshal([]byte("{}"), new(int)))
}

// Each codec encodes a message once for all streams. No stream can change the bytes that another
// stream sends.
func TestFrame_IsEncodedOnce(t *testing.T) {
	t.Parallel()
	m := &slipwayv1.RunEvent{Cursor: 7}
	f := frame{event: &op.Event{}, message: m}
	for _, codec := range []interface {
		connect.Codec
		MarshalAppend([]byte, any) ([]byte, error)
	}{protoCodec{}, jsonCodec{}} {
		m.Cursor = 7
		first, err := codec.MarshalAppend(nil, f)
		require.NoError(t, err)
		m.Cursor = 8
		want := bytes.Clone(first)
		clear(first) // connect uses the buffer again
		second, err := codec.MarshalAppend([]byte("before"), f)
		require.NoError(t, err)
		require.Equal(t, "before"+string(want), string(second))
		var got slipwayv1.RunEvent
		require.NoError(t, codec.Unmarshal(want, &got))
		require.EqualValues(t, 7, got.GetCursor())
	}
	_, err := protoCodec{}.Marshal(7)
	require.Error(t, err)
	require.Error(t, protoCodec{}.Unmarshal(nil, 7))
}
