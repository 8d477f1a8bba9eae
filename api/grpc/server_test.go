package grpc_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/slipway-cloud/slipway/api/grpc"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	machinesdb "github.com/slipway-cloud/slipway/db/machines"
	"github.com/slipway-cloud/slipway/intent/machines"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/runplan"
	slipwayv1 "github.com/slipway-cloud/slipway/proto/gen/slipway/v1"
)

// TestCalls_OverEveryProtocol makes the calls of a run over each protocol that the port speaks.
func TestCalls_OverEveryProtocol(t *testing.T) {
	t.Parallel()
	for name, option := range map[string]connect.ClientOption{
		"gRPC": connect.WithGRPC(), "gRPC-Web": connect.WithGRPCWeb(), "JSON": grpc.WithJSON().(connect.ClientOption), "Connect": connect.WithSendGzip(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			c, admin := w.as("operator", option), w.as("admin", option)
			m := &slipwayv1.Machine{MachineId: "m-1", Labels: map[string]string{"provider": "fake"}, Spec: &slipwayv1.MachineSpec{MacAddresses: []string{"02:00:00:00:00:01"}}}
			made, err := c.RegisterMachine(t.Context(), connect.NewRequest(&slipwayv1.RegisterMachineRequest{Machine: m}))
			require.NoError(t, err)
			require.Equal(t, "fake", made.Msg.GetSpec().GetProvider(), "from the label")
			require.Equal(t, slipwayv1.MachineStatus_READY, made.Msg.GetStatus().GetEffectiveState())
			again, err := c.RegisterMachine(t.Context(), connect.NewRequest(&slipwayv1.RegisterMachineRequest{Machine: &slipwayv1.Machine{Labels: m.Labels, Spec: m.Spec}}))
			require.NoError(t, err)
			require.Equal(t, "m-1", again.Msg.GetMachineId(), "found by its MAC address")

			plan, err := admin.CreatePlan(t.Context(), connect.NewRequest(&slipwayv1.CreatePlanRequest{Plan: &slipwayv1.Plan{
				PlanId: "p-1", Steps: []*slipwayv1.Step{{Name: "hello", Kind: &slipwayv1.Step_Ssh{Ssh: &slipwayv1.SshCommand{Command: "echo hi"}}}},
			}}))
			require.NoError(t, err)
			got, err := c.GetPlan(t.Context(), connect.NewRequest(&slipwayv1.GetPlanRequest{PlanId: plan.Msg.GetPlanId()}))
			require.NoError(t, err)
			require.Equal(t, "echo hi", got.Msg.GetSteps()[0].GetSsh().GetCommand())

			run, err := c.StartRun(t.Context(), connect.NewRequest(&slipwayv1.StartRunRequest{RequestId: "r", MachineId: "m-1", Type: "UPGRADE", PlanId: "p-1"}))
			require.NoError(t, err)
			require.Equal(t, slipwayv1.Run_PENDING, run.Msg.GetPhase())
			now, err := c.GetMachine(t.Context(), connect.NewRequest(&slipwayv1.GetMachineRequest{MachineId: "m-1"}))
			require.NoError(t, err)
			require.Equal(t, slipwayv1.MachineStatus_PROVISIONING, now.Msg.GetStatus().GetEffectiveState())
			require.Equal(t, run.Msg.GetRunId(), now.Msg.GetStatus().GetActiveRunId())
			runs, err := c.ListRuns(t.Context(), connect.NewRequest(&slipwayv1.ListRunsRequest{Filter: "machine_id=m-1 AND phase!=FAILED"}))
			require.NoError(t, err)
			require.Len(t, runs.Msg.GetRuns(), 1)

			place := machinesdb.LogPlace{RunID: run.Msg.GetRunId(), Step: "hello", Attempt: 1}
			require.NoError(t, machinesdb.AppendLog(t.Context(), w.store, place, "stdout", 3, []byte("hi\n")))
			cancelled, err := c.CancelRun(t.Context(), connect.NewRequest(&slipwayv1.CancelRunRequest{RunId: run.Msg.GetRunId()}))
			require.NoError(t, err)
			require.Equal(t, slipwayv1.Run_CANCELED, cancelled.Msg.GetPhase())
			ended, err := c.CancelRun(t.Context(), connect.NewRequest(&slipwayv1.CancelRunRequest{RunId: run.Msg.GetRunId()}))
			require.NoError(t, err)
			require.Equal(t, cancelled.Msg.GetFinishedAt().AsTime(), ended.Msg.GetFinishedAt().AsTime())

			logs, err := c.StreamRunLogs(t.Context(), connect.NewRequest(&slipwayv1.StreamRunLogsRequest{RunId: run.Msg.GetRunId()}))
			require.NoError(t, err)
			var output string
			for logs.Receive() {
				output += string(logs.Msg().GetData())
			}
			require.NoError(t, logs.Err(), "it ends with the run")
			require.Equal(t, "hi\n", output)
			set, err := c.SetMachinePhase(t.Context(), connect.NewRequest(&slipwayv1.SetMachinePhaseRequest{MachineId: "m-1", Phase: slipwayv1.MachineStatus_READY, Reason: "checked"}))
			require.NoError(t, err)
			require.Equal(t, slipwayv1.MachineStatus_READY, set.Msg.GetStatus().GetPhase())
		})
	}
}

