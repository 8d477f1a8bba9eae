package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"strings"
	"time"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/internal/poll"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// The demo's price is far above a real one, 10.00 USD a second, so that a balance runs out within
// the minute that is charged next. Amounts are minor units.
const (
	ratePerHour = 3_600_000
	credited    = 4_000_000
	keptLow     = 950 // a low balance, of less than a second
	currency    = "USD"
	exponent    = 2
)

// Each minute is charged when it is over. tickMargin is how far away the next charge must be at
// least for what has to be done before it: some calls of the slipway program, which take long on a
// busy machine. chargeLimit is how long a charge may take.
const (
	tickMargin  = 10 * time.Second
	callsBefore = 20
	mostMargin  = 40 * time.Second
	chargeLimit = 3 * time.Minute
)

// refusedByAPI is the exit code of slipway when the API refuses a request.
const refusedByAPI = 4

// setPrice sets the first price of the SKU that is lent, after its dry run, and credits both
// customers.
func (o *operator) setPrice(ctx context.Context, out io.Writer) error {
	price := []string{lentSKU, amount(ratePerHour)}
	var plan struct {
		Hash string `json:"plan_hash"`
	}
	try := append([]string{"price", "try"}, price...)
	if err := read(ctx, o, o.home, &plan, try...); err != nil {
		return err
	}
	if err := o.show(ctx, out, try...); err != nil {
		return err
	}
	if err := o.show(ctx, out, append(append([]string{"price", "create"}, price...), "--plan-hash", plan.Hash)...); err != nil {
		return err
	}
	for _, c := range []struct{ company, project string }{{"acme", o.bob.project}, {"globex", o.carol.project}} {
		if err := o.show(ctx, out, "adjustment", "create", c.company, amount(credited), "--project", c.project, "--reason", "invoice 17 is paid", "--confirm"); err != nil {
			return err
		}
	}
	return nil
}

// amount is an amount as the command line takes it.
func amount(minor int64) string { return lifecycle.FormatMinor(minor, exponent) }

// balance is what the demo reads of a balance.
type balance struct {
	State string `json:"state"`
	Minor int64  `json:"balance_minor"`
}

func (c *customer) balance(ctx context.Context) (b balance, err error) {
	return b, read(ctx, c.operator, c.home, &b, "balance", c.project)
}

// segment is what an allocation uses at one rate.
type segment struct {
	AllocationID string     `json:"allocation_id"`
	Rate         int64      `json:"rate_minor_per_hour"`
	Start        *time.Time `json:"start_time"`
	LastBilledAt *time.Time `json:"last_billed_at"`
	CostMinor    int64      `json:"cost_minor"`
}

func (c *customer) usage(ctx context.Context) ([]segment, error) {
	var list struct{ Data []segment }
	return list.Data, read(ctx, c.operator, c.home, &list, "usage", c.project)
}

// runLow takes a payment of the second customer back, so that the balance is low, and shows the
// notice.
func (o *operator) runLow(ctx context.Context, out io.Writer) error {
	fmt.Fprintln(out, "\nThe node of Carol costs 10.00 USD a second, and the bank takes her payment back. Her balance is low, of which she is told once:")
	if err := o.awaitCharge(ctx); err != nil {
		return err
	}
	b, err := o.carol.balance(ctx)
	if err != nil {
		return err
	}
	err = o.show(ctx, out, "adjustment", "create", "globex", "--project", o.carol.project, "--reason", "the bank took the payment back", "--confirm", "--", amount(keptLow-b.Minor))
	if err != nil {
		return err
	}
	if err := o.billNow(ctx); err != nil {
		return err
	}
	if err := o.awaitNotices(ctx, map[string]int{string(lifecycle.BalanceLow): 1}); err != nil {
		return err
	}
	if err := o.carol.show(ctx, out, "balance", o.carol.project); err != nil {
		return err
	}
	return o.carol.show(ctx, out, "notice", "list", o.carol.project)
}

// awaitCharge waits until the past minutes are charged and the next charge is far enough away.
func (o *operator) awaitCharge(ctx context.Context) error {
	return await(ctx, "the charge of a minute", func() (bool, error) {
		began := time.Now()
		segments, err := o.carol.usage(ctx)
		if err != nil || len(segments) == 0 || segments[0].Start == nil {
			return false, err
		}
		margin := min(max(tickMargin, callsBefore*time.Since(began)), mostMargin)
		minute := time.Now().Truncate(time.Minute)
		isCharged := !segments[0].Start.Before(minute) || segments[0].LastBilledAt != nil && !segments[0].LastBilledAt.Before(minute)
		return isCharged && time.Until(minute.Add(time.Minute)) > margin, nil
	})
}

