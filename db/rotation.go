package db

import (
	"context"
	"errors"

	"github.com/slipway-cloud/slipway/db/gen"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// BMCRotation is one row of a BMC's history of logins, by reference.
type BMCRotation = gen.BMCRotation

// OpenBMCRotation reads the rotation under way, or ErrNotFound.
func (s statements) OpenBMCRotation(ctx context.Context, bmcID string) (BMCRotation, error) {
	row, err := s.q.OpenBMCRotation(ctx, bmcID)
	return row, MapError("open rotation of BMC "+bmcID, err)
}

// LastBMCRotationOfJob reads the newest rotation that a job began or took over,
// or ErrNotFound.
func (s statements) LastBMCRotationOfJob(ctx context.Context, bmcID, jobID string) (BMCRotation, error) {
	row, err := s.q.LastBMCRotationOfJob(ctx, gen.LastBMCRotationOfJobParams{BMCID: bmcID, JobID: jobID})
	return row, MapError("rotation of BMC "+bmcID+" by "+jobID, err)
}

// BeginBMCRotation begins a rotation for a job, or hands over the one that a
// lost job left open: what that one sent must be settled first.
func (s *Store) BeginBMCRotation(ctx context.Context, bmcID, jobID string) (row BMCRotation, err error) {
	err = s.Tx(ctx, func(tx *Tx) error {
		what := "rotation of BMC " + bmcID
		if err := tx.q.InsertBMCRotation(ctx, gen.InsertBMCRotationParams{ID: NewID("rot"), BMCID: bmcID, JobID: jobID}); err != nil {
			return MapError(what, err)
		}
		if row, err = tx.OpenBMCRotation(ctx, bmcID); err != nil {
			return err
		}
		if row.JobID == jobID {
			return nil
		}
		// Only one live job has a BMC: the other one is dead, and so is its right to log in.
		if err := tx.ReleaseBMCLogin(ctx, bmcID, row.JobID); err != nil {
			return err
		}
		row.JobID = jobID
		return MapError(what, tx.q.AdoptBMCRotation(ctx, gen.AdoptBMCRotationParams{ID: row.ID, JobID: jobID}))
	})
	return row, err
}

// SetBMCCandidate records the candidate in the row and in its history. Only a
// candidate that was never sent can be replaced; otherwise ErrStale.
func (s *Store) SetBMCCandidate(ctx context.Context, bmcID, candidate, insteadOf string) error {
	return s.Tx(ctx, func(tx *Tx) error {
		n, err := tx.q.SetBMCCandidate(ctx, gen.SetBMCCandidateParams{ID: bmcID, CandidateRef: candidate, InsteadOf: insteadOf})
		if err := CheckGuarded("BMC "+bmcID, n, err); err != nil {
			return err
		}
		return MapError("BMC "+bmcID, tx.q.SetBMCRotationTarget(ctx, gen.SetBMCRotationTargetParams{BMCID: bmcID, ToRef: candidate}))
	})
}

// MoveBMCRotation moves the rotation of a candidate by t from the state in which the caller saw it.
// It returns *lifecycle.IllegalTransitionError when t does not lead from there, and ErrStale when
// the rotation is no longer in that state. CommitBMCRotation and DropBMCRotation end a rotation.
func (s statements) MoveBMCRotation(
	ctx context.Context, bmcID, candidate string, from lifecycle.RotationState, t lifecycle.Transition[lifecycle.RotationState],
) error {
	if err := lifecycle.BMCRotation.Check(t, from, lifecycle.OwnerJob, nil); err != nil {
		return err
	}
	n, err := s.q.MoveBMCRotation(ctx, gen.MoveBMCRotationParams{ID: bmcID, CandidateRef: candidate, FromState: from, ToState: t.To})
	return CheckGuarded("BMC "+bmcID, n, err)
}

// CommitBMCRotation makes the verified candidate the BMC's login
// and closes the history row with it. ErrStale when the row has moved on.
func (s *Store) CommitBMCRotation(ctx context.Context, bmcID, candidate, message string) error {
	return s.Tx(ctx, func(tx *Tx) error {
		n, err := tx.q.CommitBMCCandidate(ctx, gen.CommitBMCCandidateParams{ID: bmcID, CandidateRef: candidate})
		if err := CheckGuarded("BMC "+bmcID, n, err); err != nil {
			return err
		}
		return tx.finishRotation(ctx, bmcID, lifecycle.RotationRotated, message)
	})
}

// DropBMCRotation ends a rotation whose candidate the BMC does not take; candidate
// is "" when none was stored yet. ErrStale when the row has moved on.
func (s *Store) DropBMCRotation(ctx context.Context, bmcID, candidate, message string) error {
	return s.Tx(ctx, func(tx *Tx) error {
		if candidate != "" {
			n, err := tx.q.DropBMCCandidate(ctx, gen.DropBMCCandidateParams{ID: bmcID, CandidateRef: candidate})
			if err := CheckGuarded("BMC "+bmcID, n, err); err != nil {
				return err
			}
		}
		return tx.finishRotation(ctx, bmcID, lifecycle.RotationUndone, message)
	})
}

// finishRotation closes the history row. With the rotation ends its job's right
// to log in, which a crash may have left: whoever rotates next would wait for it.
func (tx *Tx) finishRotation(ctx context.Context, bmcID string, outcome lifecycle.RotationState, message string) error {
	open, err := tx.OpenBMCRotation(ctx, bmcID)
	switch {
	case err == nil:
		if err := tx.ReleaseBMCLogin(ctx, bmcID, open.JobID); err != nil {
			return err
		}
	case !errors.Is(err, ErrNotFound):
		return err
	}
	return MapError("rotation of BMC "+bmcID, tx.q.FinishBMCRotation(ctx, gen.FinishBMCRotationParams{
		BMCID: bmcID, Outcome: outcome, Message: ClipText(message, MaxComment),
	}))
}

// ListBMCRotations lists a BMC's rotations, newest first, from the one before
// the id given.
func (s statements) ListBMCRotations(ctx context.Context, bmcID, before string, limit int) ([]BMCRotation, error) {
	rows, err := s.q.ListBMCRotations(ctx, gen.ListBMCRotationsParams{BMCID: bmcID, Before: before, MaxRows: PageLimit(limit)})
	return rows, MapError("rotations of BMC "+bmcID, err)
}

// SpentBMCRotations lists ended rotations whose secret nobody can need: neither
// slot nor the generation before names it, and another rotation has ended since.
func (s statements) SpentBMCRotations(ctx context.Context, bmcID string) ([]BMCRotation, error) {
	rows, err := s.q.SpentBMCRotations(ctx, bmcID)
	return rows, MapError("rotations of BMC "+bmcID, err)
}

// MarkBMCRotationPurged notes that the secret of a rotation is deleted.
func (s statements) MarkBMCRotationPurged(ctx context.Context, id string) error {
	return MapError("rotation "+id, s.q.MarkBMCRotationPurged(ctx, id))
}
