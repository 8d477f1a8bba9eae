// Package payments decides about payments of customers within the transaction that it is given:
// which payment sessions are accepted, what is credited, booked to suspense, refunded or held for a
// dispute. It knows no payment provider: what one answered is given to it as an Observed, an
// ObservedRefund or an ObservedDispute. loops/paymentsync asks the provider.
package payments

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/slipway-cloud/slipway/db"
	ledgerdb "github.com/slipway-cloud/slipway/db/ledger"
	paymentsdb "github.com/slipway-cloud/slipway/db/payments"
	tenancydb "github.com/slipway-cloud/slipway/db/tenancy"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// The limits of a request.
const (
	MaxKey    = 255
	MaxURL    = 2000
	MaxReason = 500

	// The payment provider keeps a page open for 30 minutes to 24 hours by its own clock. A minute
	// is left for clocks that differ.
	minOpen = 31 * time.Minute
	maxOpen = 24*time.Hour - time.Minute

	// firstLook is when the session is looked at for the first time, should no webhook come.
	firstLook = 15 * time.Minute
)

// Policy is what the settings say of payments.
type Policy struct {
	// Enabled says that there is an account at the payment provider.
	Enabled bool
	// Live says that real money moves.
	Live bool
	// SessionTTL is how long a page may be paid.
	SessionTTL time.Duration
	// CreditMaxAttempts is how often a credit that fails is tried again before an operator has to
	// look.
	CreditMaxAttempts int
	// MinAmount and MaxAmount bound an amount, in whole units of its currency.
	MinAmount, MaxAmount int64
	// SessionsPerHour is how many sessions a user may ask for in an hour.
	SessionsPerHour int
	// AccountSessionsPerHour is how many all users of a billing account may ask for in an hour.
	AccountSessionsPerHour int
	// RedirectHosts are the hosts to which the payer's browser may be sent.
	RedirectHosts []string
}

// Request asks for a payment session.
type Request struct {
	ProjectID             string // the project whose billing account gets the amount
	AmountMinor           int64
	SuccessURL, CancelURL string
	// Key makes the request repeatable: the same user with the same key gets the same session,
	// always.
	Key   string
	Actor db.Actor // its ID is the user
}

// ErrOff is the cause of a refusal while there is no account at the payment provider.
var ErrOff = errors.New("payments are not set up")

func refuse(kind intent.Kind, format string, args ...any) error {
	return &intent.Refusal{Kind: kind, Detail: fmt.Sprintf(format, args...)}
}

func refuseOff() error {
	return refuse(intent.Conflict, "payments are off on this installation: operators turn them on with payment.stripe_key_ref")
}

// Begin accepts a payment session and writes its row, before the payment provider is asked for
// anything. It returns false with the session that is there when the user has used the key before.
func Begin(ctx context.Context, tx *db.Tx, p Policy, r Request) (paymentsdb.Session, bool, error) {
	if !p.Enabled {
		return paymentsdb.Session{}, false, refuseOff()
	}
	project, err := tenancydb.ReadProject(ctx, tx, r.ProjectID)
	if err != nil {
		return paymentsdb.Session{}, false, err
	}
	account, err := tenancydb.LockAccount(ctx, tx, project.BillingAccountID) // two requests with one key come one after the other
	if err != nil {
		return paymentsdb.Session{}, false, err
	}
	user := paymentsdb.ActorName(r.Actor)
	hash, err := hashRequest(account.ID, r)
	if err != nil {
		return paymentsdb.Session{}, false, err
	}
	stored, err := paymentsdb.FindByRequest(ctx, tx, user, r.Key)
	switch {
	case err == nil && (stored.ProjectID != r.ProjectID || !slices.Equal(stored.RequestHash, hash)):
		return paymentsdb.Session{}, false, refuse(intent.Conflict, "another payment was asked for with this idempotency key; use a new key for a new payment")
	case err == nil || !errors.Is(err, db.ErrNotFound):
		return stored, false, err
	}
	balance, err := ledgerdb.ReadBalance(ctx, tx, account.ID)
	if err != nil {
		return paymentsdb.Session{}, false, err
	}
	if err := checkRequest(p, r, int(balance.Exponent), balance.Currency); err != nil {
		return paymentsdb.Session{}, false, err
	}
	now, err := tx.Clock(ctx)
	if err != nil {
		return paymentsdb.Session{}, false, err
	}
	if err := checkRate(ctx, tx, p, user, account.ID, now.Add(-time.Hour)); err != nil {
		return paymentsdb.Session{}, false, err
	}
	s, err := paymentsdb.Create(ctx, tx, paymentsdb.New{
		ID: db.NewID("pay"), BillingAccountID: account.ID, ProjectID: r.ProjectID, RequestedBy: user, Key: r.Key, RequestHash: hash, AmountMinor: r.AmountMinor,
		Currency: balance.Currency, Live: p.Live, SuccessURL: r.SuccessURL, CancelURL: r.CancelURL,
		ExpiresAt: now.Add(min(max(p.SessionTTL, minOpen), maxOpen)).Truncate(time.Second), NextLook: now.Add(firstLook), Actor: r.Actor,
	})
	return s, err == nil, err
}

