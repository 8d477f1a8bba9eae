package grpc

import (
	"context"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/db"
	campaigndb "github.com/slipway-cloud/slipway/db/campaign"
	machinesdb "github.com/slipway-cloud/slipway/db/machines"
	"github.com/slipway-cloud/slipway/intent/campaign"
	"github.com/slipway-cloud/slipway/intent/machines"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	slipwayv1 "github.com/slipway-cloud/slipway/proto/gen/slipway/v1"
)

// campaignService serves the calls of campaigns.
type campaignService struct{ *server }

// CreateCampaign implements slipwayv1connect.CampaignServiceHandler.
func (s campaignService) CreateCampaign(ctx context.Context, r *connect.Request[slipwayv1.CreateCampaignRequest]) (*connect.Response[slipwayv1.Campaign], error) {
	in := r.Msg
	if in.GetPlanId() != "" && !spec.ValidMachineID(in.GetPlanId()) {
		return nil, db.NotFound("plan " + in.GetPlanId())
	}
	if len(in.GetSelectionHash()) > maxRunID {
		return nil, invalid("selection_hash", "is none of an answer to validate_only")
	}
	asked := campaign.Request{
		RequestID: in.GetRequestId(), Name: in.GetDisplayName(), Type: lifecycle.RunType(in.GetType()), PlanID: in.GetPlanId(), Filter: in.GetFilter(),
		MaxParallel: int(in.GetMaxParallel()), StopAfter: int(in.GetStopAfterFailures()), SkipCanary: in.GetSkipCanary(), AcceptRisk: in.GetAcceptRisk(),
		SelectionHash: in.GetSelectionHash(), Project: callerOf(ctx).Project, Offers: s.cfg.Offers, LogsIn: s.cfg.LogsIn,
	}
	if in.GetValidateOnly() {
		return s.preview(ctx, asked)
	}
	return s.change(ctx, func(tx *db.Tx) (campaigndb.Campaign, error) { return campaign.Create(ctx, tx, asked, op.ActorOf(ctx)) })
}

// preview returns the campaign that a request would create, as an answer.
func (s campaignService) preview(ctx context.Context, asked campaign.Request) (*connect.Response[slipwayv1.Campaign], error) {
	var selection campaign.Selection
	err := s.store.ReadTx(ctx, func(tx *db.Tx) (err error) {
		selection, err = campaign.Select(ctx, tx, asked)
		return err
	})
	if err != nil {
		return nil, err
	}
	out := &slipwayv1.Campaign{
		RequestId: asked.RequestID, DisplayName: asked.Name, Type: string(asked.Type), PlanId: selection.PlanID, Filter: asked.Filter, CustomerId: asked.Project,
		MaxParallel: int32(max(asked.MaxParallel, 1)), StopAfterFailures: int32(max(asked.StopAfter, 1)), //nolint:gosec // checked
		SkipCanary: asked.SkipCanary, AcceptRisk: asked.AcceptRisk, SelectionHash: selection.Hash, Counts: &slipwayv1.CampaignCounts{},
	}
	for _, m := range selection.Machines {
		one := &slipwayv1.CampaignMember{MachineId: m.MachineID, State: slipwayv1.CampaignMember_WAITING, Attempt: 1, Message: m.Busy}
		out.Counts.Waiting++
		if m.Refused != "" {
			one.State, one.Message = slipwayv1.CampaignMember_SKIPPED, m.Refused
			out.Counts.Waiting--
			out.Counts.Skipped++
		}
		out.Members = append(out.Members, one)
	}
	return connect.NewResponse(out), nil
}

