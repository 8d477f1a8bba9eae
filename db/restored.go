package db

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/slipway-cloud/slipway/lifecycle"
)

// RestoredAccess is what gives access in a database and can be made again: how many there are of
// each kind, and a hash over all of it.
type RestoredAccess struct {
	Counts map[string]int
	Hash   string
}

// The kinds of access that end after a restore.
const (
	accessSession      = "portal_session"
	accessAPIToken     = "api_token"
	accessProjectToken = "project_token"
	accessInvitation   = "invitation"
	accessWebhook      = "webhook"
)

// AccessKinds lists the kinds of access that end after a restore.
func AccessKinds() []string {
	return []string{accessSession, accessAPIToken, accessProjectToken, accessInvitation, accessWebhook}
}

// ErrAccessChanged is returned when there is other access than the hash was made over.
var ErrAccessChanged = errors.New("the access in the database is not that of the dry run any more")

// errDryRun rolls a transaction back.
var errDryRun = errors.New("dry run")

// PlanEndOfAccess returns what EndRestoredAccess would end now. It changes nothing.
func (s *Store) PlanEndOfAccess(ctx context.Context) (RestoredAccess, error) {
	var out RestoredAccess
	err := s.Tx(ctx, func(tx *Tx) (err error) {
		if out, _, err = tx.endAccess(ctx); err != nil {
			return err
		}
		return errDryRun
	})
	if errors.Is(err, errDryRun) {
		err = nil
	}
	return out, err
}

// EndRestoredAccess ends what gives access and can be made again: a backup holds sessions, tokens,
// invitations and webhooks that were ended after it. No node is claimed from then on until MAAS and
// its agent agree with the database about who is on it. hash is that of a dry run; it returns
// ErrAccessChanged when something was added or ended since. Every project gets an audit row, and so
// does every session and API token. Repeatable: what has ended is not ended again.
func (s *Store) EndRestoredAccess(ctx context.Context, hash string) (RestoredAccess, error) {
	var out RestoredAccess
	err := s.Tx(ctx, func(tx *Tx) error {
		access, audits, err := tx.endAccess(ctx)
		if err != nil {
			return err
		}
		if out = access; access.Hash != hash {
			return ErrAccessChanged
		}
		if err := tx.q.BeginRestore(ctx); err != nil {
			return MapError("begin the agreement of nodes after a restore", err)
		}
		if err := tx.q.BeginEventEpoch(ctx); err != nil {
			return MapError("begin an epoch of events", err)
		}
		for _, e := range audits {
			if err := tx.AppendAudit(ctx, e); err != nil {
				return err
			}
		}
		return nil
	})
	return out, err
}

// IsRestored reports whether the database was ever restored from a backup.
func (s statements) IsRestored(ctx context.Context) (bool, error) {
	restored, err := s.q.IsRestored(ctx)
	return restored, MapError("restores", err)
}

// endAccess ends the access and returns it with the audit rows that tell of it.
func (tx *Tx) endAccess(ctx context.Context) (RestoredAccess, []Entry, error) {
	rows, err := tx.q.EndRestoredAccess(ctx)
	if err != nil {
		return RestoredAccess{}, nil, MapError("end the access of a restored database", err)
	}
	actor := Actor{Owner: lifecycle.OwnerAdmin, ID: "slipwayd restored", Comment: "the database was restored from a backup"}
	entry := func(kind, id, name string) Entry {
		return Entry{ResourceKind: kind, ResourceID: id, Kind: EntryAction, Name: name, Actor: actor}
	}
	out, hash := RestoredAccess{Counts: map[string]int{}}, sha256.New()
	var audits []Entry
	projects := map[string]map[string]any{}
	for _, r := range rows {
		out.Counts[r.Kind]++
		fmt.Fprintln(hash, r.Kind, r.ProjectID, r.ID)
		switch r.Kind {
		case accessSession:
			audits = append(audits, entry(r.Kind, r.ID, "sign_out"))
		case accessAPIToken:
			audits = append(audits, entry(r.Kind, r.ID, "revoke"))
		default:
			if projects[r.ProjectID] == nil {
				projects[r.ProjectID] = map[string]any{}
			}
			n, _ := projects[r.ProjectID][r.Kind].(int) // 0 before the first
			projects[r.ProjectID][r.Kind] = n + 1
		}
	}
	for _, id := range slices.Sorted(maps.Keys(projects)) {
		e := entry(lifecycle.Project.Resource, id, "end_restored_access")
		e.Actor.Metadata = projects[id]
		audits = append(audits, e)
	}
	out.Hash = hex.EncodeToString(hash.Sum(nil))[:accessHashDigits]
	return out, audits, nil
}

// accessHashDigits is how much of the hash an operator copies.
const accessHashDigits = 16
