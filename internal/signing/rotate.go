package signing

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/slipway-cloud/slipway/agent/protocol"
	"github.com/slipway-cloud/slipway/agent/taskkeys"
	"github.com/slipway-cloud/slipway/db"
	evidencedb "github.com/slipway-cloud/slipway/db/evidence"
	"github.com/slipway-cloud/slipway/providers"
)

// DefaultOverlap is how long the old key counts beside the new one.
const DefaultOverlap = 24 * time.Hour

// ErrRotating says that the rotation before is not over yet.
var ErrRotating = errors.New("the last rotation of this key is not over yet")

// Rotate makes a new key for a purpose. Within the overlap both count: in its
// first half the old one still signs, so that those who verify learn of the new
// one before it is used. An overlap of 0 ends the old key, and all that still
// count beside it, at once: for one that somebody else may have.
//
// Broken off anywhere, it has either happened or left nothing but a sealed
// secret that no row names. Repeated, it answers ErrRotating while the overlap
// lasts. Of several processes at once, one rotates.
func (r *Ring) Rotate(ctx context.Context, p Purpose, overlap time.Duration) (PublicKey, error) {
	if overlap < 0 {
		return PublicKey{}, errors.New("the overlap must not be negative")
	}
	old, err := r.inUse(ctx, p)
	if err != nil {
		return PublicKey{}, err
	}
	if overlap > 0 {
		rows, err := evidencedb.SigningKeys(ctx, r.Store, string(p))
		if err != nil {
			return PublicKey{}, err
		}
		for _, row := range rows {
			if row.RetiredAt != nil && time.Now().Before(*row.RetiredAt) {
				return PublicKey{}, fmt.Errorf("%w: key %s counts until %s; wait, or end it at once by a rotation without overlap", ErrRotating, row.ID, row.RetiredAt.UTC().Format(time.RFC3339))
			}
		}
	}
	row, err := r.add(ctx, p, func(k evidencedb.SigningKey) (evidencedb.SigningKey, error) {
		return evidencedb.SucceedSigningKey(ctx, r.Store, old.ID, overlap, k)
	})
	if errors.Is(err, db.ErrStale) {
		return PublicKey{}, fmt.Errorf("%w: another process has rotated it just now", ErrRotating)
	}
	return PublicKey{ID: row.ID, Public: row.Public}, err
}

// signingNow is the row of the key that signs at a moment: the oldest one whose
// successor is not yet half through their overlap.
func signingNow(rows []evidencedb.SigningKey, now time.Time) (evidencedb.SigningKey, bool) {
	for i, row := range rows {
		if row.RetiredAt == nil {
			return row, true
		}
		if i+1 < len(rows) && now.Before(*row.RetiredAt) {
			next := rows[i+1].CreatedAt
			if now.Before(next.Add(row.RetiredAt.Sub(next) / 2)) {
				return row, true
			}
		}
	}
	return evidencedb.SigningKey{}, false
}

// TaskKeys are the keys of tasks as agents are told of them, each with the
// signature of the one before it: the newest taskkeys.Most. Where the private
// half of an old one is gone, the list begins after it.
func (r *Ring) TaskKeys(ctx context.Context) ([]protocol.TaskKey, error) {
	if _, err := r.inUse(ctx, Tasks); err != nil {
		return nil, err
	}
	rows, err := evidencedb.SigningKeys(ctx, r.Store, string(Tasks))
	if err != nil {
		return nil, err
	}
	var out []protocol.TaskKey
	for i, row := range rows {
		if i < len(rows)-taskkeys.Most {
			continue
		}
		k := protocol.TaskKey{KeyID: row.ID, Public: row.Public, Generation: int64(i + 1), Until: row.RetiredAt}
		if i > 0 {
			k.Link, err = r.link(ctx, rows[i-1], k)
			if providers.KindOf(err) == providers.KindNotFound {
				out, err = nil, nil
			}
			if err != nil {
				return nil, err
			}
		}
		out = append(out, k)
	}
	return out, nil
}

// link signs a key with the one before it. The same rows give the same bytes, so
// that nothing need be stored.
func (r *Ring) link(ctx context.Context, previous evidencedb.SigningKey, k protocol.TaskKey) (*protocol.KeyLink, error) {
	if previous.RetiredAt == nil {
		return nil, fmt.Errorf("signing key %s is in use and has a successor; that cannot be", previous.ID)
	}
	key, err := r.private(ctx, previous)
	if err != nil {
		return nil, err
	}
	k.Link = &protocol.KeyLink{PreviousKeyID: previous.ID, PreviousUntil: previous.RetiredAt.UTC()}
	k.Link.Signature = signer{previous.ID, key}.sign(taskkeys.Message(k)).Bytes
	return k.Link, nil
}
