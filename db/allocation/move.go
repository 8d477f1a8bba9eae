package allocationdb

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/allocation/gen"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// Transition is a transition of an allocation.
type Transition = lifecycle.Transition[lifecycle.AllocationStatus]

// Move is one change of the status of an allocation.
type Move struct {
	ID string
	To Transition
	// Reason is why it is released; "" keeps the one that is stored.
	Reason string
	// FailureCode and FailureMessage say why it failed.
	FailureCode, FailureMessage string
	Actor                       db.Actor

	outcome        string
	nodeID, siteID *string
	connection     *Connection
	image          *Image
	certificateID  *string
}

// MoveTo moves an allocation, with its audit row and its event. It returns
// *lifecycle.IllegalTransitionError when its status or the owner forbids it. Claim, Activate,
// Cancel, Fail and Free make the moves that change more than the status; MoveTo refuses these.
func MoveTo(ctx context.Context, tx *db.Tx, m Move) (Allocation, error) {
	switch m.To.To {
	case lifecycle.AllocationReleasing, lifecycle.AllocationReleaseFailed:
	default:
		return Allocation{}, fmt.Errorf("%s: the move %s has a function of its own: %w", what(m.ID), m.To.Name, db.ErrInvalid)
	}
	a, err := Lock(ctx, tx, m.ID)
	if err != nil {
		return Allocation{}, err
	}
	moved, err := commit(ctx, tx, a, m)
	if err != nil || m.To.To != lifecycle.AllocationReleasing {
		return moved, err
	}
	return moved, EnterOccupancy(ctx, tx, *moved.NodeID, lifecycle.OccupancyReleasing, moved.ID, "")
}

// commit is the commit point of a locked allocation.
func commit(ctx context.Context, tx *db.Tx, a Allocation, m Move) (Allocation, error) {
	from := a.Status
	err := db.CommitTransition(lifecycle.Allocation, m.To, from, nil, m.Actor, func(st db.AuditStamp) error {
		payload, err := eventPayload(a, from, m.To.To)
		if err != nil {
			return err
		}
		_, err = queries(tx).MoveAllocation(ctx, gen.MoveAllocationParams{
			ID: a.ID, FromState: string(from), ToState: m.To.To, Version: a.Version, Name: m.To.Name, NodeID: m.nodeID, SiteID: m.siteID,
			ReleaseReason: db.ClipText(m.Reason, maxReason), Connection: orJSON(m.connection), Image: orJSON(m.image), Outcome: m.outcome,
			FailureCode: m.FailureCode, FailureMessage: db.ClipText(m.FailureMessage, db.MaxMessage), CertificateID: m.certificateID,
			EventID: db.NewID("evt"), EventType: m.To.To.EventType(), Payload: payload, AuditID: st.AuditID, TriggeredBy: st.TriggeredBy,
			Owner: st.Owner, ActorID: st.ActorID, Comment: st.Comment, Metadata: st.Metadata, WorkflowID: st.WorkflowID,
		})
		return db.MapError("move "+what(a.ID), err)
	})
	if err == nil && (m.To.To == lifecycle.AllocationReleasing || lifecycle.Allocation.Terminal(m.To.To)) {
		err = endRights(ctx, tx, a, m.Actor)
	}
	if err != nil {
		return Allocation{}, err
	}
	return Get(ctx, tx, a.ID)
}

// endRights ends what the project of an allocation may do with the machine of its node. It belongs
// to the transaction that fences the release. A run of the project that is active fails in its next
// activity.
func endRights(ctx context.Context, tx *db.Tx, a Allocation, actor db.Actor) error {
	if a.NodeID == nil {
		return nil
	}
	ended, err := queries(tx).EndMachineRights(ctx, *a.NodeID)
	if err != nil {
		return db.MapError("machine of node "+*a.NodeID, err)
	}
	for _, m := range ended {
		actor.Metadata = map[string]any{"allocation_id": a.ID, "project": m.ProjectID}
		if err := tx.AppendAudit(ctx, db.Entry{ResourceKind: "machine", ResourceID: m.ID, NodeID: a.NodeID, Kind: db.EntryAction, Name: "end_project", Actor: actor}); err != nil {
			return err
		}
	}
	return nil
}

