package db_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

var errBroke = errors.New("broke")

func TestAnIdempotencyKeyAnswersOnce(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	request := []byte("hash of the request")
	begin := func(tx *db.Tx, principal, route string, hash []byte) (db.IdempotencyState, db.IdempotencyRecord) {
		state, rec, err := tx.BeginIdempotent(t.Context(), principal, route, "k", hash)
		require.NoError(t, err)
		return state, rec
	}
	err := s.Tx(t.Context(), func(tx *db.Tx) error {
		state, _ := begin(tx, "ada", "POST /nodes", request)
		require.Equal(t, db.IdempotencyNew, state)
		_, err := tx.CreateSite(t.Context(), "half", spec.SiteSpec{})
		require.NoError(t, err)
		return errBroke
	})
	require.ErrorIs(t, err, errBroke)
	_, err = s.SiteByName(t.Context(), "half")
	require.ErrorIs(t, err, db.ErrNotFound)

	in(t, s, func(tx *db.Tx) error {
		state, _ := begin(tx, "ada", "POST /nodes", request)
		require.Equal(t, db.IdempotencyNew, state, "a request that failed left nothing behind")
		in(t, s, func(other *db.Tx) error {
			state, _ := begin(other, "ada", "POST /nodes", request)
			require.Equal(t, db.IdempotencyInFlight, state, "and does not wait")
			state, _ = begin(other, "bob", "POST /nodes", request)
			require.Equal(t, db.IdempotencyNew, state, "another principal's key is another key")
			state, _ = begin(other, "ada", "POST /sites", request)
			require.Equal(t, db.IdempotencyNew, state, "and so is another route's")
			return other.AbandonIdempotent(t.Context(), "ada", "POST /sites", "k")
		})
		return tx.FinishIdempotent(t.Context(), "ada", "POST /nodes", "k", 202, map[string]string{"Location": "/x"}, []byte("{}\x00"))
	})
	in(t, s, func(tx *db.Tx) error {
		state, rec := begin(tx, "ada", "POST /nodes", request)
		require.Equal(t, db.IdempotencyReplay, state)
		require.Equal(t, 202, rec.Status)
		require.Equal(t, "/x", rec.Headers["Location"])
		require.Equal(t, []byte("{}\x00"), rec.Body)
		state, _ = begin(tx, "ada", "POST /nodes", []byte("another body"))
		require.Equal(t, db.IdempotencyMismatch, state)
		state, _ = begin(tx, "bob", "POST /nodes", request)
		require.Equal(t, db.IdempotencyInFlight, state, "begun and never finished")
		state, _ = begin(tx, "ada", "POST /sites", request)
		require.Equal(t, db.IdempotencyNew, state, "abandoned")
		return nil
	})
	require.NoError(t, s.AbandonIdempotent(t.Context(), "ada", "POST /nodes", "k"))
	in(t, s, func(tx *db.Tx) error {
		state, _ := begin(tx, "ada", "POST /nodes", request)
		require.Equal(t, db.IdempotencyReplay, state, "what is done cannot be abandoned")
		require.ErrorIs(t, tx.FinishIdempotent(t.Context(), "ada", "POST /nodes", "k", 500, nil, nil), db.ErrNotFound)
		return nil
	})
}

func TestAnExpiredIdempotencyKeyIsNewAgain(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Database(t)
	s, conn := dbtest.Open(t, dsn), raw(t, dsn)
	once := func() db.IdempotencyState {
		var state db.IdempotencyState
		in(t, s, func(tx *db.Tx) (err error) {
			if state, _, err = tx.BeginIdempotent(t.Context(), "ada", "r", "k", []byte("a")); err != nil || state != db.IdempotencyNew {
				return err
			}
			return tx.FinishIdempotent(t.Context(), "ada", "r", "k", 200, nil, nil)
		})
		return state
	}
	require.Equal(t, db.IdempotencyNew, once())
	require.Equal(t, db.IdempotencyReplay, once())
	expire := func() { exec(t, conn, "UPDATE idempotency_records SET expires_at = now() - interval '1 second'") }
	expire()
	require.Equal(t, db.IdempotencyNew, once())
	n, err := s.PruneIdempotency(t.Context())
	require.NoError(t, err)
	require.Zero(t, n)
	expire()
	n, err = s.PruneIdempotency(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
}
