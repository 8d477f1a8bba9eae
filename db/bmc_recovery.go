package db

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/slipway-cloud/slipway/db/gen"
)

// LostLogin returns the restore that may have lost the login of a BMC, 0 for none: the stored login is
// older than the restore, the BMC has rejected it since, and no other login was tried since.
func (s statements) LostLogin(ctx context.Context, id string) (restore int64, err error) {
	restore, err = s.q.LostLogin(ctx, id)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, nil
	}
	return restore, MapError("BMC "+id, err)
}

// Recovery is the one login beside the stored one that is tried for a BMC after a restore.
type Recovery struct {
	BMCID, By string // By has the right to log in
	Restore   int64
	Source    string // copy or maas
}

// BeginBMCRecovery counts the login of a recovery before it is made, as CountBMCLogin does. It returns
// ErrLoginTaken when another one came in between, or this restore had its try.
func (s *Store) BeginBMCRecovery(ctx context.Context, r Recovery, at time.Time, newWindow bool, seen int, audit Entry) error {
	return s.Tx(ctx, func(tx *Tx) error {
		tries, err := tx.lockBMCsAt(ctx, r.BMCID, r.By)
		if err != nil {
			return err
		}
		n, err := tx.q.BeginBMCRecovery(ctx, gen.BeginBMCRecoveryParams{
			ID: r.BMCID, LoginBy: r.By, RestoreID: r.Restore, Source: r.Source, TryAt: at, NewWindow: newWindow,
		})
		if err == nil && (n == 0 || tries != seen) {
			return fmt.Errorf("BMC %s: %w", r.BMCID, ErrLoginTaken)
		}
		if err != nil {
			return MapError("BMC "+r.BMCID, err)
		}
		return tx.AppendAudit(ctx, audit)
	})
}

// DropBMCRecovery allows the login of a recovery again, because the password never left. Repeatable.
func (s statements) DropBMCRecovery(ctx context.Context, r Recovery) error {
	return MapError("BMC "+r.BMCID, s.q.DropBMCRecovery(ctx, gen.DropBMCRecoveryParams{ID: r.BMCID, RestoreID: r.Restore}))
}

// AdoptBMCLogin makes the login that a BMC has taken its stored login, and allows logins again. It returns
// ErrStale when that was done, or the recovery was not begun.
func (tx *Tx) AdoptBMCLogin(ctx context.Context, r Recovery, ref string) error {
	n, err := tx.q.AdoptBMCLogin(ctx, gen.AdoptBMCLoginParams{ID: r.BMCID, RestoreID: r.Restore, Ref: ref})
	return CheckGuarded("BMC "+r.BMCID, n, err)
}