// checkRate refuses a session of a user, or of a billing account, that has asked for too many since
// a time.
func checkRate(ctx context.Context, tx *db.Tx, p Policy, user, accountID string, since time.Time) error {
	asked, err := paymentsdb.CountRequested(ctx, tx, user, since)
	if err != nil {
		return err
	}
	if asked >= int64(p.SessionsPerHour) {
		return refuse(intent.RateLimited, "you have asked for %d payments within an hour, and may ask for %d; pay one of them, or try again later", asked, p.SessionsPerHour)
	}
	if asked, err = paymentsdb.CountOfAccount(ctx, tx, accountID, since); err != nil {
		return err
	}
	if asked >= int64(p.AccountSessionsPerHour) {
		return refuse(intent.RateLimited, "%d payments were asked for within an hour for this billing account, and %d may be; pay one of them, or try again later",
			asked, p.AccountSessionsPerHour)
	}
	return nil
}

func hashRequest(accountID string, r Request) ([]byte, error) {
	b, err := json.Marshal([]any{accountID, r.AmountMinor, r.SuccessURL, r.CancelURL})
	sum := sha256.Sum256(b)
	return sum[:], err
}

func checkRequest(p Policy, r Request, exponent int, currency string) error {
	var bad []intent.Field
	add := func(name, message string) { bad = append(bad, intent.Field{Name: name, Message: message}) }
	unit := int64(1)
	for range exponent {
		unit *= 10
	}
	if least, most := p.MinAmount*unit, p.MaxAmount*unit; r.AmountMinor < least || r.AmountMinor > most {
		add("amount_minor", fmt.Sprintf("must be %d to %d: %s to %s %s", least, most, lifecycle.FormatMinor(least, exponent), lifecycle.FormatMinor(most, exponent), currency))
	}
	if exponent == 3 && r.AmountMinor%10 != 0 {
		add("amount_minor", "must end in 0: banks round an amount in "+currency+" to two digits")
	}
	if r.Key == "" || len(r.Key) > MaxKey {
		add("idempotency_key", fmt.Sprintf("must be 1 to %d bytes; send it as the header Idempotency-Key", MaxKey))
	}
	for name, value := range map[string]string{"success_url": r.SuccessURL, "cancel_url": r.CancelURL} {
		if why := checkRedirect(value, p.RedirectHosts); why != "" {
			add(name, why)
		}
	}
	slices.SortFunc(bad, func(a, b intent.Field) int { return strings.Compare(a.Name, b.Name) })
	return intent.InvalidIf(bad)
}

// checkRedirect returns why a payer's browser is not sent to an address, "" when it may be. The
// page of the payment provider would otherwise lend its good name to any address.
func checkRedirect(text string, hosts []string) string {
	if len(text) > MaxURL {
		return fmt.Sprintf("must be at most %d bytes", MaxURL)
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil || u.Opaque != "" || strings.ContainsAny(text, "\\ \t\r\n") {
		return "must be an address such as https://portal.example.com/portal/billing, without a user name"
	}
	host := u.Hostname()
	ip := net.ParseIP(host)
	isLocal := host == "localhost" || ip != nil && ip.IsLoopback()
	if u.Scheme != "https" && (u.Scheme != "http" || !isLocal) {
		return "must begin with https://"
	}
	if !slices.Contains(hosts, u.Host) && !slices.Contains(hosts, host) {
		return "is on a host that is not allowed; operators allow one with payment.redirect_hosts"
	}
	return ""
}

// EventTypes are the types of events of pages, refunds and disputes.
func EventTypes() []string {
	return []string{
		"checkout.session.completed", "checkout.session.async_payment_succeeded", "checkout.session.async_payment_failed", "checkout.session.expired",
		"refund.created", "refund.updated", "refund.failed", "charge.refunded",
		"charge.dispute.created", "charge.dispute.updated", "charge.dispute.closed", "charge.dispute.funds_withdrawn", "charge.dispute.funds_reinstated",
	}
}

// ReceiveEvent stores what the payment provider told, as it came. It returns false when the event
// was stored before. An event of a page that may be paid starts the job of its session in the same
// transaction; every other event is processed later. One of the other mode is kept and ignored. One
// of another type is kept without its body, which nothing reads: whoever knows the secret of the
// webhook could fill the database with them.
func ReceiveEvent(ctx context.Context, tx *db.Tx, e paymentsdb.NewEvent, otherMode bool) (bool, error) {
	if !slices.Contains(EventTypes(), e.Type) {
		e.Body = []byte{}
	}
	e.State = paymentsdb.EventPending
	if otherMode {
		e.State = paymentsdb.EventIgnored
	}
	isNew, err := paymentsdb.StoreEvent(ctx, tx, e)
	if err != nil || !isNew || otherMode || !mayBePaid(e) {
		return isNew, err
	}
	return true, startByEvent(ctx, tx, e)
}

func mayBePaid(e paymentsdb.NewEvent) bool {
	return e.ObjectKind == "checkout.session" && (e.Type == "checkout.session.completed" || e.Type == "checkout.session.async_payment_succeeded")
}

// startByEvent starts the job of the session that an event names by its page. The event stays
// pending when no session has the page yet, and when a live job may have read the page before the
// event: a pass looks at it then. The job reads the page itself: an event proves nothing.
func startByEvent(ctx context.Context, tx *db.Tx, e paymentsdb.NewEvent) error {
	s, err := paymentsdb.FindByPage(ctx, tx, e.ObjectID)
	if errors.Is(err, db.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if s, err = paymentsdb.Lock(ctx, tx, s.ID); err != nil {
		return err
	}
	isOpen := s.Status == lifecycle.PaymentInitiated || s.Status == lifecycle.PaymentCheckoutCompleted || s.Status == lifecycle.PaymentExpired
	if isOpen {
		if _, isNew, err := StartReconcile(ctx, tx, s, Actor); err != nil || !isNew {
			return err
		}
	}
	return paymentsdb.FinishEvent(ctx, tx, e.ID, paymentsdb.EventProcessed, s.ID, "")
}
