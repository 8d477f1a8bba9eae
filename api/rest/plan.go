package rest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/intent/onboarding"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// Plan is what a job would do, given what is observed now.
type Plan struct {
	Kind       contract.JobKind    `json:"kind"`
	JobID      string              `json:"job_id,omitempty" doc:"Absent in a dry run"`
	NodeID     string              `json:"node_id,omitempty" doc:"Absent where no node has the hostname yet"`
	SiteID     string              `json:"site_id,omitempty"`
	Hostname   string              `json:"hostname,omitempty"`
	Status     lifecycle.JobStatus `json:"status,omitempty" doc:"The job's state; absent in a dry run"`
	Summary    string              `json:"summary" doc:"How far the job would get, in a sentence"`
	NeedsHuman bool                `json:"needs_human" doc:"The job would park, or is parked"`
	Rows       []contract.PlanRow  `json:"rows" nullable:"false" doc:"One a stage, in order; would is skip, already_done, run, wait, cannot or unknown"`
	Observed   *lifecycle.Observed `json:"observed,omitempty"`
	ObservedAt time.Time           `json:"observed_at"`
	// Drives are those that the job expects.
	Drives         []contract.PlanDrive `json:"drives,omitempty" doc:"Of a job that erases drives: those that the node is expected to have. A drive besides parks the job, one that is not there fails it"`
	DrivesFrom     string               `json:"drives_from,omitempty" doc:"Who named them: maas_commissioning, boot_report, agent_report or accepted"`
	ProtectSerials []string             `json:"protect_serials,omitempty" doc:"Drives that are not erased, by serial number or WWN, from the node's label protect-serials, its profile and its SKU"`
	PlanHash       string               `json:"plan_hash" doc:"SHA-256 over what decides; two plans of one hash would do the same"`
}

func planView(p contract.Plan) Plan {
	out := Plan{
		Kind: p.Kind, JobID: p.Subject.JobID, NodeID: p.Subject.NodeID, SiteID: p.Subject.SiteID, Hostname: p.Subject.Hostname, Status: p.Status,
		Summary: p.Summary, NeedsHuman: p.NeedsHuman, Rows: p.Rows, Observed: p.Observed, ObservedAt: p.ObservedAt.UTC(), PlanHash: p.Hash,
		Drives: p.Drives, DrivesFrom: p.DrivesFrom, ProtectSerials: p.ProtectSerials,
	}
	if out.Rows == nil {
		out.Rows = []contract.PlanRow{}
	}
	return out
}

// PlanQuery says how far a plan may look.
type PlanQuery struct {
	Login bool `query:"login" doc:"Allow one login to the BMC, which tells serial and MAC addresses. A login that is rejected stops further logins, as in a run"`
}

// may keeps those who may only read from touching a BMC.
func (q PlanQuery) may(ctx context.Context) error {
	if q.Login && !op.PrincipalOf(ctx).May(op.RoleOperator) {
		return problem.New(problem.Forbidden, "login=true logs in to the BMC and needs role operator; leave it out, or ask an operator")
	}
	return nil
}

const planDoc = "The stages look with the very code that a run uses and change nothing: no machine, no BMC, no record. " +
	"It answers within twenty seconds; a region or BMC that does not answer shows in its row."

func (s *server) registerPlans() {
	tags := []string{"onboardings"}
	op.Add(s.api, huma.Operation{
		OperationID: "plan-onboarding", Method: http.MethodGet, Path: "/admin/onboardings/{id}/plan", Tags: tags, Summary: "Say what an onboarding would do now",
		Description: "Stages that the job has behind it are shown as done. " + planDoc,
	}, s.planOnboarding)
	op.Add(s.api, huma.Operation{
		OperationID: "plan-new-onboarding", Method: http.MethodPost, Path: "/admin/onboardings/plan", Tags: tags, Summary: "Say what an onboarding would do, without starting it",
		Description: "Takes the body of create-onboarding and refuses what that would refuse. " + planDoc, DefaultStatus: http.StatusOK,
	}, s.planNewOnboarding)
	op.Add(s.api, huma.Operation{
		OperationID: "plan-job", Method: http.MethodGet, Path: "/admin/jobs/{id}/plan", Tags: []string{"jobs"}, Summary: "Say what a job would do now",
		Description: "Of onboardings, decommissions, node operations, and the provision and release of allocations. Stages that the job has behind it are shown as done. " + planDoc,
	}, s.planJob)
}

func (s *server) planOnboarding(ctx context.Context, in *struct {
	JobPath
	PlanQuery
}) (*struct{ Body Plan }, error) {
	if err := in.may(ctx); err != nil {
		return nil, err
	}
	job, err := jobOf(ctx, s.store, in.ID, contract.KindOnboarding)
	if err != nil {
		return nil, err
	}
	return s.planOf(ctx, job, in.Login)
}

