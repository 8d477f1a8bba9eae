package server

import (
	"cmp"
	"context"
	"errors"
	"time"

	bmcact "github.com/slipway-cloud/slipway/activities/bmc"
	driftact "github.com/slipway-cloud/slipway/activities/drift"
	"github.com/slipway-cloud/slipway/activities/isolation"
	"github.com/slipway-cloud/slipway/contract"
	driftdb "github.com/slipway-cloud/slipway/db/drift"
	"github.com/slipway-cloud/slipway/internal/poll"
	"github.com/slipway-cloud/slipway/internal/temporalx"
	"github.com/slipway-cloud/slipway/providers/maas"
)

// withoutSite stands in an id for the nodes that belong to no site. No site's id is like it.
const withoutSite = "nodes-without-site"

// Reconcile returns the Schedule of the passes of a site. The site "" is the nodes without one.
func (a *App) Reconcile(siteID string) temporalx.Schedule {
	s := a.Schedule(contract.ReconcilePass)
	s.Of, s.Input = cmp.Or(siteID, withoutSite), contract.ReconcileInput{SiteID: siteID}
	return s
}

// driftActivities are the reconciler's eyes and hands. A login goes through the
// same gate as a job's.
func (a *App) driftActivities(logins *bmcact.Activities) *driftact.Activities {
	c, policy := a.Config.Reconcile, driftact.DefaultPolicy()
	policy.Due, policy.Every = 3*c.Every, c.Every
	policy.Settle = min(policy.Settle, c.Every/2)
	policy.Share = float64(c.QuarantinePercent) / 100
	policy.MinAgent = c.MinAgentVersion
	policy.Probes, policy.Logins = c.BMCProbes, c.BMCLogins
	policy.Fresh = max(policy.Fresh, a.Config.Agent.OfflineAfter)
	policy.Silent = max(policy.Silent, a.Config.Agent.OfflineAfter)
	return &driftact.Activities{
		Store: a.Store, Secrets: a.Secrets, Opener: maas.Opener{Options: maas.Options{Log: a.Log}}, Openers: logins.Openers, Logins: logins,
		Policy: policy, Network: a.isolation(), Log: a.Log, Unschedule: a.unschedule,
	}
}

// isolation is what nodes of tenants must not reach.
func (a *App) isolation() isolation.Policy {
	return isolation.Policy{Known: a.Config.ProtectedTargets(), Allowed: a.Config.NetworkProbe.AllowedNames()}
}

// keepReconciles makes each site's Schedule, and that of the nodes without a site, brings it to
// this program's settings now and then, and makes it again should somebody delete it, until ctx
// ends.
func (a *App) keepReconciles(ctx context.Context) {
	ensured := map[string]time.Time{}
	for {
		if err := a.ensureReconciles(ctx, ensured); err != nil && ctx.Err() == nil {
			a.Log.Warn("not every site has its passes scheduled yet; will try again", "in", a.Config.Reconcile.NewSites, "error", err)
		}
		if poll.Sleep(ctx, a.Config.Reconcile.NewSites) != nil {
			return
		}
	}
}

func (a *App) ensureReconciles(ctx context.Context, ensured map[string]time.Time) error {
	return a.eachSite(ctx, func(id string) error {
		if time.Since(ensured[id]) < scheduleEvery {
			return nil
		}
		err := a.Reconcile(id).Ensure(ctx)
		if err == nil {
			ensured[id] = time.Now()
		}
		return err
	})
}

func (a *App) unschedule(ctx context.Context, siteID string) error {
	return a.Reconcile(siteID).Remove(ctx)
}

// eachSite calls do for each site, and with "" when there are nodes without a site. It goes on
// after a failure and returns all of them.
func (a *App) eachSite(ctx context.Context, do func(siteID string) error) error {
	has, failed := driftdb.HasNodesWithoutSite(ctx, a.Store)
	if has {
		failed = do("")
	}
	for after := ""; ; {
		sites, err := a.Store.ListSites(ctx, after, 500)
		if err != nil || len(sites) == 0 {
			return errors.Join(failed, err)
		}
		for _, s := range sites {
			after = s.ID
			failed = errors.Join(failed, do(s.ID))
		}
	}
}
