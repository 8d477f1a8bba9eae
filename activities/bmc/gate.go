package bmc

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/workflows/contract"
)

// entry is who wants in to a BMC, and with which of its logins.
type entry struct {
	job           contract.JobRef // zero for a look that must not share its job's turn
	bmcID         string
	caPEM         string
	trustFirstPin bool
	// slot is the login to use: "" is the one that the BMC takes, as far as
	// that is known. Only a rotation names one.
	slot string
	// onRejected makes a rejected password an answer instead of a reason to
	// stop all logins: the other slot is the live one. It runs in the
	// transaction that counts the rejection.
	onRejected func(context.Context, *db.Tx) error
}

// visit is one BMC that has let us in. Leave it as soon as possible: until then
// nobody else can log in there.
type visit struct {
	rec   db.BMC
	bmc   providers.BMC
	login providers.Login
	leave func()
	// owed is a rejection that could not be written down: nobody else is let in
	// before it is, or before the right to log in has run out.
	owed func(context.Context) error
}

// errSlotRejected: the BMC does not take the password of this slot.
var errSlotRejected = errors.New("the BMC does not take this slot's password")

const (
	turnLimit  = 30 * time.Second // how long one job waits for another's login
	loginTTL   = 5 * time.Minute  // how long a dead job keeps others out
	lookTTL    = 30 * time.Second // the same for a look that belongs to no job
	loginLimit = 2 * time.Minute  // one login with all that belongs to it
	noteLimit  = 10 * time.Second // writing down what became of it, also when cancelled
)

// enter is the one way in to a BMC; every activity that logs in goes through
// it. It waits until nobody else logs in there, and then, on the row as it is
// at that moment: refuses where logins are stopped, takes the login from the
// slot that is live, settles the certificate before any password leaves, counts
// the try before it is made, logs in once, and writes down what became of it. A
// rejected login stops every further one in the same transaction.
func (a *Activities) enter(ctx context.Context, e entry) (*visit, error) {
	by, ttl := e.job.JobID, loginTTL
	if by == "" {
		by, ttl = db.NewID("look"), lookTTL
	}
	rec, err := a.takeTurn(ctx, e.bmcID, by, ttl)
	if err != nil {
		return nil, err
	}
	v := &visit{rec: rec}
	v.leave = func() {
		if v.bmc != nil {
			a.close(ctx, v.bmc)
		}
		if v.owed != nil && a.mustNote(ctx, v.owed) != nil {
			return
		}
		a.note(ctx, func(ctx context.Context) error { return a.Store.ReleaseBMCLogin(ctx, rec.ID, by) })
	}
	if err := a.admit(ctx, e, by, v); err != nil {
		v.leave()
		return nil, err
	}
	return v, nil
}

// takeTurn waits for the right to log in. Two jobs with one wrong password
// would otherwise count twice before the first one is written down.
func (a *Activities) takeTurn(ctx context.Context, bmcID, by string, ttl time.Duration) (db.BMC, error) {
	limit, cancel := context.WithTimeout(ctx, turnLimit)
	defer cancel()
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		rec, err := a.Store.TakeBMCLogin(ctx, bmcID, by, ttl)
		if !errors.Is(err, db.ErrLoginTaken) {
			return rec, fault.Internal(ctx, err)
		}
		if wait(limit, pause) == nil {
			continue
		}
		if ctx.Err() != nil {
			return db.BMC{}, ctx.Err()
		}
		return db.BMC{}, fault.New(lifecycle.FailBMCUnreachable,
			"another job logs in to BMC %s and has not come out for %s; retry the stage when it has ended", bmcID, turnLimit)
	}
}

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

func (a *Activities) admit(ctx context.Context, e entry, by string, v *visit) error {
	if err := a.stopped(ctx, v.rec); err != nil {
		return err
	}
	ref, err := slotRef(v.rec, e.slot)
	if err != nil {
		return err
	}
	if v.login, err = providers.ResolveLogin(ctx, a.Secrets, providers.SecretRef(ref)); err != nil {
		return fault.Secret(ctx, err)
	}
	opener, err := a.opener(v.rec.Protocol)
	if err != nil {
		return err
	}
	target, err := a.trust(ctx, opener, e, v.rec)
	if err != nil {
		return err
	}
	target.User, target.Password = v.login.Username, v.login.Password
	if v.bmc, err = opener.OpenBMC(target); err != nil {
		return fault.BMC(ctx, err)
	}
	if err := a.countTry(ctx, v.rec, by); err != nil {
		return err
	}
	lctx, cancel := context.WithTimeout(ctx, loginLimit)
	defer cancel()
	if err := a.settle(ctx, e, v, logIn(lctx, v.bmc)); err != nil {
		return err
	}
	a.learnLockout(lctx, v)
	return nil
}

