package db

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/slipway-cloud/slipway/db/gen"
)

// LostLogin returns the restore that may have lost the login of a BMC, 0 for none: the stored login
// is older than the restore, and the BMC has rejected it since. tried are the places whose login
// was tried since.
func (s statements) LostLogin(ctx context.Context, id string) (restore int64, tried []string, err error) {
	row, err := s.q.LostLogin(ctx, id)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, nil, nil
	}
	return row.ID, row.Tried, MapError("BMC "+id, err)
}

// Recovery is a login beside the stored one that is tried for a BMC after a restore, one from each
// place.
type Recovery struct {
	BMC     BMC    // as it was when the login was found
	By      string // has the right to log in
	Restore int64
	Source  string // copy or maas
}

// BeginBMCRecovery counts the login of a recovery before it is made, as CountBMCLogin does. It
// returns ErrLoginTaken when another one came in between, the BMC's record has changed, or this
// place had its try.
func (s *Store) BeginBMCRecovery(ctx context.Context, r Recovery, at time.Time, newWindow bool, seen int, audit Entry) error {
	return s.Tx(ctx, func(tx *Tx) error {
		tries, err := tx.lockBMCsAt(ctx, r.BMC.ID, r.By)
		if err != nil {
			return err
		}
		n, err := tx.q.BeginBMCRecovery(ctx, gen.BeginBMCRecoveryParams{
			ID: r.BMC.ID, LoginBy: r.By, RestoreID: r.Restore, Source: r.Source, TryAt: at, NewWindow: newWindow,
			CredentialRef: r.BMC.CredentialRef, Address: r.BMC.Address, NodeID: r.BMC.NodeID,
		})
		if err == nil && (n == 0 || tries != seen) {
			return fmt.Errorf("BMC %s: %w", r.BMC.ID, ErrLoginTaken)
		}
		if err != nil {
			return MapError("BMC "+r.BMC.ID, err)
		}
		return tx.AppendAudit(ctx, audit)
	})
}

// DropBMCRecovery allows the login of a recovery again, because the password never left.
// Repeatable.
func (s statements) DropBMCRecovery(ctx context.Context, r Recovery) error {
	return MapError("BMC "+r.BMC.ID, s.q.DropBMCRecovery(ctx, gen.DropBMCRecoveryParams{ID: r.BMC.ID, RestoreID: r.Restore, Source: r.Source}))
}

// AdoptBMCLogin makes the login that a BMC has taken its stored login, and allows logins again. It
// returns ErrStale when that was done, or the recovery was not begun.
func (tx *Tx) AdoptBMCLogin(ctx context.Context, r Recovery, ref string) error {
	n, err := tx.q.AdoptBMCLogin(ctx, gen.AdoptBMCLoginParams{ID: r.BMC.ID, RestoreID: r.Restore, Source: r.Source, Ref: ref})
	return CheckGuarded("BMC "+r.BMC.ID, n, err)
}