func orJSON[T any](v *T) json.RawMessage {
	if v == nil {
		return nil
	}
	b, err := json.Marshal(v)
	if err != nil { // records of texts and times
		return nil
	}
	return b
}

// eventPayload is what the members of the project are told: nothing of the node.
func eventPayload(a Allocation, from, to lifecycle.AllocationStatus) (json.RawMessage, error) {
	return json.Marshal(map[string]any{
		"allocation_id": a.ID, "project_id": a.ProjectID, "sku_id": a.SKUID, "name": a.Name, "from": from, "status": to,
		"state": lifecycle.AllocationState(to, a.Condition),
	})
}

// Cancel ends an allocation for which no node was claimed.
func Cancel(ctx context.Context, tx *db.Tx, id, reason string, actor db.Actor) (Allocation, error) {
	a, err := Lock(ctx, tx, id)
	if err != nil {
		return Allocation{}, err
	}
	return commit(ctx, tx, a, Move{To: lifecycle.AllocationCancel, Reason: reason, Actor: actor, outcome: lifecycle.OutcomeCancelled})
}

// Fail ends an allocation that was requested, or whose node no tenant can have reached: GiveAccess
// was not called. Its node is free again. In every other case it returns
// *lifecycle.IllegalTransitionError: the allocation is released, so that its node is cleaned.
func Fail(ctx context.Context, tx *db.Tx, id, code, message string, actor db.Actor) (Allocation, error) {
	a, err := Lock(ctx, tx, id)
	if err != nil {
		return Allocation{}, err
	}
	if a.AccessGivenAt != nil {
		return Allocation{}, &lifecycle.IllegalTransitionError{
			Resource: Resource, From: string(a.Status), To: string(lifecycle.AllocationFailed), Reason: "the tenant may have had access to its node; release it",
			Allowed: lifecycle.Allocation.Reachable(a.Status),
		}
	}
	moved, err := commit(ctx, tx, a, Move{To: lifecycle.AllocationFail, FailureCode: code, FailureMessage: message, Actor: actor})
	if err != nil || a.NodeID == nil {
		return moved, err
	}
	return moved, freeNode(ctx, tx, a, "", false)
}

// GiveAccess stores that the tenant may have access from now on. It is called before the keys are
// sent to the node. It can be repeated. It returns db.ErrStale when the allocation is not being
// provisioned.
func GiveAccess(ctx context.Context, c Conn, id string) error {
	n, err := queries(c).GiveAccess(ctx, id)
	return db.CheckGuarded(what(id), n, err)
}

// Activate moves an allocation whose keys the node accepts to active. Its connection is known, and
// its time starts when the keys went in. An allocation that is active already is returned as it is.
func Activate(ctx context.Context, tx *db.Tx, id string, c Connection, image Image, actor db.Actor) (Allocation, error) {
	a, err := Lock(ctx, tx, id)
	if err != nil || a.Status == lifecycle.AllocationActive {
		return a, err
	}
	return commit(ctx, tx, a, Move{To: lifecycle.AllocationActivate, Actor: actor, connection: &c, image: &image})
}

// ChangeConnection stores another connection of an active allocation, as after its node got another
// address or host key, with an event. The same connection changes nothing.
func ChangeConnection(ctx context.Context, tx *db.Tx, id string, c Connection, image *Image) (Allocation, error) {
	a, err := Lock(ctx, tx, id)
	if err != nil || a.Status != lifecycle.AllocationActive {
		return a, err
	}
	c.Since = a.Connection.Since
	if *a.Connection == c {
		return a, nil
	}
	now, err := tx.Clock(ctx)
	if err != nil {
		return a, err
	}
	c.Since = now
	row, err := queries(tx).SetConnection(ctx, gen.SetConnectionParams{ID: id, Connection: &c, Image: orJSON(image)})
	if err != nil {
		return a, db.MapError("connection of "+what(id), err)
	}
	payload, err := eventPayload(row, row.Status, row.Status)
	if err != nil {
		return row, err
	}
	return row, tx.AppendEvent(ctx, db.Event{
		ResourceKind: Resource, ResourceID: id, ProjectID: &row.ProjectID, NodeID: row.NodeID, Type: lifecycle.EventConnectionChanged, Payload: payload,
	})
}

