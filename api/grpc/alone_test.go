package grpc_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db/dbtest"
	machinesdb "github.com/slipway-cloud/slipway/db/machines"
	"github.com/slipway-cloud/slipway/lifecycle"
	slipwayv1 "github.com/slipway-cloud/slipway/proto/gen/slipway/v1"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// The tests of this file are clients that know no field with a number from 100, as the source
// document has none.

// insertRuns writes runs of a machine that have ended.
func insertRuns(t *testing.T, dsn, machine string, n int) {
	t.Helper()
	_, err := dbtest.Owner(t, dsn).Exec(t.Context(), fmt.Sprintf(`SET session_replication_role = replica;
		INSERT INTO runs (id, machine_id, request_id, type, plan_id, steps, status, job_id, created_by, finished_at)
		SELECT 'run_' || n, '%s', n::text, 'REBOOT', 'p', '[{"name": "reboot", "reboot": {"mode": "bmc"}}]', 'SUCCEEDED', 'job_' || n, 'test', now() FROM generate_series(1, %d) n`, machine, n))
	require.NoError(t, err)
}

// TestListRuns_WithoutPagesLosesNothing lists as many runs as one answer may have, and then one
// more.
func TestListRuns_WithoutPagesLosesNothing(t *testing.T) {
	t.Parallel()
	const most = 10_000
	dsn := dbtest.Database(t)
	w := newWorldServing(t, dbtest.Open(t, dsn), nil, time.Second)
	w.register("m-1")
	w.register("m-2")
	insertRuns(t, dsn, "m-1", most)
	c := w.as("viewer")
	all, err := c.ListRuns(t.Context(), connect.NewRequest(&slipwayv1.ListRunsRequest{}))
	require.NoError(t, err)
	require.Empty(t, all.Msg.GetNextPageToken())
	seen := map[string]bool{}
	for _, r := range all.Msg.GetRuns() {
		seen[r.GetRunId()] = true
	}
	require.Len(t, seen, most)
	w.mustStart("m-2", "a")
	_, err = c.ListRuns(t.Context(), connect.NewRequest(&slipwayv1.ListRunsRequest{}))
	require.Equal(t, connect.CodeInvalidArgument, connect.CodeOf(err))
	require.ErrorContains(t, err, "state a page_size")
	require.ErrorContains(t, err, "filter")
	narrow, err := c.ListRuns(t.Context(), connect.NewRequest(&slipwayv1.ListRunsRequest{Filter: "machine_id = m-2"}))
	require.NoError(t, err)
	require.Len(t, narrow.Msg.GetRuns(), 1)
	page, err := c.ListRuns(t.Context(), connect.NewRequest(&slipwayv1.ListRunsRequest{PageSize: 100}))
	require.NoError(t, err)
	require.Len(t, page.Msg.GetRuns(), 100)
}

// TestListPlans_WithoutPagesLosesNothing lists more plans than a page has.
func TestListPlans_WithoutPagesLosesNothing(t *testing.T) {
	t.Parallel()
	const stored = 1500
	w := newWorld(t)
	_, err := w.store.DBTX().Exec(t.Context(), `INSERT INTO plans (id, display_name, startable_by, steps, created_by)
		SELECT 'p-' || n, '', 'operator', '[{"name": "a", "ssh": {"command": "true"}}]', 'test' FROM generate_series(1, $1::int) n`, stored)
	require.NoError(t, err)
	out, err := w.as("viewer").ListPlans(t.Context(), connect.NewRequest(&slipwayv1.ListPlansRequest{}))
	require.NoError(t, err)
	require.Len(t, out.Msg.GetPlans(), stored+len(lifecycle.RunTypes()))
}

// TestStreams_OfAClientWithoutOurFields: every event has its run, every chunk its stream, also
// where nothing happens for a time.
func TestStreams_OfAClientWithoutOurFields(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, cancel := context.WithTimeout(t.Context(), runenv.Patience(30*time.Second))
	defer cancel()
	c := w.as("viewer")
	var run *slipwayv1.Run
	for name, options := range map[string][]connect.ClientOption{"gRPC": {connect.WithGRPC()}, "Connect": nil} {
		events, err := w.as("viewer", options...).WatchRuns(ctx, connect.NewRequest(&slipwayv1.WatchRunsRequest{}))
		require.NoError(t, err, "%s: the stream opens although there is no run", name)
		w.register("m-" + name)
		run = w.mustStart("m-"+name, "a")
		w.relay()
		require.True(t, events.Receive(), "%s: %v", name, events.Err())
		require.Contains(t, events.Msg().GetSnapshot().GetMachineId(), "m-")
	}
	quiet, err := w.as("operator", connect.WithGRPC()).WatchRuns(ctx, connect.NewRequest(&slipwayv1.WatchRunsRequest{Filter: "machine_id=none"}))
	require.NoError(t, err)
	_, err = w.store.DBTX().Exec(ctx, "UPDATE api_tokens SET revoked_at = now() WHERE name = 'the-operator'")
	require.NoError(t, err)
	require.False(t, quiet.Receive())
	require.Equal(t, connect.CodeUnauthenticated, connect.CodeOf(quiet.Err()), "a stream without any event says why it ends: %v", quiet.Err())
	logs, err := c.StreamRunLogs(ctx, connect.NewRequest(&slipwayv1.StreamRunLogsRequest{RunId: run.GetRunId()}))
	require.NoError(t, err)
	require.True(t, logs.Receive(), "%v", logs.Err())
	require.Contains(t, []string{"stdout", "stderr"}, logs.Msg().GetStream())
}

