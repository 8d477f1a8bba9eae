package db

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/slipway-cloud/slipway/db/gen"
)

// ErrLoginTaken: another job logs in to the BMC at this moment.
var ErrLoginTaken = errors.New("another job logs in to the BMC at this moment")

// TakeBMCLogin gives by the right to log in to a BMC for as long as ttl, and
// reads the row as it is then. The right is the address's, however many records
// have it: a BMC counts wrong logins, and not the hostnames that it is known
// under. Whoever has it may take it again. ErrLoginTaken while another has it,
// ErrNotFound when there is no such BMC.
func (s *Store) TakeBMCLogin(ctx context.Context, id, by string, ttl time.Duration) (row BMC, err error) {
	err = s.Tx(ctx, func(tx *Tx) error {
		if _, err := tx.lockBMCsAt(ctx, id, by); err != nil {
			return err
		}
		row, err = tx.q.TakeBMCLogin(ctx, gen.TakeBMCLoginParams{ID: id, LoginBy: by, Seconds: ttl.Seconds()})
		if errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("BMC %s: %w", id, ErrLoginTaken)
		}
		return MapError("BMC "+id, err)
	})
	return row, err
}

// lockBMCsAt locks every record of the BMC's address and adds up what is
// counted there; ErrLoginTaken when another than by logs in under one of them.
func (tx *Tx) lockBMCsAt(ctx context.Context, id, by string) (tries int, err error) {
	b, err := tx.BMC(ctx, id)
	if err != nil {
		return 0, err
	}
	rows, err := tx.q.LockBMCsAt(ctx, gen.LockBMCsAtParams{ID: id, Addresses: writtenAs(b.Address)})
	for _, r := range rows {
		if r.Taken && r.LoginBy != by {
			return 0, fmt.Errorf("BMC %s: %w", id, ErrLoginTaken)
		}
		tries += r.Tries
	}
	return tries, MapError("BMCs at "+b.Address, err)
}

// ReleaseBMCLogin gives the right back. Repeatable.
func (s statements) ReleaseBMCLogin(ctx context.Context, id, by string) error {
	return MapError("BMC "+id, s.q.ReleaseBMCLogin(ctx, gen.ReleaseBMCLoginParams{ID: id, LoginBy: by}))
}

// CountBMCLogin counts a try that is about to be made, at the caller's time. newWindow forgets the
// record's earlier ones; seen is how many wrong and open ones of all records of the address the
// caller checked. ErrLoginTaken when by has the right no longer, when a try under any record or an
// operator's block came in between: then no login may be sent. audit is written with the count, so
// that no login is sent that the audit log does not have.
func (s *Store) CountBMCLogin(ctx context.Context, id, by string, at time.Time, newWindow bool, seen int, audit Entry) error {
	return s.Tx(ctx, func(tx *Tx) error {
		tries, err := tx.lockBMCsAt(ctx, id, by)
		if err != nil {
			return err
		}
		n, err := tx.q.CountBMCLogin(ctx, gen.CountBMCLoginParams{ID: id, LoginBy: by, TryAt: at, NewWindow: newWindow})
		if err == nil && (n == 0 || tries != seen) {
			return fmt.Errorf("BMC %s: %w", id, ErrLoginTaken)
		}
		if err != nil {
			return MapError("BMC "+id, err)
		}
		return tx.AppendAudit(ctx, audit)
	})
}

// LoginOutcome is what became of a try that was counted.
type LoginOutcome int

// The outcomes. A try without one stays counted as if it had been wrong.
const (
	LoginAccepted LoginOutcome = iota
	LoginRejected
	LoginUnsent // the password never left: the BMC cannot have counted it
)

// SettleBMCLogin stores the outcome of a login. A BMC that accepts a login forgets the rejected
// logins before it, but they stay counted here until the end of the BMC's window: not every make
// forgets them.
func (s statements) SettleBMCLogin(ctx context.Context, id string, o LoginOutcome) error {
	var err error
	switch o {
	case LoginAccepted:
		err = s.q.BMCLoginAccepted(ctx, id)
	case LoginRejected:
		err = s.q.BMCLoginRejected(ctx, id)
	default:
		err = s.q.BMCLoginUnsent(ctx, id)
	}
	return MapError("BMC "+id, err)
}

// SetBMCLockout keeps what a BMC said of its lockout; nil is unknown.
func (s statements) SetBMCLockout(ctx context.Context, id string, threshold *int, window time.Duration) error {
	p := gen.SetBMCLockoutParams{ID: id}
	if threshold != nil {
		n := int32(min(max(*threshold, 0), 1000)) //nolint:gosec // bounded
		p.LockoutThreshold = &n
	}
	if window > 0 {
		n := int32(min(window, 24*time.Hour) / time.Second) //nolint:gosec // bounded
		p.LockoutWindowS = &n
	}
	return MapError("BMC "+id, s.q.SetBMCLockout(ctx, p))
}
