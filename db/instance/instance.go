// Package instancedb stores instances, what is at their providers and belongs to none, and how each
// look at a provider went. It is a package below db. Locks are taken in this order: instance, job.
package instancedb

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/instance/gen"
	"github.com/slipway-cloud/slipway/db/record"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// The rows.
type (
	Instance = gen.Instance
	Orphan   = gen.InstanceOrphan
	Step     = gen.ListHistoryRow
	Action   = gen.ActionLog
)

// Resource is the kind of instances in the audit log, in events and of jobs.
const Resource = "instance"

const maxCreatedBy = 300

func queries(c db.Conn) *gen.Queries { return gen.New(c.DBTX()) }

var what = db.Named("instance")

// New is an accepted instance.
type New struct {
	ID, JobID    string
	ProjectID    string
	Name         string
	Provider     string
	Account      string // of the provider
	Zone, Type   string
	Image, Model string
	DrainSeconds int
	CreatedBy    string
	Actor        db.Actor
}

// Create writes an instance in its first state with its audit row and its event. It returns a
// *db.ConflictError when a live instance of the project has its name.
func Create(ctx context.Context, tx *db.Tx, in New) (Instance, error) {
	st, err := in.Actor.Stamp(nil)
	if err != nil {
		return Instance{}, err
	}
	_, err = queries(tx).InsertInstance(ctx, gen.InsertInstanceParams{
		ID: in.ID, ProjectID: in.ProjectID, Name: in.Name, Provider: in.Provider, Account: in.Account, Zone: in.Zone, Type: in.Type, Image: in.Image, Model: in.Model,
		Status: lifecycle.Instance.Initial[0], JobID: in.JobID, DrainSeconds: in.DrainSeconds, CreatedBy: db.ClipText(in.CreatedBy, maxCreatedBy),
		AuditID: st.AuditID, TriggeredBy: st.TriggeredBy, Owner: st.Owner, ActorID: st.ActorID, Comment: st.Comment, Metadata: st.Metadata,
		WorkflowID: st.WorkflowID,
	})
	if err != nil {
		return Instance{}, db.MapError(what(in.ID), err)
	}
	return tell(ctx, tx, in.ID, lifecycle.Instance.Initial[0].EventType())
}

// Get returns one instance, or db.ErrNotFound.
func Get(ctx context.Context, c db.Conn, id string) (Instance, error) {
	i, err := queries(c).Instance(ctx, id)
	return i, db.MapError(what(id), err)
}

// Lock returns one instance and keeps others from changing it until the transaction ends.
func Lock(ctx context.Context, tx *db.Tx, id string) (Instance, error) {
	i, err := queries(tx).LockInstance(ctx, id)
	return i, db.MapError(what(id), err)
}

// Filter narrows a list; empty fields match all.
type Filter struct {
	ProjectID string
	Status    lifecycle.InstanceStatus
	Archived  bool // archived ones too
}

// List returns instances, the newest first, from the one after the id given.
func List(ctx context.Context, c db.Conn, f Filter, after string, limit int) ([]Instance, error) {
	rows, err := queries(c).ListInstances(ctx, gen.ListInstancesParams{
		After: after, ProjectID: f.ProjectID, Status: string(f.Status), Archived: f.Archived, MaxRows: db.PageLimit(limit),
	})
	return rows, db.MapError("list instances", err)
}

// Own is an instance as the members of its project see it.
type Own = gen.InstanceOfCustomerRow

// OwnOf returns what the members of its project see of an instance.
func OwnOf(i Instance) Own {
	return Own{
		ID: i.ID, ProjectID: i.ProjectID, Name: i.Name, Provider: i.Provider, Zone: i.Zone, Type: i.Type, Model: i.Model, Status: i.Status,
		ProgressPercent: i.ProgressPercent, ErrorCode: i.ErrorCode, Version: i.Version, CreatedAt: i.CreatedAt, ReadyAt: i.ReadyAt, TerminatedAt: i.TerminatedAt,
	}
}

// GetOwn returns one instance of the project of the transaction, or db.ErrNotFound.
func GetOwn(ctx context.Context, tx *db.ProjectTx, id string) (Own, error) {
	i, err := gen.New(tx.DBTX()).InstanceOfCustomer(ctx, id)
	return i, db.MapError(what(id), err)
}

// ListOwn returns a page of the instances of the project of the transaction, the newest first.
func ListOwn(ctx context.Context, tx *db.ProjectTx, after string, limit int) ([]Own, error) {
	rows, err := gen.New(tx.DBTX()).ListInstancesOfCustomer(ctx, gen.ListInstancesOfCustomerParams{After: after, MaxRows: db.PageLimit(limit)})
	out := make([]Own, 0, len(rows))
	for _, r := range rows {
		out = append(out, Own(r))
	}
	return out, db.MapError("list instances", err)
}

