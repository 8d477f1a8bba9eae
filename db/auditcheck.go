package db

import (
	"context"
	"errors"
	"time"

	"github.com/slipway-cloud/slipway/db/gen"
)

// ChainCheck is the result for one audit chain. BrokenSeq is the first sequence number that is
// missing or was altered, 0 when the chain is whole.
type ChainCheck = gen.VerifyAuditChainsRow

// VerifyAuditChains verifies the chains after the one given, in order. It returns one result for
// each, and fewer than limit at the end.
func (s statements) VerifyAuditChains(ctx context.Context, after Chain, limit int) ([]ChainCheck, error) {
	rows, err := s.q.VerifyAuditChains(ctx, gen.VerifyAuditChainsParams{AfterKind: after.ResourceKind, AfterID: after.ResourceID, MaxRows: PageLimit(limit)})
	return rows, MapError("verify audit chains", err)
}

// HasAuditChain returns whether the resource has rows in the audit log.
func (s statements) HasAuditChain(ctx context.Context, c Chain) (bool, error) {
	has, err := s.q.HasAuditChain(ctx, gen.HasAuditChainParams(c))
	return has, MapError("find the audit chain of "+c.ResourceKind+" "+c.ResourceID, err)
}

// AuditCheck says how far the background verification has come. FinishedAt is the end of the last
// whole round; nil before the first.
type AuditCheck = gen.AuditCheckRow

// AuditCheck reads it.
func (s statements) AuditCheck(ctx context.Context) (AuditCheck, error) {
	row, err := s.q.AuditCheck(ctx)
	return row, MapError("read the verification of the audit log", err)
}

// CheckNextChains verifies the next chains of the round over all of them and stores which are
// broken. It returns the broken ones, and how many it verified: 0 when another process is at it, or
// when the last round ended less than every ago. It may be repeated.
func (s *Store) CheckNextChains(ctx context.Context, every time.Duration, limit int) (checked int, broken []ChainCheck, err error) {
	err = s.Tx(ctx, func(tx *Tx) error {
		checked, broken = 0, nil
		place, err := tx.q.LockAuditCheck(ctx, every.Seconds())
		if errors.Is(MapError("", err), ErrNotFound) {
			return nil
		}
		if err != nil {
			return MapError("lock the verification of the audit log", err)
		}
		rows, err := tx.VerifyAuditChains(ctx, Chain{ResourceKind: place.AfterKind, ResourceID: place.AfterID}, limit)
		if err != nil {
			return err
		}
		var whole gen.DeleteAuditBreaksParams
		for _, r := range rows {
			if r.BrokenSeq == 0 {
				whole.ResourceKinds, whole.ResourceIds = append(whole.ResourceKinds, r.ResourceKind), append(whole.ResourceIds, r.ResourceID)
				continue
			}
			broken = append(broken, r)
			if err := tx.q.PutAuditBreak(ctx, gen.PutAuditBreakParams(r)); err != nil {
				return MapError("store a broken audit chain", err)
			}
		}
		if err := tx.q.DeleteAuditBreaks(ctx, whole); err != nil {
			return MapError("store whole audit chains", err)
		}
		checked = len(rows)
		next := gen.MoveAuditCheckParams{Begun: place.AfterKind == "", Checked: int64(checked), Finished: checked < limit}
		if !next.Finished {
			next.AfterKind, next.AfterID = rows[checked-1].ResourceKind, rows[checked-1].ResourceID
		}
		return MapError("store the place of the verification", tx.q.MoveAuditCheck(ctx, next))
	})
	return checked, broken, err
}
