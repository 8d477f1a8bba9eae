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

// AuditStep is what one step of the background verification has done: how many chains it came to
// the end of, which of them are broken, and whether the round goes on.
type AuditStep struct {
	Checked int
	Broken  []ChainCheck
	More    bool
}

// CheckNextChains verifies the next chains of the round over all of them, at most limit chains and
// about as many rows as rows says, and stores which are broken. A chain with more rows is verified
// in parts: its place is kept, and the next step goes on there. It does nothing when another
// process is at it, or when the last round ended less than every ago. It may be repeated.
func (s *Store) CheckNextChains(ctx context.Context, every time.Duration, limit, rows int) (AuditStep, error) {
	var step AuditStep
	err := s.Tx(ctx, func(tx *Tx) error {
		step = AuditStep{}
		place, err := tx.q.LockAuditCheck(ctx, every.Seconds())
		if errors.Is(MapError("", err), ErrNotFound) {
			return nil
		}
		if err != nil {
			return MapError("lock the verification of the audit log", err)
		}
		chains, err := tx.q.NextAuditChains(ctx, gen.NextAuditChainsParams{AfterKind: place.AfterKind, AfterID: place.AfterID, MaxRows: PageLimit(limit)})
		if err != nil {
			return MapError("list audit chains", err)
		}
		next := gen.MoveAuditCheckParams{
			Begun: place.AfterKind == "" && place.PartKind == "", AfterKind: place.AfterKind, AfterID: place.AfterID, PartHash: []byte{}, Finished: len(chains) < limit,
		}
		for _, c := range chains {
			at := auditPart{Chain: Chain(c), hash: []byte{}}
			if c.ResourceKind == place.PartKind && c.ResourceID == place.PartID {
				at.seq, at.hash = place.PartSeq, place.PartHash
			}
			reached, used, check, err := tx.verifyPart(ctx, at, rows)
			if err != nil {
				return err
			}
			rows -= used
			if check == nil { // goes on here
				next.PartKind, next.PartID, next.PartSeq, next.PartHash, next.Finished = c.ResourceKind, c.ResourceID, reached.seq, reached.hash, false
				break
			}
			step.Checked++
			next.AfterKind, next.AfterID = c.ResourceKind, c.ResourceID
			if check.BrokenSeq != 0 {
				step.Broken = append(step.Broken, *check)
			}
			if err := tx.storeCheck(ctx, *check); err != nil {
				return err
			}
		}
		if next.Finished {
			next.AfterKind, next.AfterID = "", ""
		}
		next.Checked, step.More = int64(step.Checked), !next.Finished
		return MapError("store the place of the verification", tx.q.MoveAuditCheck(ctx, next))
	})
	return step, err
}

// auditPart is how far a chain is verified: to the row seq, with its hash.
type auditPart struct {
	Chain
	seq  int64
	hash []byte
}

// verifyPart verifies a chain from a place on, for at most so many rows. It returns how far it came
// and how many of the rows it used. The check is nil when they were used up before the chain's end.
func (tx *Tx) verifyPart(ctx context.Context, at auditPart, rows int) (auditPart, int, *ChainCheck, error) {
	check := &ChainCheck{ResourceKind: at.ResourceKind, ResourceID: at.ResourceID}
	if rows <= 0 {
		return at, 0, nil, nil
	}
	if at.ResourceKind == ledgerChain { // its chains are parts of one size, each of which costs what a step may
		broken, err := tx.q.VerifyChain(ctx, gen.VerifyChainParams{ResourceKind: at.ResourceKind, ResourceID: at.ResourceID})
		check.BrokenSeq = broken
		return at, rows, check, MapError("verify a part of the ledger", err)
	}
	p, err := tx.q.VerifyAuditPart(ctx, gen.VerifyAuditPartParams{
		ResourceKind: at.ResourceKind, ResourceID: at.ResourceID, AfterSeq: at.seq, Previous: at.hash, MaxRows: rows,
	})
	if err != nil {
		return at, 0, nil, MapError("verify an audit chain", err)
	}
	used := int(p.Seq - at.seq)
	at.seq, at.hash = p.Seq, p.Hash
	if check.BrokenSeq = p.BrokenSeq; p.BrokenSeq == 0 && !p.Ended {
		return at, used, nil, nil
	}
	return at, used, check, nil
}

// ledgerChain is the kind of the chains of the ledger.
const ledgerChain = "ledger"

func (tx *Tx) storeCheck(ctx context.Context, c ChainCheck) error {
	if c.BrokenSeq != 0 {
		return MapError("store a broken audit chain", tx.q.PutAuditBreak(ctx, gen.PutAuditBreakParams(c)))
	}
	return MapError("store a whole audit chain", tx.q.DeleteAuditBreaks(ctx, gen.DeleteAuditBreaksParams{
		ResourceKinds: []string{c.ResourceKind}, ResourceIds: []string{c.ResourceID},
	}))
}