func (s *server) planJob(ctx context.Context, in *struct {
	JobPath
	PlanQuery
}) (*struct{ Body Plan }, error) {
	if err := in.may(ctx); err != nil {
		return nil, err
	}
	job, err := s.store.Job(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	return s.planOf(ctx, job, in.Login)
}

// planOf says what a job would do now.
func (s *server) planOf(ctx context.Context, job db.Job, login bool) (*struct{ Body Plan }, error) {
	row, _ := contract.KindOf(contract.JobKind(job.Kind))
	if row.Plan == nil {
		return nil, problem.New(problem.Conflict, fmt.Sprintf("there are no plans of jobs of kind %s; its stages say what it does", job.Kind))
	}
	if lifecycle.Job.Terminal(job.Status) || job.Status == lifecycle.JobCompensating {
		return s.endedPlan(ctx, job)
	}
	workflow, id, ask := row.Plan(contract.PlanRequest{Login: login, Actor: planActor(ctx, login), Job: contract.JobInput{
		JobID: job.ID, Kind: row.Kind, NodeID: text(job.NodeID), SiteID: text(job.SiteID), ResourceID: job.ResourceID,
	}})
	p, err := s.runPlan(ctx, id, workflow, ask)
	if err != nil {
		return nil, err
	}
	return &struct{ Body Plan }{planView(p)}, nil
}

// planActor returns who asks for a plan with a login, for the audit log. Plans without one are the
// same for everybody.
func planActor(ctx context.Context, login bool) string {
	if !login {
		return ""
	}
	return op.Actor(ctx).ID
}

// endedPlan needs no worker: there is nothing to observe.
func (s *server) endedPlan(ctx context.Context, job db.Job) (*struct{ Body Plan }, error) {
	rows, err := s.store.JobStages(ctx, job.ID)
	if err != nil {
		return nil, err
	}
	var stages []lifecycle.StageRow
	for _, r := range stageList(job, rows) {
		stages = append(stages, lifecycle.StageRow(r))
	}
	subject := contract.PlanSubject{JobID: job.ID, NodeID: text(job.NodeID), SiteID: text(job.SiteID), Hostname: s.jobView(job, nil, "", contract.SubjectFacts{}).Hostname}
	p := contract.EndedPlan(contract.JobKind(job.Kind), subject, job.Status, stages, time.Now())
	return &struct{ Body Plan }{planView(p)}, nil
}

func (s *server) planNewOnboarding(ctx context.Context, in *struct {
	PlanQuery
	Body OnboardingRequest
}) (*struct{ Body Plan }, error) {
	checked, err := onboarding.Check(ctx, s.store, in.Body.intent())
	if err != nil {
		return nil, err
	}
	ask, err := s.rehearse(ctx, checked)
	if err != nil {
		return nil, err
	}
	ask.Login, ask.Actor = in.Login, planActor(ctx, in.Login)
	return s.plan(ctx, ask)
}

// errUndo ends a rehearsal.
var errUndo = errors.New("a rehearsal is undone")

// rehearse accepts the request and undoes it in the same transaction: a dry run
// is refused by what would refuse the real request, and leaves nothing behind.
// Ids that only the undone transaction knew are left out.
func (s *server) rehearse(ctx context.Context, a onboarding.Checked) (contract.PlanInput, error) {
	var out contract.PlanInput
	err := s.store.Tx(ctx, func(tx *db.Tx) error {
		var known db.BMC
		node, err := tx.LiveNodeOfHost(ctx, a.SiteID, a.Hostname)
		if err == nil {
			known, err = tx.BMCOfNode(ctx, node.ID)
		}
		if err != nil && !errors.Is(err, db.ErrNotFound) {
			return err
		}
		job, _, err := onboarding.Accept(ctx, tx, a, op.Actor(ctx))
		if err != nil {
			return err
		}
		var in contract.OnboardingInput
		if err := json.Unmarshal(job.Input, &in); err != nil {
			return fmt.Errorf("read the rehearsed request: %w", err)
		}
		b, err := tx.BMC(ctx, in.BMCID)
		if err != nil {
			return err
		}
		b.ID, b.NodeID, b.Version, b.CreatedAt, b.UpdatedAt = known.ID, nil, 0, time.Time{}, time.Time{}
		raw, err := json.Marshal(b)
		in.BMCID = known.ID
		out = contract.PlanInput{
			Kind: contract.KindOnboarding, Job: contract.JobInput{Kind: contract.KindOnboarding, NodeID: node.ID, SiteID: a.SiteID}, Request: &in, BMC: raw,
		}
		if err != nil {
			return fmt.Errorf("write the rehearsed BMC: %w", err)
		}
		return errUndo
	})
	if !errors.Is(err, errUndo) {
		return out, err
	}
	return out, nil
}
