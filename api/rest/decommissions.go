package rest

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/intent/decommission"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// DecommissionRequest asks for a node to be cleaned, deployed again or taken out
// of service, as a plan said.
type DecommissionRequest struct {
	NodeID       string                     `json:"node_id" maxLength:"100" required:"true" doc:"node_..."`
	Mode         lifecycle.DecommissionMode `json:"mode" required:"true" enum:"soft_reset,reimage,full_decommission,storage_cleanup"`
	PlanHash     string                     `json:"plan_hash,omitempty" maxLength:"64" doc:"plan_hash of POST /admin/decommissions/plan with the same node, mode and grace_seconds"`
	Reason       string                     `json:"reason,omitempty" maxLength:"2000" doc:"Why; it stands in the history"`
	GraceSeconds int                        `json:"grace_seconds,omitempty" minimum:"0" maximum:"86400" doc:"How long what runs on the node may take to end"`
}

func (s *server) registerDecommissions() {
	tags := []string{"decommissions"}
	op.Add(s.api, huma.Operation{
		OperationID: "create-decommission", Method: http.MethodPost, Path: "/admin/decommissions", Tags: tags, Summary: "Take a node out of service, or clean it",
		Description: "Started with the hash of a plan. The plan is made again; when it says something else now, nothing is started and the answer is 412 with the new plan_hash and what changed. " +
			"Otherwise the job is created and the node moved in one transaction. Without plan_hash the answer is 428. Mode full_decommission cannot be undone and needs role admin. " +
			"docs/states/decommission.md says which mode does what.",
		DefaultStatus: http.StatusAccepted,
	}, s.createDecommission)
	op.Add(s.api, huma.Operation{
		OperationID: "plan-new-decommission", Method: http.MethodPost, Path: "/admin/decommissions/plan", Tags: tags, Summary: "Say what a decommission would do, without starting it",
		Description:   "Refuses what create-decommission would refuse. It takes the node operations too, which need no hash: drain, retire and remove, started by the node's actions, and deprovision and migrate of PXE nodes, started by their state. " + planDoc,
		DefaultStatus: http.StatusOK,
	}, s.planNewDecommission)
	s.registerJobsOf(contract.KindDecommission, "a", "Node operations (drain, retire, remove) are jobs of kind node_operation: see list-jobs.")
	op.Add(s.api, huma.Operation{
		OperationID: "plan-decommission", Method: http.MethodGet, Path: "/admin/decommissions/{id}/plan", Tags: tags, Summary: "Say what a decommission would do now",
		Description: "Stages that the job has behind it are shown as done. " + planDoc,
	}, s.planDecommission)
}

// mayDecommission keeps what cannot be undone to those who may.
func mayDecommission(ctx context.Context, mode lifecycle.DecommissionMode) error {
	if mode == lifecycle.ModeFull && !op.PrincipalOf(ctx).May(op.RoleAdmin) {
		return problem.New(problem.Forbidden, "full_decommission cannot be undone and needs role admin; ask an admin, or choose another mode")
	}
	return nil
}

func (s *server) createDecommission(ctx context.Context, in *struct {
	op.Key
	Body DecommissionRequest
}) (*op.Created[Job], error) {
	key, err := in.Required()
	if err != nil {
		return nil, err
	}
	if err := mayDecommission(ctx, in.Body.Mode); err != nil {
		return nil, err
	}
	if first, err := op.ReplayIfRecorded[Job](ctx, s.api, key, in.Body); first != nil || err != nil {
		return first, err
	}
	if err := decommission.RequirePlan(in.Body.PlanHash); err != nil {
		return nil, err
	}
	checked, plan, err := s.planOfRequest(ctx, DecommissionPlanRequest{NodeID: in.Body.NodeID, Mode: in.Body.Mode, GraceSeconds: in.Body.GraceSeconds})
	if err != nil {
		return nil, err
	}
	if err := decommission.CheckPlan(ctx, s.store, checked, plan, in.Body.PlanHash); err != nil {
		return nil, err
	}
	return op.Create(ctx, s.api, in.Key, in.Body, nil, func(tx *db.Tx) (*op.Created[Job], error) {
		job, node, err := decommission.Accept(ctx, tx, checked, plan, in.Body.Reason, op.Actor(ctx))
		if err != nil {
			return nil, err
		}
		return s.acceptedJob("/admin/decommissions/", job, node.Hostname), nil
	})
}
