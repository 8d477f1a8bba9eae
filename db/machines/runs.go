package machinesdb

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/machines/gen"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/runplan"
)

// NewRun is a run that is accepted. Plan is the plan as the run carries it out.
type NewRun struct {
	ID, JobID  string
	Machine    Machine
	RequestID  string
	Type       lifecycle.RunType
	Plan       runplan.Plan
	AcceptRisk bool
	RetryOf    string // the failed run that an operator starts this one for, "" for none
	Actor      db.Actor
}

// CreateRun writes a run in its first phase with its audit row and its event. It returns a
// *db.ConflictError when a run is active on the machine, or when the request has made one.
func CreateRun(ctx context.Context, tx *db.Tx, in NewRun) (Run, error) {
	st, err := in.Actor.Stamp(nil)
	if err != nil {
		return Run{}, err
	}
	_, err = queries(tx).InsertRun(ctx, gen.InsertRunParams{
		ID: in.ID, MachineID: in.Machine.ID, ProjectID: in.Machine.ProjectID, RequestID: in.RequestID, Type: in.Type, PlanID: in.Plan.ID, Steps: in.Plan.Steps,
		Status: lifecycle.Run.Initial[0], AcceptRisk: in.AcceptRisk, JobID: in.JobID, CreatedBy: in.Actor.ID, RetryOf: db.OrNil(in.RetryOf), AuditID: st.AuditID, TriggeredBy: st.TriggeredBy,
		Owner: st.Owner, ActorID: st.ActorID, Comment: st.Comment, Metadata: st.Metadata, WorkflowID: st.WorkflowID,
	})
	if err != nil {
		return Run{}, db.MapError(whatRun(in.ID), err)
	}
	return tell(ctx, tx, in.ID)
}

// GetRun returns one run, or db.ErrNotFound.
func GetRun(ctx context.Context, c Conn, id string) (Run, error) {
	r, err := queries(c).Run(ctx, id)
	return r, db.MapError(whatRun(id), err)
}

// FindRunOfJob returns the run that a job carries out, or db.ErrNotFound.
func FindRunOfJob(ctx context.Context, c Conn, jobID string) (Run, error) {
	r, err := queries(c).RunOfJob(ctx, jobID)
	return r, db.MapError("run of job "+jobID, err)
}

// FindRunOfRequest returns the run that a request has started on a machine, or db.ErrNotFound.
func FindRunOfRequest(ctx context.Context, c Conn, machineID, requestID string) (Run, error) {
	r, err := queries(c).RunOfRequest(ctx, gen.RunOfRequestParams{MachineID: machineID, RequestID: requestID})
	return r, db.MapError("run of the request", err)
}

// LastRun returns the id of the newest run of a machine, or db.ErrNotFound.
func LastRun(ctx context.Context, c Conn, machineID string) (string, error) {
	id, err := queries(c).LastRun(ctx, machineID)
	return id, db.MapError("runs of "+what(machineID), err)
}

// ListRuns returns runs, the newest first. Of their steps they have the names alone. active leaves
// out those that have ended.
func ListRuns(ctx context.Context, c Conn, p Page, active bool) ([]Run, error) {
	fields, negated, wanted := p.terms()
	rows, err := queries(c).ListRuns(ctx, gen.ListRunsParams{
		Before: p.After, ProjectID: p.Project, Active: active, Fields: fields, Negated: negated, Wanted: wanted, MaxRows: int32(p.Limit), //nolint:gosec // at most 1001
	})
	out := make([]Run, 0, len(rows))
	for _, r := range rows {
		run := Run{
			ID: r.ID, MachineID: r.MachineID, ProjectID: r.ProjectID, RequestID: r.RequestID, Type: r.Type, PlanID: r.PlanID, Stages: r.Stages,
			CurrentStep: r.CurrentStep, Status: r.Status, NeedsIntervention: r.NeedsIntervention, JobID: r.JobID, FailureClass: r.FailureClass,
			Message: r.Message, Version: r.Version, CreatedAt: r.CreatedAt, StartedAt: r.StartedAt, FinishedAt: r.FinishedAt, RetryOf: r.RetryOf,
		}
		for _, name := range r.StepNames {
			run.Steps = append(run.Steps, runplan.Step{Name: name})
		}
		out = append(out, run)
	}
	return out, db.MapError("list runs", err)
}