// RequestRelease stores that an allocation which is being provisioned is to be released. Its job
// stops at the next safe point: it moves the allocation by lifecycle.AllocationAbort. It can be
// repeated.
func RequestRelease(ctx context.Context, tx *db.Tx, id, reason string) error {
	n, err := queries(tx).RequestRelease(ctx, gen.RequestReleaseParams{ID: id, Reason: db.ClipText(reason, maxReason)})
	if err = db.CheckRepeatable(what(id), n, err, exists(ctx, tx, id)); err != nil || n == 0 {
		return err
	}
	a, err := Get(ctx, tx, id)
	if err != nil {
		return err
	}
	return endRights(ctx, tx, a, db.Actor{Owner: lifecycle.OwnerSystem, Comment: "its release was requested: " + db.ClipText(reason, maxReason)})
}

// EndAccess stores what is known of the tenant's access after a try to end it: revoked or
// unconfirmed. An access that was revoked stays revoked. It returns db.ErrStale when the allocation
// is not being released.
func EndAccess(ctx context.Context, c Conn, id, access string) error {
	n, err := queries(c).EndAccess(ctx, gen.EndAccessParams{ID: id, Access: access})
	return db.CheckGuarded(what(id), n, err)
}

// SetReleaseAttempts stores how often the release was tried. The number never falls.
func SetReleaseAttempts(ctx context.Context, c Conn, id string, attempts int) error {
	n, err := queries(c).SetReleaseAttempts(ctx, gen.SetReleaseAttemptsParams{ID: id, Attempts: attempts})
	return db.CheckGuarded(what(id), n, err)
}

// Free ends an allocation that is being released: its node is free of it. outcome is
// lifecycle.OutcomeReleased, which needs an access that was revoked or never given, or
// lifecycle.OutcomeAssignmentRemoved. The node is marked as one that a tenant left, unless no
// tenant had access or the certificate, of after the end of that access, proves it clean. An
// allocation that is released already is returned as it is.
func Free(ctx context.Context, tx *db.Tx, id, outcome, certificateID string, actor db.Actor) (Allocation, error) {
	a, err := Lock(ctx, tx, id)
	if err != nil || a.Status == lifecycle.AllocationReleased {
		return a, err
	}
	if outcome == lifecycle.OutcomeReleased && a.AccessGivenAt != nil && a.Access != lifecycle.AccessRevoked {
		return a, &lifecycle.IllegalTransitionError{
			Resource: Resource, From: string(a.Status), To: string(lifecycle.AllocationReleased), Reason: "the tenant's access is not proven to have ended",
			Allowed: lifecycle.Allocation.Reachable(a.Status),
		}
	}
	clean, err := provenClean(ctx, tx, a, certificateID)
	if err != nil {
		return a, err
	}
	moved, err := commit(ctx, tx, a, Move{To: lifecycle.AllocationFinish, Actor: actor, outcome: outcome, certificateID: db.OrNil(certificateID)})
	if err != nil {
		return a, err
	}
	return moved, freeNode(ctx, tx, a, certificateID, a.AccessGivenAt != nil && !clean)
}

// provenClean reports whether the certificate proves the node clean of the allocation's tenant.
func provenClean(ctx context.Context, tx *db.Tx, a Allocation, certificateID string) (bool, error) {
	if certificateID == "" || a.NodeID == nil || a.AccessEndedAt == nil {
		return false, nil
	}
	clean, err := queries(tx).ProvesClean(ctx, gen.ProvesCleanParams{ID: certificateID, NodeID: *a.NodeID, After: *a.AccessEndedAt})
	return clean, db.MapError("certificate "+certificateID, err)
}