// stopped refuses a BMC to which logins are stopped, under whichever of its
// records: it locks its account, and not the row of one hostname.
func (a *Activities) stopped(ctx context.Context, rec db.BMC) error {
	at, reason, under := rec.AuthBlockedAt, rec.AuthBlockedReason, ""
	if at == nil {
		known, err := a.Store.BMCsAt(ctx, rec.Address)
		if err != nil || len(known) == 0 || known[0].AuthBlockedAt == nil {
			return fault.Internal(ctx, err)
		}
		at, reason, under = known[0].AuthBlockedAt, known[0].AuthBlockedReason, " under its other record "+known[0].ID
	}
	return fault.New(lifecycle.FailBMCAuthRejected,
		"logins to BMC %s are stopped%s since %s: %s", rec.Address, under, at.Format(time.RFC3339), reason)
}

// slotRef returns the reference of a slot. "" is the login that is proven to work. From the moment
// at which a rotation sends a new password until a login with it has succeeded, nothing is proven: a
// BMC may say that it took a password and ignore it. A wrong guess would stop all logins, so other
// jobs wait.
func slotRef(rec db.BMC, slot string) (string, error) {
	if slot == "" {
		switch rec.RotationState {
		case db.RotationVerified:
			slot = contract.SlotCandidate
		case db.RotationApplying, db.RotationApplied:
			return "", fault.New(lifecycle.FailBMCUnreachable,
				"the password of BMC %s is being changed and no login with the new one has succeeded yet; let its rotation end, then retry the stage", rec.Address)
		default:
			slot = contract.SlotCurrent
		}
	}
	if slot == contract.SlotCandidate {
		return rec.CandidateRef, nil
	}
	return rec.CredentialRef, nil
}

// opener is the protocol's of the record. One never stands in for the other: a
// password that one of them rejected would be tried once more.
func (a *Activities) opener(protocol string) (providers.BMCOpener, error) {
	o := a.Openers[protocol]
	if o == nil && protocol == protocolRedfish {
		o = a.Opener
	}
	if o == nil {
		return nil, fault.New(lifecycle.FailConfiguration, "this worker speaks no %q; correct the BMC's protocol", protocol)
	}
	return o, nil
}

const protocolRedfish = "redfish"

// logIn is one attempt. A BMC that cannot log in by itself is asked for its
// power, the cheapest question that needs a login.
func logIn(ctx context.Context, b providers.BMC) error {
	if l, ok := b.(providers.BMCLogin); ok {
		return l.Login(ctx)
	}
	_, err := b.Power(ctx)
	return err
}

// rejected lists the answers after which no login is repeated by itself.
func rejected(err error) bool {
	switch providers.KindOf(err) {
	case providers.KindUnauthorized, providers.KindForbidden, providers.KindLocked, providers.KindPasswordChangeRequired:
		return true
	default:
		return false
	}
}

// settle writes down what became of a try, also when the job was cancelled in
// the meantime: a try that is not settled stays counted as wrong.
func (a *Activities) settle(ctx context.Context, e entry, v *visit, err error) error {
	id := v.rec.ID
	switch {
	case err == nil:
		return a.mustNote(ctx, func(ctx context.Context) error { return a.Store.SettleBMCLogin(ctx, id, db.LoginAccepted) })
	case e.onRejected != nil && providers.IsKind(err, providers.KindUnauthorized):
		if nerr := a.mustNote(ctx, func(ctx context.Context) error {
			return a.Store.Tx(ctx, func(tx *db.Tx) error {
				return errors.Join(tx.SettleBMCLogin(ctx, id, db.LoginRejected), e.onRejected(ctx, tx))
			})
		}); nerr != nil {
			return nerr
		}
		return errSlotRejected
	case rejected(err):
		write := func(ctx context.Context) error {
			return a.Store.Tx(ctx, func(tx *db.Tx) error {
				return errors.Join(tx.SettleBMCLogin(ctx, id, db.LoginRejected), tx.BlockBMCLogin(ctx, id, err.Error()))
			})
		}
		if a.mustNote(ctx, write) != nil {
			v.owed = write
		}
		return fault.BMC(ctx, err)
	}
	if l, ok := v.bmc.(providers.BMCLogin); ok && !l.LoginSent() {
		a.note(ctx, func(ctx context.Context) error { return a.Store.SettleBMCLogin(ctx, id, db.LoginUnsent) })
	}
	if providers.IsKind(err, providers.KindPinMismatch) {
		a.keepSeenPin(ctx, v)
	}
	return fault.BMC(ctx, err)
}

// blockOnRejection stops all logins after a login that was accepted once turns
// out not to be good: a few more tries would lock the account.
func (a *Activities) blockOnRejection(ctx context.Context, bmcID string, err error) {
	if rejected(err) {
		a.note(ctx, func(ctx context.Context) error { return a.Store.BlockBMCLogin(ctx, bmcID, err.Error()) })
	}
}

// note writes what must be written even when the job was cancelled. Where that
// fails to the end, the count of tries still bounds what follows.
func (a *Activities) note(ctx context.Context, write func(context.Context) error) {
	_ = a.mustNote(ctx, write)
}

