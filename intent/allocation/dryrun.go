package allocation

import (
	"context"

	"github.com/slipway-cloud/slipway/db"
	allocationdb "github.com/slipway-cloud/slipway/db/allocation"
	ledgerdb "github.com/slipway-cloud/slipway/db/ledger"
	tenancydb "github.com/slipway-cloud/slipway/db/tenancy"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/intent/tenancy"
)

// DryRun is what a request would do now.
type DryRun struct {
	Quote ledgerdb.Quote
	// IsFree says that a node is free now. Without one the request waits or is refused.
	IsFree bool
	// Refusals are the reasons for which the request would be refused now.
	Refusals []*intent.Refusal
}

// TryCreate returns what Create would do with a request now. It returns an error for a request that
// is not valid or names nothing that is offered, as Create does. It locks nothing and writes
// nothing, so that no claim waits for it and it may run in a transaction that only reads. Another
// claim may be faster than the one that follows.
func TryCreate(ctx context.Context, tx *db.Tx, r Request) (DryRun, error) {
	if err := check(r); err != nil {
		return DryRun{}, err
	}
	if err := requireOffered(ctx, tx, r); err != nil {
		return DryRun{}, err
	}
	p, err := tenancydb.ReadProject(ctx, tx, r.ProjectID)
	if err != nil {
		return DryRun{}, err
	}
	now, err := tx.Clock(ctx)
	if err != nil {
		return DryRun{}, err
	}
	if err := checkExpiry(r, now); err != nil {
		return DryRun{}, err
	}
	var out DryRun
	if out.Quote, err = ledgerdb.QuoteClaim(ctx, tx, p.BillingAccountID, r.moneyClaim().Item); err != nil {
		return DryRun{}, err
	}
	if out.IsFree, err = allocationdb.HasFree(ctx, tx, r.SKUID, r.SiteID); err != nil {
		return DryRun{}, err
	}
	for _, try := range []func() error{
		func() error { return tenancy.RequireActive(p) },
		func() error { return admitChurn(ctx, tx, p.BillingAccountID, r.Policy) },
		func() error { return tryQuota(ctx, tx, r) },
		func() error { return tenancy.RequireUndisputed(ctx, tx, p.BillingAccountID, "allocation") },
		func() error { _, err := tenancy.CheckQuote(out.Quote, r.moneyClaim()); return err },
		func() error { _, err := chooseKeys(ctx, tx, r); return err },
		func() error {
			if out.IsFree || r.WaitSeconds > 0 {
				return nil
			}
			return refuseCapacity(ctx, tx, r)
		},
	} {
		err := try()
		refused := intent.AsRefusal(err)
		switch {
		case err == nil:
		case refused == nil || refused.Kind == intent.Invalid: // the request itself is wrong
			return DryRun{}, err
		default:
			out.Refusals = append(out.Refusals, refused)
		}
	}
	return out, nil
}

func tryQuota(ctx context.Context, tx *db.Tx, r Request) error {
	limits, err := tenancydb.ReadLimits(ctx, tx, r.ProjectID)
	if err != nil {
		return err
	}
	inUse, err := allocationdb.CountLive(ctx, tx, r.ProjectID)
	if err != nil {
		return err
	}
	return tenancy.CheckQuota(limits, inUse, map[string]int{r.SKUID: 1})
}
