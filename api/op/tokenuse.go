package op

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	// useEvery is how old the stored last use of a token may be.
	useEvery = 5 * time.Minute
	// useTime bounds one write of last uses, maxUses the tokens that wait for one or had one
	// lately.
	useTime = 10 * time.Second
	maxUses = 16384
)

// tokenUses notes when tokens were last used. A request only leaves the hash of its token here. One
// goroutine at a time writes, and each token at most once in useEvery: neither the requests nor the
// database have much to do for it. Uses that cannot be written are lost, since the next one is
// noted again.
type tokenUses struct {
	write func(ctx context.Context, hashes [][]byte, every time.Duration) error
	log   *slog.Logger
	now   func() time.Time

	mu      sync.Mutex
	noted   map[string]time.Time // by hash: when this process noted it
	waiting [][]byte
	writing bool
}

// note has the use of a token written, where the stored one is older than useEvery.
func (u *tokenUses) note(ctx context.Context, hash []byte, last *time.Time) {
	now := u.now()
	if last != nil && now.Sub(*last) < useEvery && !last.After(now) {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if at, known := u.noted[string(hash)]; known && now.Sub(at) < useEvery && !at.After(now) {
		return
	}
	if u.noted == nil || len(u.noted) >= maxUses {
		u.noted = map[string]time.Time{}
	}
	if len(u.waiting) >= maxUses {
		return
	}
	u.noted[string(hash)] = now
	u.waiting = append(u.waiting, hash)
	if !u.writing {
		u.writing = true
		go u.writeAll(context.WithoutCancel(ctx))
	}
}

// writeAll writes until nothing waits.
func (u *tokenUses) writeAll(ctx context.Context) {
	for {
		u.mu.Lock()
		hashes := u.waiting
		u.waiting = nil
		u.writing = len(hashes) > 0
		u.mu.Unlock()
		if len(hashes) == 0 {
			return
		}
		wctx, cancel := context.WithTimeout(ctx, useTime)
		if err := u.write(wctx, hashes, useEvery); err != nil {
			u.log.WarnContext(ctx, "the last use of tokens was not noted", "tokens", len(hashes), "error", err)
		}
		cancel()
	}
}