// mustNote tries again, backing off, for as long as a database may take to fail
// over.
func (a *Activities) mustNote(ctx context.Context, write func(context.Context) error) error {
	whole := context.WithoutCancel(ctx)
	ctx, cancel := context.WithTimeout(whole, noteLimit)
	defer cancel()
	last := time.Now().Add(cmp.Or(a.NoteFor, noteLimit))
	for tried := 1; ; tried++ {
		err := write(ctx)
		if err == nil || errors.Is(err, db.ErrStale) || db.Permanent(err) || ctx.Err() != nil {
			return fault.Internal(whole, err)
		}
		if tried < noteTries {
			continue
		}
		if time.Now().After(last) || wait(ctx, min(notePause<<(tried-noteTries), time.Second)) != nil {
			return fault.Internal(whole, err)
		}
	}
}

// noteTries are made at once: pooled connections may have died with a server that
// is back. Further ones wait in between.
const (
	noteTries = 3
	notePause = 50 * time.Millisecond
)

// The most tries whose outcome is wrong or unknown, two fewer than the BMC's
// threshold; the window when the BMC tells none.
const (
	unknownLimit  = 2 // good for every threshold from three
	noLockout     = 5 // BMCs without a lockout may still shut out an address
	unknownWindow = 15 * time.Minute
)

// tally is what counts at a BMC's address: the account is locked by all tries
// together, under whichever record and by whichever protocol they were made.
type tally struct {
	seen   int       // wrong and open ones, as they stand in the records
	used   int       // those of them whose window has not passed
	limit  int       // how many there may be
	freeAt time.Time // when the last window passes
	anew   bool      // those of the record that is to be used have passed
}

func (a *Activities) tally(ctx context.Context, rec db.BMC, now time.Time) (tally, error) {
	known, err := a.Store.BMCsAt(ctx, rec.Address)
	if err != nil {
		return tally{}, fault.Internal(ctx, err)
	}
	var t tally
	limit, window := lockout(known)
	t.limit = limit
	for _, r := range known {
		n := r.WrongLogins + r.OpenLogins
		t.seen += n
		passed := r.LoginTryAt == nil || now.Sub(*r.LoginTryAt) > window
		if r.ID == rec.ID {
			t.anew = passed
		}
		if n == 0 || passed {
			continue
		}
		t.used += n
		if end := r.LoginTryAt.Add(window); end.After(t.freeAt) {
			t.freeAt = end
		}
	}
	return t, nil
}

// lockout is the strictest of what a BMC said under its records.
func lockout(known []db.BMC) (limit int, window time.Duration) {
	for _, r := range known {
		if t := r.LockoutThreshold; t != nil {
			most := max(1, int(*t)-2)
			if *t == 0 {
				most = noLockout
			}
			if limit == 0 || most < limit {
				limit = most
			}
		}
		if s := r.LockoutWindowS; s != nil {
			window = max(window, time.Duration(*s)*time.Second)
		}
	}
	return cmp.Or(limit, unknownLimit), cmp.Or(window, unknownWindow)
}

// countTry counts a try before it is made, so that a crash cannot forget it,
// and refuses one that could lock the account.
func (a *Activities) countTry(ctx context.Context, rec db.BMC, by string) error {
	now, err := a.now(ctx)
	if err != nil {
		return err
	}
	t, err := a.tally(ctx, rec, now)
	if err != nil {
		return err
	}
	if t.used >= t.limit {
		return fault.New(lifecycle.FailBMCUnreachable,
			"%d logins to BMC %s were wrong or got no answer; the next one is allowed after %s, so that the account is not locked: retry the stage then",
			t.used, rec.Address, t.freeAt.UTC().Format(time.RFC3339))
	}
	err = a.Store.CountBMCLogin(ctx, rec.ID, by, now, t.anew, t.seen)
	if errors.Is(err, db.ErrLoginTaken) {
		return fault.New(lifecycle.FailBMCUnreachable, "somebody else took over the login to BMC %s; retry the stage", rec.Address)
	}
	return fault.Internal(ctx, err)
}

// now is the database's time: workers whose clocks differ share the windows.
func (a *Activities) now(ctx context.Context) (time.Time, error) {
	if a.Now != nil {
		return a.Now(), nil
	}
	now, err := a.Store.Clock(ctx)
	return now, fault.Internal(ctx, err)
}

// learnLockout asks a BMC once when it locks an account. One that does not say
// is not asked again.
func (a *Activities) learnLockout(ctx context.Context, v *visit) {
	accounts, ok := v.bmc.(providers.BMCAccounts)
	if v.rec.LockoutWindowS != nil || !ok {
		return
	}
	p, err := accounts.PasswordPolicy(ctx)
	if err != nil {
		return // the next visit asks again
	}
	if p.LockoutWindow <= 0 {
		p.LockoutWindow = unknownWindow
	}
	a.note(ctx, func(ctx context.Context) error {
		return a.Store.SetBMCLockout(ctx, v.rec.ID, p.LockoutThreshold, p.LockoutWindow)
	})
	if rec, err := a.Store.BMC(ctx, v.rec.ID); err == nil {
		v.rec = rec
	}
}