// TestJSON_HasTheNamesOfTheSpecification calls without a client, as curl does.
func TestJSON_HasTheNamesOfTheSpecification(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.register("m-1")
	status, body := w.post("/slipway.v1.MachineService/GetMachine", `{"machine_id": "m-1"}`, w.tokens["viewer"])
	require.Equal(t, http.StatusOK, status)
	var m map[string]any
	require.NoError(t, json.Unmarshal(body, &m))
	require.Equal(t, "m-1", m["machine_id"])
	require.Equal(t, "", m["status"].(map[string]any)["active_run_id"])
	status, body = w.post("/slipway.v1.MachineService/GetMachine", `{"machine_id": "m-1", "surprise": 1}`, w.tokens["viewer"])
	require.Equal(t, http.StatusBadRequest, status, string(body))
	status, body = w.post("/slipway.v1.MachineService/GetMachine", `{}`, "slp_wrong")
	require.Equal(t, http.StatusUnauthorized, status)
	require.Contains(t, string(body), "unauthenticated")
	status, body = w.post("/grpc.health.v1.Health/Check", `{"service": "slipway.v1.RunService"}`, "")
	require.Equal(t, http.StatusOK, status, "health needs no token")
	require.Contains(t, string(body), "SERVING")
}

func (w *world) post(path, body, token string) (int, []byte) {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, w.url+path, strings.NewReader(body))
	require.NoError(w.t, err)
	r.Header.Set("Content-Type", "application/json")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := http.DefaultClient.Do(r)
	require.NoError(w.t, err)
	defer res.Body.Close()
	out, err := io.ReadAll(res.Body)
	require.NoError(w.t, err)
	return res.StatusCode, out
}

