package bmc

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/activities/login"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/internal/poll"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
)

// loginRequest is who logs in to a BMC, and with which of its logins.
type loginRequest struct {
	job           contract.JobRef // zero for a read that does not share the lease of a job
	actor         db.Actor        // who the audit log names; zero is the job
	bmcID         string
	caPEM         string
	trustFirstPin bool
	// slot is the login to use. "" is the one that the BMC accepts, as far as that is known. Only a
	// rotation sets it.
	slot string
	// onRejected handles a rejected password, in the transaction that counts the rejection. Without
	// it a rejected password stops all further logins. A rotation sets it, because a rejection
	// tells which slot the BMC accepts.
	onRejected func(context.Context, *db.Tx) error
}

// loginSession is a BMC that we are logged in to. End it as soon as possible: nobody else can log
// in to the BMC before.
type loginSession struct {
	rec   db.BMC
	bmc   providers.BMC
	login providers.Login
	leave func() // ends the session
	// unrecorded records a rejection that could not be recorded yet. Until it is, the lease is
	// kept, so that nobody else logs in before the lease expires.
	unrecorded func(context.Context) error
}

// errSlotRejected says that the BMC does not accept the password of a slot.
var errSlotRejected = errors.New("the BMC does not take this slot's password")

const (
	turnLimit  = 30 * time.Second // how long a job waits for the login of another
	loginTTL   = 5 * time.Minute  // how long a dead job keeps its lease
	lookTTL    = time.Minute      // the same for a read that belongs to no job: more than LookLimit and noteLimit
	loginLimit = 2 * time.Minute  // one login with all that belongs to it
	noteLimit  = 10 * time.Second // recording its outcome, also when cancelled
)

// LookLimit is how long a read that belongs to no job may take, with its wait for the login of
// another. It ends before another may take its lease.
const LookLimit = 45 * time.Second

// enter logs in to a BMC. Every activity that logs in uses it. It waits until nobody else is logged
// in there. Then, on the record as it is at that moment, it
//
//   - fails when logins are stopped,
//   - takes the login from the slot that the BMC accepts,
//   - checks that the login may be sent to the BMC's address, before it is opened,
//   - checks the certificate, before any password is sent,
//   - counts the attempt, before it is made,
//   - logs in once, and records the outcome.
//
// A rejected login stops every further login in the same transaction. Only where a restore of the
// database may have lost the login is another one tried, once (recovery.go).
func (a *Activities) enter(ctx context.Context, r loginRequest) (*loginSession, error) {
	by, ttl := r.job.JobID, loginTTL
	if by == "" {
		by, ttl = db.NewID("look"), lookTTL
	}
	rec, err := a.takeLease(ctx, r.bmcID, by, ttl)
	if err != nil {
		return nil, err
	}
	s := &loginSession{rec: rec}
	s.leave = func() {
		if s.bmc != nil {
			a.close(ctx, s.bmc)
		}
		if s.unrecorded != nil && a.mustNote(ctx, s.unrecorded) != nil {
			return
		}
		a.note(ctx, func(ctx context.Context) error { return a.Store.ReleaseBMCLogin(ctx, rec.ID, by) })
	}
	if err := a.openSession(ctx, r, by, s); err != nil {
		if err = a.recover(ctx, r, by, s, err); err != nil {
			s.leave()
			return nil, err
		}
	}
	return s, nil
}

// takeLease waits for the right to log in. Without it, two jobs with one wrong password would both
// make an attempt before the first rejection is recorded.
func (a *Activities) takeLease(ctx context.Context, bmcID, by string, ttl time.Duration) (db.BMC, error) {
	limit, cancel := context.WithTimeout(ctx, turnLimit)
	defer cancel()
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		rec, err := a.Store.TakeBMCLogin(ctx, bmcID, by, ttl)
		if !errors.Is(err, db.ErrLoginTaken) {
			return rec, fault.Internal(ctx, err)
		}
		if poll.Sleep(limit, pause) == nil {
			continue
		}
		if ctx.Err() != nil {
			return db.BMC{}, ctx.Err()
		}
		return db.BMC{}, fault.New(lifecycle.FailBMCUnreachable,
			"another job logs in to BMC %s and has not come out for %s; retry the stage when it has ended", bmcID, turnLimit)
	}
}

