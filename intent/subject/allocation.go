package subject

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	allocationdb "github.com/slipway-cloud/slipway/db/allocation"
	allocationintent "github.com/slipway-cloud/slipway/intent/allocation"
	"github.com/slipway-cloud/slipway/lifecycle"
)

var allocations = Subject{
	Kind: contract.SubjectAllocation,
	Lock: func(ctx context.Context, tx *db.Tx, ref Ref) (Apply, error) {
		a, err := allocationdb.Lock(ctx, tx, ref.ID)
		return func(ctx context.Context, tx *db.Tx, p contract.Projection, data json.RawMessage) error {
			return moveAllocation(ctx, tx, a, p, data)
		}, err
	},
	Park: func(ctx context.Context, tx *db.Tx, job db.Job, class lifecycle.FailureClass, _ db.Actor) (bool, error) {
		if class != lifecycle.FailWorkflowLost {
			return false, nil
		}
		return allocationintent.LoseJob(ctx, tx, job)
	},
	// The sweeper finds what has no job any more.
	EndUnstarted: func(context.Context, *db.Tx, db.Job, db.Actor) error { return nil },
}

// moveAllocation moves the allocation of a job. The stored state of the tenant's access, not the
// job's view of it, decides where a provision that ends early leads. An allocation that has ended
// meanwhile stays as it is.
func moveAllocation(ctx context.Context, tx *db.Tx, a allocationdb.Allocation, p contract.Projection, data json.RawMessage) error {
	m, err := decode[contract.AllocationMove](data)
	if err != nil || lifecycle.Allocation.Terminal(a.Status) {
		return err
	}
	by := by(p)
	by.Comment = m.Note
	switch m.To {
	case lifecycle.AllocationActive:
		if m.Connection == nil || m.Image == nil {
			return fmt.Errorf("allocation %s has no connection and no image: %w", a.ID, db.ErrInvalid)
		}
		if a.Status == lifecycle.AllocationProvisioning && a.ReleaseRequestedAt != nil {
			return abortProvision(ctx, tx, a, by) // asked for after the last stage had looked
		}
		_, err = allocationdb.Activate(ctx, tx, a.ID, allocationdb.Connection(*m.Connection), allocationdb.Image(*m.Image), by)
		if err == nil { // a key may have ended since the job read them
			_, err = allocationintent.Continue(ctx, tx, a.ID)
		}
	case "": // of a job that changes keys
		err = endKeys(ctx, tx, a, m)
	case lifecycle.AllocationFailed:
		err = endProvision(ctx, tx, a, m, by)
	case lifecycle.AllocationReleasing:
		if a.Status == lifecycle.AllocationReleaseFailed {
			_, err = allocationdb.MoveTo(ctx, tx, allocationdb.Move{ID: a.ID, To: lifecycle.AllocationRetryRelease, Actor: by})
		}
	case lifecycle.AllocationReleaseFailed:
		err = allocationdb.SetReleaseAttempts(ctx, tx, a.ID, p.Attempt)
		if err == nil && m.FailureClass == lifecycle.FailAccessUnconfirmed { // also when its stage had no time left to say so
			err = allocationdb.EndAccess(ctx, tx, a.ID, lifecycle.AccessUnconfirmed)
		}
		if err == nil && a.Status == lifecycle.AllocationReleasing {
			by.Comment = failureText(m)
			_, err = allocationdb.MoveTo(ctx, tx, allocationdb.Move{ID: a.ID, To: lifecycle.AllocationFailRelease, Actor: by})
		}
	case lifecycle.AllocationReleased:
		_, err = allocationdb.Free(ctx, tx, a.ID, lifecycle.OutcomeReleased, m.CertificateID, by)
	case lifecycle.AllocationRequested, lifecycle.AllocationProvisioning:
		err = fmt.Errorf("no job moves an allocation to %s: %w", m.To, db.ErrInvalid)
	}
	return err
}

// endKeys tells the project of keys that were proven, and of a connection that differs from the
// stored one. Then it starts what the job was in the way
// of: a release, or another change of keys.
func endKeys(ctx context.Context, tx *db.Tx, a allocationdb.Allocation, m contract.AllocationMove) error {
	if m.KeysProven {
		if err := allocationdb.TellKeysChanged(ctx, tx, a); err != nil {
			return err
		}
		if m.Connection != nil {
			if _, err := allocationdb.ChangeConnection(ctx, tx, a.ID, allocationdb.Connection(*m.Connection), nil); err != nil {
				return err
			}
		}
	}
	_, err := allocationintent.Continue(ctx, tx, a.ID)
	return err
}

// failureText is what a tenant may read of a failure: nothing of the node.
func failureText(m contract.AllocationMove) string {
	if m.FailureClass == "" {
		return "it was stopped"
	}
	return fmt.Sprintf("%s at %s", m.FailureClass, m.FailureStage)
}

// endProvision ends an allocation whose provision has stopped. One whose node may hold something of
// the tenant is released by a job of its own. Of the others, one that its tenant gave back is
// released at once, since nothing has to be cleaned, and every other one has failed.
func endProvision(ctx context.Context, tx *db.Tx, a allocationdb.Allocation, m contract.AllocationMove, by db.Actor) error {
	code := lifecycle.FailureProvision
	if m.FailureClass == lifecycle.FailCapacity {
		code = lifecycle.FailureNoCapacity
	}
	asked, unused := a.ReleaseRequestedAt != nil, a.AccessGivenAt == nil && m.Clean
	switch {
	case a.Status == lifecycle.AllocationRequested || unused && !asked:
		_, err := allocationdb.Fail(ctx, tx, a.ID, code, failureText(m), by)
		return err
	case unused:
		_, err := allocationdb.MoveTo(ctx, tx, allocationdb.Move{ID: a.ID, To: lifecycle.AllocationAbort, Actor: by})
		if err == nil {
			_, err = allocationdb.Free(ctx, tx, a.ID, lifecycle.OutcomeReleased, "", by)
		}
		return err
	case asked:
		return abortProvision(ctx, tx, a, by)
	}
	_, err := allocationdb.MoveTo(ctx, tx, allocationdb.Move{
		ID: a.ID, To: lifecycle.AllocationAbort, Reason: code, FailureCode: code, FailureMessage: failureText(m), Actor: by,
	})
	if err == nil {
		_, err = allocationintent.Continue(ctx, tx, a.ID)
	}
	return err
}

// abortProvision releases an allocation whose release was asked for while it was provisioned: it is
// never active, and its release job cleans the node.
func abortProvision(ctx context.Context, tx *db.Tx, a allocationdb.Allocation, by db.Actor) error {
	_, err := allocationdb.MoveTo(ctx, tx, allocationdb.Move{ID: a.ID, To: lifecycle.AllocationAbort, Actor: by})
	if err == nil {
		_, err = allocationintent.Continue(ctx, tx, a.ID)
	}
	return err
}
