package op

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"

	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/db"
)

// Key is the idempotency key of a POST that creates a resource. X-Idempotency-Key is the older name
// of the same header.
type Key struct {
	IdempotencyKey  string `header:"Idempotency-Key" maxLength:"200" doc:"Names this request: repeating it with the same key gives the first answer again"`
	XIdempotencyKey string `header:"X-Idempotency-Key" maxLength:"200" doc:"The same as Idempotency-Key"`
}

var keyPattern = regexp.MustCompile(`^[\x21-\x7e]{1,200}$`)

// Optional returns the key, or "".
func (k Key) Optional() (string, error) {
	key := k.IdempotencyKey
	if key == "" {
		key = k.XIdempotencyKey
	}
	if key != "" && !keyPattern.MatchString(key) || k.XIdempotencyKey != "" && k.XIdempotencyKey != key {
		return "", problem.NewInvalid(problem.Field{Location: "header.Idempotency-Key", Message: "must be one text of 1 to 200 visible ASCII characters"})
	}
	return key, nil
}

// Required returns the key, or a problem that asks for one.
func (k Key) Required() (string, error) {
	key, err := k.Optional()
	if err == nil && key == "" {
		err = problem.New(problem.KeyMissing, "this call creates something: send an Idempotency-Key, a text of your own such as a UUID, so that repeating the request cannot create it twice")
	}
	return key, err
}

// Created is the answer to a POST that created a resource.
type Created[T any] struct {
	Status   int
	Location string `header:"Location"`
	ETag     string `header:"ETag"`
	Replayed string `header:"Idempotency-Replayed" doc:"true when this is the first answer given again"`
	Body     T
}

// Create runs do like WithIdempotency, with a key that the request must have.
func Create[T any](ctx context.Context, a *API, k Key, body any, stored func(T) T, do func(*db.Tx) (*Created[T], error)) (*Created[T], error) {
	key, err := k.Required()
	if err != nil {
		return nil, err
	}
	return WithIdempotency(ctx, a, key, body, stored, do)
}

// WithIdempotency runs do, and records the key and the answer, in one transaction. A later request
// with the same key gets the first answer. body is the decoded request. stored, which may be nil,
// removes one-time secrets from the recorded answer, so that a replay does not show them again.
// With the key "" nothing is recorded.
func WithIdempotency[T any](ctx context.Context, a *API, key string, body any, stored func(T) T, do func(*db.Tx) (*Created[T], error)) (out *Created[T], err error) {
	err = a.store.Tx(ctx, func(tx *db.Tx) error {
		out, err = answerOnce(ctx, tx, key, body, stored, func() (*Created[T], error) { return do(tx) })
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// answerOnce runs do, and records the key and the answer, in the transaction.
func answerOnce[T any](ctx context.Context, tx keyTx, key string, body any, stored func(T) T, do func() (*Created[T], error)) (*Created[T], error) {
	rec, err := BeginKey(ctx, tx, key, body)
	if err != nil {
		return nil, err
	}
	if rec != nil {
		return replay[T](*rec)
	}
	out, err := do()
	if err != nil {
		return nil, err
	}
	keep := out.Body
	if stored != nil {
		keep = stored(keep)
	}
	return out, FinishKey(ctx, tx, key, out.Status, map[string]string{"Location": out.Location, "ETag": out.ETag}, keep)
}

// ReplayIfRecorded returns the answer to the first request with this key, or nil when there was
// none. Calls that use an outside system before their transaction call it first, so that a repeated
// request does not use that system again. It does not reserve the key.
func ReplayIfRecorded[T any](ctx context.Context, a *API, key string, body any) (*Created[T], error) {
	rec, err := a.Recorded(ctx, key, body)
	if rec == nil || err != nil {
		return nil, err
	}
	return replay[T](*rec)
}

var errReadOnly = errors.New("only read")

// Recorded returns the record of the first request with this key, or nil when there was none. It
// does not reserve the key.
func (a *API) Recorded(ctx context.Context, key string, body any) (rec *db.IdempotencyRecord, err error) {
	if key == "" {
		return nil, nil
	}
	err = a.store.Tx(ctx, func(tx *db.Tx) error {
		if rec, err = BeginKey(ctx, tx, key, body); err != nil {
			return err
		}
		return errReadOnly
	})
	if errors.Is(err, errReadOnly) {
		err = nil
	}
	return rec, err
}

// keyTx is a transaction that keeps idempotency keys: a *db.Tx or a *db.ProjectTx.
type keyTx interface {
	BeginIdempotent(ctx context.Context, principal, route, key string, requestHash []byte) (db.IdempotencyState, db.IdempotencyRecord, error)
	FinishIdempotent(ctx context.Context, principal, route, key string, status int, headers map[string]string, body []byte) error
}

// BeginKey reserves the key of the request in tx. It returns nil for the first request with the
// key, and the record of the first request for a later one. It returns a problem when another
// request holds the key, or when the first request was a different one. The key "" is never
// reserved.
func BeginKey(ctx context.Context, tx keyTx, key string, body any) (*db.IdempotencyRecord, error) {
	if key == "" {
		return nil, nil
	}
	request, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("hash the request: %w", err)
	}
	hash := sha256.Sum256(request)
	state, rec, err := tx.BeginIdempotent(ctx, PrincipalOf(ctx).ID, Route(ctx), key, hash[:])
	if err != nil {
		return nil, err
	}
	switch state {
	case db.IdempotencyReplay:
		return &rec, nil
	case db.IdempotencyInFlight:
		return nil, problem.New(problem.KeyInFlight, "a request with this Idempotency-Key is being served; wait a moment and repeat it to get its answer")
	case db.IdempotencyMismatch:
		return nil, problem.New(problem.KeyReused, "this Idempotency-Key was used for a request with another body; use a new key for a new request")
	default:
		return nil, nil
	}
}

// FinishKey stores the answer of the request that has reserved the key.
func FinishKey(ctx context.Context, tx keyTx, key string, status int, headers map[string]string, body any) error {
	if key == "" {
		return nil
	}
	raw, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("keep the answer: %w", err)
	}
	return tx.FinishIdempotent(ctx, PrincipalOf(ctx).ID, Route(ctx), key, status, headers, raw)
}

func replay[T any](rec db.IdempotencyRecord) (*Created[T], error) {
	out := &Created[T]{Status: rec.Status, Location: rec.Headers["Location"], ETag: rec.Headers["ETag"], Replayed: "true"}
	if err := json.Unmarshal(rec.Body, &out.Body); err != nil {
		return nil, fmt.Errorf("read the kept answer: %w", err)
	}
	return out, nil
}
