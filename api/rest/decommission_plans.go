package rest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/contract"
)

// foreseen is a plan with what it was made from.
type foreseen struct {
	node db.Node
	ask  contract.DecommissionInput
	plan contract.Plan
}

// foreseeNode refuses what the real request would be refused for, has the plan
// made, and keeps it for the one who comes back with its hash. No transaction is
// open meanwhile.
func (s *Server) foreseeNode(ctx context.Context, r DecommissionPlanRequest) (foreseen, error) {
	v := foreseen{}
	var err error
	mode := r.Mode
	if err := r.check(); err != nil {
		return v, err
	}
	if v.node, err = s.cfg.Store.Node(ctx, r.NodeID); err != nil {
		return v, err
	}
	if err := s.startable(ctx, v.node, mode); err != nil {
		return v, err
	}
	if v.ask, err = decommissionInput(ctx, s.cfg.Store, v.node, mode, v.node.Status); err != nil {
		return v, err
	}
	v.ask.GraceSeconds = r.GraceSeconds
	ask := contract.DecommissionPlanInput{
		Job: contract.JobInput{Kind: contract.DecommissionKind(mode), NodeID: v.node.ID, SiteID: v.node.SiteID}, Request: &v.ask,
	}
	if v.node.Lifecycle == lifecycle.NodePXE.Lifecycle {
		v.ask.Disks, v.ask.EraseOld = r.disks(), r.EraseOld
		plan, err := s.checkPlanned(ctx, r.Hardware, "body.hardware.")
		if err != nil {
			return v, err
		}
		if err := s.cfg.Store.ReadTx(ctx, func(tx *db.Tx) error {
			if err := s.pxeJobNeeds(ctx, tx, v.node, v.ask); err != nil {
				return err
			}
			return plan.takable(ctx, tx, v.node)
		}); err != nil {
			return v, err
		}
		ask.Hardware = plan.facts(v.ask.Disks)
	}
	if v.plan, err = s.foresee(ctx, contract.DecommissionPlanWorkflowID(ask), contract.DecommissionPlanWorkflow, ask); err != nil {
		return v, err
	}
	raw, err := json.Marshal(v.plan)
	if err != nil {
		return v, fmt.Errorf("keep the plan: %w", err)
	}
	return v, s.cfg.Store.KeepNodePlan(ctx, db.NodePlan{NodeID: v.node.ID, Hash: v.plan.Hash, Mode: string(mode), Plan: raw})
}

// startable refuses a mode that the node's state or a live job is in the way of,
// before anything outside is asked. The transaction judges again.
func (s *Server) startable(ctx context.Context, n db.Node, mode lifecycle.DecommissionMode) error {
	info, ok := lifecycle.DecommissionModeOf(mode)
	if !ok {
		return problem.NewInvalid(problem.Field{Location: "body.mode", Message: "is not a mode; docs/states/decommission.md lists them"})
	}
	if n.Lifecycle != info.Lifecycle && n.Lifecycle == lifecycle.NodeMAAS.Lifecycle {
		return problem.New(problem.ActionRefused, fmt.Sprintf("%s is for nodes that boot from the network; node %s is provisioned by MAAS: see slipway node decommission", mode, n.Hostname)).
			Allow(modeNames(allowedDecommissions(n, false)))
	}
	if n.Lifecycle != info.Lifecycle {
		return statesInstead(n, string(mode))
	}
	live, err := s.cfg.Store.LiveJobOfNode(ctx, n.ID)
	if err == nil {
		return problem.New(problem.LiveJob, fmt.Sprintf("job %s (%s) is %s and holds node %s; wait for it to end, or cancel it",
			live.ID, whatOf(live), live.Status, n.Hostname)).With(live.ID)
	}
	if !errors.Is(err, db.ErrNotFound) {
		return err
	}
	if slices.Contains(info.From, n.Status) {
		return nil
	}
	return problem.New(problem.ActionRefused, fmt.Sprintf("node %s is %s, and %s is for a node that is %s", n.Hostname, n.Status, mode, lifecycle.OneOf(info.From))).
		Allow(modeNames(allowedDecommissions(n, false)))
}

func modeNames(modes []lifecycle.DecommissionMode) []string {
	out := make([]string, 0, len(modes))
	for _, m := range modes {
		out = append(out, string(m))
	}
	return out
}

func allowedDecommissions(n db.Node, busy bool) []lifecycle.DecommissionMode {
	if n.Lifecycle != lifecycle.NodeMAAS.Lifecycle {
		return []lifecycle.DecommissionMode{}
	}
	return lifecycle.AllowedDecommissions(n.Status, busy)
}

// stalePlan says what is different now from the plan that was sent.
func (s *Server) stalePlan(ctx context.Context, v foreseen, sent string) error {
	p := problem.New(problem.PlanStale, "the plan is not true any more: it would do something else now; read the new plan, and start with its hash")
	p.PlanHash = v.plan.Hash
	old, err := s.cfg.Store.NodePlan(ctx, v.node.ID, sent)
	var before contract.Plan
	switch {
	case errors.Is(err, db.ErrNotFound):
		p.Detail = "No plan of this node with that hash is known, so it cannot be said what changed; read the new plan, and start with its hash."
		return p
	case err != nil:
		return err
	case old.Mode != string(v.ask.Mode):
		p.Detail = fmt.Sprintf("That plan is for mode %s, not %s; read the new plan, and start with its hash.", old.Mode, v.ask.Mode)
		return p
	}
	if err := json.Unmarshal(old.Plan, &before); err != nil {
		return fmt.Errorf("read the kept plan: %w", err)
	}
	p.Errors = planChanges(before, v.plan)
	return p
}

