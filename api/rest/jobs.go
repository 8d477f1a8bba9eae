package rest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// Job is a staged job as an operator sees it. A list leaves out the
// stages.
type Job struct {
	ID                 string                 `json:"id"`
	Kind               string                 `json:"kind"`
	Mode               string                 `json:"mode,omitempty" doc:"Of a decommission or a node operation (docs/states/decommission.md)"`
	Status             lifecycle.JobStatus    `json:"status" doc:"A state of docs/states/job.md, or failed for a job that ended because of a failure: it is undone as a cancelled one, and has a failure_class"`
	NeedsHuman         bool                   `json:"needs_human" doc:"The job waits for an action"`
	NodeID             string                 `json:"node_id,omitempty"`
	Hostname           string                 `json:"hostname,omitempty"`
	SiteID             string                 `json:"site_id,omitempty"`
	ProfileID          string                 `json:"profile_id,omitempty"`
	BatchID            string                 `json:"batch_id,omitempty"`
	BMCID              string                 `json:"bmc_id,omitempty" doc:"Of a job about a BMC"`
	ResourceKind       string                 `json:"resource_kind,omitempty" doc:"Of a job about something else than a node or a BMC, such as allocation"`
	ResourceID         string                 `json:"resource_id,omitempty"`
	Stage              string                 `json:"stage,omitempty" doc:"The current stage"`
	Stages             []Stage                `json:"stages,omitempty"`
	Attempt            int                    `json:"attempt" doc:"Tries of the current stage"`
	ProgressPercent    int                    `json:"progress_percent" doc:"0 in failure and terminal failure states"`
	ReachedPercent     int                    `json:"reached_percent" doc:"How far it got"`
	ETA                *lifecycle.Estimate    `json:"eta,omitempty" doc:"Working time to the end, from past jobs; absent when the job has ended"`
	FailureClass       lifecycle.FailureClass `json:"failure_class,omitempty"`
	FailedStage        string                 `json:"failed_stage,omitempty"`
	Message            string                 `json:"message,omitempty"`
	RecommendedAction  lifecycle.Action       `json:"recommended_action,omitempty"`
	NextStep           string                 `json:"next_step,omitempty" doc:"What to do, in a sentence"`
	Runbook            string                 `json:"runbook,omitempty" doc:"The page of the failure class"`
	AllowedActions     []lifecycle.Action     `json:"allowed_actions" nullable:"false" doc:"The actions that are allowed now"`
	WaitingOutside     bool                   `json:"waiting_outside"`
	Frozen             bool                   `json:"frozen"`
	Observed           *lifecycle.Observed    `json:"observed,omitempty" doc:"MAAS, power and agent as last seen"`
	StageDeadline      *time.Time             `json:"stage_deadline,omitempty"`
	TemporalWorkflowID string                 `json:"temporal_workflow_id"`
	TemporalRunID      string                 `json:"temporal_run_id,omitempty"`
	CreatedBy          string                 `json:"created_by,omitempty"`
	CreatedAt          time.Time              `json:"created_at"`
	StartedAt          *time.Time             `json:"started_at,omitempty"`
	FinishedAt         *time.Time             `json:"finished_at,omitempty"`
	UpdatedAt          time.Time              `json:"updated_at"`
	Version            int64                  `json:"version"`
}

// Stage is one stage of a job.
type Stage struct {
	Ordinal    int                  `json:"ordinal"`
	Name       string               `json:"name"`
	State      lifecycle.StageState `json:"state" doc:"pending, running, succeeded, failed, skipped, adopted or compensated"`
	Attempts   int                  `json:"attempts"`
	StartedAt  *time.Time           `json:"started_at,omitempty"`
	FinishedAt *time.Time           `json:"finished_at,omitempty"`
	Message    string               `json:"message,omitempty"`

	FailureClass lifecycle.FailureClass `json:"failure_class,omitempty" doc:"Of the last try, where it failed"`
}

// shownFacts are what a job's row says of it while its workflow runs.
func shownFacts(j db.Job) lifecycle.JobFacts {
	f := facts(j)
	f.WorkflowLost = false
	return f
}

