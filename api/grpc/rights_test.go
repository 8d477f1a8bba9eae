package grpc_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	allocationdb "github.com/slipway-cloud/slipway/db/allocation"
	"github.com/slipway-cloud/slipway/db/dbtest"
	machinesdb "github.com/slipway-cloud/slipway/db/machines"
	"github.com/slipway-cloud/slipway/lifecycle"
	slipwayv1 "github.com/slipway-cloud/slipway/proto/gen/slipway/v1"
)

// tenant is a project that has a node, with a caller of its own.
type tenant struct {
	caller

	allocation     allocationdb.Allocation
	token, project string
}

// tenancy gives a node to a tenant, and the machine of the node to the tenant's project.
func (w *world) tenancy(nodeID string, options ...connect.ClientOption) tenant {
	w.t.Helper()
	a := dbtest.Occupy(w.t, w.store, nodeID)
	_, err := w.as("operator").RegisterMachine(w.t.Context(), connect.NewRequest(&slipwayv1.RegisterMachineRequest{
		Machine: &slipwayv1.Machine{MachineId: "m-1", CustomerId: a.ProjectID, Labels: map[string]string{"env": "prod"}, Spec: &slipwayv1.MachineSpec{Provider: "fake"}},
	}))
	require.NoError(w.t, err)
	token := w.projectToken(a.ProjectID)
	return tenant{w.with(token, "", options...), a, token, a.ProjectID}
}

// attempts has every call by which a tenant uses or reads a machine.
func (v tenant) attempts(ctx context.Context, request string) map[string]func() error {
	return map[string]func() error{
		"GetMachine": func() error {
			_, err := v.GetMachine(ctx, connect.NewRequest(&slipwayv1.GetMachineRequest{MachineId: "m-1"}))
			return err
		},
		"ListMachines": func() error {
			out, err := v.ListMachines(ctx, connect.NewRequest(&slipwayv1.ListMachinesRequest{}))
			if err == nil && len(out.Msg.GetMachines()) == 0 {
				err = connect.NewError(connect.CodeNotFound, db.ErrNotFound)
			}
			return err
		},
		"StartRun": func() error {
			_, err := v.StartRun(ctx, connect.NewRequest(&slipwayv1.StartRunRequest{RequestId: request, MachineId: "m-1", Type: "REBOOT"}))
			return err
		},
		"StartRun of before": func() error {
			_, err := v.StartRun(ctx, connect.NewRequest(&slipwayv1.StartRunRequest{RequestId: "own", MachineId: "m-1", Type: "REBOOT"}))
			return err
		},
		"CreateCampaign": func() error {
			out, err := v.CreateCampaign(ctx, connect.NewRequest(&slipwayv1.CreateCampaignRequest{
				RequestId: request, Type: "REBOOT", Filter: "phase!=RETIRED", ValidateOnly: true,
			}))
			if err == nil && len(out.Msg.GetMembers()) == 0 || connect.CodeOf(err) == connect.CodeInvalidArgument {
				err = connect.NewError(connect.CodeNotFound, db.ErrNotFound) // it selects no machine
			}
			return err
		},
	}
}

