// Package campaigndb stores campaigns: the same plan over many machines. It is a package below db.
// Locks are taken in this order: campaign, machine, run, job, node.
package campaigndb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/campaign/gen"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// The rows.
type (
	Campaign = gen.RunCampaign
	Member   = gen.RunCampaignMember
	Ended    = gen.EndedMembersRow
	// Look is a campaign whose look is due. Restored says that the database was restored since it
	// was created or resumed, and TakesWork that its project takes new work.
	Look = gen.ClaimCampaignRow
)

// Resource is the kind of campaigns in the audit log and in events.
var Resource = lifecycle.RunCampaign.Resource

// EventType is the type of the events of campaigns.
const EventType = "run_campaign.changed"

// Conn runs queries: a *db.Store, a *db.Tx, or a *db.ProjectTx, which sees one project.
type Conn interface{ DBTX() db.DBTX }

func queries(c Conn) *gen.Queries { return gen.New(c.DBTX()) }

var what = db.Named("campaign")

// New is a campaign that is accepted. Messages has for each of its machines what its run would be
// refused for now, "" for nothing.
type New struct {
	Campaign

	Machines, Messages []string
	Actor              db.Actor
}

// Create writes a campaign with its machines, its audit row and its event. Of the campaign it takes
// what a request states.
func Create(ctx context.Context, tx *db.Tx, in New) (Campaign, error) {
	st, err := in.Actor.Stamp(nil)
	if err != nil {
		return Campaign{}, err
	}
	_, err = queries(tx).InsertCampaign(ctx, gen.InsertCampaignParams{
		ID: in.ID, ProjectID: in.ProjectID, RequestID: in.RequestID, DisplayName: in.DisplayName, Type: in.Type, PlanID: in.PlanID, Filter: in.Filter,
		SelectionHash: in.SelectionHash, MaxParallel: in.MaxParallel, StopAfter: in.StopAfter, SkipCanary: in.SkipCanary, AcceptRisk: in.AcceptRisk,
		Status: lifecycle.RunCampaign.Initial[0], CreatedBy: in.Actor.ID, AuditID: st.AuditID, TriggeredBy: st.TriggeredBy, Owner: st.Owner,
		ActorID: st.ActorID, Comment: st.Comment, Metadata: st.Metadata, WorkflowID: st.WorkflowID,
	})
	if err == nil {
		for i := range in.Messages {
			in.Messages[i] = db.ClipText(in.Messages[i], db.MaxMessage)
		}
		err = queries(tx).InsertMembers(ctx, gen.InsertMembersParams{CampaignID: in.ID, MachineIds: in.Machines, Messages: in.Messages})
	}
	if err != nil {
		return Campaign{}, db.MapError(what(in.ID), err)
	}
	return tell(ctx, tx, in.ID)
}

// tell appends the event of a campaign, and returns the campaign.
func tell(ctx context.Context, tx *db.Tx, id string) (Campaign, error) {
	c, err := Get(ctx, tx, id)
	if err != nil {
		return c, err
	}
	payload, err := json.Marshal(map[string]any{"campaign_id": c.ID, "state": c.Status, "message": c.Message, "version": c.Version})
	if err != nil {
		return c, fmt.Errorf("event of %s: %w", what(id), err)
	}
	return c, tx.AppendEvent(ctx, db.Event{ResourceKind: Resource, ResourceID: id, Type: EventType, Payload: payload})
}

// Get returns one campaign, or db.ErrNotFound.
func Get(ctx context.Context, c Conn, id string) (Campaign, error) {
	row, err := queries(c).Campaign(ctx, id)
	return row, db.MapError(what(id), err)
}