// jobView shows a job; stages is nil for a list.
func (s *server) jobView(j db.Job, stages []Stage, hostname string, subject contract.SubjectFacts) Job {
	in := inputOf(j)
	out := Job{
		ID: j.ID, Kind: j.Kind, Mode: in.Mode, Status: lifecycle.ShownStatus(j.Status, j.FailureClass), NeedsHuman: j.Status.Parked(), NodeID: text(j.NodeID), Hostname: hostname, SiteID: text(j.SiteID),
		ProfileID: text(j.ProfileID), BatchID: text(j.BatchID), BMCID: text(j.BMCID), ResourceKind: j.ResourceKind, ResourceID: j.ResourceID,
		Stage: j.Stage, Stages: stages, Attempt: j.Attempt, ProgressPercent: j.ProgressPercent,
		ReachedPercent: j.ReachedPercent, FailureClass: j.FailureClass, FailedStage: j.FailedStage, Message: j.Message, NextStep: j.NextStep,
		RecommendedAction: j.RecommendedAction, AllowedActions: allowedActions(j, subject),
		WaitingOutside: j.WaitingOutside, Frozen: j.Frozen, Observed: j.Observed, StageDeadline: utc(j.StageDeadlineAt), TemporalWorkflowID: j.WorkflowID,
		TemporalRunID: j.RunID, CreatedBy: j.CreatedBy, CreatedAt: j.CreatedAt.UTC(), StartedAt: utc(j.StartedAt), FinishedAt: utc(j.FinishedAt),
		UpdatedAt: j.UpdatedAt.UTC(), Version: j.Version,
	}
	if hostname == "" {
		out.Hostname = in.Hostname
	}
	if !slices.Contains(out.AllowedActions, out.RecommendedAction) {
		out.RecommendedAction = ""
	}
	if j.FailureClass != "" {
		out.Runbook = s.api.DocURL(lifecycle.Failure(j.FailureClass).Runbook())
	}
	return out
}

func withETA(view Job, eta map[string]lifecycle.Estimate) Job {
	if e, ok := eta[view.ID]; ok {
		view.ETA = &e
	}
	return view
}

// jobInput is the part of a job's input that several kinds have.
type jobInput struct{ Hostname, Mode string }

func inputOf(j db.Job) jobInput {
	var in jobInput
	if json.Unmarshal(j.Input, &in) != nil {
		return jobInput{}
	}
	return in
}

// stagesOf are the stages that a job will have.
func stagesOf(j db.Job) []string {
	if mode, ok := lifecycle.DecommissionModeOf(lifecycle.DecommissionMode(inputOf(j).Mode)); ok {
		return mode.Stages
	}
	return contract.Stages(contract.JobKind(j.Kind))
}

// stageList shows the stages as projected; before the first projection those
// that the job will have.
func stageList(j db.Job, rows []lifecycle.StageRow) []Stage {
	out := []Stage{}
	for _, r := range rows {
		r.StartedAt, r.FinishedAt = utc(r.StartedAt), utc(r.FinishedAt)
		out = append(out, Stage(r))
	}
	if len(out) == 0 {
		for i, name := range stagesOf(j) {
			out = append(out, Stage{Ordinal: i + 1, Name: name, State: lifecycle.StagePending})
		}
	}
	return out
}

// acceptedJob answers 202 with a new job. at is where its kind is, below op.Prefix.
func (s *server) acceptedJob(at string, j db.Job, hostname string) *op.Created[Job] {
	return &op.Created[Job]{Status: http.StatusAccepted, Location: op.Prefix + at + j.ID, ETag: op.ETag(j.Version), Body: s.jobView(j, nil, hostname, contract.SubjectFacts{})}
}

// JobPath is the path of one.
type JobPath struct {
	ID string `path:"id" maxLength:"200" doc:"job_..."`
}

// JobQuery narrows a list of jobs.
type JobQuery struct {
	op.Page
	Status  string `query:"status" maxLength:"200" doc:"A state of docs/states/job.md, or failed; cancelled leaves out those that failed"`
	NodeID  string `query:"node_id" maxLength:"200"`
	SiteID  string `query:"site_id" maxLength:"200"`
	BatchID string `query:"batch_id" maxLength:"200"`
	BMCID   string `query:"bmc_id" maxLength:"200"`
	Needs   string `query:"needs_human" enum:"true,false" doc:"Only jobs that wait for an operator, or only the others"`
}

func (q JobQuery) filter() db.JobFilter {
	f := db.JobFilter{Status: q.Status, NodeID: q.NodeID, SiteID: q.SiteID, BatchID: q.BatchID, BMCID: q.BMCID}
	if q.Needs != "" {
		needs := q.Needs == "true"
		f.NeedsHuman = &needs
	}
	return f
}

func (s *server) registerJobs() {
	tags := []string{"jobs"}
	op.Add(s.api, huma.Operation{OperationID: "list-jobs", Method: http.MethodGet, Path: "/admin/jobs", Tags: tags, Summary: "List jobs of every kind, newest first",
		Description: "Jobs of payments are so many that they are listed only while they wait for an operator; kind=payment_reconcile lists them all."}, s.listJobs)
	s.registerJob("job", "a job of any kind", "")
	s.registerActionLogs(tags)
}

// registerJob registers the routes that read one job and act on it. A kind has them under its own
// name too; "" is any kind.
func (s *server) registerJob(name, one string, kind contract.JobKind) {
	tags, at := []string{name + "s"}, "/admin/"+name+"s/{id}"
	op.Add(s.api, huma.Operation{OperationID: "get-" + name, Method: http.MethodGet, Path: at, Tags: tags, Summary: "Read " + one + " with its stages"},
		func(ctx context.Context, in *JobPath) (*op.Versioned[Job], error) { return s.job(ctx, in.ID, kind) })
	op.Add(s.api, huma.Operation{
		OperationID: "act-on-" + name, Method: http.MethodPost, Path: at + "/actions/{action}", Tags: tags, Summary: "Act on " + one, Description: actionsDoc,
	}, func(ctx context.Context, in *actionInput) (*actionOutput, error) { return s.act(ctx, in, kind) })
}