// TestFormerTenant_OfTheAPI makes every call on a machine as a tenant, during the release, on the
// free node and under the next tenant, in each protocol.
func TestFormerTenant_OfTheAPI(t *testing.T) {
	t.Parallel()
	for name, options := range map[string][]connect.ClientOption{"connect": nil, "grpc": {connect.WithGRPC()}, "json": {connect.WithProtoJSON()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			node := dbtest.Node(t, w.store, dbtest.Active())
			w.register("m-1")
			_, err := w.as("admin").SetMachineAccess(t.Context(), connect.NewRequest(&slipwayv1.SetMachineAccessRequest{MachineId: "m-1", NodeId: node.ID}))
			require.NoError(t, err)
			former := w.tenancy(node.ID, options...)
			own, err := former.StartRun(t.Context(), connect.NewRequest(&slipwayv1.StartRunRequest{RequestId: "own", MachineId: "m-1", Type: "REBOOT"}))
			require.NoError(t, err)
			_, err = former.CancelRun(t.Context(), connect.NewRequest(&slipwayv1.CancelRunRequest{RunId: own.Msg.GetRunId()}))
			require.NoError(t, err)
			_, err = former.GetMachine(t.Context(), connect.NewRequest(&slipwayv1.GetMachineRequest{MachineId: "m-1"}))
			require.NoError(t, err)
			refused := func(when string) {
				t.Helper()
				for call, try := range former.attempts(t.Context(), when) {
					require.Equal(t, connect.CodeNotFound, connect.CodeOf(try()), "%s %s", call, when)
				}
			}
			require.NoError(t, w.store.Tx(t.Context(), func(tx *db.Tx) error {
				_, err := allocationdb.MoveTo(t.Context(), tx, allocationdb.Move{ID: former.allocation.ID, To: lifecycle.AllocationRelease, Actor: db.Actor{Owner: lifecycle.OwnerAdmin}})
				return err
			}))
			refused("during the release")
			dbtest.EndTenancy(t, w.store, former.allocation.ID)
			_, err = w.store.DBTX().Exec(t.Context(), "UPDATE nodes SET tenant_left_at = NULL WHERE id = $1", node.ID)
			require.NoError(t, err)
			refused("on the free node")
			next := w.tenancy(node.ID)
			refused("under the next tenant")
			w.relay()
			run, err := next.StartRun(t.Context(), connect.NewRequest(&slipwayv1.StartRunRequest{RequestId: "next", MachineId: "m-1", Type: "REBOOT"}))
			require.NoError(t, err)
			w.project(run.Msg.GetRunId(), machinesdb.Step{Status: lifecycle.JobRunning})
			former.seesNothingOf(t, run.Msg.GetRunId())
			kept, err := former.GetRun(t.Context(), connect.NewRequest(&slipwayv1.GetRunRequest{RunId: own.Msg.GetRunId()}))
			require.NoError(t, err, "the former tenant keeps the history of its own runs")
			require.Equal(t, slipwayv1.Run_CANCELED, kept.Msg.GetPhase())
		})
	}
}

// seesNothingOf looks for a run of the next tenant.
func (v tenant) seesNothingOf(t *testing.T, runID string) {
	t.Helper()
	for call, try := range map[string]func() error{
		"GetRun": func() error {
			_, err := v.GetRun(t.Context(), connect.NewRequest(&slipwayv1.GetRunRequest{RunId: runID}))
			return err
		},
		"CancelRun": func() error {
			_, err := v.CancelRun(t.Context(), connect.NewRequest(&slipwayv1.CancelRunRequest{RunId: runID}))
			return err
		},
		"StreamRunLogs": func() error {
			stream, err := v.StreamRunLogs(t.Context(), connect.NewRequest(&slipwayv1.StreamRunLogsRequest{RunId: runID}))
			if err == nil {
				require.False(t, stream.Receive())
				err = stream.Err()
			}
			return err
		},
	} {
		require.Equal(t, connect.CodeNotFound, connect.CodeOf(try()), call)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	stream, err := v.WatchRuns(ctx, connect.NewRequest(&slipwayv1.WatchRunsRequest{Heartbeats: true}))
	require.NoError(t, err)
	for stream.Receive() {
		require.Nil(t, stream.Msg().GetSnapshot(), "a run of another project")
	}
	out, err := v.ListRuns(t.Context(), connect.NewRequest(&slipwayv1.ListRunsRequest{}))
	require.NoError(t, err)
	require.Len(t, out.Msg.GetRuns(), 1, "the own one")
}

// A portal's session and other clients call the services with plain JSON.
func TestFormerTenant_OfPlainJSON(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	node := dbtest.Node(t, w.store, dbtest.Active())
	w.register("m-1")
	_, err := w.as("admin").SetMachineAccess(t.Context(), connect.NewRequest(&slipwayv1.SetMachineAccessRequest{MachineId: "m-1", NodeId: node.ID}))
	require.NoError(t, err)
	former := w.tenancy(node.ID)
	status, _ := w.post("/slipway.v1.MachineService/GetMachine", `{"machineId": "m-1"}`, former.token)
	require.Equal(t, http.StatusOK, status)
	dbtest.EndTenancy(t, w.store, former.allocation.ID)
	status, _ = w.post("/slipway.v1.MachineService/GetMachine", `{"machineId": "m-1"}`, former.token)
	require.Equal(t, http.StatusNotFound, status)
}