// OwnerOf returns in whose name the runs of a campaign are started: an operator's or a customer's.
// Without its audit row, which a partition of the audit log may have taken along, its project says
// it.
func OwnerOf(ctx context.Context, tx *db.Tx, c Campaign) (lifecycle.Owner, error) {
	owner, err := queries(tx).CampaignOwner(ctx, c.ID)
	switch {
	case err == nil:
		return lifecycle.Owner(owner), nil
	case !errors.Is(db.MapError(what(c.ID), err), db.ErrNotFound):
		return "", db.MapError(what(c.ID), err)
	case c.ProjectID != nil:
		return lifecycle.OwnerCustomer, nil
	}
	return lifecycle.OwnerAdmin, nil
}

// Lock returns one campaign and keeps others from changing it until the transaction ends.
func Lock(ctx context.Context, tx *db.Tx, id string) (Campaign, error) {
	row, err := queries(tx).LockCampaign(ctx, id)
	return row, db.MapError(what(id), err)
}

// FindOfRequest returns the campaign that a request has created in a project, "" for the platform,
// or db.ErrNotFound.
func FindOfRequest(ctx context.Context, c Conn, project, requestID string) (Campaign, error) {
	row, err := queries(c).CampaignOfRequest(ctx, gen.CampaignOfRequestParams{ProjectID: project, RequestID: requestID})
	return row, db.MapError("campaign of the request", err)
}

// CountOpen counts the campaigns of a project that have not ended; nil is the platform.
func CountOpen(ctx context.Context, c Conn, project *string) (int64, error) {
	n, err := queries(c).CountOpenCampaigns(ctx, project)
	return n, db.MapError("count campaigns", err)
}

// List returns campaigns, the newest first, from the one after the id given. project "" is all of
// them.
func List(ctx context.Context, c Conn, project, before string, limit int) ([]Campaign, error) {
	rows, err := queries(c).ListCampaigns(ctx, gen.ListCampaignsParams{Before: before, ProjectID: project, MaxRows: int32(limit)}) //nolint:gosec // at most 1001
	return rows, db.MapError("list campaigns", err)
}

// Members returns the machines of a campaign in the order of their runs.
func Members(ctx context.Context, c Conn, id string) ([]Member, error) {
	rows, err := queries(c).Members(ctx, id)
	return rows, db.MapError("machines of "+what(id), err)
}

// Counts returns how many machines of each campaign are in each state.
func Counts(ctx context.Context, c Conn, ids ...string) (map[string]map[lifecycle.MemberState]int, error) {
	rows, err := queries(c).CountMembers(ctx, db.EmptyIfNil(ids))
	out := make(map[string]map[lifecycle.MemberState]int, len(ids))
	for _, id := range ids {
		out[id] = map[lifecycle.MemberState]int{}
	}
	for _, r := range rows {
		out[r.CampaignID][r.Status] = int(r.Members)
	}
	return out, db.MapError("count machines of campaigns", err)
}

// Move moves a locked campaign with its audit row and its event. It returns
// *lifecycle.IllegalTransitionError when the state or the owner forbids it.
func Move(ctx context.Context, tx *db.Tx, c Campaign, t lifecycle.Transition[lifecycle.CampaignState], message string, a db.Actor) (Campaign, error) {
	err := db.CommitTransition(lifecycle.RunCampaign, t, c.Status, nil, a, func(st db.AuditStamp) error {
		_, err := queries(tx).MoveCampaign(ctx, gen.MoveCampaignParams{
			ID: c.ID, FromState: string(c.Status), ToState: string(t.To), Version: c.Version, Message: db.ClipText(message, db.MaxMessage),
			Ended: t.To == lifecycle.CampaignCompleted || t.To == lifecycle.CampaignCanceled, Name: t.Name, AuditID: st.AuditID, TriggeredBy: st.TriggeredBy,
			Owner: st.Owner, ActorID: st.ActorID, Comment: st.Comment, Metadata: st.Metadata, WorkflowID: st.WorkflowID,
		})
		return db.MapError(what(c.ID), err)
	})
	if err != nil {
		return c, err
	}
	return tell(ctx, tx, c.ID)
}