// registerJobsOf registers the routes of jobs under the name of one kind. article is that of the
// name.
func (s *server) registerJobsOf(kind contract.JobKind, article, listDoc string) {
	name := string(kind)
	op.Add(s.api, huma.Operation{
		OperationID: "list-" + name + "s", Method: http.MethodGet, Path: "/admin/" + name + "s", Tags: []string{name + "s"}, Summary: "List " + name + "s, newest first", Description: listDoc,
	}, func(ctx context.Context, in *JobQuery) (*op.Listed[Job], error) {
		f := in.filter()
		f.Kind = name
		return s.jobs(ctx, in.Page, f)
	})
	s.registerJob(name, article+" "+name, kind)
}

func (s *server) listJobs(ctx context.Context, in *struct {
	JobQuery
	IDs  []string `query:"ids,explode" maxItems:"200" itemMaxLength:"200" nullable:"false" doc:"Only these jobs; may be repeated"`
	Kind string   `query:"kind" maxLength:"200"`
}) (*op.Listed[Job], error) {
	if in.Kind != "" && !slices.Contains(contract.JobKinds(), contract.JobKind(in.Kind)) {
		return nil, problem.NewInvalid(problem.Field{Location: "query.kind", Message: "is not a kind of job; there are " + kindsOfJob()})
	}
	f := in.filter()
	f.Kind, f.IDs = in.Kind, in.IDs
	if f.Kind == "" && len(f.IDs) == 0 && f.BatchID == "" {
		f.RoutineKinds = contract.RoutineKinds()
	}
	return s.jobs(ctx, in.Page, f)
}

// kindsOfJob lists the kinds of jobs for people.
func kindsOfJob() string {
	names := make([]string, 0, len(contract.JobKinds()))
	for _, k := range contract.JobKinds() {
		names = append(names, string(k))
	}
	return strings.Join(names, ", ")
}

func (s *server) jobs(ctx context.Context, p op.Page, f db.JobFilter) (*op.Listed[Job], error) {
	after, err := p.After()
	if err != nil {
		return nil, err
	}
	if status := lifecycle.JobStatus(f.Status); f.Status != "" && status != lifecycle.JobGaveUp && !lifecycle.Job.Has(status) {
		return nil, problem.NewInvalid(problem.Field{Location: "query.status", Message: "is not a state of a job, or failed; docs/states lists them"})
	}
	rows, err := s.store.ListJobs(ctx, f, after, p.Limit+1)
	if err != nil {
		return nil, err
	}
	eta, err := s.eta.Estimates(ctx, s.store, rows)
	if err != nil {
		return nil, err
	}
	subjects, err := subjectsOf(ctx, s.store, rows)
	if err != nil {
		return nil, err
	}
	return op.Paged(rows, p.Limit, func(j db.Job) string { return j.ID }, func(j db.Job) Job { return withETA(s.jobView(j, nil, "", subjects[j.ID]), eta) }), nil
}

// job reads one job and its stages on one snapshot; a job of another kind is not
// found. "" is any kind.
func (s *server) job(ctx context.Context, id string, kind contract.JobKind) (*op.Versioned[Job], error) {
	var view Job
	err := s.store.ReadTx(ctx, func(tx *db.Tx) error {
		j, err := jobOf(ctx, tx, id, kind)
		if err != nil {
			return err
		}
		rows, err := tx.JobStages(ctx, id)
		if err != nil {
			return err
		}
		eta, err := s.eta.Estimates(ctx, tx, []db.Job{j})
		if err != nil {
			return err
		}
		subject, err := subjectOf(ctx, tx, j)
		if err != nil {
			return err
		}
		view = withETA(s.jobView(j, stageList(j, rows), "", subject), eta)
		return addUndelivered(ctx, tx, &view)
	})
	if err != nil {
		return nil, err
	}
	return op.WithVersion(view.Version, view), nil
}

// addUndelivered says of a job at work that its task lies with an agent that is
// silent, which no projection tells: its workflow only waits.
func addUndelivered(ctx context.Context, tx *db.Tx, view *Job) error {
	if view.Status != lifecycle.JobRunning && view.Status != lifecycle.JobCompensating {
		return nil
	}
	now, err := tx.Clock(ctx)
	if err != nil {
		return err
	}
	tasks, err := tx.UndeliveredTasks(ctx, view.ID, now)
	if err != nil || len(tasks) == 0 {
		return err
	}
	view.WaitingOutside = true
	view.Message = strings.TrimPrefix(view.Message+"; "+tasks[0].Words(now), "; ")
	return nil
}

func jobOf(ctx context.Context, read interface {
	Job(ctx context.Context, id string) (db.Job, error)
}, id string, kind contract.JobKind) (db.Job, error) {
	j, err := read.Job(ctx, id)
	if err == nil && kind != "" && j.Kind != string(kind) {
		return db.Job{}, fmt.Errorf("%s %s: %w", kind, id, db.ErrNotFound)
	}
	return j, err
}
