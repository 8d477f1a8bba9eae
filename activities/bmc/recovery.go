package bmc

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"go.temporal.io/sdk/temporal"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/activities/login"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
)

// Copies keeps values outside of the database, sealed; providers/secrets implements it.
type Copies interface {
	KeepCopy(ctx context.Context, name string, value providers.Secret) error
	ReadCopy(ctx context.Context, name string) (providers.Secret, error)
}

// HeldLogin returns the login that the MAAS of a node holds for the BMC at an address. It returns
// KindNotFound when there is none.
type HeldLogin func(ctx context.Context, node db.Node, address string) (providers.Login, error)

// The places outside of the database where the login of a BMC is.
const (
	sourceCopy = "copy" // sealed by the rotation before it sent the password
	sourceMAAS = "maas" // MAAS's power parameters
)

// loginCopy is the sealed copy of a BMC's logins. Sent may be the BMC's while it is not known what
// came of its change.
type loginCopy struct {
	Current json.RawMessage `json:"current,omitempty"`
	Sent    json.RawMessage `json:"sent,omitempty"`
}

func copyName(bmcID string) string { return "bmc/rotated/" + bmcID }

// readCopy returns the copy of a BMC's logins; its fields are empty when there is none.
func (a *Activities) readCopy(ctx context.Context, bmcID string) (c loginCopy, err error) {
	value, err := a.Copies.ReadCopy(ctx, copyName(bmcID))
	if err == nil && json.Unmarshal([]byte(value.Reveal()), &c) != nil {
		err = &providers.Error{Kind: providers.KindProtocol, Op: "bmc.copy", Message: "the sealed copy of the BMC's logins cannot be read"}
	}
	if providers.IsKind(err, providers.KindNotFound) {
		err = nil
	}
	return c, err
}

// keepCopy changes the copy of a BMC's logins. Its callers have the right to log in to the BMC.
func (a *Activities) keepCopy(ctx context.Context, bmcID string, change func(*loginCopy) error) error {
	if a.Copies == nil {
		return nil
	}
	c, err := a.readCopy(ctx, bmcID)
	if err != nil && !providers.IsKind(err, providers.KindProtocol) { // a damaged copy is replaced
		return fault.Secret(ctx, err)
	}
	if err := change(&c); err != nil {
		return err
	}
	text, err := json.Marshal(c)
	if err != nil {
		return fault.Internal(ctx, err)
	}
	return fault.Secret(ctx, a.Copies.KeepCopy(ctx, copyName(bmcID), providers.NewSecret(string(text))))
}

// copyCandidate seals the candidate outside of the database, before it is sent.
func (r *rotation) copyCandidate(ctx context.Context, fresh providers.Login) error {
	return r.a.keepCopy(ctx, r.in.BMCID, func(c *loginCopy) (err error) {
		value, err := loginSecret(fresh.Username, fresh.Password)
		c.Sent = json.RawMessage(value.Reveal())
		return err
	})
}

// settleCopy writes what came of the candidate. A failure changes nothing: the copy still has the
// candidate as sent, which is read first.
func (r *rotation) settleCopy(ctx context.Context, taken bool) {
	_ = r.a.keepCopy(ctx, r.in.BMCID, func(c *loginCopy) error {
		if taken && c.Sent != nil {
			c.Current = c.Sent
		}
		c.Sent = nil
		return nil
	})
}

// recover looks for the login of a BMC that a restore of the database has lost, after the stored
// one was rejected. It tries the ones that it finds elsewhere, one from each place and for each
// restore, and stores the one that the BMC takes: the copy of one worker may be older than what
// MAAS holds. It returns the rejection when there is nothing to try.
func (a *Activities) recover(ctx context.Context, q loginRequest, by string, s *loginSession, rejection error) error {
	var failure *temporal.ApplicationError
	if q.slot != "" || !errors.As(rejection, &failure) || failure.Type() != string(lifecycle.FailBMCAuthRejected) || s.unrecorded != nil {
		return rejection
	}
	for {
		restore, tried, err := a.Store.LostLogin(ctx, s.rec.ID)
		if err != nil {
			return fault.Internal(ctx, err)
		}
		if restore == 0 {
			return rejection
		}
		found, source, err := a.findLogin(ctx, q, s.rec, tried)
		if err != nil || source == "" {
			return rejection // another look finds out again, as nothing was tried
		}
		try := db.Recovery{BMC: s.rec, By: by, Restore: restore, Source: source}
		err = a.trySavedLogin(ctx, q, s, try, found)
		if err == nil {
			return a.adoptLogin(ctx, q, s, try, found)
		}
		if !errors.As(err, &failure) || failure.Type() != string(lifecycle.FailBMCAuthRejected) {
			return err
		}
		rejection = err // each turn has tried another place
	}
}

// findLogin returns a login that is stored outside of the database, differs from the stored one, is
// for the same BMC, and is from a place whose login was not tried. The login that a rotation was
// sending comes first, as it is sealed before the BMC is told. The login that MAAS holds comes
// before a copy of a rotation that has ended: another worker may have made the last one.
func (a *Activities) findLogin(ctx context.Context, q loginRequest, rec db.BMC, tried []string) (found providers.Login, source string, err error) {
	use, err := a.loginUse(ctx, rec, q.job)
	if err != nil {
		return found, "", err
	}
	stored, err := a.resolve(ctx, rec.CredentialRef, use)
	if err != nil {
		return found, "", err
	}
	differs := func(l providers.Login) bool {
		return l.Username != stored.Username || l.Password.Reveal() != stored.Password.Reveal()
	}
	var c loginCopy
	if a.Copies != nil && !slices.Contains(tried, sourceCopy) {
		if c, err = a.readCopy(ctx, rec.ID); err != nil {
			c = loginCopy{} // a copy that cannot be read is none
		}
	}
	copied := func(text json.RawMessage) bool {
		l, ok := providers.ParseLogin(providers.NewSecret(string(text)))
		if ok = ok && differs(l); ok {
			found, source = l, sourceCopy
		}
		return ok
	}
	if copied(c.Sent) {
		return found, source, nil
	}
	held, err := a.heldLogin(ctx, rec, tried)
	if err == nil && held.Username != "" && differs(held) {
		return held, sourceMAAS, nil
	}
	copied(c.Current)
	return found, source, nil
}

