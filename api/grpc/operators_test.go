package grpc_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/grpc"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/intent/campaign"
	"github.com/slipway-cloud/slipway/lifecycle"
	slipwayv1 "github.com/slipway-cloud/slipway/proto/gen/slipway/v1"
)

const ticket = "ticket 4711"

// because adds the reason of an operator to a request.
func because[T any](m *T) *connect.Request[T] {
	r := connect.NewRequest(m)
	r.Header().Set("Slipway-Reason", ticket)
	return r
}

// projectLog returns the rows of a project's audit log as "name triggered_by comment", oldest
// first.
func (w *world) projectLog(project string) (out []string) {
	w.t.Helper()
	rows, err := w.store.DBTX().Query(w.t.Context(),
		"SELECT name || ' ' || triggered_by || ' ' || coalesce(comment, '') FROM audit_log WHERE resource_kind = 'project' AND resource_id = $1 AND kind = 'action' ORDER BY seq", project)
	require.NoError(w.t, err)
	defer rows.Close()
	for rows.Next() {
		var row string
		require.NoError(w.t, rows.Scan(&row))
		out = append(out, row)
	}
	require.NoError(w.t, rows.Err())
	return out
}

func (w *world) queryText(sql string, args ...any) (out string) {
	w.t.Helper()
	require.NoError(w.t, w.store.DBTX().QueryRow(w.t.Context(), sql, args...).Scan(&out))
	return out
}

// ownMachine registers a machine of a project.
func (w *world) ownMachine(id, project string) {
	w.t.Helper()
	_, err := w.as("operator").RegisterMachine(w.t.Context(), connect.NewRequest(&slipwayv1.RegisterMachineRequest{
		Machine: &slipwayv1.Machine{MachineId: id, CustomerId: project, Labels: map[string]string{"env": "prod"}, Spec: &slipwayv1.MachineSpec{Provider: "fake"}},
	}))
	require.NoError(w.t, err)
}

// TestOperators_InAProject has an operator act in a customer's project: each call is in the
// project's audit log with the reason, and what it starts is booked as an operator's.
func TestOperators_InAProject(t *testing.T) {
	t.Parallel()
	var reasons []string
	w := newWorld(t)
	w = newWorldServing(t, w.store, nil, 50*time.Millisecond, func(c *grpc.Config) {
		c.AskJob = func(ctx context.Context, id string, a lifecycle.Action, reason string) error {
			reasons = append(reasons, reason)
			return w.cancelUnstarted(ctx, id, a, reason)
		}
	})
	p := dbtest.Project(t, w.store)
	w.ownMachine("m-1", p.ID)
	c := w.with(w.tokens["operator"], p.ID)
	start := &slipwayv1.StartRunRequest{RequestId: "a", MachineId: "m-1", Type: "REBOOT"}
	_, err := c.StartRun(t.Context(), connect.NewRequest(start))
	require.Equal(t, connect.CodeInvalidArgument, connect.CodeOf(err))
	require.Empty(t, w.projectLog(p.ID))

	run, err := c.StartRun(t.Context(), because(start))
	require.NoError(t, err)
	require.Equal(t, []string{"operator_access admin " + ticket, "start_run admin " + ticket}, w.projectLog(p.ID))
	require.Equal(t, "admin "+ticket, w.queryText("SELECT triggered_by || ' ' || comment FROM audit_log WHERE resource_kind = 'run' AND resource_id = $1 AND seq = 1", run.Msg.GetRunId()))
	require.Equal(t, "POST /slipway.v1.RunService/StartRun", w.queryText("SELECT metadata->>'call' FROM audit_log WHERE resource_kind = 'project' AND resource_id = $1 AND name = 'operator_access'", p.ID))

	stream, err := c.WatchRuns(t.Context(), because(&slipwayv1.WatchRunsRequest{}))
	require.NoError(t, err)
	require.True(t, stream.Receive())
	<-time.After(300 * time.Millisecond) // the stream asks again for the access
	require.NoError(t, stream.Close())
	require.Len(t, w.projectLog(p.ID), 3, "a stream is one access")

	_, err = c.CancelRun(t.Context(), because(&slipwayv1.CancelRunRequest{RunId: run.Msg.GetRunId()}))
	require.NoError(t, err)
	require.Equal(t, []string{ticket}, reasons)
	require.Equal(t, "cancel_run admin "+ticket, w.projectLog(p.ID)[4])

	_, err = c.GetRun(t.Context(), because(&slipwayv1.GetRunRequest{RunId: "run_none"}))
	require.Equal(t, connect.CodeNotFound, connect.CodeOf(err))
	require.Equal(t, "operator_access admin "+ticket, w.projectLog(p.ID)[5], "the access is audited although the call failed")
	_, err = w.with(w.tokens["operator"], "prj_00000000-0000-7000-8000-000000000000").ListRuns(t.Context(), because(&slipwayv1.ListRunsRequest{}))
	require.Equal(t, connect.CodeNotFound, connect.CodeOf(err), "no such project")
}