// ListLiveOf returns instances of a project that may have something at a provider, at most 500.
func ListLiveOf(ctx context.Context, c db.Conn, projectID string) ([]Instance, error) {
	rows, err := queries(c).ListLiveInstancesOfProject(ctx, gen.ListLiveInstancesOfProjectParams{ProjectID: projectID, MaxRows: maxLiveOf})
	return rows, db.MapError("list live instances of project "+projectID, err)
}

const maxLiveOf = 500

// ListLive returns instances that may have something at a provider, by id, from the one after the
// id given.
func ListLive(ctx context.Context, c db.Conn, after string, limit int) ([]Instance, error) {
	rows, err := queries(c).ListLiveInstances(ctx, gen.ListLiveInstancesParams{After: after, MaxRows: db.PageLimit(limit)})
	return rows, db.MapError("list live instances", err)
}

// ListEnded returns the ids of instances that were terminated before.
func ListEnded(ctx context.Context, c db.Conn, before time.Time, limit int) ([]string, error) {
	ids, err := queries(c).ListEndedInstances(ctx, gen.ListEndedInstancesParams{Before: before, MaxRows: db.PageLimit(limit)})
	return ids, db.MapError("list ended instances", err)
}

// Move is one transition of an instance.
type Move struct {
	To lifecycle.Transition[lifecycle.InstanceStatus]
	// Code, Message and Stage say why, for a transition to a failure.
	Code, Message, Stage string
	// Class is the failure class behind Code.
	Class             lifecycle.FailureClass
	DeletedByProvider bool
	Actor             db.Actor
}

// MoveTo moves a locked instance with its audit row and its event. Its comment is the reason in the
// history. It returns *lifecycle.IllegalTransitionError when the state or the owner forbids it.
func MoveTo(ctx context.Context, tx *db.Tx, i Instance, m Move) (Instance, error) {
	m.Message = db.ClipText(m.Message, db.MaxMessage)
	if m.To.To.Failed() && m.Actor.Comment == "" {
		m.Actor.Comment = m.Code + ": " + m.Message
	}
	err := db.CommitTransition(lifecycle.Instance, m.To, i.Status, nil, m.Actor, func(st db.AuditStamp) error {
		_, err := queries(tx).MoveInstance(ctx, gen.MoveInstanceParams{
			ID: i.ID, FromState: string(i.Status), ToState: string(m.To.To), Version: i.Version, ErrorCode: m.Code, ErrorMessage: m.Message, FailedStage: m.Stage,
			ProgressPercent: lifecycle.InstancePercent(m.To.To, i.ReachedPercent), DeletedByProvider: m.DeletedByProvider, Name: m.To.Name,
			AuditID: st.AuditID, TriggeredBy: st.TriggeredBy, Owner: st.Owner, ActorID: st.ActorID, Comment: st.Comment, Metadata: st.Metadata,
			WorkflowID: st.WorkflowID,
		})
		return db.MapError(what(i.ID), err)
	})
	if err != nil {
		return Instance{}, err
	}
	switch m.To.Name {
	case lifecycle.InstanceFailStartup.Name:
		began := i.CreatedAt
		if i.ServerCreatedAt != nil {
			began = *i.ServerCreatedAt
		}
		err = LogEvent(ctx, tx, i, Event{
			Stage: m.Stage, Type: lifecycle.ActInstanceStartupFailed, Class: cmp.Or(m.Class, lifecycle.FailInstanceStartup), Message: m.Code + ": " + m.Message,
			Seq: -i.Version, Began: began,
		})
	case lifecycle.InstanceMarkDeleted.Name:
		e := Event{Stage: "reconcile", Type: lifecycle.ActProviderDeletedByOther, Message: m.Actor.Comment, Seq: -i.Version}
		if i.AbsentSince != nil {
			e.Began = *i.AbsentSince
		}
		err = LogEvent(ctx, tx, i, e)
	}
	if err != nil {
		return Instance{}, err
	}
	return tell(ctx, tx, i.ID, m.To.To.EventType())
}

// Event is a row of the action log that no stage of a job writes.
type Event struct {
	Stage, Type string
	// Class is the failure class of an action that failed, "" of one that succeeded.
	Class   lifecycle.FailureClass
	Message string
	At      time.Time // zero is now
	// Began is when the action began; zero is At.
	Began time.Time
	// Seq tells repetitions apart; it is below zero.
	Seq      int64
	Metadata lifecycle.ActionMetadata
}