// TestErrors is the table of errors by code.
func TestErrors(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.register("m-1")
	w.register("m-2")
	other := w.register("m-3")
	run := w.mustStart("m-1", "first")
	op, viewer := w.as("operator"), w.as("viewer")
	ctx := t.Context()
	start := func(in *slipwayv1.StartRunRequest) func() error {
		return func() error { _, err := op.StartRun(ctx, connect.NewRequest(in)); return err }
	}
	retired := &slipwayv1.SetMachinePhaseRequest{MachineId: "m-3", Phase: slipwayv1.MachineStatus_RETIRED, Reason: "sold"}
	_, err := op.SetMachinePhase(ctx, connect.NewRequest(retired))
	require.NoError(t, err)
	for name, tc := range map[string]struct {
		call func() error
		code connect.Code
		says string
	}{
		"machine not found":  {start(&slipwayv1.StartRunRequest{RequestId: "r", MachineId: "m-9", Type: "REBOOT"}), connect.CodeNotFound, "Machine m-9 was not found; slipway machine list"},
		"no request id":      {start(&slipwayv1.StartRunRequest{MachineId: "m-2", Type: "REBOOT"}), connect.CodeInvalidArgument, "request_id"},
		"active run":         {start(&slipwayv1.StartRunRequest{RequestId: "r", MachineId: "m-1", Type: "REBOOT"}), connect.CodeFailedPrecondition, run.GetRunId()},
		"another type":       {start(&slipwayv1.StartRunRequest{RequestId: "first", MachineId: "m-1", Type: "RMA"}), connect.CodeInvalidArgument, run.GetRunId()},
		"plan not found":     {start(&slipwayv1.StartRunRequest{RequestId: "r", MachineId: "m-2", Type: "REBOOT", PlanId: "p-9"}), connect.CodeNotFound, "Plan p-9 was not found"},
		"unknown type":       {start(&slipwayv1.StartRunRequest{RequestId: "r", MachineId: "m-2", Type: "DANCE"}), connect.CodeInvalidArgument, "REPAVE"},
		"missing capability": {start(&slipwayv1.StartRunRequest{RequestId: "r", MachineId: "m-2", Type: "RMA"}), connect.CodeFailedPrecondition, "Return"},
		"retired":            {start(&slipwayv1.StartRunRequest{RequestId: "r", MachineId: other.GetMachineId(), Type: "REBOOT"}), connect.CodeFailedPrecondition, "RETIRED"},
		"a viewer starts": {func() error {
			_, err := viewer.StartRun(ctx, connect.NewRequest(&slipwayv1.StartRunRequest{}))
			return err
		}, connect.CodePermissionDenied, "operator"},
		"an operator's plan": {func() error {
			_, err := op.CreatePlan(ctx, connect.NewRequest(&slipwayv1.CreatePlanRequest{}))
			return err
		}, connect.CodePermissionDenied, "admin"},
		"no token": {func() error {
			_, err := w.with("", "").GetRun(ctx, connect.NewRequest(&slipwayv1.GetRunRequest{}))
			return err
		}, connect.CodeUnauthenticated, "token"},
		"bad filter": {func() error {
			_, err := op.ListMachines(ctx, connect.NewRequest(&slipwayv1.ListMachinesRequest{Filter: "colour=red"}))
			return err
		}, connect.CodeInvalidArgument, "target_cluster_ref"},
		"bad page": {func() error {
			_, err := op.ListRuns(ctx, connect.NewRequest(&slipwayv1.ListRunsRequest{PageSize: 1001}))
			return err
		}, connect.CodeInvalidArgument, "page_size"},
		"phase of a run": {func() error {
			_, err := op.SetMachinePhase(ctx, connect.NewRequest(&slipwayv1.SetMachinePhaseRequest{MachineId: "m-1", Phase: slipwayv1.MachineStatus_READY, Reason: "x"}))
			return err
		}, connect.CodeFailedPrecondition, run.GetRunId()},
		"not in its cluster": {func() error {
			_, err := op.SetMachinePhase(ctx, connect.NewRequest(&slipwayv1.SetMachinePhaseRequest{MachineId: "m-2", Phase: slipwayv1.MachineStatus_IN_SERVICE, Reason: "x"}))
			return err
		}, connect.CodeFailedPrecondition, "in_customer_cluster"},
		"endpoint of a run": {func() error {
			_, err := op.UpdateMachine(ctx, connect.NewRequest(&slipwayv1.UpdateMachineRequest{Machine: &slipwayv1.Machine{MachineId: "m-1", Spec: &slipwayv1.MachineSpec{Provider: "fake", SshEndpoint: "10.0.0.1:22"}}}))
			return err
		}, connect.CodeFailedPrecondition, "spec.ssh_endpoint"},
		"run not found": {func() error {
			_, err := viewer.GetRun(ctx, connect.NewRequest(&slipwayv1.GetRunRequest{RunId: "run_x"}))
			return err
		}, connect.CodeNotFound, "Run run_x was not found"},
		"an unusable machine": {func() error {
			_, err := op.RegisterMachine(ctx, connect.NewRequest(&slipwayv1.RegisterMachineRequest{Machine: &slipwayv1.Machine{MachineId: "a b"}}))
			return err
		}, connect.CodeInvalidArgument, "machine_id"},
	} {
		err := tc.call()
		require.Equal(t, tc.code, connect.CodeOf(err), "%s: %v", name, err)
		require.ErrorContains(t, err, tc.says, name)
	}
}

// TestStartRun_IsIdempotent sends one request from many clients at the same time. They start one
// run. A request with another id is refused while this run is active.
func TestStartRun_IsIdempotent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.register("m-1")
	const clients = 200
	ids := make([]string, clients)
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			run, err := w.start("m-1", "same")
			if err != nil {
				ids[i] = err.Error()
				return
			}
			ids[i] = run.GetRunId()
		})
	}
	wg.Wait()
	for _, id := range ids {
		require.Equal(t, ids[0], id)
	}
	require.Contains(t, ids[0], "run_")
	_, err := w.start("m-1", "another")
	require.Equal(t, connect.CodeFailedPrecondition, connect.CodeOf(err))
	w.project(ids[0], machinesdb.Step{Status: lifecycle.JobCancelled})
	again, err := w.start("m-1", "same")
	require.NoError(t, err)
	require.Equal(t, ids[0], again.GetRunId(), "also when it has ended")
	require.Equal(t, slipwayv1.Run_CANCELED, again.GetPhase())
}