// billNow has the Schedule of the charges run at once. It charges nothing that is charged already.
func (o *operator) billNow(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	app := o.stack.App
	return app.Schedule(contract.BillPass).Trigger(ctx)
}

// awaitNotices waits until the second customer was told of a balance as often as wanted, by kind,
// and fails when it was more often.
func (o *operator) awaitNotices(ctx context.Context, wanted map[string]int) error {
	return await(ctx, "the notices of the balance", func() (bool, error) {
		var list struct{ Data []struct{ Kind string } }
		if err := read(ctx, o, o.carol.home, &list, "notice", "list", o.carol.project); err != nil {
			return false, err
		}
		told := map[string]int{}
		for _, n := range list.Data {
			if n.Kind == string(lifecycle.BalanceLow) || n.Kind == string(lifecycle.BalanceDepleted) {
				told[n.Kind]++
			}
			if told[n.Kind] > max(1, wanted[n.Kind]) {
				return false, fmt.Errorf("carol was told %d times of %s", told[n.Kind], n.Kind)
			}
		}
		return maps.Equal(told, wanted), nil
	})
}

// runOut waits until the next charge has used the balance up, and shows what follows: the
// allocation is released by force, its node is erased, and nothing new is granted.
func (o *operator) runOut(ctx context.Context, out io.Writer, id string) error {
	fmt.Fprintln(out, "\nThe next minute is charged, and the balance of Carol is used up. Nobody has to act: her node is taken back and erased.")
	var a struct{ Status, Outcome, Access string }
	err := await(ctx, "the forced release", func() (bool, error) {
		err := read(ctx, o, o.carol.home, &a, "allocation", "show", id)
		return a.Status != string(lifecycle.AllocationActive), err
	})
	if err != nil {
		return err
	}
	if err := o.carol.show(ctx, out, "allocation", "show", id, "--watch"); err != nil {
		return err
	}
	if err := read(ctx, o, o.carol.home, &a, "allocation", "show", id); err != nil {
		return err
	}
	if a.Outcome != lifecycle.OutcomeReleased || a.Access != lifecycle.AccessRevoked {
		return fmt.Errorf("the allocation ended %s with the access %s", a.Outcome, a.Access)
	}
	if err := o.awaitNotices(ctx, map[string]int{string(lifecycle.BalanceLow): 1, string(lifecycle.BalanceDepleted): 1}); err != nil {
		return err
	}
	for _, args := range [][]string{{"notice", "list", o.carol.project}, {"balance", o.carol.project}, {"usage", o.carol.project}} {
		if err := o.carol.show(ctx, out, args...); err != nil {
			return err
		}
	}
	if err := o.carol.isRefusedForMoney(ctx, out); err != nil {
		return err
	}
	return o.checkStatement(ctx, out)
}

// isRefusedForMoney fails unless a further node is refused since the balance does not cover it.
func (c *customer) isRefusedForMoney(ctx context.Context, out io.Writer) error {
	fmt.Fprintf(out, "\n%s$ slipway allocation create %s --project %s\n", c.Name, lentSKU, c.project)
	said, err := c.commandOf(ctx, c.home, "allocation", "create", lentSKU, "--project", c.project).CombinedOutput()
	_, _ = out.Write(said)
	var ended *exec.ExitError
	if !errors.As(err, &ended) || ended.ExitCode() != refusedByAPI || !strings.Contains(string(said), "the available balance does not cover it") {
		return fmt.Errorf("a node without a balance should be refused, and it ended with: %w: %s", err, said)
	}
	return nil
}

