package grpc_test

import (
	"testing"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/intent/machines"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/runplan"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	slipwayv1 "github.com/slipway-cloud/slipway/proto/gen/slipway/v1"
)

// TestCampaigns_StayInTheirProject has a member create a campaign: it selects the machines of the
// project alone, and members of other projects neither see nor change it.
func TestCampaigns_StayInTheirProject(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ours, other := dbtest.Project(t, w.store).ID, dbtest.Project(t, w.store).ID
	admin := db.Actor{Owner: lifecycle.OwnerAdmin, ID: "token:test"}
	require.NoError(t, w.store.Tx(t.Context(), func(tx *db.Tx) error {
		for id, project := range map[string]string{"o-1": ours, "x-1": other, "y-1": ""} {
			in := machines.Registration{ID: id, ProjectID: project, Labels: map[string]string{"env": "prod"}, Spec: spec.MachineSpec{Provider: "fake"}}
			if _, err := machines.Register(t.Context(), tx, in, admin); err != nil {
				return err
			}
		}
		_, err := machines.CreatePlan(t.Context(), tx, runplan.Plan{
			ID: "theirs", StartableBy: runplan.StartableByCustomer, Steps: []runplan.Step{{Name: "a", Reboot: &runplan.Reboot{Mode: runplan.RebootBMC}}},
		}, false, admin)
		return err
	}))
	mine, theirs := w.with(w.projectToken(ours), ""), w.with(w.projectToken(other), "")
	in := &slipwayv1.CreateCampaignRequest{RequestId: "a", Type: "REBOOT", PlanId: "theirs", Filter: "labels.env=prod", ValidateOnly: true}
	shown, err := mine.CreateCampaign(t.Context(), connect.NewRequest(in))
	require.NoError(t, err)
	require.Len(t, shown.Msg.GetMembers(), 1)
	require.Equal(t, "o-1", shown.Msg.GetMembers()[0].GetMachineId())
	in.ValidateOnly, in.SelectionHash = false, shown.Msg.GetSelectionHash()
	made, err := mine.CreateCampaign(t.Context(), connect.NewRequest(in))
	require.NoError(t, err)
	require.Equal(t, ours, made.Msg.GetCustomerId())
	id := made.Msg.GetCampaignId()
	got, err := mine.GetCampaign(t.Context(), connect.NewRequest(&slipwayv1.GetCampaignRequest{CampaignId: id}))
	require.NoError(t, err)
	require.Len(t, got.Msg.GetMembers(), 1)

	_, err = theirs.GetCampaign(t.Context(), connect.NewRequest(&slipwayv1.GetCampaignRequest{CampaignId: id}))
	require.Equal(t, connect.CodeNotFound, connect.CodeOf(err))
	_, err = theirs.PauseCampaign(t.Context(), connect.NewRequest(&slipwayv1.PauseCampaignRequest{CampaignId: id}))
	require.Equal(t, connect.CodeNotFound, connect.CodeOf(err))
	_, err = theirs.RetryCampaign(t.Context(), connect.NewRequest(&slipwayv1.RetryCampaignRequest{CampaignId: id}))
	require.Equal(t, connect.CodeNotFound, connect.CodeOf(err))
	list, err := theirs.ListCampaigns(t.Context(), connect.NewRequest(&slipwayv1.ListCampaignsRequest{}))
	require.NoError(t, err)
	require.Empty(t, list.Msg.GetCampaigns())
	in.SelectionHash, in.RequestId, in.AcceptRisk = "", "b", true
	_, err = mine.CreateCampaign(t.Context(), connect.NewRequest(in))
	require.Equal(t, connect.CodeInvalidArgument, connect.CodeOf(err))
	in.AcceptRisk, in.Filter = false, ""
	_, err = mine.CreateCampaign(t.Context(), connect.NewRequest(in))
	require.Equal(t, connect.CodeInvalidArgument, connect.CodeOf(err))
	require.Contains(t, err.Error(), "filter is required")
	in.Filter, in.SelectionHash = "labels.env=prod", "00"
	_, err = mine.CreateCampaign(t.Context(), connect.NewRequest(in))
	require.ErrorContains(t, err, "selects other machines now")

	list, err = w.as("viewer").ListCampaigns(t.Context(), connect.NewRequest(&slipwayv1.ListCampaignsRequest{}))
	require.NoError(t, err)
	require.Len(t, list.Msg.GetCampaigns(), 1)
	require.EqualValues(t, 1, list.Msg.GetCampaigns()[0].GetCounts().GetWaiting())
	_, err = w.as("viewer").CancelCampaign(t.Context(), connect.NewRequest(&slipwayv1.CancelCampaignRequest{CampaignId: id}))
	require.Equal(t, connect.CodePermissionDenied, connect.CodeOf(err))
	ended, err := w.as("operator").CancelCampaign(t.Context(), connect.NewRequest(&slipwayv1.CancelCampaignRequest{CampaignId: id, Reason: "a test"}))
	require.NoError(t, err)
	require.Equal(t, slipwayv1.Campaign_CANCELED, ended.Msg.GetState())
	_, err = w.as("operator").ResumeCampaign(t.Context(), connect.NewRequest(&slipwayv1.ResumeCampaignRequest{CampaignId: id}))
	require.Equal(t, connect.CodeFailedPrecondition, connect.CodeOf(err))
}