// TestGetMachine_IsOfOneMoment starts and ends runs while the machine is read. The machine is
// PROVISIONING exactly when it has a run.
func TestGetMachine_IsOfOneMoment(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.register("m-1")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for i := range 20 {
			run, err := w.start("m-1", fmt.Sprint("r", i))
			if err == nil {
				_, err = w.as("operator").CancelRun(t.Context(), connect.NewRequest(&slipwayv1.CancelRunRequest{RunId: run.GetRunId()}))
			}
			if err != nil {
				t.Error(err)
				return
			}
		}
	}()
	c, seen := w.as("viewer"), map[bool]int{}
	look := func(m *slipwayv1.Machine) {
		run := m.GetStatus().GetActiveRunId() != ""
		require.Equal(t, run, m.GetStatus().GetPhase() == slipwayv1.MachineStatus_PROVISIONING, m.GetStatus())
		seen[run]++
	}
	for going := true; going; {
		select {
		case <-ended:
			going = false
		default:
		}
		one, err := c.GetMachine(t.Context(), connect.NewRequest(&slipwayv1.GetMachineRequest{MachineId: "m-1"}))
		require.NoError(t, err)
		look(one.Msg)
		all, err := c.ListMachines(t.Context(), connect.NewRequest(&slipwayv1.ListMachinesRequest{}))
		require.NoError(t, err)
		look(all.Msg.GetMachines()[0])
	}
	require.NotZero(t, seen[true])
	require.NotZero(t, seen[false])
}

// Pages of long plans are smaller than the largest answer that clients accept. They contain every
// plan.
func TestListPlans_BoundsAPage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	want := len(lifecycle.RunTypes())
	for i := range 8 {
		p := runplan.Plan{ID: fmt.Sprintf("%c-plan", 'a'+3*i)} // default plans lie between
		for n := range 14 {
			p.Steps = append(p.Steps, runplan.Step{Name: fmt.Sprintf("step-%d", n), SSH: &runplan.SSHCommand{Command: strings.Repeat("x", 64_000)}})
		}
		require.NoError(t, w.store.Tx(t.Context(), func(tx *db.Tx) error {
			_, err := machines.CreatePlan(t.Context(), tx, p, false, db.Actor{Owner: lifecycle.OwnerAdmin, ID: "test"})
			return err
		}))
		want++
	}
	var seen []string
	token, pages := "", 0
	for {
		out, err := w.as("viewer").ListPlans(t.Context(), connect.NewRequest(&slipwayv1.ListPlansRequest{PageSize: 100, PageToken: token}))
		require.NoError(t, err)
		require.Less(t, proto.Size(out.Msg), 4<<20)
		for _, p := range out.Msg.GetPlans() {
			seen = append(seen, p.GetPlanId())
		}
		pages++
		if token = out.Msg.GetNextPageToken(); token == "" {
			break
		}
	}
	require.Greater(t, pages, 1)
	require.Len(t, seen, want)
	require.True(t, slices.IsSorted(seen))
	require.Len(t, slices.Compact(seen), want)
}

// TestLists_Page walks a list in pages, and uses a token with another filter.
func TestLists_Page(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i := range 5 {
		w.register(fmt.Sprintf("m-%d", i))
	}
	c := w.as("viewer")
	var seen []string
	token := ""
	for page := 1; ; page++ {
		out, err := c.ListMachines(t.Context(), connect.NewRequest(&slipwayv1.ListMachinesRequest{Filter: "phase=READY", PageSize: 2, PageToken: token}))
		require.NoError(t, err)
		for _, m := range out.Msg.GetMachines() {
			seen = append(seen, m.GetMachineId())
		}
		if token = out.Msg.GetNextPageToken(); token == "" {
			require.Equal(t, 3, page)
			break
		}
		_, err = c.ListMachines(t.Context(), connect.NewRequest(&slipwayv1.ListMachinesRequest{Filter: "phase=RMA", PageSize: 2, PageToken: token}))
		require.Equal(t, connect.CodeInvalidArgument, connect.CodeOf(err))
	}
	require.Equal(t, []string{"m-0", "m-1", "m-2", "m-3", "m-4"}, seen)
	plans, err := c.ListPlans(t.Context(), connect.NewRequest(&slipwayv1.ListPlansRequest{}))
	require.NoError(t, err)
	require.Len(t, plans.Msg.GetPlans(), len(lifecycle.RunTypes()), "the default plans")
}