// LockForJob locks the machine and the run of a job, in this order, before the job is locked.
func LockForJob(ctx context.Context, tx *db.Tx, jobID string) (Machine, Run, error) {
	r, err := FindRunOfJob(ctx, tx, jobID)
	if err != nil {
		return Machine{}, Run{}, err
	}
	m, err := Lock(ctx, tx, r.MachineID)
	if err == nil {
		r, err = queries(tx).LockRun(ctx, r.ID)
	}
	return m, r, db.MapError(whatRun(r.ID), err)
}

// Step is what a projection of a job says of its run.
type Step struct {
	Status lifecycle.JobStatus
	// Parked says why the job is parked. Failed is the failure of a step that ended the run.
	Parked, Failed lifecycle.FailureClass
	Message        string // of Failed
	Current        string
	Stages         []lifecycle.StageRow
	Actor          db.Actor
}

// Project brings a run up to its job: steps, phase, and with a run that ends the phase of its
// machine. Both are locked. Each call appends an event with the run. A run that has ended stays as
// it is.
func Project(ctx context.Context, tx *db.Tx, m Machine, r Run, s Step) error {
	if lifecycle.Run.Terminal(r.Status) {
		return nil
	}
	if s.Stages == nil { // of a job that ended before it began
		s.Stages = r.Stages
	}
	class := s.Parked
	if s.Status == lifecycle.JobCancelled { // before that the clean-up goes on, and may park for a reason of its own
		class = s.Failed
	}
	s.Stages = lifecycle.KeepOutcomes(r.Stages, s.Stages)
	phase := lifecycle.RunPhaseOf(s.Status, class)
	needs := lifecycle.RunNeedsIntervention(s.Status, s.Parked)
	for i := range s.Stages {
		s.Stages[i].Message = db.ClipText(s.Stages[i].Message, db.MaxMessage)
	}
	if phase == r.Status {
		_, err := queries(tx).ProjectRun(ctx, gen.ProjectRunParams{ID: r.ID, Stages: s.Stages, CurrentStep: s.Current, NeedsIntervention: needs})
		if err == nil {
			_, err = tell(ctx, tx, r.ID)
		}
		return db.MapError(whatRun(r.ID), err)
	}
	t, err := lifecycle.Run.Between(r.Status, phase)
	if err != nil {
		return err
	}
	p := gen.MoveRunParams{
		ID: r.ID, FromState: string(r.Status), ToState: string(phase), Version: r.Version, Terminal: lifecycle.Run.Terminal(phase), NeedsIntervention: needs,
		Stages: s.Stages, CurrentStep: s.Current, Name: t.Name,
	}
	if phase == lifecycle.RunFailed {
		p.FailureClass, p.Message = s.Failed, db.ClipText(s.Message, db.MaxMessage)
	}
	err = db.CommitTransition(lifecycle.Run, t, r.Status, nil, s.Actor, func(st db.AuditStamp) error {
		p.AuditID, p.TriggeredBy, p.Owner, p.ActorID, p.Comment, p.Metadata, p.WorkflowID = st.AuditID, st.TriggeredBy, st.Owner, st.ActorID, st.Comment, st.Metadata, st.WorkflowID
		_, err := queries(tx).MoveRun(ctx, p)
		return db.MapError(whatRun(r.ID), err)
	})
	if err != nil {
		return err
	}
	if err := endOnMachine(ctx, tx, m, r, phase, s.Actor); err != nil {
		return err
	}
	_, err = tell(ctx, tx, r.ID)
	return err
}

