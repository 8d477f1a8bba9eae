package bmc

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/internal/poll"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
)

// rotation is one step at work on one BMC.
type rotation struct {
	a             *Activities
	in            RotateIn
	rec           db.BMC
	row           db.BMCRotation // the job's newest
	caPEM         string
	trustFirstPin bool
	// currentTried: the current login was rejected in this step after a candidate had been sent.
	// currentProven: it was let in.
	currentTried, currentProven bool
}

func (r *rotation) load(ctx context.Context) error {
	var err error
	if r.rec, err = r.a.Store.BMC(ctx, r.in.BMCID); err != nil {
		return fault.Internal(ctx, err)
	}
	row, err := r.a.Store.LastBMCRotationOfJob(ctx, r.in.BMCID, r.in.JobID)
	if err != nil && !errors.Is(err, db.ErrNotFound) {
		return fault.Internal(ctx, err)
	}
	r.row = row
	return nil
}

// committed: this job's rotation has ended with the new login.
func (r *rotation) committed() bool {
	return r.row.Outcome == lifecycle.RotationRotated && r.row.ToRef == r.rec.CredentialRef
}

func (r *rotation) facts() contract.RotationFacts {
	f := contract.RotationFacts{
		BMCID: r.in.BMCID, CurrentRef: r.rec.CredentialRef, CandidateRef: r.rec.CandidateRef, FromRef: r.row.FromRef, Note: r.row.Message,
	}
	switch {
	case r.committed():
		f.CandidateRef, f.Slot = r.row.ToRef, contract.SlotCandidate
		f.Applied, f.Verified, f.Committed = true, true, true
	case r.row.Outcome == lifecycle.RotationUndone:
		f.Slot, f.Undone = contract.SlotCurrent, true
	case r.rec.RotationState == lifecycle.RotationApplying:
		f.Slot, f.Note = contract.SlotUnknown, "the new password was sent; it is not known yet whether the BMC took it"
	case r.rec.RotationState == lifecycle.RotationApplied:
		f.Slot, f.Applied, f.Note = contract.SlotCandidate, true, "the BMC took the new password"
	case r.rec.RotationState == lifecycle.RotationVerified:
		f.Slot, f.Applied, f.Verified, f.Note = contract.SlotCandidate, true, true, "a new login with the new password succeeded"
	case r.rec.RotationState == lifecycle.RotationPrepared:
		f.Slot, f.Note = contract.SlotCurrent, "the new password is made and stored"
	}
	return f
}

// outcome reads the facts as they are after a step.
func (r *rotation) outcome(ctx context.Context, err error) (contract.RotationFacts, error) {
	if err == nil {
		err = r.load(ctx)
	}
	if err != nil {
		return contract.RotationFacts{}, fault.Internal(ctx, err)
	}
	return r.facts(), nil
}

// newCandidate makes a password, stores it and records it, in that order. A password that a crash
// left unrecorded is found and taken; insteadOf names one that was never sent, or that the BMC
// refused.
func (r *rotation) newCandidate(ctx context.Context, insteadOf string, length int) error {
	a, name := r.a, candidateName(r.in.BMCID, r.row.ID)
	use, err := r.inheritUse(ctx, name)
	if err != nil {
		return err
	}
	value := providers.Secret{}
	if insteadOf == "" {
		value, err = a.Secrets.Resolve(ctx, secretRef(name), use)
	}
	if insteadOf != "" || providers.IsKind(err, providers.KindNotFound) {
		value, err = r.draw(ctx, length)
	}
	if err != nil {
		return fault.Secret(ctx, err)
	}
	ref, err := a.Secrets.Put(ctx, name, value)
	if err != nil {
		return fault.Secret(ctx, err)
	}
	err = a.Store.SetBMCCandidate(ctx, r.in.BMCID, string(ref), insteadOf)
	if err != nil && !errors.Is(err, db.ErrStale) { // stale: a repetition of this step was faster, and its candidate counts
		return fault.Internal(ctx, err)
	}
	return r.load(ctx)
}

