// Package poll waits between two looks at something that changes by itself.
package poll

import (
	"context"
	"log/slog"
	"time"
)

// Sleep waits for d. It returns the context's error when ctx ends first.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// Repeat calls do until ctx ends, with a pause after each call. It logs the text with each error.
func Repeat(ctx context.Context, pause time.Duration, log *slog.Logger, text string, do func(context.Context) error) {
	for {
		if err := do(ctx); err != nil && ctx.Err() == nil {
			log.WarnContext(ctx, text, "error", err)
		}
		if Sleep(ctx, pause) != nil {
			return
		}
	}
}
