package db

import (
	"context"
	"time"

	"github.com/slipway-cloud/slipway/db/gen"
)

// APIToken is a token of the HTTP API as stored: its SHA-256, never its text.
// The caller checks whether it is expired or revoked.
type APIToken = gen.APIToken

// CreateAPIToken stores a token.
func (s statements) CreateAPIToken(ctx context.Context, name string, hash []byte, roles []string, expires time.Time) (APIToken, error) {
	row, err := s.q.InsertAPIToken(ctx, gen.InsertAPITokenParams{ID: NewID("tok"), Name: name, Hash: hash, Roles: EmptyIfNil(roles), ExpiresAt: &expires})
	return row, MapError("API token "+name, err)
}

// APITokenByHash finds a token, also an expired or revoked one, or ErrNotFound. Requests that
// arrive at the same time share a statement.
func (s *Store) APITokenByHash(ctx context.Context, hash []byte) (APIToken, error) {
	row, err := s.tokens.get(ctx, string(hash))
	return row, MapError("API token", err)
}

func (s statements) apiTokens(ctx context.Context, hashes []string) (map[string]APIToken, error) {
	asked := make([][]byte, 0, len(hashes))
	for _, h := range hashes {
		asked = append(asked, []byte(h))
	}
	rows, err := s.q.APITokensByHash(ctx, asked)
	found := make(map[string]APIToken, len(rows))
	for _, r := range rows {
		found[string(r.Hash)] = r
	}
	return found, err
}

// ListAPITokens lists tokens by id, from the one after the id given.
func (s statements) ListAPITokens(ctx context.Context, after string, limit int) ([]APIToken, error) {
	rows, err := s.q.ListAPITokens(ctx, gen.ListAPITokensParams{After: after, MaxRows: PageLimit(limit)})
	return rows, MapError("list API tokens", err)
}

// NoteTokenUses writes that API tokens and tokens of projects were used now, those whose last use
// is older than every.
func (s statements) NoteTokenUses(ctx context.Context, hashes [][]byte, every time.Duration) error {
	return MapError("last use of tokens", s.q.NoteTokenUses(ctx, gen.NoteTokenUsesParams{Hashes: hashes, EverySeconds: every.Seconds()}))
}

// RevokeAPIToken ends a token. Repeatable; ErrNotFound when there is none.
func (s statements) RevokeAPIToken(ctx context.Context, id string) error {
	n, err := s.q.RevokeAPIToken(ctx, id)
	return CheckDelete("API token "+id, n, err, func() error { return NotFound("API token " + id) })
}
