package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/slipway-cloud/slipway/lifecycle"
	stripesim "github.com/slipway-cloud/slipway/sim/stripe"
)

// toppedUp is what the owner of the first project pays, and tampered by how much a second payment
// differs from what was asked for.
const (
	toppedUp = 250_000
	tampered = 5
)

// payment is what the demo reads of a payment.
type payment struct {
	ID      string `json:"id"`
	Status  string `json:"status"`
	URL     string `json:"url"`
	Project string `json:"project_id"`
}

// topUp has the owner of the first project pay on the payment page, and an operator decide about a
// second payment, of which another amount came than was asked for.
func (o *operator) topUp(ctx context.Context, out io.Writer) error {
	fmt.Fprintln(out, "\nAda, the owner of Bob's project, adds to its balance. She opens the payment page, which is simulated, and pays:")
	ada := o.ada
	before, err := ada.balance(ctx)
	if err != nil {
		return err
	}
	first, err := ada.pay(ctx, out)
	if err != nil {
		return err
	}
	if err := ada.awaitPayment(ctx, first, lifecycle.PaymentCredited); err != nil {
		return err
	}
	for _, args := range [][]string{{"payment", "list", ada.project}, {"balance", ada.project}} {
		if err := ada.show(ctx, out, args...); err != nil {
			return err
		}
	}
	fmt.Fprintln(out, "\nOf a second payment another amount comes than was asked for. It is not credited: its job is parked, and an operator takes what Stripe shows as the truth. The Temporal Web UI has the same action as an Update of the job:")
	fault, err := o.stack.Stripe.AddFault(stripesim.Fault{Name: stripesim.FaultAmount, Count: -1, Params: map[string]string{"by": strconv.Itoa(tampered)}})
	if err != nil {
		return err
	}
	second, err := ada.pay(ctx, out)
	if err != nil {
		return err
	}
	if err := ada.awaitPayment(ctx, second, lifecycle.PaymentFailedReconcile); err != nil {
		return err
	}
	o.stack.Stripe.ClearFaults(fault)
	var parked struct {
		Job    string              `json:"job_id"`
		Status lifecycle.JobStatus `json:"status"`
	}
	if err := await(ctx, "the job of the payment", func() (bool, error) {
		err := read(ctx, o, o.home, &parked, "payment", "reconcile", second.ID) // it names the live job
		return parked.Status.Parked(), err
	}); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"payment", "list", "--stuck"}, {"job", "show", parked.Job},
		{"job", "adopt", parked.Job, "--resolution", string(lifecycle.ResolveCredit), "--reason", "Ada meant to pay it", "--watch"},
	} {
		if err := o.show(ctx, out, args...); err != nil {
			return err
		}
	}
	after, err := ada.balance(ctx)
	if err != nil {
		return err
	}
	if gained := after.Minor - before.Minor; gained != 2*toppedUp+tampered {
		return fmt.Errorf("the balance gained %d, and should have gained %d: a wrong sum of money", gained, 2*toppedUp+tampered)
	}
	return ada.show(ctx, out, "balance", ada.project)
}

// pay asks for a payment page and presses its button.
func (c *customer) pay(ctx context.Context, out io.Writer) (payment, error) {
	args := []string{"topup", c.project, amount(toppedUp), "--currency", currency}
	fmt.Fprintf(out, "\n%s$ slipway %s\n", c.Name, strings.Join(args, " "))
	var p payment
	if err := read(ctx, c.operator, c.home, &p, args...); err != nil {
		return p, err
	}
	fmt.Fprintf(out, "%s is %s: %s\n", p.ID, p.Status, p.URL)
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.URL, strings.NewReader(url.Values{"do": {"pay"}}.Encode()))
	if err != nil {
		return p, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	browser := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	res, err := browser.Do(req)
	if err != nil {
		return p, err
	}
	_ = res.Body.Close()
	if back := res.Header.Get("Location"); res.StatusCode != http.StatusSeeOther || !strings.Contains(back, "/portal/projects/"+c.project+"/payments") {
		return p, fmt.Errorf("the payment page answered %s and sent the browser to %q", res.Status, back)
	}
	return p, nil
}

// awaitPayment waits until a payment has a status, as the page on which the payer lands does.
func (c *customer) awaitPayment(ctx context.Context, p payment, wanted lifecycle.PaymentStatus) error {
	return await(ctx, "the payment", func() (bool, error) {
		err := read(ctx, c.operator, c.home, &p, "payment", "show", c.project, p.ID)
		return p.Status == string(wanted), err
	})
}