// checkStatement compares the statement of the second customer with the ledger, the ledger with the
// balance, and the cost of each segment with its rate and time. The last seconds of an allocation
// are charged with the next minute, so that all is read again when the ledger changed meanwhile.
func (o *operator) checkStatement(ctx context.Context, out io.Writer) error {
	var month string
	var b balance
	err := await(ctx, "a ledger that stays as it is while it is compared", func() (bool, error) {
		before, err := o.carol.ledger(ctx)
		if err != nil {
			return false, err
		}
		stated := sums{}
		for month = range before.months {
			if err := o.carol.statement(ctx, month, stated); err != nil {
				return false, err
			}
		}
		if b, err = o.carol.balance(ctx); err != nil {
			return false, err
		}
		segments, err := o.carol.usage(ctx)
		if err != nil {
			return false, err
		}
		after, err := o.carol.ledger(ctx)
		if err != nil || !maps.Equal(before.sums, after.sums) {
			return false, err
		}
		return true, before.sums.agreeWith(stated, b, segments)
	})
	if err != nil {
		return err
	}
	if err := o.carol.show(ctx, out, "statement", o.carol.project, month, "--csv"); err != nil {
		return err
	}
	fmt.Fprintf(out, "\nStatement, ledger and balance of Carol agree: %s %s. The cost is the rate for the time, to the cent.\n", lifecycle.FormatMinor(b.Minor, exponent), currency)
	return nil
}

// agreeWith returns an error unless the sums of a ledger are those of the statement, of the
// balance, and of what the segments cost by their rate and time.
func (s sums) agreeWith(stated sums, b balance, segments []segment) error {
	if !maps.Equal(s, stated) {
		return fmt.Errorf("the statement says %v, the ledger %v: a wrong sum of money", stated, s)
	}
	if s.total() != b.Minor {
		return fmt.Errorf("the ledger sums to %d, the balance is %d: a wrong sum of money", s.total(), b.Minor)
	}
	cost := map[string]int64{}
	for _, g := range segments {
		if g.Start == nil || g.LastBilledAt == nil {
			continue
		}
		if due := g.Rate * g.LastBilledAt.Sub(*g.Start).Microseconds() / time.Hour.Microseconds(); g.CostMinor != due {
			return fmt.Errorf("%s cost %d for %s at %d an hour, and should cost %d: a wrong sum of money", g.AllocationID, g.CostMinor, g.LastBilledAt.Sub(*g.Start), g.Rate, due)
		}
		cost[g.AllocationID] += g.CostMinor
	}
	for id, due := range cost {
		if charged := -s[[2]string{id, "usage"}]; charged != due {
			return fmt.Errorf("%s cost %d and was charged %d: a wrong sum of money", id, due, charged)
		}
	}
	return nil
}

// sums are amounts by allocation and kind.
type sums map[[2]string]int64

func (s sums) total() (t int64) {
	for _, amount := range s {
		t += amount
	}
	return t
}

// ledgerSums are the sums of a ledger, and the months in which its lines were posted.
type ledgerSums struct {
	sums   sums
	months map[string]bool
}

// entry is a line of a ledger or a statement.
type entry struct {
	AllocationID string    `json:"allocation_id"`
	Kind         string    `json:"kind"`
	AmountMinor  int64     `json:"amount_minor"`
	PostedAt     time.Time `json:"posted_at"`
}

func (c *customer) ledger(ctx context.Context) (ledgerSums, error) {
	var list struct{ Data []entry }
	s := ledgerSums{sums{}, map[string]bool{}}
	err := read(ctx, c.operator, c.home, &list, "ledger", c.project)
	for _, l := range list.Data {
		s.sums[[2]string{l.AllocationID, l.Kind}] += l.AmountMinor
		s.months[l.PostedAt.UTC().Format("2006-01")] = true
	}
	return s, err
}

// statement adds the lines of the statement of a month.
func (c *customer) statement(ctx context.Context, month string, to sums) error {
	var s struct {
		Lines      []entry
		TotalMinor int64 `json:"total_minor"`
	}
	if err := read(ctx, c.operator, c.home, &s, "statement", c.project, month); err != nil {
		return err
	}
	for _, l := range s.Lines {
		to[[2]string{l.AllocationID, l.Kind}] += l.AmountMinor
		s.TotalMinor -= l.AmountMinor
	}
	if s.TotalMinor != 0 {
		return fmt.Errorf("the statement of %s misses its total by %d: a wrong sum of money", month, s.TotalMinor)
	}
	return nil
}

// await calls isReached until it is true or fails.
func await(ctx context.Context, what string, isReached func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, chargeLimit)
	defer cancel()
	for {
		if reached, err := isReached(); reached || err != nil {
			return err
		}
		if poll.Sleep(ctx, 500*time.Millisecond) != nil {
			return fmt.Errorf("%s did not come within %s", what, chargeLimit)
		}
	}
}
