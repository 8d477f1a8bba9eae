package telemetry

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/secrets"
)

// fleet is the number of BMC logins of a large installation.
const fleet = 10_000

func loginOf(i int) string { return fmt.Sprintf(`{"username":"root","password":"Pass-%06d"}`, i) }

func TestRedactor_HoldsAFleet(t *testing.T) {
	t.Parallel()
	r := &Redactor{}
	store, err := secrets.Open(t.Context(), &secrets.Memory{}, secrets.Keeper{KeyFile: filepath.Join(t.TempDir(), "key")}, secrets.Options{OnReveal: r.Use})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	inUse := func() int {
		r.mu.RLock()
		defer r.mu.RUnlock()
		return len(r.inUse)
	}
	put := func(i int) string {
		ctx, end := context.WithCancel(t.Context())
		defer end()
		name := fmt.Sprintf("slipway/test-%d", i)
		_, err := store.Put(ctx, name, providers.NewSecret(loginOf(i)))
		require.NoError(t, err)
		return name
	}

	first := put(0)
	long, endLong := context.WithCancel(t.Context())
	_, err = store.Resolve(long, providers.SecretRef(first), providers.OwnUse())
	require.NoError(t, err)
	again, endAgain := context.WithCancel(t.Context())
	_, err = store.Resolve(again, providers.SecretRef(first), providers.OwnUse())
	require.NoError(t, err)
	for i := 1; i < fleet; i++ {
		put(i)
	}
	endAgain()
	require.Eventually(t, func() bool { return inUse() == 2 }, 10*time.Second, time.Millisecond, "the login of the call in flight, and its password")
	require.Equal(t, "sent [secret]", r.Redact("sent Pass-000000"), "a call in flight keeps its login known, however many came after it")
	endLong()
	require.Eventually(t, func() bool { return inUse() == 0 }, 10*time.Second, time.Millisecond)
}

func TestRedactor_Linger(t *testing.T) {
	t.Parallel()
	r := &Redactor{Linger: time.Hour}
	ctx, end := context.WithCancel(t.Context())
	r.Use(ctx, "hunter2-hunter2")
	end()
	require.Equal(t, Hidden, r.Redact("hunter2-hunter2"), "what is logged about a call may be logged just after it")
}

// BenchmarkLogLine compares a log line of a process that has used 10,000 logins, with 100 calls in
// flight, to one of a process that has used none.
func BenchmarkLogLine(b *testing.B) {
	line := func(r *Redactor) func(*testing.B) {
		var out bytes.Buffer
		l, err := NewLogger(&out, "info", "json", r)
		require.NoError(b, err)
		return func(b *testing.B) {
			for b.Loop() {
				out.Reset()
				l.Info("stage done", "stage", "deploy_via_maas", "node", "gpu-0815", slog.Int("attempt", 2))
			}
		}
	}
	used := &Redactor{}
	for i := range fleet {
		ctx, end := context.WithCancel(b.Context())
		defer end()
		if used.Use(ctx, loginOf(i)); i >= 100 {
			end()
		}
	}
	var none, many time.Duration
	b.Run("none", func(b *testing.B) { line(&Redactor{})(b); none = b.Elapsed() / time.Duration(b.N) })
	b.Run("fleet", func(b *testing.B) {
		line(used)(b)
		many = b.Elapsed() / time.Duration(b.N)
		b.ReportMetric(float64(many)/float64(max(none, 1)), "x-of-none")
	})
}