// TestUpdateMachine_LeavesTheStatus: spec and labels are changed, and the status of the request is
// ignored.
func TestUpdateMachine_LeavesTheStatus(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	before := w.register("m-1")
	wanted := &slipwayv1.Machine{
		MachineId: "m-1", Labels: map[string]string{"env": "lab"},
		Spec:   &slipwayv1.MachineSpec{Provider: "fake", SshEndpoint: "10.0.0.9:22", Location: "ams-1", Rack: "r7"},
		Status: &slipwayv1.MachineStatus{Phase: slipwayv1.MachineStatus_RETIRED, ActiveRunId: "run-1"},
	}
	_, err := w.as("operator").UpdateMachine(t.Context(), connect.NewRequest(&slipwayv1.UpdateMachineRequest{Machine: wanted}))
	require.NoError(t, err)
	after, err := w.as("viewer").GetMachine(t.Context(), connect.NewRequest(&slipwayv1.GetMachineRequest{MachineId: "m-1"}))
	require.NoError(t, err)
	require.Equal(t, wanted.GetLabels(), after.Msg.GetLabels())
	spec := after.Msg.GetSpec()
	require.Equal(t, []string{"10.0.0.9:22", "ams-1", "r7"}, []string{spec.GetSshEndpoint(), spec.GetLocation(), spec.GetRack()})
	require.Equal(t, before.GetStatus().GetPhase(), after.Msg.GetStatus().GetPhase())
	require.Empty(t, after.Msg.GetStatus().GetActiveRunId())
}

// TestProjects_AreSeparate: members see and use only the machines and runs of their project.
func TestProjects_AreSeparate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := dbtest.Project(t, w.store)
	mine := &slipwayv1.Machine{MachineId: "mine", CustomerId: p.ID, Spec: &slipwayv1.MachineSpec{Provider: "fake"}}
	_, err := w.as("operator").RegisterMachine(t.Context(), connect.NewRequest(&slipwayv1.RegisterMachineRequest{Machine: mine}))
	require.NoError(t, err)
	w.register("theirs")
	theirs := w.mustStart("theirs", "a")
	_, err = w.as("admin").CreatePlan(t.Context(), connect.NewRequest(&slipwayv1.CreatePlanRequest{Plan: &slipwayv1.Plan{
		PlanId: "of-operators", Steps: []*slipwayv1.Step{{Name: "a", Kind: &slipwayv1.Step_Ssh{Ssh: &slipwayv1.SshCommand{Command: "true"}}}},
	}}))
	require.NoError(t, err)
	c := w.with(w.projectToken(p.ID), "")
	list, err := c.ListMachines(t.Context(), connect.NewRequest(&slipwayv1.ListMachinesRequest{}))
	require.NoError(t, err)
	require.Len(t, list.Msg.GetMachines(), 1)
	_, err = c.StartRun(t.Context(), connect.NewRequest(&slipwayv1.StartRunRequest{RequestId: "risk", MachineId: "mine", Type: "REBOOT", AcceptRisk: true}))
	require.Equal(t, connect.CodeInvalidArgument, connect.CodeOf(err), "the risk is an operator's")
	for name, call := range map[string]func() error{
		"machine": func() error {
			_, err := c.GetMachine(t.Context(), connect.NewRequest(&slipwayv1.GetMachineRequest{MachineId: "theirs"}))
			return err
		},
		"run": func() error {
			_, err := c.GetRun(t.Context(), connect.NewRequest(&slipwayv1.GetRunRequest{RunId: theirs.GetRunId()}))
			return err
		},
		"start": func() error {
			_, err := c.StartRun(t.Context(), connect.NewRequest(&slipwayv1.StartRunRequest{RequestId: "x", MachineId: "theirs", Type: "REBOOT"}))
			return err
		},
		"cancel": func() error {
			_, err := c.CancelRun(t.Context(), connect.NewRequest(&slipwayv1.CancelRunRequest{RunId: theirs.GetRunId()}))
			return err
		},
		"a plan of operators": func() error {
			_, err := c.StartRun(t.Context(), connect.NewRequest(&slipwayv1.StartRunRequest{RequestId: "x", MachineId: "mine", Type: "UPGRADE", PlanId: "of-operators"}))
			return err
		},
	} {
		require.Equal(t, connect.CodeNotFound, connect.CodeOf(call()), name)
	}
	_, err = c.RegisterMachine(t.Context(), connect.NewRequest(&slipwayv1.RegisterMachineRequest{Machine: mine}))
	require.Equal(t, connect.CodePermissionDenied, connect.CodeOf(err))
	run, err := c.StartRun(t.Context(), connect.NewRequest(&slipwayv1.StartRunRequest{RequestId: "x", MachineId: "mine", Type: "REBOOT"}))
	require.NoError(t, err)
	runs, err := c.ListRuns(t.Context(), connect.NewRequest(&slipwayv1.ListRunsRequest{}))
	require.NoError(t, err)
	require.Len(t, runs.Msg.GetRuns(), 1)
	require.Equal(t, run.Msg.GetRunId(), runs.Msg.GetRuns()[0].GetRunId())
}
