package grpc

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
)

// The events of all runs are numbered together. A customer must not learn from two cursors how much
// the whole platform did between them. So the readers of a project see each number encrypted with
// the key of their project: a permutation of the numbers of cursorBits bits, which a JSON number
// can hold. Cursors of a project are not in the order of the events.
const (
	cursorBits   = 52
	halfBits     = cursorBits / 2
	halfMask     = 1<<halfBits - 1
	cursorRounds = 8
)

// cursors translates the cursors of one stream of events. A nil key, for readers of the platform,
// changes none.
type cursors struct{ key []byte }

// cursorsOf returns the cursors of the caller.
func (s *server) cursorsOf(ctx context.Context) (cursors, error) {
	project := callerOf(ctx).Project
	if project == "" {
		return cursors{}, nil
	}
	key, err := s.store.ProjectCursorKey(ctx, project)
	return cursors{key}, err
}

// shownCursor returns the cursor that the reader sees for a number of the platform. 0 stays 0.
func (c cursors) shownCursor(number int64) int64 {
	if c.key == nil || number == 0 {
		return number
	}
	for number = c.permute(number); number == 0; { // 0 means no cursor
		number = c.permute(number)
	}
	return number
}

// storedCursor returns the number of the platform for a cursor of the reader. A cursor that
// shownCursor has not returned gives any number; almost all of these are higher than the number of
// the last event.
func (c cursors) storedCursor(cursor int64) int64 {
	if c.key == nil || cursor == 0 {
		return cursor
	}
	if cursor >= 1<<cursorBits {
		return cursor
	}
	for cursor = c.restore(cursor); cursor == 0; {
		cursor = c.restore(cursor)
	}
	return cursor
}

// permute is a Feistel network over two halves of a number.
func (c cursors) permute(number int64) int64 {
	left, right := uint64(number)>>halfBits&halfMask, uint64(number)&halfMask //nolint:gosec // never negative
	for round := range cursorRounds {
		left, right = right, left^c.mix(round, right)
	}
	return int64(left<<halfBits | right) //nolint:gosec // of cursorBits bits
}

// restore is the inverse of permute.
func (c cursors) restore(number int64) int64 {
	left, right := uint64(number)>>halfBits&halfMask, uint64(number)&halfMask //nolint:gosec // never negative
	for round := cursorRounds - 1; round >= 0; round-- {
		left, right = right^c.mix(round, left), left
	}
	return int64(left<<halfBits | right) //nolint:gosec // of cursorBits bits
}

// mix returns half a number that depends on the key, the round and the other half.
func (c cursors) mix(round int, half uint64) uint64 {
	h := hmac.New(sha256.New, c.key)
	var in [9]byte
	in[0] = byte(round)
	binary.BigEndian.PutUint64(in[1:], half)
	h.Write(in[:])
	return binary.BigEndian.Uint64(h.Sum(nil)) & halfMask
}
