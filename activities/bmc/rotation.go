package bmc

import (
	"context"
	"errors"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
)

// RotateIn is the input of every step of a rotation.
//
// A rotation has two slots: the current login and the candidate. Both are
// stored before anything is sent, and stay stored until the BMC has let a new
// login with the candidate in; so whatever crashes, and wherever, one of two
// stored logins is the BMC's. Each step may be repeated at any time.
type RotateIn struct {
	contract.JobRef
	BMCID string `json:"bmc_id"`
}

// PrepareRotation makes a new password and stores it as the candidate. It sends
// nothing. Repeated, also by the job after a lost one, it finds the same
// candidate; after the commit it finds the rotation done.
func (a *Activities) PrepareRotation(ctx context.Context, in RotateIn) (contract.RotationFacts, error) {
	r, err := a.rotation(ctx, in)
	if err != nil || r.committed() {
		return r.facts(), err
	}
	if err := a.stopped(ctx, r.rec); err != nil {
		return r.facts(), err
	}
	if r.row, err = a.Store.BeginBMCRotation(ctx, in.BMCID, in.JobID); err != nil {
		return r.facts(), fault.Internal(ctx, err)
	}
	if err := r.load(ctx); err != nil || r.rec.CandidateRef != "" {
		return r.facts(), err
	}
	err = r.newCandidate(ctx, "", passwordLength)
	return r.facts(), err
}

// ApplyRotation sets the candidate on the BMC, or finds it set. Which of the
// two logins the BMC takes is known from the row, except after a change whose
// outcome was lost: then the candidate is tried, once. No login is tried that
// could lock the account.
func (a *Activities) ApplyRotation(ctx context.Context, in RotateIn) (contract.RotationFacts, error) {
	r, err := a.begun(ctx, in)
	if err != nil || r.committed() {
		return r.facts(), err
	}
	return r.outcome(ctx, r.apply(ctx))
}

// VerifyRotation logs in again with the candidate. A BMC that said it took the
// candidate and does not let it in is told once more when this is repeated.
func (a *Activities) VerifyRotation(ctx context.Context, in RotateIn) (contract.RotationFacts, error) {
	r, err := a.begun(ctx, in)
	if err != nil || r.committed() || r.rec.RotationState == lifecycle.RotationVerified {
		return r.facts(), err
	}
	if err := r.apply(ctx); err != nil {
		return r.outcome(ctx, err)
	}
	return r.outcome(ctx, r.verify(ctx))
}

// CommitRotation makes the verified candidate the BMC's login, in one
// transaction with its history. The login before stays stored for one more
// generation; what Slipway made before that is deleted.
func (a *Activities) CommitRotation(ctx context.Context, in RotateIn) (contract.RotationFacts, error) {
	r, err := a.begun(ctx, in)
	if err != nil {
		return r.facts(), err
	}
	if !r.committed() {
		if r.rec.RotationState != lifecycle.RotationVerified {
			return r.facts(), fault.New(lifecycle.FailStateDisagreement,
				"no login with the new password of BMC %s has succeeded yet; rerun the job, which tries one first", r.rec.Address)
		}
		if err := a.Store.CommitBMCRotation(ctx, in.BMCID, r.rec.CandidateRef, "the new login is in force"); err != nil && !errors.Is(err, db.ErrStale) {
			return r.facts(), fault.Internal(ctx, err)
		}
		if err := r.load(ctx); err != nil {
			return r.facts(), err
		}
		if !r.committed() {
			return r.facts(), fault.New(lifecycle.FailStateDisagreement, "the login of BMC %s was changed meanwhile; rerun the job", r.rec.Address)
		}
	}
	a.purge(ctx, in.BMCID)
	return r.facts(), r.end(ctx)
}

// UndoRotation ends a rotation with the login that the BMC takes: the current
// one where the candidate never got there, and otherwise the candidate. A
// password is never changed back, since that would be one more change that can
// get lost. Nothing that the BMC may take is deleted.
func (a *Activities) UndoRotation(ctx context.Context, in RotateIn) (contract.RotationFacts, error) {
	r, err := a.rotation(ctx, in)
	if err != nil {
		return r.facts(), err
	}
	if r.committed() {
		return r.facts(), r.end(ctx)
	}
	open, err := a.Store.OpenBMCRotation(ctx, in.BMCID)
	if errors.Is(err, db.ErrNotFound) || err == nil && open.JobID != in.JobID {
		f := r.facts()
		f.Undone = true
		return f, r.end(ctx) // nothing was begun, or it is another job's
	}
	if err != nil {
		return r.facts(), fault.Internal(ctx, err)
	}
	r.row = open
	if err := r.undo(ctx); err != nil {
		return r.outcome(ctx, err)
	}
	return r.outcome(ctx, r.end(ctx))
}

// purge deletes secrets that no slot and no kept generation names. Only what a
// rotation made itself is ever deleted; a failure is made good by the next
// rotation.
func (a *Activities) purge(ctx context.Context, bmcID string) {
	spent, err := a.Store.SpentBMCRotations(ctx, bmcID)
	if err != nil {
		_ = fault.Internal(ctx, err)
		return
	}
	for _, s := range spent {
		if err := a.Secrets.Delete(ctx, candidateName(bmcID, s.ID)); err != nil {
			_ = fault.Secret(ctx, err)
			return
		}
		if err := a.Store.MarkBMCRotationPurged(ctx, s.ID); err != nil {
			_ = fault.Internal(ctx, err)
			return
		}
	}
}

// candidateName is the secret of one rotation. It has a name of its own, since
// the current login's name may be shared by a whole rack.
func candidateName(bmcID, rotationID string) string { return "bmc/rotated/" + bmcID + "/" + rotationID }

// rotation loads the row, and the job's newest rotation where there is one.
func (a *Activities) rotation(ctx context.Context, in RotateIn) (*rotation, error) {
	r := &rotation{a: a, in: in}
	if err := r.load(ctx); err != nil {
		return r, err
	}
	if in.SiteID == "" {
		return r, nil
	}
	site, err := a.Store.Site(ctx, in.SiteID)
	r.caPEM, r.trustFirstPin = site.Spec.BMCCAPEM, site.Spec.TrustFirstBMCPin
	return r, fault.Internal(ctx, err)
}

// begun loads a rotation that has its candidate.
func (a *Activities) begun(ctx context.Context, in RotateIn) (*rotation, error) {
	r, err := a.rotation(ctx, in)
	if err != nil || r.committed() {
		return r, err
	}
	if r.rec.CandidateRef == "" || r.row.FinishedAt != nil || r.row.ID == "" {
		return r, fault.New(lifecycle.FailStateDisagreement,
			"BMC %s has no new password prepared by this job; rerun the job", r.rec.Address)
	}
	return r, nil
}

func secretRef(ref string) providers.SecretRef { return providers.SecretRef(ref) }