// inheritUse states for the candidate what the current login may be used for. It returns the use of
// either for this BMC.
func (r *rotation) inheritUse(ctx context.Context, candidate string) (providers.Use, error) {
	use, err := r.a.loginUse(ctx, r.rec, r.in.JobRef)
	if err != nil {
		return use, err
	}
	if _, err := r.a.Secrets.AddressRule(ctx, providers.SecretRef(r.rec.CredentialRef), use); err != nil {
		return use, fault.Login(ctx, err, fault.BMC)
	}
	return use, r.a.inheritStatedUse(ctx, r.rec, candidate)
}

// inheritStatedUse states for another secret what the stored login of a BMC may be used for.
func (a *Activities) inheritStatedUse(ctx context.Context, rec db.BMC, name string) error {
	current, _, _ := strings.Cut(rec.CredentialRef, "@")
	stated, _, err := a.Store.SecretUse(ctx, current)
	if err == nil {
		_, err = a.Store.SetSecretUse(ctx, name, stated)
	}
	return fault.Internal(ctx, err)
}

// login opens one of the rotation's logins.
func (r *rotation) login(ctx context.Context, ref string) (providers.Login, error) {
	use, err := r.a.loginUse(ctx, r.rec, r.in.JobRef)
	if err != nil {
		return providers.Login{}, err
	}
	return r.a.resolve(ctx, ref, use)
}

func (r *rotation) draw(ctx context.Context, length int) (providers.Secret, error) {
	now, err := r.login(ctx, r.rec.CredentialRef)
	if err != nil {
		return providers.Secret{}, err
	}
	fresh, err := newPassword(length)
	if err != nil {
		return providers.Secret{}, err
	}
	return loginSecret(now.Username, fresh)
}

// enterCandidate logs in with the candidate. A rejection is an answer: the rotation then goes back
// to prepared from the state in which it stood.
func (r *rotation) enterCandidate(ctx context.Context, from lifecycle.RotationState) (*loginSession, error) {
	return r.enter(ctx, contract.SlotCandidate, from, lifecycle.RotationRefuse)
}

// enterCurrent logs in with the current login. Where the candidate was sent, a rejection is an
// answer too: the BMC may have taken the candidate although it said otherwise, so the rotation goes
// back to applying, which finds out. It does so once a step; a second rejection stops further
// logins.
func (r *rotation) enterCurrent(ctx context.Context) (*loginSession, error) {
	from := lifecycle.RotationNone
	if r.rec.RotationState == lifecycle.RotationPrepared && slices.Contains(r.row.SentRefs, r.rec.CandidateRef) && !r.currentTried {
		from = lifecycle.RotationPrepared
	}
	s, err := r.enter(ctx, contract.SlotCurrent, from, lifecycle.RotationSend)
	switch {
	case errors.Is(err, errSlotRejected):
		r.currentTried, r.rec.RotationState = true, lifecycle.RotationApplying
	case err == nil:
		r.currentProven = true
	}
	return s, err
}

// enter logs in with one slot. Unless from is none, a rejection makes the transition from there, in
// one transaction with the count.
func (r *rotation) enter(
	ctx context.Context, slot string, from lifecycle.RotationState, rejected lifecycle.Transition[lifecycle.RotationState],
) (*loginSession, error) {
	e := loginRequest{job: r.in.JobRef, bmcID: r.in.BMCID, caPEM: r.caPEM, trustFirstPin: r.trustFirstPin, slot: slot}
	candidate := r.rec.CandidateRef
	if from != lifecycle.RotationNone {
		e.onRejected = func(ctx context.Context, tx *db.Tx) error {
			return tx.MoveBMCRotation(ctx, r.in.BMCID, candidate, from, rejected)
		}
	}
	return r.a.enter(ctx, e)
}

