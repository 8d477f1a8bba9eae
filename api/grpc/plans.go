package grpc

import (
	"context"

	"connectrpc.com/connect"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/intent/machines"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	slipwayv1 "github.com/slipway-cloud/slipway/proto/gen/slipway/v1"
)

// planService serves the calls of plans.
type planService struct{ *server }

// GetPlan implements slipwayv1connect.PlanServiceHandler.
func (s planService) GetPlan(ctx context.Context, r *connect.Request[slipwayv1.GetPlanRequest]) (*connect.Response[slipwayv1.Plan], error) {
	id := r.Msg.GetPlanId()
	if !spec.ValidMachineID(id) {
		return nil, db.NotFound("plan " + id)
	}
	p, err := machines.FindPlanOf(ctx, s.store, callerOf(ctx).Project, id)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(planToProto(p)), nil
}

// ListPlans implements slipwayv1connect.PlanServiceHandler.
func (s planService) ListPlans(ctx context.Context, r *connect.Request[slipwayv1.ListPlansRequest]) (*connect.Response[slipwayv1.ListPlansResponse], error) {
	project := callerOf(ctx).Project
	read := func(after string, limit int) ([]*slipwayv1.Plan, bool, error) {
		plans, more, err := machines.ListPlans(ctx, s.store, project != "", after, limit)
		out := make([]*slipwayv1.Plan, 0, len(plans))
		for _, p := range plans {
			out = append(out, planToProto(p))
		}
		return out, more, err
	}
	out := &slipwayv1.ListPlansResponse{}
	var err error
	out.Plans, out.NextPageToken, err = listPageOrAll(r.Msg, listOf("plans", project, nil), read, (*slipwayv1.Plan).GetPlanId)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(out), nil
}

// CreatePlan implements slipwayv1connect.PlanServiceHandler.
func (s planService) CreatePlan(ctx context.Context, r *connect.Request[slipwayv1.CreatePlanRequest]) (*connect.Response[slipwayv1.Plan], error) {
	in := r.Msg.GetPlan()
	if in == nil {
		return nil, invalid("plan", "is missing")
	}
	if in.GetPlanId() == "" {
		in.PlanId = db.NewID("plan")
	}
	p, err := planFromProto(in)
	if err != nil {
		return nil, err
	}
	err = s.store.Tx(ctx, func(tx *db.Tx) (err error) {
		p, err = machines.CreatePlan(ctx, tx, p, r.Msg.GetValidateOnly(), op.ActorOf(ctx))
		return err
	})
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(planToProto(p)), nil
}
