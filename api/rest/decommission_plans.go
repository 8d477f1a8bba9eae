package rest

import (
	"context"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/intent/decommission"
	"github.com/slipway-cloud/slipway/intent/pxejob"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// DecommissionPlanRequest is a request that is only looked at.
type DecommissionPlanRequest struct {
	NodeID       string                     `json:"node_id" maxLength:"100" required:"true" doc:"node_..."`
	Mode         lifecycle.DecommissionMode `json:"mode" required:"true" enum:"soft_reset,reimage,full_decommission,storage_cleanup,drain,retire,remove,deprovision,migrate"`
	GraceSeconds int                        `json:"grace_seconds,omitempty" minimum:"0" maximum:"86400"`
	Disks        string                     `json:"disks,omitempty" enum:"new,moved,same" doc:"With migrate: whether the new hardware brings its own (as when absent), or the node keeps its hardware"`
	EraseOld     bool                       `json:"erase_old,omitempty" doc:"With migrate: the old hardware is erased first"`
	Hardware     *HardwareRequest           `json:"hardware,omitempty" doc:"With migrate: the hardware that the request would name at once"`
}

// planOfRequest refuses what the real request would be refused for, has the plan made, and keeps it
// for the start with its hash. No transaction is open meanwhile.
func (s *server) planOfRequest(ctx context.Context, r DecommissionPlanRequest) (decommission.Checked, contract.Plan, error) {
	checked, err := pxejob.CheckMode(ctx, s.store,
		decommission.Request{NodeID: r.NodeID, Mode: r.Mode, GraceSeconds: r.GraceSeconds},
		pxejob.Options{Disks: r.Disks, EraseOld: r.EraseOld, Hardware: r.Hardware.hardware()})
	if err != nil {
		return checked, contract.Plan{}, err
	}
	ask := checked.PlanInput()
	plan, err := s.runPlan(ctx, contract.DecommissionPlanWorkflowID(ask), contract.DecommissionPlanWorkflow, ask)
	if err != nil {
		return checked, plan, err
	}
	return checked, plan, decommission.KeepPlan(ctx, s.store, checked, plan)
}

func (s *server) planNewDecommission(ctx context.Context, in *struct{ Body DecommissionPlanRequest }) (*struct{ Body Plan }, error) {
	_, plan, err := s.planOfRequest(ctx, in.Body)
	if err != nil {
		return nil, err
	}
	return &struct{ Body Plan }{planView(plan)}, nil
}

func (s *server) planDecommission(ctx context.Context, in *JobPath) (*struct{ Body Plan }, error) {
	job, err := jobOf(ctx, s.store, in.ID, contract.KindDecommission)
	if err != nil {
		return nil, err
	}
	return s.planOf(ctx, job, false)
}
