package rest

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/workflows/contract"
)

func (s *Server) registerOnboardings() {
	tags := []string{"onboardings"}
	add(s, huma.Operation{
		OperationID: "create-onboarding", Method: http.MethodPost, Path: "/admin/onboardings", Tags: tags, Summary: "Onboard a bare server",
		Description:   "Accepts the intent and answers at once; the job shows how far it is. A node of this hostname that an earlier onboarding left quarantined is taken up again.",
		DefaultStatus: http.StatusAccepted,
	}, s.createOnboarding)
	add(s, huma.Operation{OperationID: "list-onboardings", Method: http.MethodGet, Path: "/admin/onboardings", Tags: tags, Summary: "List onboardings, newest first"}, s.listOnboardings)
	add(s, huma.Operation{OperationID: "get-onboarding", Method: http.MethodGet, Path: "/admin/onboardings/{id}", Tags: tags, Summary: "Read an onboarding with its stages"}, s.getOnboarding)
	add(s, huma.Operation{
		OperationID: "act-on-onboarding", Method: http.MethodPost, Path: "/admin/onboardings/{id}/actions/{action}", Tags: tags, Summary: "Act on an onboarding",
		Description: actionsDoc,
	}, s.actOnOnboarding)
}

func (s *Server) createOnboarding(ctx context.Context, in *struct {
	Key
	Body OnboardingRequest
}) (*Created[Job], error) {
	if _, err := in.required(); err != nil {
		return nil, err
	}
	a, err := s.check(ctx, in.Body, false, "body.")
	if err != nil {
		return nil, err
	}
	return idempotent(ctx, s, in.Key, in.Body, nil, func(tx *db.Tx) (*Created[Job], error) {
		job, node, err := s.accept(ctx, tx, a)
		if err != nil {
			return nil, err
		}
		return &Created[Job]{
			Status: http.StatusAccepted, Location: prefix + "/admin/onboardings/" + job.ID, ETag: etag(job.Version), Body: jobView(job, nil, node.Hostname),
		}, nil
	})
}

func (s *Server) listOnboardings(ctx context.Context, in *JobQuery) (*Listed[Job], error) {
	f := in.filter()
	f.Kind = string(contract.KindOnboarding)
	return s.jobs(ctx, in.Page, f)
}

func (s *Server) getOnboarding(ctx context.Context, in *JobPath) (*Versioned[Job], error) {
	return s.job(ctx, in.ID, contract.KindOnboarding)
}

func (s *Server) actOnOnboarding(ctx context.Context, in *actionInput) (*actionOutput, error) {
	return s.act(ctx, in, contract.KindOnboarding)
}