// change runs fn in a transaction. It returns the campaign with its machines, as an answer.
func (s campaignService) change(ctx context.Context, fn func(*db.Tx) (campaigndb.Campaign, error)) (*connect.Response[slipwayv1.Campaign], error) {
	var out *slipwayv1.Campaign
	err := s.store.Tx(ctx, func(tx *db.Tx) error {
		c, err := fn(tx)
		if err == nil {
			out, err = whole(ctx, tx, c)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(out), nil
}

// whole returns a campaign with its machines as an answer.
func whole(ctx context.Context, c campaigndb.Conn, row campaigndb.Campaign) (*slipwayv1.Campaign, error) {
	members, err := campaigndb.Members(ctx, c, row.ID)
	counts := map[lifecycle.MemberState]int{}
	var shown []*slipwayv1.CampaignMember
	for _, m := range members {
		counts[m.Status]++
		one := &slipwayv1.CampaignMember{
			MachineId: m.MachineID, State: slipwayv1.CampaignMember_State(slipwayv1.CampaignMember_State_value[string(m.Status)]),
			Attempt: int32(m.Attempt), Message: m.Message, //nolint:gosec // small
		}
		if m.RunID != nil {
			one.RunId = *m.RunID
		}
		shown = append(shown, one)
	}
	out := campaignToProto(row, counts)
	out.Members = shown
	return out, err
}

// campaignToProto returns a campaign without its machines as an answer.
func campaignToProto(c campaigndb.Campaign, counts map[lifecycle.MemberState]int) *slipwayv1.Campaign {
	n := func(s lifecycle.MemberState) int32 { return int32(counts[s]) } //nolint:gosec // at most 500
	out := &slipwayv1.Campaign{
		CampaignId: c.ID, RequestId: c.RequestID, DisplayName: c.DisplayName, Type: string(c.Type), PlanId: c.PlanID, Filter: c.Filter,
		MaxParallel: int32(c.MaxParallel), StopAfterFailures: int32(c.StopAfter), SkipCanary: c.SkipCanary, AcceptRisk: c.AcceptRisk, //nolint:gosec // checked
		SelectionHash: c.SelectionHash, State: slipwayv1.Campaign_State(slipwayv1.Campaign_State_value[string(c.Status)]), Message: c.Message,
		Counts: &slipwayv1.CampaignCounts{
			Waiting: n(lifecycle.MemberWaiting), Running: n(lifecycle.MemberRunning), Succeeded: n(lifecycle.MemberSucceeded),
			Failed: n(lifecycle.MemberFailed), Canceled: n(lifecycle.MemberCanceled), Skipped: n(lifecycle.MemberSkipped),
		},
		CreatedAt: timestamppb.New(c.CreatedAt), UpdatedAt: timestamppb.New(c.UpdatedAt), FinishedAt: timeToProto(c.FinishedAt),
	}
	if c.ProjectID != nil {
		out.CustomerId = *c.ProjectID
	}
	return out
}

// checkCampaignID returns an error if a text is not the id of a campaign.
func checkCampaignID(id string) error {
	if len(id) > maxRunID || !strings.HasPrefix(id, machines.CampaignPrefix) || !spec.ValidMachineID(id) {
		return db.NotFound("campaign " + id)
	}
	return nil
}

// GetCampaign implements slipwayv1connect.CampaignServiceHandler.
func (s campaignService) GetCampaign(ctx context.Context, r *connect.Request[slipwayv1.GetCampaignRequest]) (*connect.Response[slipwayv1.Campaign], error) {
	if err := checkCampaignID(r.Msg.GetCampaignId()); err != nil {
		return nil, err
	}
	var row campaigndb.Campaign
	err := s.read(ctx, func(c machinesdb.Conn) (err error) {
		row, err = campaigndb.Get(ctx, c, r.Msg.GetCampaignId())
		return err
	})
	if err != nil {
		return nil, err
	}
	out, err := whole(ctx, s.store, row) // a caller that may see the campaign may see its machines
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(out), nil
}

// ListCampaigns implements slipwayv1connect.CampaignServiceHandler.
func (s campaignService) ListCampaigns(ctx context.Context, r *connect.Request[slipwayv1.ListCampaignsRequest]) (*connect.Response[slipwayv1.ListCampaignsResponse], error) {
	project := callerOf(ctx).Project
	list := listOf("campaigns", project, nil)
	after, limit, err := readPage(r.Msg.GetPageSize(), r.Msg.GetPageToken(), list)
	if err != nil {
		return nil, err
	}
	var rows []campaigndb.Campaign
	err = s.read(ctx, func(c machinesdb.Conn) (err error) {
		rows, err = campaigndb.List(ctx, c, project, after, limit+1)
		return err
	})
	if err != nil {
		return nil, err
	}
	rows, next, err := writePage(rows, limit, list, func(c campaigndb.Campaign) string { return c.ID })
	if err != nil {
		return nil, err
	}
	ids := make([]string, 0, len(rows))
	for _, c := range rows {
		ids = append(ids, c.ID)
	}
	counts, err := campaigndb.Counts(ctx, s.store, ids...)
	if err != nil {
		return nil, err
	}
	out := &slipwayv1.ListCampaignsResponse{NextPageToken: next}
	for _, c := range rows {
		out.Campaigns = append(out.Campaigns, campaignToProto(c, counts[c.ID]))
	}
	return connect.NewResponse(out), nil
}

// do makes a change of a campaign.
func (s campaignService) do(ctx context.Context, id, reason string, fn func(context.Context, *db.Tx, campaign.Change, db.Actor) (campaigndb.Campaign, error)) (*connect.Response[slipwayv1.Campaign], error) {
	if err := checkCampaignID(id); err != nil {
		return nil, err
	}
	c := campaign.Change{ID: id, Project: callerOf(ctx).Project, Reason: reason}
	return s.change(ctx, func(tx *db.Tx) (campaigndb.Campaign, error) { return fn(ctx, tx, c, op.ActorOf(ctx)) })
}

// PauseCampaign implements slipwayv1connect.CampaignServiceHandler.
func (s campaignService) PauseCampaign(ctx context.Context, r *connect.Request[slipwayv1.PauseCampaignRequest]) (*connect.Response[slipwayv1.Campaign], error) {
	return s.do(ctx, r.Msg.GetCampaignId(), r.Msg.GetReason(), campaign.Pause)
}

// ResumeCampaign implements slipwayv1connect.CampaignServiceHandler.
func (s campaignService) ResumeCampaign(ctx context.Context, r *connect.Request[slipwayv1.ResumeCampaignRequest]) (*connect.Response[slipwayv1.Campaign], error) {
	return s.do(ctx, r.Msg.GetCampaignId(), r.Msg.GetReason(), campaign.Resume)
}

// CancelCampaign implements slipwayv1connect.CampaignServiceHandler.
func (s campaignService) CancelCampaign(ctx context.Context, r *connect.Request[slipwayv1.CancelCampaignRequest]) (*connect.Response[slipwayv1.Campaign], error) {
	return s.do(ctx, r.Msg.GetCampaignId(), r.Msg.GetReason(), campaign.Cancel)
}

// RetryCampaign implements slipwayv1connect.CampaignServiceHandler.
func (s campaignService) RetryCampaign(ctx context.Context, r *connect.Request[slipwayv1.RetryCampaignRequest]) (*connect.Response[slipwayv1.Campaign], error) {
	return s.do(ctx, r.Msg.GetCampaignId(), r.Msg.GetReason(), func(ctx context.Context, tx *db.Tx, c campaign.Change, a db.Actor) (campaigndb.Campaign, error) {
		return campaign.Retry(ctx, tx, c, r.Msg.GetMachineIds(), a)
	})
}