func (a *Activities) openSession(ctx context.Context, r loginRequest, by string, s *loginSession) error {
	if err := a.stopped(ctx, s.rec); err != nil {
		return err
	}
	ref, err := slotRef(s.rec, r.slot)
	if err != nil {
		return err
	}
	opener, err := a.opener(s.rec.Protocol)
	if err != nil {
		return err
	}
	use, err := a.loginUse(ctx, s.rec, r.job)
	if err != nil {
		return err
	}
	rule, err := a.Secrets.AddressRule(ctx, providers.SecretRef(ref), use)
	if err != nil {
		return a.refusedLogin(ctx, r, s.rec, ref, err)
	}
	target, err := a.trust(ctx, opener, r, s.rec, rule)
	if err != nil {
		return err
	}
	if s.login, err = providers.ResolveLogin(ctx, a.Secrets, providers.SecretRef(ref), use); err != nil {
		return a.refusedLogin(ctx, r, s.rec, ref, err)
	}
	target.User, target.Password = s.login.Username, s.login.Password
	if s.bmc, err = opener.OpenBMC(target); err != nil {
		return fault.BMC(ctx, err)
	}
	started := a.loginEntry(r, s.rec, ref, login.Started)
	err = a.countAttempt(ctx, s.rec, func(now time.Time, expired bool, seen int) error {
		return a.Store.CountBMCLogin(ctx, s.rec.ID, by, now, expired, seen, started)
	})
	if err != nil {
		return err
	}
	lctx, cancel := context.WithTimeout(ctx, loginLimit)
	defer cancel()
	if err := a.recordOutcome(ctx, r, s, ref, logIn(lctx, s.bmc)); err != nil {
		return err
	}
	a.learnLockout(lctx, s)
	return nil
}