// heldLogin returns the login that MAAS holds for a BMC, where it was not tried.
func (a *Activities) heldLogin(ctx context.Context, rec db.BMC, tried []string) (providers.Login, error) {
	if a.Held == nil || rec.NodeID == nil || slices.Contains(tried, sourceMAAS) {
		return providers.Login{}, nil
	}
	node, err := a.Store.Node(ctx, *rec.NodeID)
	if err != nil || node.MAASSystemID == nil {
		return providers.Login{}, err
	}
	return a.Held(ctx, node, rec.Address)
}

// trySavedLogin logs in once with a login from elsewhere, under the limits of every login.
func (a *Activities) trySavedLogin(ctx context.Context, q loginRequest, s *loginSession, tried db.Recovery, with providers.Login) error {
	use, err := a.loginUse(ctx, s.rec, q.job)
	if err != nil {
		return err
	}
	opener, err := a.opener(s.rec.Protocol)
	if err != nil {
		return err
	}
	rule, err := a.Secrets.AddressRule(ctx, providers.SecretRef(s.rec.CredentialRef), use)
	if err != nil {
		return fault.Login(ctx, err, fault.BMC)
	}
	target, err := a.trust(ctx, opener, q, s.rec, rule)
	if err != nil {
		return err
	}
	if s.bmc != nil {
		a.close(ctx, s.bmc)
		s.bmc = nil
	}
	target.User, target.Password = with.Username, with.Password
	if s.bmc, err = opener.OpenBMC(target); err != nil {
		return fault.BMC(ctx, err)
	}
	started := a.loginEntry(q, s.rec, tried.Source, login.Started)
	err = a.countAttempt(ctx, s.rec, func(now time.Time, expired bool, seen int) error {
		return a.Store.BeginBMCRecovery(ctx, tried, now, expired, seen, started)
	})
	if err != nil {
		return err
	}
	lctx, cancel := context.WithTimeout(ctx, loginLimit)
	defer cancel()
	if err := logIn(lctx, s.bmc); err != nil {
		return a.recordRecovery(ctx, q, s, tried, err)
	}
	s.login = with
	return nil
}

// recordRecovery records that the login of a recovery did not succeed. Logins stay stopped. A login
// that was never sent may be made again.
func (a *Activities) recordRecovery(ctx context.Context, q loginRequest, s *loginSession, tried db.Recovery, cause error) error {
	sender, knows := s.bmc.(providers.BMCLogin)
	outcome, settled := login.Unknown, func(context.Context, *db.Tx) error { return nil }
	switch {
	case rejected(cause):
		outcome, settled = login.Rejected, func(ctx context.Context, tx *db.Tx) error { return tx.SettleBMCLogin(ctx, s.rec.ID, db.LoginRejected) }
	case knows && !sender.LoginSent():
		outcome, settled = login.Unsent, func(ctx context.Context, tx *db.Tx) error {
			return errors.Join(tx.SettleBMCLogin(ctx, s.rec.ID, db.LoginUnsent), tx.DropBMCRecovery(ctx, tried))
		}
	}
	a.note(ctx, func(ctx context.Context) error {
		return a.Store.Tx(ctx, func(tx *db.Tx) error {
			return errors.Join(settled(ctx, tx), tx.AppendAudit(ctx, a.loginEntry(q, s.rec, tried.Source, outcome)))
		})
	})
	return fault.BMC(ctx, cause)
}

// adoptLogin stores the login that the BMC has taken, for what the one before may be used, and
// allows logins again.
func (a *Activities) adoptLogin(ctx context.Context, q loginRequest, s *loginSession, tried db.Recovery, taken providers.Login) error {
	name := candidateName(s.rec.ID, db.NewID("rec"))
	if err := a.inheritStatedUse(ctx, s.rec, name); err != nil {
		return err
	}
	value, err := loginSecret(taken.Username, taken.Password)
	if err != nil {
		return fault.Internal(ctx, err)
	}
	ref, err := a.Secrets.Put(ctx, name, value)
	if err != nil {
		return fault.Secret(ctx, err)
	}
	adopted := a.loginEntry(q, s.rec, string(ref), "")
	adopted.Kind, adopted.Name = db.EntryAction, "adopt_login"
	err = a.mustNote(ctx, func(ctx context.Context) error {
		return a.Store.Tx(ctx, func(tx *db.Tx) error {
			return errors.Join(tx.SettleBMCLogin(ctx, s.rec.ID, db.LoginAccepted), tx.AdoptBMCLogin(ctx, tried, string(ref)),
				tx.AppendAudit(ctx, a.loginEntry(q, s.rec, string(ref), login.Accepted)), tx.AppendAudit(ctx, adopted))
		})
	})
	if err != nil {
		return err
	}
	s.rec, err = a.Store.BMC(ctx, s.rec.ID)
	return fault.Internal(ctx, err)
}
