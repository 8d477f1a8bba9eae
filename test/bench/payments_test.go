package bench_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	stripehook "github.com/stripe/stripe-go/v85/webhook"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/webhook"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	paymentsdb "github.com/slipway-cloud/slipway/db/payments"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/stripe"
)

const (
	webhooksARound = 2000
	webhooksAtOnce = 64
	webhookRounds  = 3
	webhookSecret  = "whsec_of_the_benchmark"
)

// hookFlood sends signed webhooks over HTTP and remembers how many were accepted.
type hookFlood struct {
	*testing.B
	url      string
	client   *http.Client
	accepted atomic.Int64
}

// send sends one event until it is accepted, as Stripe does.
func (f *hookFlood) send(ctx context.Context) error {
	body := fmt.Sprintf(`{"id":%q,"object":"event","type":"checkout.session.completed","api_version":"2026-05-27.dahlia","created":%d,"livemode":false,"padding":%q,`+
		`"data":{"object":{"id":"cs_test_a1","object":"checkout.session","amount_total":2500}}}`, "evt_"+rand.Text(), time.Now().Unix(), strings.Repeat("x", 3000))
	for range 100 {
		header := stripehook.GenerateTestSignedPayload(&stripehook.UnsignedPayload{Payload: []byte(body), Secret: webhookSecret, Timestamp: time.Now()}).Header
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.url, strings.NewReader(body))
		if err != nil {
			return err
		}
		req.Header.Set(stripe.SignatureHeader, header)
		res, err := f.client.Do(req)
		if err != nil {
			return err
		}
		said, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		switch res.StatusCode {
		case http.StatusOK:
			f.accepted.Add(1)
			return nil
		case http.StatusServiceUnavailable:
		default:
			return fmt.Errorf("a webhook was answered with %s: %s", res.Status, said)
		}
	}
	return errors.New("a webhook was never accepted")
}

// BenchmarkStripeWebhooks sends signed webhooks to the route, and requires that each that was
// accepted is stored once.
func BenchmarkStripeWebhooks(b *testing.B) {
	dsn := dbtest.Database(b)
	store := dbtest.Open(b, dsn)
	verifier, err := stripe.NewVerifier(stripe.VerifierOptions{Secrets: []providers.Secret{providers.NewSecret(webhookSecret)}})
	require.NoError(b, err)
	api, err := op.New(op.Config{Store: store})
	require.NoError(b, err)
	webhook.Register(api, verifier)
	srv := httptest.NewServer(api.Handler())
	b.Cleanup(srv.Close)
	pool, err := pgxpool.New(b.Context(), dbtest.OwnerDSN(b, dsn))
	require.NoError(b, err)
	b.Cleanup(pool.Close)
	_, err = pool.Exec(b.Context(), "CREATE TABLE bare_events (LIKE stripe_events INCLUDING ALL)")
	require.NoError(b, err)
	f := &hookFlood{B: b, url: srv.URL + webhook.Path, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: webhooksAtOnce}}}
	most := watchHeap(b)
	var c contest
	c.enter("webhooks", func() float64 {
		return rate(b, webhooksARound, webhooksAtOnce, func(ctx context.Context, _ int) error { return f.send(ctx) })
	})
	body := []byte(strings.Repeat("x", 3000))
	c.enter("bare", func() float64 {
		return rate(b, webhooksARound, webhooksAtOnce, func(ctx context.Context, _ int) error {
			_, err := pool.Exec(ctx, "INSERT INTO bare_events (id, type, live, source, body, event_at) VALUES ($1, 'x', false, 'webhook', $2, now())", db.NewID("evt"), body)
			return err
		})
	})
	for b.Loop() {
		for range webhookRounds {
			c.round()
		}
	}
	stored, err := paymentsdb.CountEvents(b.Context(), store)
	require.NoError(b, err)
	require.Equal(b, f.accepted.Load(), stored[paymentsdb.EventPending], "none is lost, and none is stored twice")
	b.ReportMetric(c.of("webhooks"), "webhooks/s")
	measure(b, rowWebhooks, c.ratio("webhooks", "bare"), "%.2f; %.0f a second; %d MiB of heap at most", c.ratio("webhooks", "bare"), c.of("webhooks"), most()>>20)
}

// watchHeap looks at the heap, of which the senders are a part, until the result is asked for.
func watchHeap(b *testing.B) func() uint64 {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan uint64)
	go func() {
		var most uint64
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			most = max(most, m.HeapInuse)
			select {
			case <-ctx.Done():
				done <- most
				return
			case <-tick.C:
			}
		}
	}()
	return func() uint64 { cancel(); return <-done }
}