// LogEvent writes a row of the action log of the job that made an instance. A repetition changes
// nothing.
func LogEvent(ctx context.Context, c db.Conn, i Instance, e Event) error {
	e.Metadata.ServerID, e.Metadata.Zone, e.Metadata.IPAddress = i.ServerID, i.Zone, i.IPAddress
	meta, err := json.Marshal(e.Metadata)
	if err != nil {
		return fmt.Errorf("metadata of an action: %w", err)
	}
	status, message := lifecycle.ActionSuccess, ""
	if e.Class != "" {
		status, message = lifecycle.ActionFailed, db.ClipText(e.Message, db.MaxMessage)
	}
	if e.At.IsZero() {
		e.At = time.Now()
	}
	if e.Began.IsZero() || e.Began.After(e.At) { // another clock's
		e.Began = e.At
	}
	_, err = queries(c).InsertEvent(ctx, gen.InsertEventParams{
		ID: db.NewID("act"), JobID: i.JobID, Seq: e.Seq, Stage: e.Stage, ActionType: e.Type, Status: status, At: &e.At, Began: e.Began,
		DurationMs: new(e.At.Sub(e.Began).Milliseconds()), FailureClass: e.Class, ErrorMessage: message,
		Metadata: db.CleanJSON(meta),
	})
	return db.MapError("action log of "+what(i.ID), err)
}

// ListHistory returns how an instance moved, the first move first.
func ListHistory(ctx context.Context, c db.Conn, id string) ([]Step, error) {
	rows, err := queries(c).ListHistory(ctx, gen.ListHistoryParams{InstanceID: id, MaxRows: db.PageLimit(maxHistory)})
	return rows, db.MapError("history of "+what(id), err)
}

const maxHistory = 200

// ListActions returns the action log of all jobs of an instance, the newest first.
func ListActions(ctx context.Context, c db.Conn, id, after string, limit int) ([]Action, error) {
	rows, err := queries(c).ListActions(ctx, gen.ListActionsParams{InstanceID: id, After: after, MaxRows: db.PageLimit(limit)})
	return rows, db.MapError("action log of "+what(id), err)
}

// SetProgress stores how far the job of an instance is, and tells it.
func SetProgress(ctx context.Context, tx *db.Tx, i Instance, shown, reached int, failedStage string) error {
	shown = lifecycle.InstancePercent(i.Status, shown)
	if shown == i.ProgressPercent && reached == i.ReachedPercent && (failedStage == "" || failedStage == i.FailedStage) {
		return nil
	}
	_, err := queries(tx).SetProgress(ctx, gen.SetProgressParams{ID: i.ID, ProgressPercent: shown, ReachedPercent: reached, FailedStage: failedStage})
	if err == nil {
		_, err = tell(ctx, tx, i.ID, lifecycle.EventInstanceProgress)
	}
	return db.MapError(what(i.ID), err)
}

// SetError stores the code of an instance that has not failed, "" for none.
func SetError(ctx context.Context, tx *db.Tx, id, code, message string) error {
	_, err := queries(tx).SetError(ctx, gen.SetErrorParams{ID: id, ErrorCode: code, ErrorMessage: db.ClipText(message, db.MaxMessage)})
	if err == nil {
		_, err = tell(ctx, tx, id, lifecycle.EventInstanceProgress)
	}
	return db.MapError(what(id), err)
}

// View is an instance as events show it, to the members of its project too.
type View struct {
	ID              string                   `json:"id"`
	ProjectID       string                   `json:"project_id"`
	Name            string                   `json:"name"`
	Status          lifecycle.InstanceStatus `json:"status"`
	ProgressPercent int                      `json:"progress_percent"`
	ErrorCode       string                   `json:"error_code,omitempty"`
	Version         int64                    `json:"version"`
}

// tell appends an event of a change of an instance, with the instance after it, and returns that.
// It is an event of the project too: its members and webhooks get it.
func tell(ctx context.Context, tx *db.Tx, id, eventType string) (Instance, error) {
	i, err := Get(ctx, tx, id)
	if err != nil {
		return Instance{}, err
	}
	payload, err := json.Marshal(View{
		ID: i.ID, ProjectID: i.ProjectID, Name: i.Name, Status: i.Status, ProgressPercent: i.ProgressPercent, ErrorCode: i.ErrorCode, Version: i.Version,
	})
	if err != nil {
		return Instance{}, fmt.Errorf("event of %s: %w", what(id), err)
	}
	return i, tx.AppendEvent(ctx, db.Event{ResourceKind: Resource, ResourceID: id, ProjectID: &i.ProjectID, Type: eventType, Payload: payload})
}

// resources returns what is stored of the things at a provider.
func resources(all []record.CloudResource) record.CloudResources {
	if all == nil {
		return record.CloudResources{}
	}
	return all
}
