// Package poll waits between two looks at something that changes by itself.
package poll

import (
	"context"
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
