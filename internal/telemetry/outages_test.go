package telemetry_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
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
		var out bytes.Buffer
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
