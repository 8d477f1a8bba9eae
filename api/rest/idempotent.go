package rest

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

// Key is the idempotency key of a POST that creates. X-Idempotency-Key is the
// same under its older name.
type Key struct {
	IdempotencyKey  string `header:"Idempotency-Key" doc:"Names this request: repeating it with the same key gives the first answer again"`
	XIdempotencyKey string `header:"X-Idempotency-Key" doc:"The same as Idempotency-Key"`
}

var keyPattern = regexp.MustCompile(`^[\x21-\x7e]{1,200}$`)

// optional is the key, or "".
func (k Key) optional() (string, error) {
	key := k.IdempotencyKey
	if key == "" {
		key = k.XIdempotencyKey
	}
	if key != "" && !keyPattern.MatchString(key) || k.XIdempotencyKey != "" && k.XIdempotencyKey != key {
		return "", problem.NewInvalid(problem.Field{Location: "header.Idempotency-Key", Message: "must be one text of 1 to 200 visible ASCII characters"})
	}
	return key, nil
}

func (k Key) required() (string, error) {
	key, err := k.optional()
	if err == nil && key == "" {
		err = problem.New(problem.KeyMissing, "this call creates something: send an Idempotency-Key, a text of your own such as a UUID, so that repeating the request cannot create it twice")
	}
	return key, err
}

// Created answers a POST that created something.
type Created[T any] struct {
	Status   int
	Location string `header:"Location"`
	ETag     string `header:"ETag"`
	Replayed string `header:"Idempotency-Replayed" doc:"true when this is the first answer given again"`
	Body     T
}

// idempotent runs do, its record and its answer in one transaction. body is the
// request as understood. stored, which may be nil, makes the answer fit to be
// kept: one-time secrets are left out, so a replay does not show them again.
func idempotent[T any](ctx context.Context, s *Server, k Key, body any, stored func(T) T, do func(*db.Tx) (*Created[T], error)) (*Created[T], error) {
	key, err := k.required()
	if err != nil {
		return nil, err
	}
	return once(ctx, s, key, body, stored, do)
}

// once is idempotent for a key that may be "": then nothing is kept.
func once[T any](ctx context.Context, s *Server, key string, body any, stored func(T) T, do func(*db.Tx) (*Created[T], error)) (*Created[T], error) {
	hash, err := hashOf(body)
	if err != nil {
		return nil, err
	}
	who, path := principal(ctx).ID, route(ctx)
	var out *Created[T]
	err = s.cfg.Store.Tx(ctx, func(tx *db.Tx) error {
		if key == "" {
			out, err = do(tx)
			return err
		}
		if out, err = firstAnswer[T](ctx, tx, who, path, key, hash); out != nil || err != nil {
			return err
		}
		if out, err = do(tx); err != nil {
			return err
		}
		return remember(ctx, tx, who, path, key, out, stored)
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func hashOf(body any) ([]byte, error) {
	request, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("hash the request: %w", err)
	}
	hash := sha256.Sum256(request)
	return hash[:], nil
}

// firstAnswer takes the key within tx; the answer to the first request with it,
// if there was one, comes back.
func firstAnswer[T any](ctx context.Context, tx *db.Tx, who, path, key string, hash []byte) (*Created[T], error) {
	state, rec, err := tx.BeginIdempotent(ctx, who, path, key, hash)
	if err != nil {
		return nil, err
	}
	if state == db.IdempotencyReplay {
		return replay[T](rec)
	}
	return nil, keyRefused(state)
}

// keyRefused is why a request with its key is not served; nil for a new key.
func keyRefused(state db.IdempotencyState) error {
	switch state { //nolint:exhaustive // a replay has an answer, and a new key is served
	case db.IdempotencyInFlight:
		return problem.New(problem.KeyInFlight, "a request with this Idempotency-Key is being served; wait a moment and repeat it to get its answer")
	case db.IdempotencyMismatch:
		return problem.New(problem.KeyReused, "this Idempotency-Key was used for a request with another body; use a new key for a new request")
	}
	return nil
}

// recalled is the answer to the first request with this key, for calls that ask
// the outside before their transaction: a repetition must not ask again. It
// takes the key for nobody; nil when there was none, or no key.
func recalled[T any](ctx context.Context, s *Server, key string, body any) (first *Created[T], err error) {
	if key == "" {
		return nil, nil
	}
	hash, err := hashOf(body)
	if err != nil {
		return nil, err
	}
	err = s.cfg.Store.Tx(ctx, func(tx *db.Tx) error {
		var err error
		if first, err = firstAnswer[T](ctx, tx, principal(ctx).ID, route(ctx), key, hash); err != nil {
			return err
		}
		return errOnlyLooked
	})
	if errors.Is(err, errOnlyLooked) {
		err = nil
	}
	return first, err
}

func remember[T any](ctx context.Context, tx *db.Tx, who, path, key string, out *Created[T], stored func(T) T) error {
	keep := out.Body
	if stored != nil {
		keep = stored(keep)
	}
	b, err := json.Marshal(keep)
	if err != nil {
		return fmt.Errorf("keep the answer: %w", err)
	}
	return tx.FinishIdempotent(ctx, who, path, key, out.Status, map[string]string{"Location": out.Location, "ETag": out.ETag}, b)
}

func replay[T any](rec db.IdempotencyRecord) (*Created[T], error) {
	out := &Created[T]{Status: rec.Status, Location: rec.Headers["Location"], ETag: rec.Headers["ETag"], Replayed: "true"}
	if err := json.Unmarshal(rec.Body, &out.Body); err != nil {
		return nil, fmt.Errorf("read the kept answer: %w", err)
	}
	return out, nil
}