// ClaimLook returns a campaign whose look is due, locked until the transaction ends. every is what
// EndLook gets. found is false when none is due.
func ClaimLook(ctx context.Context, tx *db.Tx, every time.Duration) (l Look, found bool, err error) {
	l, err = queries(tx).ClaimCampaign(ctx, every.Seconds())
	err = db.MapError("campaigns to look at", err)
	if errors.Is(err, db.ErrNotFound) {
		return l, false, nil
	}
	return l, err == nil, err
}

// never is the wait of a campaign in which nothing can happen by itself.
const never = -1 * time.Second

// EndLook counts failed runs of a locked campaign, and says when it is looked at again; open is
// false for one in which nothing can happen by itself.
func EndLook(ctx context.Context, tx *db.Tx, id string, failed int, open bool, every time.Duration) error {
	if !open {
		every = never
	}
	return db.MapError(what(id), queries(tx).SetLook(ctx, gen.SetLookParams{ID: id, Failed: failed, WaitSeconds: every.Seconds()}))
}

// ListEnded returns the machines of a campaign whose run has ended and that do not say so yet.
func ListEnded(ctx context.Context, c Conn, id string) ([]Ended, error) {
	rows, err := queries(c).EndedMembers(ctx, id)
	return rows, db.MapError("ended runs of "+what(id), err)
}

// ListDue returns machines of a campaign that may get their run now, in order.
func ListDue(ctx context.Context, c Conn, id string, limit int) ([]Member, error) {
	rows, err := queries(c).DueMembers(ctx, gen.DueMembersParams{CampaignID: id, MaxRows: db.PageLimit(limit)})
	return rows, db.MapError("waiting machines of "+what(id), err)
}

// GetMember returns one machine of a campaign, or db.ErrNotFound.
func GetMember(ctx context.Context, c Conn, id string, ordinal int) (Member, error) {
	m, err := queries(c).Member(ctx, gen.MemberParams{CampaignID: id, Ordinal: ordinal})
	return m, db.MapError("machine of "+what(id), err)
}

// MoveMember moves a machine of a locked campaign. runID is "" where its run stays.
func MoveMember(ctx context.Context, tx *db.Tx, m Member, t lifecycle.Transition[lifecycle.MemberState], runID, message string) error {
	if err := lifecycle.CampaignMember.Check(t, m.Status, lifecycle.OwnerSystem, nil); err != nil {
		return err
	}
	n, err := queries(tx).MoveMember(ctx, gen.MoveMemberParams{
		CampaignID: m.CampaignID, Ordinal: m.Ordinal, FromState: string(m.Status), ToState: string(t.To), RunID: db.OrNil(runID), Message: db.ClipText(message, db.MaxMessage),
	})
	if err == nil && n == 0 {
		err = db.ErrStale
	}
	return db.MapError("machine "+m.MachineID+" of "+what(m.CampaignID), err)
}

// PutOff has a machine wait, and says why.
func PutOff(ctx context.Context, c Conn, m Member, message string, wait time.Duration) error {
	return db.MapError("machine "+m.MachineID+" of "+what(m.CampaignID), queries(c).PutOffMember(ctx, gen.PutOffMemberParams{
		CampaignID: m.CampaignID, Ordinal: m.Ordinal, Attempt: m.Attempt, Message: db.ClipText(message, db.MaxMessage), WaitSeconds: wait.Seconds(),
	}))
}

// CancelWaiting gives the machines of a locked campaign that wait no run.
func CancelWaiting(ctx context.Context, tx *db.Tx, id, message string) error {
	return db.MapError(what(id), queries(tx).CancelWaitingMembers(ctx, gen.CancelWaitingMembersParams{CampaignID: id, Message: message}))
}

// Retry has machines of a locked campaign wait again: those that are named, or all whose run did
// not succeed. It returns how many.
func Retry(ctx context.Context, tx *db.Tx, id string, machines []string) (int64, error) {
	n, err := queries(tx).RetryMembers(ctx, gen.RetryMembersParams{CampaignID: id, MachineIds: db.EmptyIfNil(machines)})
	return n, db.MapError(what(id), err)
}
