package drift

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/slipway-cloud/slipway/activities/bmc"
	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/db"
	driftdb "github.com/slipway-cloud/slipway/db/drift"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
)

// What bounds one look at a BMC.
const (
	probeLimit = 10 * time.Second
	loginLimit = 45 * time.Second
)

// BMCReport is what was asked of BMCs. A probe is one connection and at most two
// reads of the service root, without a login.
type BMCReport struct {
	Probes   int `json:"probes"`
	Answered int `json:"answered"`
	Logins   int `json:"logins"`
	// Refused are logins that the gate or the BMC did not let in.
	Refused int `json:"refused,omitempty"`
}

// VisitBMCs asks BMCs of the site's nodes what they show to anyone, the longest
// not asked first and within the pass's budget, and reads the power of machines
// in service that MAAS has as off or cannot tell, with a login each, through
// the gate of all logins and within a budget of its own. A BMC that does not
// answer is a fact and no failure.
func (a *Activities) VisitBMCs(ctx context.Context, p Pass) (BMCReport, error) {
	var r BMCReport
	if _, err := a.row(ctx, p); err != nil {
		return r, err
	}
	now, err := a.clock(ctx)
	if err != nil {
		return r, err
	}
	due, err := driftdb.BMCsDue(ctx, a.Store, p.SiteID, now.Add(-a.Policy.ProbeEvery), a.Policy.Probes)
	if err != nil {
		return r, fault.Internal(ctx, err)
	}
	var mu sync.Mutex
	err = a.eachBMC(ctx, due, func(ctx context.Context, rec db.BMC) error {
		answered, err := a.probe(ctx, p.SiteID, rec, now)
		mu.Lock()
		defer mu.Unlock()
		r.Probes++
		if answered {
			r.Answered++
		}
		return err
	})
	if err != nil || !p.Listed {
		return r, fault.Internal(ctx, err)
	}
	return r, a.readPowers(ctx, p, now, &r)
}

// eachBMC does one thing about many BMCs, a few at a time; the first failure of
// our own ends it.
func (a *Activities) eachBMC(ctx context.Context, all []db.BMC, do func(context.Context, db.BMC) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan db.BMC)
	var wg sync.WaitGroup
	for range min(max(a.Policy.AtOnce, 1), len(all)) {
		wg.Go(func() {
			for rec := range next {
				if err := do(ctx, rec); err != nil {
					cancel(err)
				}
			}
		})
	}
	for _, rec := range all {
		if ctx.Err() != nil {
			break
		}
		next <- rec
	}
	close(next)
	wg.Wait()
	return context.Cause(ctx)
}

// probe reads what a BMC shows without a login. A certificate that is not the
// approved one is kept for an operator, as a job would.
func (a *Activities) probe(ctx context.Context, siteID string, rec db.BMC, now time.Time) (bool, error) {
	seen := driftdb.Probe{BMCID: rec.ID, Address: rec.Address, At: now}
	opener := a.Openers[rec.Protocol]
	if opener == nil {
		return false, nil
	}
	pctx, cancel := context.WithTimeout(ctx, probeLimit)
	var id providers.BMCIdent
	rule, err := a.Secrets.AddressRule(pctx, "", providers.Use{Kind: spec.SecretBMCLogin, Site: siteID, Address: rec.Address})
	if err == nil {
		id, err = ask(pctx, opener, providers.BMCTarget{
			Address: rec.Address, SystemID: rec.SystemID, PinSHA256: rec.PinSHA256, CipherSuite: rec.IPMICipherSuite, Rule: rule,
		})
	}
	cancel()
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	seen.Answered, seen.PinSHA256 = err == nil, id.PinSHA256
	if err != nil {
		seen.Problem = err.Error()
	}
	if err := driftdb.RecordProbe(ctx, a.Store, seen); err != nil {
		return false, err
	}
	if rec.PinSHA256 != "" && id.PinSHA256 != "" && !strings.EqualFold(rec.PinSHA256, id.PinSHA256) {
		return true, a.Store.SetBMCPinPending(ctx, rec.ID, id.PinSHA256)
	}
	return seen.Answered, nil
}

func ask(ctx context.Context, opener providers.BMCOpener, target providers.BMCTarget) (providers.BMCIdent, error) {
	b, err := opener.OpenBMC(target)
	if err != nil {
		return providers.BMCIdent{}, err
	}
	id, err := b.Probe(ctx)
	_ = b.Close(context.WithoutCancel(ctx)) // nothing is open: there was no login
	return id, err
}

// readPowers asks a few BMCs, one after the other, whether their machine is on.
func (a *Activities) readPowers(ctx context.Context, p Pass, now time.Time, r *BMCReport) error {
	if a.Logins == nil || a.Policy.Logins <= 0 {
		return nil
	}
	site, err := a.Store.Site(ctx, p.SiteID)
	if err != nil {
		return fault.Internal(ctx, err)
	}
	doubts, err := driftdb.BMCsOfUnknownPower(ctx, a.Store, p.SiteID, now.Add(-a.Policy.LoginEvery), a.Policy.Logins)
	if err != nil {
		return fault.Internal(ctx, err)
	}
	for _, id := range doubts {
		lctx, cancel := context.WithTimeout(ctx, loginLimit)
		out, err := a.Logins.LookAtPower(lctx, bmc.LookIn{BMCID: id, CAPEM: site.Spec.BMCCAPEM})
		cancel()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		r.Logins++
		if err != nil {
			r.Refused++
			a.Log.WarnContext(ctx, "drift: a machine's power could not be read", "bmc", id, "error", err)
		}
		at, err := a.clock(ctx)
		if err != nil {
			return err
		}
		if err := driftdb.RecordPower(ctx, a.Store, id, string(out.Power), at); err != nil {
			return fault.Internal(ctx, err)
		}
	}
	return nil
}
