// Package webhook receives what the payment provider tells by webhooks. No user is behind them: the
// signature is the only proof, and it proves no payment. An event is stored as it came, with the
// job that it starts; the job asks the payment provider.
package webhook

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/api/ratelimit"
	"github.com/slipway-cloud/slipway/db"
	paymentsdb "github.com/slipway-cloud/slipway/db/payments"
	"github.com/slipway-cloud/slipway/intent/payments"
	"github.com/slipway-cloud/slipway/internal/sender"
	"github.com/slipway-cloud/slipway/providers/stripe"
)

// Path is where Stripe sends its webhooks.
const Path = op.Prefix + "/webhooks/stripe"

const (
	// bodyBudget bounds the memory of the bodies that are read at the same time, in bytes.
	bodyBudget = 32 << 20
	// ofSource is how many bodies of one address are read at the same time: anybody can send
	// slowly.
	ofSource = 16
	// writers bounds the connections to the database that webhooks hold.
	writers = 8
	// limit bounds one webhook: Stripe waits no longer, and sends it again.
	limit = 10 * time.Second
	// warnEvery bounds how often the log tells of refused webhooks: anybody can send them.
	warnEvery = time.Minute

	retrySeconds = 5
)

// receiver stores webhooks of Stripe.
type receiver struct {
	api      *op.API
	verifier *stripe.Verifier
	limit    time.Duration
	sources  *ratelimit.Places
	bodies   *semaphore.Weighted
	writers  *semaphore.Weighted

	mu       sync.Mutex
	warnedAt time.Time
	refused  int // since then
}

// Register serves Path. verifier is nil where there are no payments. The route takes no session and
// no token, so that no browser can be made to use its user's rights there.
func Register(api *op.API, verifier *stripe.Verifier) { register(api, verifier, limit) }

func register(api *op.API, verifier *stripe.Verifier, limit time.Duration) {
	r := &receiver{api: api, verifier: verifier, limit: limit, sources: ratelimit.NewPlaces(ofSource), bodies: semaphore.NewWeighted(bodyBudget),
		writers: semaphore.NewWeighted(writers)}
	api.Router().Post(Path, r.serve)
}

func (h *receiver) serve(w http.ResponseWriter, r *http.Request) {
	if h.verifier == nil {
		h.api.WriteError(w, r, problem.New(problem.NotFound, "payments are off on this installation; operators turn them on with payment.stripe_key_ref"))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), h.limit)
	defer cancel()
	// A sender that is slow must not hold its part of the budget.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(h.limit))
	leave, ok := h.sources.Enter(ctx, sender.NetworkText(ratelimit.RemoteAddress(r)))
	if !ok {
		h.busy(w, r)
		return
	}
	defer leave()
	size := bodySize(r)
	if err := h.bodies.Acquire(ctx, size); err != nil {
		h.busy(w, r)
		return
	}
	defer h.bodies.Release(size)
	d, err := h.verifier.Receive(w, r)
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	if err := h.store(ctx, d); err != nil {
		h.fail(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte("{}\n"))
}

// bodySize returns how much memory the body of a request may take. A body that is larger than a
// webhook is refused unread.
func bodySize(r *http.Request) int64 {
	if r.ContentLength < 0 || r.ContentLength > stripe.MaxWebhook {
		return stripe.MaxWebhook
	}
	return r.ContentLength
}

// store stores an event, and the job of the payment that it names, in a transaction of its own. An
// event that is known stays as it is.
func (h *receiver) store(ctx context.Context, d stripe.Delivery) error {
	if err := h.writers.Acquire(ctx, 1); err != nil {
		return err
	}
	defer h.writers.Release(1)
	return h.api.Store().Tx(ctx, func(tx *db.Tx) error {
		_, err := payments.ReceiveEvent(ctx, tx, paymentsdb.NewEvent{
			ID: d.Event.ID, Type: d.Event.Type, ObjectKind: d.Event.ObjectKind, ObjectID: d.Event.ObjectID, Live: d.Event.Live, Release: d.Event.Release,
			Source: paymentsdb.FromWebhook, Body: d.Body, At: d.Event.Created,
		}, d.OtherMode)
		return err
	})
}

// refuse answers a webhook of which nothing is stored.
func (h *receiver) refuse(w http.ResponseWriter, r *http.Request, err error) {
	var refusal *stripe.WebhookRefusal
	if !errors.As(err, &refusal) {
		h.api.WriteError(w, r, err)
		return
	}
	h.warn(r.Context(), refusal.Reason)
	kind := problem.Malformed
	if refusal.Status == http.StatusRequestEntityTooLarge {
		kind = problem.TooLarge
	}
	h.api.WriteError(w, r, problem.New(kind, fmt.Sprintf("the webhook is refused: %s; send it as Stripe does, signed with the secret of this endpoint", refusal.Reason)))
}

// fail answers a webhook that was not stored. Stripe sends it again after a status of 500 and
// above.
func (h *receiver) fail(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, db.ErrInvalid) { // it would be refused each time
		h.warn(r.Context(), "cannot be stored")
		h.api.WriteError(w, r, problem.New(problem.Malformed, "the webhook is signed, and holds a value that no event of Stripe has"))
		return
	}
	h.api.Log().WarnContext(r.Context(), "webhook: an event was not stored; Stripe sends it again", "request_id", op.RequestID(r.Context()), "error", err)
	h.busy(w, r)
}

func (h *receiver) busy(w http.ResponseWriter, r *http.Request) {
	h.api.WriteError(w, r, problem.New(problem.Unavailable, "the webhook was not stored; send it again").After(retrySeconds))
}

// warn tells operators of refused webhooks, with how many there were: a wrong secret shows here.
func (h *receiver) warn(ctx context.Context, reason stripe.RefusalReason) {
	h.mu.Lock()
	h.refused++
	n := h.refused
	due := time.Since(h.warnedAt) >= warnEvery
	if due {
		h.warnedAt, h.refused = time.Now(), 0
	}
	h.mu.Unlock()
	if due {
		h.api.Log().WarnContext(ctx, "webhook: refused; if Stripe sent it, payment.webhook_secret_refs does not name the secret of this endpoint", "reason", reason, "refused", n)
	}
}