// endOnMachine moves the machine of a run that has ended.
func endOnMachine(ctx context.Context, tx *db.Tx, m Machine, r Run, phase lifecycle.RunPhase, a db.Actor) error {
	verified := runplan.Plan{Steps: r.Steps}.Verifies()
	t, ended := lifecycle.MachinePhaseAfterRun(r.Type, phase, m.PhaseBefore, verified)
	if !ended {
		return nil
	}
	a.Comment = fmt.Sprintf("run %s: %s", r.ID, phase)
	_, err := MoveTo(ctx, tx, m, t, nil, "", a)
	return err
}

// EventType is the type of the events of runs.
const EventType = "run.changed"

// View is a run as it is shown: without the parameters of its steps. It is the payload of events.
type View struct {
	ID         string               `json:"run_id"`
	MachineID  string               `json:"machine_id"`
	ProjectID  string               `json:"project_id,omitempty"`
	RequestID  string               `json:"request_id"`
	Type       lifecycle.RunType    `json:"type"`
	PlanID     string               `json:"plan_id"`
	Phase      lifecycle.RunPhase   `json:"phase"`
	Current    string               `json:"current_step,omitempty"`
	Steps      []lifecycle.StageRow `json:"steps"`
	Message    string               `json:"message,omitempty"`
	Version    int64                `json:"version"`
	CreatedAt  time.Time            `json:"created_at"`
	StartedAt  *time.Time           `json:"started_at,omitempty"`
	FinishedAt *time.Time           `json:"finished_at,omitempty"`
	RetryOf    string               `json:"retry_of,omitempty"`
}

// ViewOf returns a run as it is shown. A step that no projection has named waits.
func ViewOf(r Run) View {
	v := View{
		ID: r.ID, MachineID: r.MachineID, RequestID: r.RequestID, Type: r.Type, PlanID: r.PlanID, Phase: r.Status, Current: r.CurrentStep, Message: r.Message,
		Version: r.Version, CreatedAt: r.CreatedAt, StartedAt: r.StartedAt, FinishedAt: r.FinishedAt, Steps: []lifecycle.StageRow{},
	}
	if r.ProjectID != nil {
		v.ProjectID = *r.ProjectID
	}
	if r.RetryOf != nil {
		v.RetryOf = *r.RetryOf
	}
	for i, s := range r.Steps {
		row := lifecycle.StageRow{Ordinal: i + 1, Name: s.Name, State: lifecycle.StagePending}
		if i < len(r.Stages) {
			row = r.Stages[i]
		}
		v.Steps = append(v.Steps, row)
	}
	if r.NeedsIntervention {
		v.Message = "the run waits for an operator: look at its job " + r.JobID
	}
	return v
}

// Value returns the field of a run that a filter names.
func (v View) Value(field string) string {
	switch field {
	case "run_id":
		return v.ID
	case "machine_id":
		return v.MachineID
	case "phase":
		return string(v.Phase)
	case "type":
		return string(v.Type)
	}
	return v.PlanID
}

// tell appends the event of a change of a run, with the run after it, and returns that.
func tell(ctx context.Context, tx *db.Tx, id string) (Run, error) {
	r, err := GetRun(ctx, tx, id)
	if err != nil {
		return Run{}, err
	}
	payload, err := json.Marshal(ViewOf(r))
	if err != nil {
		return Run{}, fmt.Errorf("event of run %s: %w", id, err)
	}
	return r, tx.AppendEvent(ctx, db.Event{ResourceKind: RunResource, ResourceID: id, Type: EventType, Payload: payload})
}

// pruneRuns bounds one statement that deletes runs: each is looked for in every table that names
// one.
const pruneRuns = 100

// PruneRuns deletes a batch of runs that ended before a time, with their steps, and returns how
// many there were. It keeps the newest run of each machine, what is evidence of a tenant on it, and
// runs that a campaign, a retry, a cluster's token or a live job names. The output of a run goes
// first, by PruneLogs.
func PruneRuns(ctx context.Context, c Conn, before time.Time) (int64, error) {
	n, err := queries(c).PruneRuns(ctx, gen.PruneRunsParams{Before: before, MaxRows: pruneRuns})
	return n, db.MapError("prune runs", err)
}
