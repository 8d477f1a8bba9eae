// Package login writes the audit rows of logins: who logged in where, with which stored login, and
// what came of it. It never holds the login itself.
package login

import (
	"cmp"
	"context"
	"maps"
	"sync"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
)

// The outcomes of a login in the audit log. A login has Started, written before it is sent, and
// then one of the others. A login that was refused before it was sent has Refused alone.
const (
	Started  = "started"
	Accepted = "accepted"
	Rejected = "rejected"
	Unsent   = "not_sent"
	Unknown  = "unknown"
	Refused  = "refused"
)

// Attempt is a login of a job, of a plan or of the engine.
type Attempt struct {
	// Actor is who the audit log names; the zero value is the job, or a plan where there is none.
	Actor db.Actor
	Job   contract.JobRef
	// Ref names the stored login, Address is where it is sent, and Protocol how.
	Ref, Address, Protocol string
}

// Entry returns the audit row of an outcome. The caller names the resource where that is not the
// job.
func (l Attempt) Entry(outcome string) db.Entry {
	actor := l.Actor
	if actor.Owner == "" {
		actor = db.Actor{Owner: lifecycle.OwnerJob, ID: cmp.Or(l.Job.JobID, "plan")}
	}
	meta := map[string]any{"credential_ref": l.Ref, "address": l.Address, "protocol": l.Protocol}
	maps.Copy(meta, actor.Metadata)
	if l.Job.JobID != "" {
		meta["job_id"], meta["stage"] = l.Job.JobID, l.Job.Stage
	}
	actor.Metadata = meta
	entry := db.Entry{ResourceKind: "job", ResourceID: l.Job.JobID, Kind: db.EntryCall, Name: "login", To: outcome, Actor: actor}
	switch {
	case l.Job.JobID == "":
		entry.ResourceKind, entry.ResourceID = "site", l.Job.SiteID
	case l.Job.NodeID != "":
		entry.NodeID = &l.Job.NodeID
	}
	return entry
}

// Record writes an outcome, unless an equal one was written within a day: a stage that reads a
// region or a node again and again has one row of each outcome.
func (l Attempt) Record(ctx context.Context, store *db.Store, outcome string) error {
	return fault.Internal(ctx, store.AppendAuditDaily(ctx, l.Entry(outcome)))
}

// noteLimit bounds the writing of an outcome, also when the activity was cancelled.
const noteLimit = 10 * time.Second

// Recorder returns a function that records what came of the login, from the errors of its calls. It
// writes each outcome once. An outcome that cannot be written is left out, as Started names the
// login.
func (l Attempt) Recorder(store *db.Store) func(context.Context, error) {
	var mu sync.Mutex
	written := map[string]bool{}
	return func(ctx context.Context, err error) {
		outcome := outcomeOf(err)
		mu.Lock()
		again := written[outcome]
		written[outcome] = true
		mu.Unlock()
		if again {
			return
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteLimit)
		defer cancel()
		_ = l.Record(ctx, store, outcome)
	}
}

// outcomeOf returns what the error of a call says of the login that it used.
func outcomeOf(err error) string {
	switch kind := providers.KindOf(err); {
	case err == nil:
		return Accepted
	case providers.IsRefusedAddress(err), kind == providers.KindPinMismatch:
		return Unsent
	case kind == providers.KindUnauthorized:
		return Rejected
	case kind == providers.KindNotFound, kind == providers.KindStateConflict, kind == providers.KindBusy:
		return Accepted
	}
	return Unknown
}

// RecordRefusal writes that the use or the address forbids the login. It writes nothing for another
// error, such as an outage, which is no refusal.
func (l Attempt) RecordRefusal(ctx context.Context, store *db.Store, refusal error) error {
	if !providers.IsKind(refusal, providers.KindInvalid) {
		return nil
	}
	entry := l.Entry(Refused)
	entry.Actor.Comment = db.ClipText(refusal.Error(), db.MaxComment)
	return fault.Internal(ctx, store.AppendAuditDaily(ctx, entry))
}

// EngineActor returns the engine, for a login that no job makes. Plans of equal questions and the
// passes of a site have the same workflow, so that they share their rows of a day.
func EngineActor(ctx context.Context, comment string) db.Actor {
	by := db.Actor{Owner: lifecycle.OwnerEngine, ID: string(lifecycle.OwnerEngine), Comment: comment}
	if activity.IsActivity(ctx) {
		by.WorkflowID = activity.GetInfo(ctx).WorkflowExecution.ID
	}
	return by
}
