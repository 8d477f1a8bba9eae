package db

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/slipway-cloud/slipway/db/gen"
)

// IdempotencyState is what a request with an idempotency key meets.
type IdempotencyState string

// The states, and what the API answers.
const (
	IdempotencyNew      IdempotencyState = "new"       // go on
	IdempotencyReplay   IdempotencyState = "replay"    // the first answer again
	IdempotencyInFlight IdempotencyState = "in_flight" // 409
	IdempotencyMismatch IdempotencyState = "mismatch"  // 422
)

// IdempotencyRecord is a request and, once done, its answer.
type IdempotencyRecord = gen.IdempotencyRecord

// IdempotencyTTL is how long an answer is given again.
const IdempotencyTTL = 24 * time.Hour

// idempotencyKeys are the idempotency records of operators, or those of one project.
type idempotencyKeys interface {
	find(ctx context.Context, principal, route, key string) (IdempotencyRecord, error)
	insert(ctx context.Context, principal, route, key string, requestHash []byte, ttl time.Duration) (IdempotencyRecord, error)
}

// platformKeys are the idempotency records of requests that belong to no project.
type platformKeys struct{ q *gen.Queries }

func (k platformKeys) find(ctx context.Context, principal, route, key string) (IdempotencyRecord, error) {
	return k.q.IdempotencyRecord(ctx, gen.IdempotencyRecordParams{Principal: principal, Route: route, Key: key})
}

func (k platformKeys) insert(ctx context.Context, principal, route, key string, requestHash []byte, ttl time.Duration) (IdempotencyRecord, error) {
	return k.q.InsertIdempotencyRecord(ctx, gen.InsertIdempotencyRecordParams{
		Principal: principal, Route: route, Key: key, RequestHash: requestHash, TtlSeconds: ttl.Seconds(),
	})
}

// BeginIdempotent takes a key for one request. Begin, the work and
// FinishIdempotent belong in one transaction: then record and intent commit
// together, a request that fails leaves nothing, and a second one with the
// same key meets in_flight until the first commits. It never waits.
func (tx *Tx) BeginIdempotent(ctx context.Context, principal, route, key string, requestHash []byte) (IdempotencyState, IdempotencyRecord, error) {
	return beginIdempotent(ctx, tx.q, platformKeys{tx.q}, "", principal, route, key, requestHash)
}

func beginIdempotent(
	ctx context.Context, q *gen.Queries, keys idempotencyKeys, project, principal, route, key string, requestHash []byte,
) (IdempotencyState, IdempotencyRecord, error) {
	const what = "idempotency record"
	lock := "slipway:idempotency:" + principal + "\x1f" + route + "\x1f" + key
	if project != "" {
		lock += "\x1f" + project
	}
	locked, err := q.TryLock(ctx, lock)
	if err != nil {
		return "", IdempotencyRecord{}, MapError(what, err)
	}
	if !locked {
		return IdempotencyInFlight, IdempotencyRecord{}, nil
	}
	rec, err := keys.find(ctx, principal, route, key)
	if err == nil {
		return idempotencyState(rec, requestHash), rec, nil
	}
	if !errors.Is(err, pgx.ErrNoRows) {
		return "", IdempotencyRecord{}, MapError(what, err)
	}
	rec, err = keys.insert(ctx, principal, route, key, requestHash, IdempotencyTTL)
	return IdempotencyNew, rec, MapError(what, err)
}

func idempotencyState(rec IdempotencyRecord, requestHash []byte) IdempotencyState {
	switch {
	case !bytes.Equal(rec.RequestHash, requestHash):
		return IdempotencyMismatch
	case rec.State == "done":
		return IdempotencyReplay
	}
	return IdempotencyInFlight
}

// FinishIdempotent stores the answer that a replay gets.
func (tx *Tx) FinishIdempotent(ctx context.Context, principal, route, key string, status int, headers map[string]string, body []byte) error {
	if headers == nil {
		headers = map[string]string{}
	}
	n, err := tx.q.FinishIdempotencyRecord(ctx, gen.FinishIdempotencyRecordParams{
		Principal: principal, Route: route, Key: key, Status: status, Headers: headers, Body: body,
	})
	return CheckRepeatable("idempotency record", n, err, func() error { return MapError("idempotency record in flight", pgx.ErrNoRows) })
}

// AbandonIdempotent gives a key back that was taken in an earlier transaction
// and never finished. Repeatable.
func (s statements) AbandonIdempotent(ctx context.Context, principal, route, key string) error {
	_, err := s.q.AbandonIdempotencyRecord(ctx, gen.AbandonIdempotencyRecordParams{Principal: principal, Route: route, Key: key})
	return MapError("idempotency record", err)
}

// PruneIdempotency deletes expired records, a batch at a time, and returns how
// many.
func (s statements) PruneIdempotency(ctx context.Context) (int64, error) {
	n, err := s.q.PruneIdempotencyRecords(ctx, PruneBatch)
	if err != nil {
		return n, MapError("prune idempotency records", err)
	}
	projects, err := s.q.PruneProjectIdempotency(ctx, PruneBatch)
	return n + projects, MapError("prune idempotency records of projects", err)
}