// move commits a transition, also when the job was cancelled meanwhile.
func (r *rotation) move(ctx context.Context, t lifecycle.Transition[lifecycle.RotationState]) error {
	err := r.a.mustNote(ctx, func(ctx context.Context) error {
		return r.a.Store.MoveBMCRotation(ctx, r.in.BMCID, r.rec.CandidateRef, r.rec.RotationState, t)
	})
	if err == nil {
		r.rec.RotationState = t.To
		switch t.To { //nolint:exhaustive // the others say nothing new of what the BMC takes
		case lifecycle.RotationApplying:
			r.row.SentRefs = append(r.row.SentRefs, r.rec.CandidateRef)
		case lifecycle.RotationPrepared, lifecycle.RotationVerified:
			r.settleCopy(ctx, t.To == lifecycle.RotationVerified)
		}
	}
	return err
}

// apply brings the rotation to applied: it sends the candidate where the current
// login is live and finds out where nobody knows.
func (r *rotation) apply(ctx context.Context) error {
	for range 3 {
		var err error
		switch r.rec.RotationState {
		case lifecycle.RotationApplied, lifecycle.RotationVerified:
			return nil
		case lifecycle.RotationApplying:
			err = r.findOut(ctx)
		default:
			err = r.send(ctx)
		}
		if err != nil {
			return err
		}
	}
	if r.rec.RotationState == lifecycle.RotationApplied {
		return nil
	}
	return fault.New(lifecycle.FailBMCUnreachable,
		"the new password was sent to BMC %s and it is not known yet whether it took it; retry the stage, which finds out first", r.rec.Address)
}

// send changes the password from the current to the candidate. That it is being
// sent is written down first. It returns nil with the outcome unknown too.
func (r *rotation) send(ctx context.Context) error {
	v, err := r.enterCurrent(ctx)
	if errors.Is(err, errSlotRejected) {
		return nil // applying again: the next round finds out
	}
	if err != nil {
		return err
	}
	defer v.leave()
	accounts, ok := v.bmc.(providers.BMCAccounts)
	if !ok {
		return fault.New(lifecycle.FailConfiguration, "passwords cannot be changed over %s; rotate this BMC's by hand", r.rec.Protocol)
	}
	if err := r.fit(ctx, v, accounts); err != nil {
		return err
	}
	fresh, err := r.login(ctx, r.rec.CandidateRef)
	if err != nil {
		return err
	}
	if err := r.copyCandidate(ctx, fresh); err != nil {
		return err
	}
	if err := r.move(ctx, lifecycle.RotationSend); err != nil {
		return err
	}
	cctx, cancel := context.WithTimeout(ctx, loginLimit)
	defer cancel()
	err = accounts.ChangePassword(cctx, fresh.Password)
	switch {
	case err == nil:
		err = r.move(ctx, lifecycle.RotationAccept)
		r.settle(ctx)
		return err
	case providers.IsKind(err, providers.KindUncertain), providers.KindOf(err) == "":
		r.settle(ctx)
		return ctx.Err() // still applying: the next round finds out
	}
	return r.refused(ctx, err)
}

// refused goes back to prepared after an answer that says that the old password
// still holds. A password that the BMC does not like is replaced by a longer one,
// so that a repetition is not the same again.
func (r *rotation) refused(ctx context.Context, err error) error {
	if merr := r.move(ctx, lifecycle.RotationRefuse); merr != nil {
		return merr
	}
	if providers.IsKind(err, providers.KindInvalid) {
		if cerr := r.newCandidate(ctx, r.rec.CandidateRef, maxPasswordLength); cerr != nil {
			return cerr
		}
	}
	return fault.BMC(ctx, err)
}

// settle waits until a changed password is in force: makes differ in how soon
// after their answer that is, and a login too early counts as wrong.
func (r *rotation) settle(ctx context.Context) {
	d := r.a.Settle
	if d == 0 {
		d = 2 * time.Second
	}
	_ = poll.Sleep(ctx, d)
}

