package bmc

import (
	"context"
	"errors"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
)

// CheckRotationEnded proves UndoRotation, without a login: this job's rotation
// is closed, and the BMC's record names one login again. Undone says so;
// otherwise Note names what is left.
func (a *Activities) CheckRotationEnded(ctx context.Context, in RotateIn) (contract.RotationFacts, error) {
	out := contract.RotationFacts{BMCID: in.BMCID}
	rec, err := a.Store.BMC(ctx, in.BMCID)
	if errors.Is(err, db.ErrNotFound) {
		out.Undone = true // with its record went its slots
		return out, nil
	}
	if err != nil {
		return out, fault.Internal(ctx, err)
	}
	out.CurrentRef, out.CandidateRef = rec.CredentialRef, rec.CandidateRef
	open, err := a.Store.OpenBMCRotation(ctx, in.BMCID)
	switch {
	case err == nil && open.JobID == in.JobID:
		out.Note = "the rotation of BMC " + in.BMCID + " by this job is still open"
	case err == nil: // another job's: its candidate is none of ours
	case !errors.Is(err, db.ErrNotFound):
		return out, fault.Internal(ctx, err)
	case rec.CandidateRef != "":
		out.Note = "BMC " + in.BMCID + " still has the candidate " + rec.CandidateRef + " and no rotation that it belongs to"
	}
	out.Undone = out.Note == ""
	return out, nil
}