// TestCampaigns_AreBookedAsTheirFounders has an operator, and a member, create a campaign for a
// project: its runs are booked as theirs.
func TestCampaigns_AreBookedAsTheirFounders(t *testing.T) {
	t.Parallel()
	for _, owner := range []string{"admin", "customer"} {
		t.Run(owner, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			p := dbtest.Project(t, w.store)
			w.ownMachine("m-1", p.ID)
			c := w.with(w.tokens["operator"], p.ID)
			if owner == "customer" {
				c = w.with(w.projectToken(p.ID), "")
			}
			made, err := c.CreateCampaign(t.Context(), because(&slipwayv1.CreateCampaignRequest{RequestId: "a", Type: "REBOOT", Filter: "phase!=RETIRED"}))
			require.NoError(t, err)
			require.NoError(t, w.store.Tx(t.Context(), func(tx *db.Tx) error {
				due, _, err := campaign.Begin(t.Context(), tx, time.Second)
				if err != nil {
					return err
				}
				require.Len(t, due, 1)
				_, err = campaign.StartMember(t.Context(), tx, due[0], fakeOffers, nil)
				return err
			}))
			run := w.queryText("SELECT run_id FROM run_campaign_members WHERE campaign_id = $1", made.Msg.GetCampaignId())
			require.Equal(t, owner, w.queryText("SELECT triggered_by FROM audit_log WHERE resource_kind = 'run' AND resource_id = $1 AND seq = 1", run))
			_, err = c.PauseCampaign(t.Context(), because(&slipwayv1.PauseCampaignRequest{CampaignId: made.Msg.GetCampaignId()}))
			require.NoError(t, err)
			log := strings.Join(w.projectLog(p.ID), "\n")
			for _, row := range []string{"create_campaign ", "start_run ", "pause_campaign "} {
				require.Contains(t, log, row+owner)
			}
			if owner == "admin" {
				require.Equal(t, ticket, w.queryText("SELECT comment FROM audit_log WHERE resource_kind = 'run_campaign' AND resource_id = $1 AND name = 'pause'", made.Msg.GetCampaignId()))
			}
		})
	}
}

// TestCustomers_RestartIsAudited has a member start and cancel a run: his project's audit log has
// both, and a repeated request adds no row.
func TestCustomers_RestartIsAudited(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := dbtest.Project(t, w.store)
	w.ownMachine("m-1", p.ID)
	c := w.with(w.projectToken(p.ID), "")
	var run *connect.Response[slipwayv1.Run]
	for range 2 {
		var err error
		run, err = c.StartRun(t.Context(), connect.NewRequest(&slipwayv1.StartRunRequest{RequestId: "a", MachineId: "m-1", Type: "REBOOT"}))
		require.NoError(t, err)
	}
	_, err := c.CancelRun(t.Context(), connect.NewRequest(&slipwayv1.CancelRunRequest{RunId: run.Msg.GetRunId()}))
	require.NoError(t, err)
	require.Equal(t, []string{"start_run customer ", "cancel_run customer the run was cancelled"}, w.projectLog(p.ID))
	require.Equal(t, run.Msg.GetRunId()+" m-1 REBOOT", w.queryText(
		"SELECT concat_ws(' ', metadata->>'run', metadata->>'machine', metadata->>'type') FROM audit_log WHERE resource_kind = 'project' AND resource_id = $1 AND name = 'start_run'", p.ID))
}

// TestCancelRun_IsAuditedWithTheJob: nothing can be written any more as soon as the job has taken a
// cancellation, as if the API had died. The project's audit log has it all the same.
func TestCancelRun_IsAuditedWithTheJob(t *testing.T) {
	t.Parallel()
	dsn := dbtest.FreshDatabase(t)
	owner := dbtest.Owner(t, dsn)
	var w *world
	w = newWorldServing(t, dbtest.Open(t, dsn), nil, time.Second, func(c *grpc.Config) {
		c.AskJob = func(ctx context.Context, id string, a lifecycle.Action, reason string) error {
			if err := w.cancelUnstarted(ctx, id, a, reason); err != nil {
				return err
			}
			_, err := owner.Exec(ctx, "ALTER TABLE audit_log ADD CONSTRAINT no_more CHECK (name <> 'cancel_run') NOT VALID")
			return err
		}
	})
	p := dbtest.Project(t, w.store)
	w.ownMachine("m-1", p.ID)
	c := w.with(w.projectToken(p.ID), "")
	run, err := c.StartRun(t.Context(), connect.NewRequest(&slipwayv1.StartRunRequest{RequestId: "a", MachineId: "m-1", Type: "REBOOT"}))
	require.NoError(t, err)
	_, err = c.CancelRun(t.Context(), connect.NewRequest(&slipwayv1.CancelRunRequest{RunId: run.Msg.GetRunId()}))
	require.NoError(t, err)
	require.Equal(t, []string{"start_run customer ", "cancel_run customer the run was cancelled"}, w.projectLog(p.ID))
}