// TestRegisterMachine_BeginsFactoryReady: the caller says in which phase a new machine begins; a
// machine that is there keeps its phase.
func TestRegisterMachine_BeginsFactoryReady(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	register := func(id string, phase slipwayv1.MachineStatus_Phase) slipwayv1.MachineStatus_Phase {
		out, err := w.as("operator").RegisterMachine(t.Context(), connect.NewRequest(&slipwayv1.RegisterMachineRequest{Machine: &slipwayv1.Machine{
			MachineId: id, Spec: &slipwayv1.MachineSpec{Provider: "fake"}, Status: &slipwayv1.MachineStatus{Phase: phase},
		}}))
		require.NoError(t, err)
		return out.Msg.GetStatus().GetPhase()
	}
	require.Equal(t, slipwayv1.MachineStatus_FACTORY_READY, register("m-1", slipwayv1.MachineStatus_FACTORY_READY))
	require.Equal(t, slipwayv1.MachineStatus_FACTORY_READY, register("m-1", slipwayv1.MachineStatus_READY))
	require.Equal(t, slipwayv1.MachineStatus_READY, register("m-2", slipwayv1.MachineStatus_IN_SERVICE), "no more than a run or an operator may say it")
	require.Equal(t, slipwayv1.MachineStatus_READY, register("m-2", slipwayv1.MachineStatus_FACTORY_READY))
}

// TestListMachines_FindsEveryBanner: the filter finds what the machine shows, also where its run
// waits for an operator.
func TestListMachines_FindsEveryBanner(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, id := range []string{"m-quiet", "m-waits", "m-noted"} {
		w.register(id)
	}
	run := w.mustStart("m-waits", "a")
	w.project(run.GetRunId(), machinesdb.Step{Status: lifecycle.JobRunning})
	w.project(run.GetRunId(), machinesdb.Step{Status: lifecycle.JobFailedManual, Parked: lifecycle.FailWorkflowLost})
	_, err := w.store.DBTX().Exec(t.Context(), `UPDATE machines SET conditions = '[{"type": "NeedsIntervention", "status": true, "reason": "JobWaits", "last_transition": "2026-01-01T00:00:00Z"}]' WHERE id = 'm-noted'`)
	require.NoError(t, err)
	for filter, want := range map[string][]string{"NeedsIntervention=true": {"m-noted", "m-waits"}, "NeedsIntervention = false": {"m-quiet"}, "machine_id=m-noted": {"m-noted"}} {
		out, err := w.as("viewer").ListMachines(t.Context(), connect.NewRequest(&slipwayv1.ListMachinesRequest{Filter: filter}))
		require.NoError(t, err)
		var found []string
		for _, m := range out.Msg.GetMachines() {
			found = append(found, m.GetMachineId())
			require.Equal(t, filter == "NeedsIntervention=true" || m.GetMachineId() == "m-noted", len(m.GetStatus().GetBanners()) > 0, filter)
		}
		require.Equal(t, want, found, filter)
	}
}

// TestRun_ShowsWhatWasUndone: a step that succeeded stays SUCCEEDED when the run takes it back.
func TestRun_ShowsWhatWasUndone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.register("m-1")
	run := w.mustStart("m-1", "a")
	for _, s := range []lifecycle.StageState{lifecycle.StageRunning, lifecycle.StageSucceeded, lifecycle.StageCompensated} {
		status := lifecycle.JobRunning
		if s == lifecycle.StageCompensated {
			status = lifecycle.JobCompensating
		}
		w.project(run.GetRunId(), machinesdb.Step{Status: status, Current: "reboot", Stages: []lifecycle.StageRow{{Ordinal: 1, Name: "reboot", State: s, Attempts: 1}}})
	}
	out, err := w.as("viewer").GetRun(t.Context(), connect.NewRequest(&slipwayv1.GetRunRequest{RunId: run.GetRunId()}))
	require.NoError(t, err)
	step := out.Msg.GetSteps()[0]
	require.Equal(t, slipwayv1.StepStatus_SUCCEEDED, step.GetState())
	require.True(t, step.GetUndone())
}
