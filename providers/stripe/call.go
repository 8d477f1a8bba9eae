package stripe

import (
	"context"
	"regexp"
	"strings"
	"time"

	stripego "github.com/stripe/stripe-go/v85"

	"github.com/slipway-cloud/slipway/internal/poll"
	"github.com/slipway-cloud/slipway/providers"
)

// client implements providers.Payments. It holds no state between calls.
type client struct {
	api       *stripego.Client
	live      bool
	opt       Options
	redaction providers.Redaction
}

var _ providers.Payments = (*client)(nil)

func read(op string) shape  { return shape{op: "stripe." + op} }
func write(op string) shape { return shape{op: "stripe." + op, mutates: true} }

// call makes f's request, and makes it again where that may help, within the deadline.
func (c *client) call(ctx context.Context, s shape, f func(context.Context) error) error {
	if _, has := ctx.Deadline(); !has {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.opt.Timeout)
		defer cancel()
	}
	wait := c.opt.Wait
	for try := 1; ; try++ {
		err := c.try(ctx, s, f)
		if err == nil || try >= c.opt.Tries || !mayRepeat(err) {
			return err
		}
		pause := wait
		if pe, ok := err.(*providers.Error); ok { //nolint:errorlint // try returns it as it is
			pause = max(wait, pe.RetryAfter)
		}
		if until, _ := ctx.Deadline(); time.Until(until) <= pause || poll.Sleep(ctx, pause) != nil {
			return err
		}
		wait *= 2
	}
}

func (c *client) try(ctx context.Context, s shape, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, c.opt.TryTimeout)
	defer cancel()
	ctx, w := recorded(ctx)
	return verdict(s, w, f(ctx), c.redaction)
}

// idForm is what an id of Stripe looks like: it becomes a part of a path.
var idForm = regexp.MustCompile(`^[a-z]{2,6}_[A-Za-z0-9_]{1,250}$`)

func checkID(op, kind, id string) error {
	if !idForm.MatchString(id) {
		return invalid("stripe."+op, "this is no id of a "+kind+" of Stripe")
	}
	return nil
}

// checkMode refuses an object of the other mode: money of Stripe's test mode does not exist.
func (c *client) checkMode(op, id string, live bool) error {
	if live == c.live {
		return nil
	}
	return &providers.Error{
		Kind: providers.KindForeign, Op: "stripe." + op,
		Message: id + " is of Stripe's " + modeName(live) + " mode, and this account is configured as " + modeName(c.live),
	}
}

func modeName(live bool) string {
	if live {
		return "live"
	}
	return "test"
}

// protocol is the error of an answer that lacks what it must have.
func protocol(s shape, message string) error {
	return &providers.Error{Kind: uncertainOr(s, providers.KindProtocol), Op: s.op, Message: message}
}

func upper(currency stripego.Currency) string { return strings.ToUpper(string(currency)) }

func unix(seconds int64) time.Time { return time.Unix(seconds, 0).UTC() }

// intentID returns the id of a payment intent that is there or not.
func intentID(p *stripego.PaymentIntent) string {
	if p == nil {
		return ""
	}
	return p.ID
}
