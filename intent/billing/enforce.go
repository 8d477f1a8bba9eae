package billing

import (
	"context"
	"errors"
	"fmt"

	"github.com/slipway-cloud/slipway/db"
	allocationdb "github.com/slipway-cloud/slipway/db/allocation"
	instancedb "github.com/slipway-cloud/slipway/db/instance"
	ledgerdb "github.com/slipway-cloud/slipway/db/ledger"
	webhookdb "github.com/slipway-cloud/slipway/db/webhook"
	"github.com/slipway-cloud/slipway/intent/allocation"
	"github.com/slipway-cloud/slipway/intent/instance"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// Report is what Enforce has done.
type Report struct {
	Released []string `json:"released,omitempty"` // allocations
	// Terminated are the instances that were asked to end.
	Terminated []string `json:"terminated,omitempty"`
	Told       int      `json:"told,omitempty"`    // notices of balances that were passed on
	Budgets    int      `json:"budgets,omitempty"` // notices of budgets that were written
	Stopped    string   `json:"stopped,omitempty"` // why nothing was released
}

// enforceBatch bounds what one call does; the next one goes on.
const enforceBatch = 200

var system = db.Actor{Owner: lifecycle.OwnerSystem, ID: "billing"}

// Enforce does what follows from balances. It looks at the state as it is and not at what has
// changed, so that it can be repeated and misses nothing: it releases the allocations and ends the
// charged instances of accounts that are depleted and whose grace is over, and releases the
// allocations that cost what they may; it sends the notices of balances to their projects, and
// tells projects of their budgets. While the clocks disagree or an operator has to look first,
// nothing is released and nobody is told that it will be. domain ends the Message-ID of e-mails. An
// error about one row does not stop the others.
func Enforce(ctx context.Context, store *db.Store, domain string) (Report, error) {
	var r Report
	errs := []error{tellBudgets(ctx, store, domain, &r)}
	control, err := ledgerdb.ReadControl(ctx, store)
	switch {
	case err != nil:
		return r, errors.Join(append(errs, err)...)
	case control.ClockDisagreesSince != nil:
		r.Stopped = control.ClockDisagrees
		return r, errors.Join(errs...)
	case control.EnforcementStoppedAt != nil:
		r.Stopped = control.EnforcementStopped // a limit of an allocation counts the same charges
		return r, errors.Join(errs...)
	}
	errs = append(errs, tellBalances(ctx, store, domain, &r))
	depleted, err := ledgerdb.ListDepleted(ctx, store, enforceBatch)
	errs = append(errs, err)
	released, err := endEach(ctx, store, "allocation", depleted, release(lifecycle.ReleaseBalanceDepleted, ledgerdb.IsStillDepleted))
	errs = append(errs, err)
	instances, err := ledgerdb.ListDepletedInstances(ctx, store, enforceBatch)
	errs = append(errs, err)
	r.Terminated, err = endEach(ctx, store, "instance", instances, terminate)
	errs = append(errs, err)
	spent, err := ledgerdb.ListSpentOut(ctx, store, enforceBatch)
	errs = append(errs, err)
	r.Released, err = endEach(ctx, store, "allocation", spent, release(lifecycle.ReleaseMaxSpend, nil))
	errs = append(errs, err)
	r.Released = append(released, r.Released...)
	return r, errors.Join(errs...)
}

// endEach ends what is listed, each in a transaction of its own, and returns the ids of what it has
// ended. end locks it, asks again whether it is due, and reports that.
func endEach(ctx context.Context, store *db.Store, what string, ids []string, end func(context.Context, *db.Tx, string) (bool, error)) ([]string, error) {
	var ended []string
	var errs []error
	for _, id := range ids {
		due := false
		err := store.Tx(ctx, func(tx *db.Tx) (err error) {
			due, err = end(ctx, tx, id)
			return err
		})
		if err != nil {
			errs = append(errs, fmt.Errorf("end %s %s: %w", what, id, err))
		} else if due {
			ended = append(ended, id)
		}
	}
	return ended, errors.Join(errs...)
}

// release returns what releases an allocation for a reason. still, where there is one, is asked
// under the lock of the allocation.
func release(reason string, still func(context.Context, *db.Tx, string) (bool, error)) func(context.Context, *db.Tx, string) (bool, error) {
	return func(ctx context.Context, tx *db.Tx, id string) (bool, error) {
		if _, err := allocationdb.Lock(ctx, tx, id); err != nil {
			return false, err
		}
		if still != nil {
			if due, err := still(ctx, tx, id); err != nil || !due {
				return false, err
			}
		}
		actor := system
		actor.Comment = reason
		_, err := allocation.Release(ctx, tx, id, reason, actor)
		return err == nil, err
	}
}

// terminate ends an instance of a depleted account without waiting for its work. A job that is
// making the instance is told by the next instance pass.
func terminate(ctx context.Context, tx *db.Tx, id string) (bool, error) {
	if _, err := instancedb.Lock(ctx, tx, id); err != nil {
		return false, err
	}
	if due, err := ledgerdb.IsInstanceStillDue(ctx, tx, id); err != nil || !due {
		return false, err
	}
	err := instance.End(ctx, tx, id, "the balance of the billing account is used up", system)
	return err == nil, err
}

// tellBalances passes each notice of a balance on to the projects of its account.
func tellBalances(ctx context.Context, store *db.Store, domain string, r *Report) error {
	notices, err := ledgerdb.ListUntold(ctx, store, enforceBatch)
	if err != nil {
		return err
	}
	var errs []error
	for _, n := range notices {
		err := store.Tx(ctx, func(tx *db.Tx) error {
			projects, err := ledgerdb.ListProjects(ctx, tx, n.BillingAccountID)
			if err != nil {
				return err
			}
			for _, id := range projects {
				row := webhookdb.Notice{ProjectID: id, Kind: n.Kind, Episode: fmt.Sprintf("%s:%d", n.BillingAccountID, n.Episode), Message: balanceMessage(n)}
				if _, err := webhookdb.AddNotice(ctx, tx, row, domain); err != nil {
					return err
				}
			}
			return ledgerdb.MarkTold(ctx, tx, n)
		})
		if err != nil {
			errs = append(errs, fmt.Errorf("pass a notice of billing account %s on: %w", n.BillingAccountID, err))
			continue
		}
		r.Told++
	}
	return errors.Join(errs...)
}

func balanceMessage(n ledgerdb.Notice) string {
	left := lifecycle.FormatMinor(n.BalanceMinor, int(n.Exponent)) + " " + n.Currency
	if n.Kind == lifecycle.NoticeDepleted && n.InGrace {
		return "The balance is used up (" + left + "). All allocations and charged instances of the billing account are released at " + n.ReleasedAt.UTC().Format("2006-01-02 15:04 UTC") +
			" unless something is added to the balance before; new ones are refused."
	}
	if n.Kind == lifecycle.NoticeDepleted {
		return "The balance is used up (" + left + "). All allocations and charged instances of the billing account are being released; add to the balance to request new ones."
	}
	if n.Kind == lifecycle.NoticeBalanceShort {
		return "What is available beside an hour of all that runs is " + left + ", which is less than it costs until it could be released. " +
			"When the balance is used up, all allocations and charged instances of the billing account are released; add to it."
	}
	return "The balance is low: " + left + " are left. When it is used up, all allocations and charged instances of the billing account are released; add to it."
}

// tellBudgets tells projects of the part of their budget that is spent.
func tellBudgets(ctx context.Context, store *db.Store, domain string, r *Report) error {
	rows, err := ledgerdb.ListOverBudget(ctx, store, enforceBatch)
	if err != nil {
		return err
	}
	var errs []error
	for _, b := range rows {
		kind, what := lifecycle.NoticeBudgetWarning, fmt.Sprintf("%d %% of the budget", b.WarnPercent)
		if b.SpentMinor >= b.LimitMinor {
			kind, what = lifecycle.NoticeBudgetSpent, "the whole budget"
		}
		exponent := int(b.Exponent)
		message := fmt.Sprintf("The project has spent %s of %s: %s of %s %s. Nothing is stopped.", what, b.Month, lifecycle.FormatMinor(b.SpentMinor, exponent),
			lifecycle.FormatMinor(b.LimitMinor, exponent), b.Currency)
		err := store.Tx(ctx, func(tx *db.Tx) error {
			written, err := webhookdb.AddNotice(ctx, tx, webhookdb.Notice{ProjectID: b.ProjectID, Kind: kind, Episode: b.Episode, Message: message}, domain)
			if written {
				r.Budgets++
			}
			return err
		})
		if err != nil {
			errs = append(errs, fmt.Errorf("tell project %s of its budget: %w", b.ProjectID, err))
		}
	}
	return errors.Join(errs...)
}