// fit replaces a candidate that would not do, before it is sent: of a length
// that the BMC does not take, or for another user than the one that logs in,
// because an operator has set another login since. The password that is sent is the
// one of whoever is logged in. A BMC that tells no policy is simply tried.
func (r *rotation) fit(ctx context.Context, v *loginSession, accounts providers.BMCAccounts) error {
	made, err := r.login(ctx, r.rec.CandidateRef)
	if err != nil {
		return err
	}
	fits, length := made.Username == v.login.Username, passwordLength
	policy, err := accounts.PasswordPolicy(ctx)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err == nil:
		if length, err = lengthFor(policy); err != nil {
			return fault.New(lifecycle.FailConfiguration, "%s", err)
		}
		have := len(made.Password.Reveal())
		fits = fits && have >= policy.MinLength && (policy.MaxLength <= 0 || have <= policy.MaxLength)
	}
	if fits {
		return nil
	}
	r.rec.CredentialRef = v.rec.CredentialRef
	return r.newCandidate(ctx, r.rec.CandidateRef, length)
}

// findOut tries the candidate, once. A rejection says that the current login is live, which a login
// with it has to prove before the rotation is dropped.
func (r *rotation) findOut(ctx context.Context) error {
	v, err := r.enterCandidate(ctx, lifecycle.RotationApplying)
	switch {
	case errors.Is(err, errSlotRejected):
		r.rec.RotationState = lifecycle.RotationPrepared
		return nil
	case err != nil:
		return err
	}
	defer v.leave()
	return r.move(ctx, lifecycle.RotationAccept)
}

func (r *rotation) verify(ctx context.Context) error {
	v, err := r.enterCandidate(ctx, lifecycle.RotationApplied)
	if errors.Is(err, errSlotRejected) {
		return fault.New(lifecycle.FailBMCUnreachable,
			"BMC %s said that it took the new password and does not let it in; the old one is kept, and a repetition changes it once more", r.rec.Address)
	}
	if err != nil {
		return err
	}
	defer v.leave()
	return r.move(ctx, lifecycle.RotationVerify)
}

// undo ends the rotation with the live login.
func (r *rotation) undo(ctx context.Context) error {
	candidate := r.rec.CandidateRef
	for range 6 {
		var err error
		switch r.rec.RotationState {
		case lifecycle.RotationNone, lifecycle.RotationPrepared:
			if len(r.row.SentRefs) > 0 && !r.currentProven {
				err = r.proveCurrent(ctx)
				break
			}
			r.settleCopy(ctx, false)
			return fault.Internal(ctx, r.a.Store.DropBMCRotation(ctx, r.in.BMCID, candidate, "the rotation was taken back; the old login stays"))
		case lifecycle.RotationApplying:
			err = r.findOut(ctx)
		case lifecycle.RotationApplied:
			v, verr := r.enterCandidate(ctx, lifecycle.RotationApplied)
			switch {
			case errors.Is(verr, errSlotRejected):
				r.rec.RotationState = lifecycle.RotationPrepared
			case verr == nil:
				err = r.move(ctx, lifecycle.RotationVerify)
				v.leave()
			default:
				err = verr
			}
		default:
			return fault.Internal(ctx, r.a.Store.CommitBMCRotation(ctx, r.in.BMCID, candidate,
				"the rotation was taken back after the BMC had taken the new password, which therefore stays"))
		}
		if err != nil {
			return err
		}
	}
	return fault.New(lifecycle.FailStateDisagreement, "the rotation of BMC %s moves while it is taken back; cancel again", r.rec.Address)
}

// end gives back a right to log in that a crash left with this job.
func (r *rotation) end(ctx context.Context) error {
	return fault.Internal(ctx, r.a.Store.ReleaseBMCLogin(ctx, r.in.BMCID, r.in.JobID))
}

// proveCurrent logs in with the current login after a candidate was sent: a rotation never ends on
// a guess. Where the BMC does not take it, the rotation may be applying again.
func (r *rotation) proveCurrent(ctx context.Context) error {
	v, err := r.enterCurrent(ctx)
	if err == nil {
		v.leave()
	}
	if errors.Is(err, errSlotRejected) {
		return nil
	}
	return err
}
