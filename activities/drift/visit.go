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

// probeLimit is the deadline of one probe of a BMC.
const probeLimit = 10 * time.Second

// BMCReport counts the requests to BMCs. A probe is one connection and at most two reads of the
// service root, without a login.
type BMCReport struct {
	Probes   int `json:"probes"`
	Answered int `json:"answered"`
	Logins   int `json:"logins"`
	// Refused are logins that the login guard or the BMC refused.
	Refused int `json:"refused,omitempty"`
	// Healths are logins that read a machine's parts with their health, and the BMC's logs.
	Healths int `json:"healths,omitempty"`
	// LogEntries are entries of BMCs' logs that were new.
	LogEntries int64 `json:"log_entries,omitempty"`
	// Inventories are nodes of which the parts that their agents report were kept.
	Inventories int `json:"inventories,omitempty"`
}

// VisitBMCs probes the BMCs of the site's nodes without a login, within the pass's budget. The BMC
// that was probed longest ago comes first. Then it reads the power of machines in service whose
// power MAAS reports as off or unknown, or that no MAAS has and whose agent is silent, and the
// health of the parts of those that were read longest ago, with the BMC's logs. Each reading takes
// one login through the login guard, within a budget of their own. A BMC that does not answer is a
// fact and not a failure.
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
	if err := a.readPowers(ctx, p, now, &r); err != nil {
		return r, err
	}
	if err := a.readParts(ctx, p, now, &r); err != nil {
		return r, err
	}
	return r, a.keepInventories(ctx, p, now, &r)
}

// eachBMC calls do for each BMC, a few at a time. It stops after the first error and returns it.
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

// probe reads what a BMC shows without a login. It stores a certificate that is not the approved
// one for an operator to decide, as a job does.
func (a *Activities) probe(ctx context.Context, siteID string, rec db.BMC, now time.Time) (bool, error) {
	seen := driftdb.Probe{BMCID: rec.ID, Address: rec.Address, At: now}
	opener := a.Openers[rec.Protocol]
	if opener == nil {
		return false, nil
	}
	pctx, cancel := context.WithTimeout(ctx, probeLimit)
	var id providers.BMCIdent
	var ref providers.SecretRef
	if siteID == "" { // no site says where BMCs may be: the use of the login does
		ref = providers.SecretRef(rec.CredentialRef)
	}
	rule, err := a.Secrets.AddressRule(pctx, ref, providers.Use{Kind: spec.SecretBMCLogin, Site: siteID, Address: rec.Address})
	if err == nil {
		id, err = providers.ProbeBMC(pctx, opener, providers.BMCTarget{
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
	// The first certificate of a machine's BMC waits for its job; that of a rack device has no job.
	if (rec.PinSHA256 != "" || rec.NodeID == nil) && id.PinSHA256 != "" && !strings.EqualFold(rec.PinSHA256, id.PinSHA256) {
		return true, a.Store.SetBMCPinPending(ctx, rec.ID, id.PinSHA256)
	}
	return seen.Answered, nil
}

// readPowers reads the power of a few machines from their BMCs, one after the other.
func (a *Activities) readPowers(ctx context.Context, p Pass, now time.Time, r *BMCReport) error {
	if a.Logins == nil || a.Policy.Logins <= 0 {
		return nil
	}
	site, err := a.siteOf(ctx, p)
	if err != nil {
		return fault.Internal(ctx, err)
	}
	unknown, err := driftdb.BMCsOfUnknownPower(ctx, a.Store, p.SiteID, now.Add(-a.Policy.LoginEvery), now.Add(-a.Policy.Silent), a.Policy.Logins)
	if err != nil {
		return fault.Internal(ctx, err)
	}
	for _, id := range unknown {
		lctx, cancel := context.WithTimeout(ctx, bmc.LookLimit)
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
