// Package taskkeys decides which of the control plane's task keys a node accepts. A node gets its
// first keys at enrolment, before any tenant used it. It accepts a later key when the key of the
// previous generation has signed it. So a man in the middle can withhold a key, and cannot forge
// one.
package taskkeys

import (
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/slipway-cloud/slipway/agent/protocol"
)

// Most is how many keys, the newest ones, are sent at once. On a node that has missed more
// generations an operator writes the keys file.
const Most = 32

// context is the prefix of a signed key, so that the signature of a task is never valid for a key.
const context = "slipway-task-key-v1\n"

// The reasons for which Extend refuses keys.
var (
	ErrOther    = errors.New("other task keys were offered than this node knows; they are not believed: if the control plane has new keys that the old ones did not sign, write them to the keys file")
	ErrOlder    = errors.New("older task keys were offered than this node knows; they are not believed")
	ErrUnsigned = errors.New("a new task key was offered that the key before it has not signed; it is not believed")
	ErrGap      = errors.New("the task keys between those that this node knows and those that were offered are missing; write the control plane's keys to the keys file")
)

// Message returns the bytes that the key of the previous generation signs for k.
func Message(k protocol.TaskKey) []byte {
	link := protocol.KeyLink{}
	if k.Link != nil {
		link = *k.Link
	}
	raw, err := json.Marshal(struct {
		Generation    int64     `json:"generation"`
		KeyID         string    `json:"key_id"`
		Public        []byte    `json:"public"`
		PreviousKeyID string    `json:"previous_key_id"`
		PreviousUntil time.Time `json:"previous_until"`
	}{k.Generation, k.KeyID, k.Public, link.PreviousKeyID, link.PreviousUntil.UTC()})
	if err != nil { // a year beyond 9999; no signature is valid for an empty message
		return nil
	}
	return append([]byte(context), raw...)
}

// Valid returns the keys that have not expired at now.
func Valid(keys []protocol.TaskKey, now time.Time) []protocol.TaskKey {
	return slices.DeleteFunc(slices.Clone(keys), func(k protocol.TaskKey) bool { return k.Until != nil && !now.Before(*k.Until) })
}

// Extend adds to the keys that a node has those of the offered keys that form a chain with them. It
// returns all accepted keys, oldest first, also together with an error. Generations only grow. A
// node that has no key accepts the whole chain that it is offered.
func Extend(have, offered []protocol.TaskKey) ([]protocol.TaskKey, error) {
	have, offered = slices.Clone(have), slices.Clone(offered)
	slices.SortFunc(offered, byGeneration)
	if err := check(offered); err != nil || len(offered) == 0 {
		return have, err
	}
	if len(have) == 0 {
		first := offered[0]
		first.Until = nil // the next key sets it
		have = append(have, first)
	}
	if err := number(have, offered); err != nil {
		return have, err
	}
	slices.SortFunc(have, byGeneration)
	top := have[len(have)-1]
	if offered[len(offered)-1].Generation < top.Generation {
		return have, ErrOlder
	}
	for _, next := range offered {
		if next.Generation <= top.Generation {
			continue
		}
		if next.Generation != top.Generation+1 {
			return have, ErrGap
		}
		if !follows(top, next) {
			return have, ErrUnsigned
		}
		end(have, next.Link.PreviousUntil)
		next.Until = nil
		have, top = append(have, next), next
	}
	return have, nil
}

func byGeneration(a, b protocol.TaskKey) int { return int(a.Generation - b.Generation) }

// check refuses keys that no control plane offers.
func check(offered []protocol.TaskKey) error {
	if len(offered) > Most {
		return ErrOther
	}
	for i, k := range offered {
		if k.KeyID == "" || len(k.Public) != ed25519.PublicKeySize || k.Generation < 1 || (i > 0 && offered[i-1].Generation == k.Generation) {
			return ErrOther
		}
	}
	return nil
}

// number compares the keys of a node with the offered keys of the same generation. A key that an
// operator wrote without its generation gets its generation here.
func number(have, offered []protocol.TaskKey) error {
	for i, k := range have {
		for _, o := range offered {
			same := o.KeyID == k.KeyID && slices.Equal(o.Public, k.Public)
			switch {
			case k.Generation == 0 && same:
				have[i].Generation = o.Generation
			case k.Generation == o.Generation && !same:
				return ErrOther
			}
		}
		if have[i].Generation == 0 {
			return ErrOther
		}
	}
	return nil
}

func follows(top, next protocol.TaskKey) bool {
	l := next.Link
	return l != nil && l.PreviousKeyID == top.KeyID && len(top.Public) == ed25519.PublicKeySize && ed25519.Verify(top.Public, Message(next), l.Signature)
}

// end makes keys expire at until, unless they expire earlier.
func end(keys []protocol.TaskKey, until time.Time) {
	for i := range keys {
		if keys[i].Until == nil || until.Before(*keys[i].Until) {
			keys[i].Until = &until
		}
	}
}