// stopped fails when logins to the BMC are stopped, under any of its records: the BMC locks
// its account for all of them.
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
// at which a rotation sends a new password until a login with it has succeeded, nothing is proven:
// a BMC may say that it took a password and ignore it. A wrong guess would stop all logins, so
// other jobs wait.
func slotRef(rec db.BMC, slot string) (string, error) {
	if slot == "" {
		switch rec.RotationState {
		case lifecycle.RotationVerified:
			slot = contract.SlotCandidate
		case lifecycle.RotationApplying, lifecycle.RotationApplied:
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

// opener returns the client for the protocol of a record. It never falls back to another protocol,
// which would try a rejected password once more.
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

// logIn makes one attempt. For a client without a login of its own it reads the power, the cheapest
// request that needs one.
func logIn(ctx context.Context, b providers.BMC) error {
	if l, ok := b.(providers.BMCLogin); ok {
		return l.Login(ctx)
	}
	_, err := b.Power(ctx)
	return err
}

// rejected reports whether err is an answer after which no login is repeated automatically.
func rejected(err error) bool {
	switch providers.KindOf(err) {
	case providers.KindUnauthorized, providers.KindForbidden, providers.KindLocked, providers.KindPasswordChangeRequired:
		return true
	default:
		return false
	}
}

// recordOutcome records the outcome of an attempt, also when the job was cancelled since. An
// attempt without an outcome stays counted as wrong.
func (a *Activities) recordOutcome(ctx context.Context, r loginRequest, s *loginSession, ref string, err error) error {
	id := s.rec.ID
	audit := func(ctx context.Context, tx *db.Tx, outcome string) error {
		return tx.AppendAudit(ctx, a.loginEntry(r, s.rec, ref, outcome))
	}
	switch {
	case err == nil:
		return a.mustNote(ctx, func(ctx context.Context) error {
			return a.Store.Tx(ctx, func(tx *db.Tx) error {
				return errors.Join(tx.SettleBMCLogin(ctx, id, db.LoginAccepted), audit(ctx, tx, login.Accepted))
			})
		})
	case r.onRejected != nil && providers.IsKind(err, providers.KindUnauthorized):
		if nerr := a.mustNote(ctx, func(ctx context.Context) error {
			return a.Store.Tx(ctx, func(tx *db.Tx) error {
				return errors.Join(tx.SettleBMCLogin(ctx, id, db.LoginRejected), r.onRejected(ctx, tx), audit(ctx, tx, login.Rejected))
			})
		}); nerr != nil {
			return nerr
		}
		return errSlotRejected
	case rejected(err):
		write := func(ctx context.Context) error {
			return a.Store.Tx(ctx, func(tx *db.Tx) error {
				return errors.Join(tx.SettleBMCLogin(ctx, id, db.LoginRejected), tx.BlockBMCLogin(ctx, id, err.Error()), audit(ctx, tx, login.Rejected))
			})
		}
		if a.mustNote(ctx, write) != nil {
			s.unrecorded = write
		}
		return fault.BMC(ctx, err)
	}
	l, ok := s.bmc.(providers.BMCLogin)
	unsent := ok && !l.LoginSent()
	a.note(ctx, func(ctx context.Context) error {
		return a.Store.Tx(ctx, func(tx *db.Tx) error {
			if !unsent {
				return audit(ctx, tx, login.Unknown)
			}
			return errors.Join(tx.SettleBMCLogin(ctx, id, db.LoginUnsent), audit(ctx, tx, login.Unsent))
		})
	})
	if providers.IsKind(err, providers.KindPinMismatch) {
		a.keepSeenPin(ctx, s)
	}
	return fault.BMC(ctx, err)
}

// blockOnRejection stops all logins when the BMC rejects a login that it accepted before: a few
// more attempts would lock the account.
func (a *Activities) blockOnRejection(ctx context.Context, bmcID string, err error) {
	if rejected(err) {
		a.note(ctx, func(ctx context.Context) error { return a.Store.BlockBMCLogin(ctx, bmcID, err.Error()) })
	}
}

// note writes to the database even when the job was cancelled. When that fails, the count of
// attempts still bounds what follows.
func (a *Activities) note(ctx context.Context, write func(context.Context) error) {
	_ = a.mustNote(ctx, write)
}

// mustNote is note with the error. It retries, backing off, for as long as a database may take to
// fail over.
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
		if time.Now().After(last) || poll.Sleep(ctx, min(notePause<<(tried-noteTries), time.Second)) != nil {
			return fault.Internal(whole, err)
		}
	}
}

// noteTries are made without a pause: pooled connections may be broken though the server is back.
const (
	noteTries = 3
	notePause = 50 * time.Millisecond
)

// The limits of attempts whose outcome is wrong or unknown, and the window of a BMC that reports
// none. The limit of a BMC that reports a threshold is two fewer than that.
const (
	unknownLimit  = 2 // safe for every threshold from three
	noLockout     = 5 // a BMC without a lockout may still block an address
	unknownWindow = 15 * time.Minute
)

// attemptCounts are the attempts at a BMC's address. All of them together lock the account, under
// any record and by any protocol.
type attemptCounts struct {
	seen    int       // wrong and open ones in the records
	used    int       // those of them whose window has not passed
	limit   int       // the most that are allowed
	freeAt  time.Time // when the last window passes
	expired bool      // the window of the record that is used is over
}

func (a *Activities) countAttempts(ctx context.Context, rec db.BMC, now time.Time) (attemptCounts, error) {
	known, err := a.Store.BMCsAt(ctx, rec.Address)
	if err != nil {
		return attemptCounts{}, fault.Internal(ctx, err)
	}
	var t attemptCounts
	limit, window := lockout(known)
	t.limit = limit
	for _, r := range known {
		n := r.WrongLogins + r.OpenLogins
		t.seen += n
		passed := r.LoginTryAt == nil || now.Sub(*r.LoginTryAt) > window
		if r.ID == rec.ID {
			t.expired = passed
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

// lockout returns the strictest limits that a BMC has reported under its records.
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

// countAttempt counts an attempt by count before it is made, so that a crash does not lose it. It
// fails when the attempt could lock the account.
func (a *Activities) countAttempt(ctx context.Context, rec db.BMC, count func(now time.Time, expired bool, seen int) error) error {
	now, err := a.now(ctx)
	if err != nil {
		return err
	}
	t, err := a.countAttempts(ctx, rec, now)
	if err != nil {
		return err
	}
	if t.used >= t.limit {
		return fault.New(lifecycle.FailBMCUnreachable,
			"%d logins to BMC %s were wrong or got no answer; the next one is allowed after %s, so that the account is not locked: retry the stage then",
			t.used, rec.Address, t.freeAt.UTC().Format(time.RFC3339))
	}
	err = count(now, t.expired, t.seen)
	if errors.Is(err, db.ErrLoginTaken) {
		return fault.New(lifecycle.FailBMCUnreachable, "somebody else took over the login to BMC %s; retry the stage", rec.Address)
	}
	return fault.Internal(ctx, err)
}

// now returns the database's time, so that workers whose clocks differ share the windows.
func (a *Activities) now(ctx context.Context) (time.Time, error) {
	if a.Now != nil {
		return a.Now(), nil
	}
	now, err := a.Store.Clock(ctx)
	return now, fault.Internal(ctx, err)
}

// learnLockout reads a BMC's lockout policy once. It does not read again when the BMC reports none.
func (a *Activities) learnLockout(ctx context.Context, s *loginSession) {
	accounts, ok := s.bmc.(providers.BMCAccounts)
	if s.rec.LockoutWindowS != nil || !ok {
		return
	}
	p, err := accounts.PasswordPolicy(ctx)
	if err != nil {
		return // the next session reads again
	}
	if p.LockoutWindow <= 0 {
		p.LockoutWindow = unknownWindow
	}
	a.note(ctx, func(ctx context.Context) error {
		return a.Store.SetBMCLockout(ctx, s.rec.ID, p.LockoutThreshold, p.LockoutWindow)
	})
	if rec, err := a.Store.BMC(ctx, s.rec.ID); err == nil {
		s.rec = rec
	}
}
