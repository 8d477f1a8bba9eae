// Package taskkeys decides which keys of the control plane's tasks a node
// believes. The first keys come at enrolment, before any tenant was on the node;
// each later one is believed when the one before it has signed it, generation by
// generation, so that whoever stands between may withhold a key and invent none.
package taskkeys

import (
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/slipway-cloud/slipway/agent/protocol"
)

// Most is how many keys travel at once, the newest ones; a node that has missed
// more generations is given its keys by a person.
const Most = 32

// context goes before what a key signs of the next one, so that a signature of
// a task is never one of a key.
const context = "slipway-task-key-v1\n"

// What is wrong with keys that are offered.
var (
	ErrOther    = errors.New("other task keys were offered than this node knows; they are not believed: if the control plane has new keys that the old ones did not sign, write them to the keys file")
	ErrOlder    = errors.New("older task keys were offered than this node knows; they are not believed")
	ErrUnsigned = errors.New("a new task key was offered that the key before it has not signed; it is not believed")
	ErrGap      = errors.New("the task keys between those that this node knows and those that were offered are missing; write the control plane's keys to the keys file")
)

// Message is what the key of the generation before signs of k.
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
	if err != nil { // a year beyond 9999; what is empty verifies under no context
		return nil
	}
	return append([]byte(context), raw...)
}

// Valid are the keys whose signature counts at a moment.
func Valid(keys []protocol.TaskKey, now time.Time) []protocol.TaskKey {
	return slices.DeleteFunc(slices.Clone(keys), func(k protocol.TaskKey) bool { return k.Until != nil && !now.Before(*k.Until) })
}

// Extend adds to the keys that a node has those that are offered and follow from
// them. It gives back all keys that are believed then, oldest first, also beside
// an error. Generations only grow; where the node has none yet, all that hang
// together are believed.
func Extend(have, offered []protocol.TaskKey) ([]protocol.TaskKey, error) {
	have, offered = slices.Clone(have), slices.Clone(offered)
	slices.SortFunc(offered, byGeneration)
	if err := check(offered); err != nil || len(offered) == 0 {
		return have, err
	}
	if len(have) == 0 {
		first := offered[0]
		first.Until = nil // who follows says so
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

// check refuses what no control plane offers.
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

// number compares the keys of a node with those of the same generation that are
// offered. A key that a person wrote down without its generation gets it here.
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

// end says until when the keys before the newest one count at most.
func end(keys []protocol.TaskKey, until time.Time) {
	for i := range keys {
		if keys[i].Until == nil || until.Before(*keys[i].Until) {
			keys[i].Until = &until
		}
	}
}
