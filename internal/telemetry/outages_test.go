package telemetry_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/internal/telemetry"
)

// TestCountOutages_OneLineAtEachEnd logs a line a second for ten minutes of an outage, by several
// loggers, and other errors beside them.
func TestCountOutages_OneLineAtEachEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		away := errors.New("away")
		var out lockedBuffer
		log := telemetry.CountOutages(slog.New(slog.NewTextHandler(&out, nil)), func(err error) string {
			if errors.Is(err, away) {
				return "database"
			}
			return ""
		})
		for range 2 {
			out.Reset()
			for i := range 600 {
				log.With("area", i%3).Error("request failed", "route", i, "error", fmt.Errorf("read: %w", away))
				log.WithGroup("g").Warn("another error", "error", errors.New("other"))
				time.Sleep(time.Second) //nolint:forbidigo // the clock of synctest
			}
			require.Equal(t, 600, strings.Count(out.String(), "another error"))
			require.Equal(t, 1, strings.Count(out.String(), "request failed"))
			require.NotContains(t, out.String(), "is over")
			time.Sleep(time.Minute) //nolint:forbidigo // the clock of synctest
			synctest.Wait()
			require.Equal(t, 1, strings.Count(out.String(), "is over"))
			require.Contains(t, out.String(), "of=database left_out=599")
		}
		out.Reset()
		log.Error("request failed", "error", away)
		time.Sleep(time.Minute) //nolint:forbidigo // the clock of synctest
		synctest.Wait()
		require.Equal(t, 1, strings.Count(out.String(), "\n"), "one line needs no count")
	})
}

// lockedBuffer is read while the end of an outage may be written: Sleep orders nothing for the race
// detector.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *lockedBuffer) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b.Reset()
}