// planChanges lists the stages that would do something else.
func planChanges(before, now contract.Plan) []problem.Field {
	rows := func(p contract.Plan) map[string]string {
		out := map[string]string{}
		for _, r := range p.Rows {
			text := string(r.Planned)
			if r.Failure != nil {
				text += " (" + string(r.Failure.Class) + ")"
			}
			if len(r.Steps) > 0 {
				text += ": " + strings.Join(r.Steps, "; ")
			}
			out[r.Stage] = text
		}
		return out
	}
	old, fresh := rows(before), rows(now)
	var out []problem.Field
	changed := func(stage string) {
		if old[stage] != fresh[stage] {
			out = append(out, problem.Field{Location: "plan." + stage, Message: fmt.Sprintf("was %s; now %s", orAbsent(old[stage]), orAbsent(fresh[stage]))})
		}
	}
	for _, r := range now.Rows {
		changed(r.Stage)
	}
	for _, r := range before.Rows {
		if _, still := fresh[r.Stage]; !still {
			changed(r.Stage)
		}
	}
	return out
}

func orAbsent(text string) string {
	if text == "" {
		return "not in the plan"
	}
	return text
}

// DecommissionPlanRequest is a request that is only looked at.
type DecommissionPlanRequest struct {
	NodeID       string                     `json:"node_id" required:"true" doc:"node_..."`
	Mode         lifecycle.DecommissionMode `json:"mode" required:"true" enum:"soft_reset,reimage,full_decommission,storage_cleanup,drain,retire,remove,deprovision,migrate"`
	GraceSeconds int                        `json:"grace_seconds,omitempty" minimum:"0" maximum:"86400"`
	Disks        string                     `json:"disks,omitempty" enum:"new,moved" doc:"With migrate: whether the new hardware brings its own (as when absent)"`
	EraseOld     bool                       `json:"erase_old,omitempty" doc:"With migrate: the old hardware is erased first"`
	Hardware     *HardwareRequest           `json:"hardware,omitempty" doc:"With migrate: the hardware that the request would name at once"`
}

// check refuses fields that do not go with the mode.
func (r DecommissionPlanRequest) check() error {
	var bad []problem.Field
	if r.Mode != lifecycle.ModeMigrate && r.Disks != "" {
		bad = append(bad, problem.Field{Location: "body.disks", Message: "is for the mode migrate only; leave it out"})
	}
	if r.Mode != lifecycle.ModeMigrate && r.Hardware != nil {
		bad = append(bad, problem.Field{Location: "body.hardware", Message: "is for the mode migrate only; leave it out"})
	}
	switch {
	case r.Mode != lifecycle.ModeMigrate && r.EraseOld:
		bad = append(bad, problem.Field{Location: "body.erase_old", Message: "is for the mode migrate only; leave it out"})
	case r.Disks == db.DisksMoved && r.EraseOld:
		bad = append(bad, problem.Field{Location: "body.erase_old", Message: erasesMoved})
	}
	if len(bad) > 0 {
		return problem.NewInvalid(bad...)
	}
	return nil
}

func (r DecommissionPlanRequest) disks() string {
	if r.Mode == lifecycle.ModeMigrate && r.Disks == "" {
		return db.DisksNew
	}
	return r.Disks
}

func (s *Server) planNewDecommission(ctx context.Context, in *struct{ Body DecommissionPlanRequest }) (*struct{ Body Plan }, error) {
	v, err := s.foreseeNode(ctx, in.Body)
	if err != nil {
		return nil, err
	}
	return &struct{ Body Plan }{planView(v.plan)}, nil
}

func (s *Server) planDecommission(ctx context.Context, in *JobPath) (*struct{ Body Plan }, error) {
	job, err := jobOf(ctx, s.cfg.Store, in.ID, contract.KindDecommission)
	if err != nil {
		return nil, err
	}
	return s.planOfNodeJob(ctx, job)
}

// planOfNodeJob says what a decommission or a node operation would do now.
func (s *Server) planOfNodeJob(ctx context.Context, job db.Job) (*struct{ Body Plan }, error) {
	if lifecycle.Job.Terminal(job.Status) || job.Status == lifecycle.JobCompensating {
		return s.endedPlan(ctx, job)
	}
	ask := contract.DecommissionPlanInput{
		Job: contract.JobInput{JobID: job.ID, Kind: contract.JobKind(job.Kind), NodeID: text(job.NodeID), SiteID: text(job.SiteID)},
	}
	p, err := s.foresee(ctx, contract.DecommissionPlanWorkflowID(ask), contract.DecommissionPlanWorkflow, ask)
	if err != nil {
		return nil, err
	}
	return &struct{ Body Plan }{planView(p)}, nil
}
