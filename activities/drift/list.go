package drift

import (
	"context"
	"time"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/activities/login"
	"github.com/slipway-cloud/slipway/contract"
	driftdb "github.com/slipway-cloud/slipway/db/drift"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
)

// deployMark is the workload annotation that names the job which deployed a
// machine; activities/maas writes it and MAAS wipes it on release.
const deployMark = "slipway-job"

// machineBatch is how many machines one statement stores.
const machineBatch = 500

// ListReport is what was read of the region. Problem says why its list is not
// whole; then Machines is what came before.
type ListReport struct {
	Machines int    `json:"machines"`
	Requests int    `json:"requests"`
	Problem  string `json:"problem,omitempty"`
}

// ListMachines reads the region's list, in one request and one machine at a
// time, and where MAAS reaches the BMCs of nodes, two hundred in one request. A
// region that cannot be read is no failure of the activity: the report says so
// and the pass goes on with what it can see elsewhere.
func (a *Activities) ListMachines(ctx context.Context, p Pass) (ListReport, error) {
	var r ListReport
	row, err := a.row(ctx, p)
	if err != nil {
		return r, err
	}
	at, err := a.clock(ctx)
	if err != nil {
		return r, err
	}
	if p.isOfNoSite() { // no region has machines of its nodes
		return r, fault.Internal(ctx, driftdb.RecordListing(ctx, a.Store, row, at, ""))
	}
	census, problem, err := a.open(ctx, p.SiteID)
	if err != nil || problem != "" {
		r.Problem = problem
		return r, err
	}
	user, outside, err := a.read(ctx, census, p, &r)
	switch {
	case err != nil:
		return r, fault.Internal(ctx, err)
	case outside != nil && ctx.Err() != nil:
		return r, ctx.Err()
	case outside != nil:
		f, _ := fault.Failure(fault.MAAS(ctx, outside))
		r.Problem = f.Message
		return r, nil
	}
	err = driftdb.RecordListing(ctx, a.Store, row, at, user)
	return r, fault.Internal(ctx, err)
}

// open opens the region. It returns a problem when an operator has to fix something first.
func (a *Activities) open(ctx context.Context, siteID string) (census providers.MAASCensus, problem string, err error) {
	site, err := a.Store.Site(ctx, siteID)
	if err != nil {
		return nil, "", fault.Internal(ctx, err)
	}
	ref, use := providers.SecretRef(site.Spec.MAASAPIKeyRef), providers.Use{Kind: spec.SecretMAASKey, Site: siteID, Address: site.Spec.MAASURL}
	audit := login.Attempt{Job: contract.JobRef{SiteID: siteID}, Actor: login.EngineActor(ctx, "a pass over the site"),
		Ref: string(ref), Address: use.Address, Protocol: "maas"}
	rule, err := a.Secrets.AddressRule(ctx, ref, use)
	if werr := audit.RecordRefusal(ctx, a.Store, err); werr != nil {
		return nil, "", werr
	}
	var key providers.Secret
	if err == nil {
		if err := audit.Record(ctx, a.Store, login.Started); err != nil {
			return nil, "", err
		}
		key, err = a.Secrets.Resolve(ctx, ref, use)
	}
	switch {
	case providers.IsKind(err, providers.KindNotFound):
		return nil, "the site's API key " + site.Spec.MAASAPIKeyRef + " is not stored", nil
	case providers.IsKind(err, providers.KindInvalid), providers.IsKind(err, providers.KindUnreachable):
		return nil, "the site's MAAS may not be asked: " + err.Error(), nil
	case err != nil:
		return nil, "", fault.Secret(ctx, err)
	}
	m, err := a.Opener.OpenMAAS(providers.MAASSite{URL: site.Spec.MAASURL, APIKey: key, CAPEM: site.Spec.MAASCAPEM, Rule: rule, Answered: audit.Recorder(a.Store)})
	if err != nil {
		return nil, "the site's MAAS cannot be opened: " + err.Error(), nil
	}
	census, ok := m.(providers.MAASCensus)
	if !ok {
		return nil, "this client of the region cannot read its whole list", nil
	}
	return census, "", nil
}

// read takes in the region. outside is the region's failure, err our own.
func (a *Activities) read(ctx context.Context, census providers.MAASCensus, p Pass, r *ListReport) (user string, outside, err error) {
	r.Requests++
	if user, outside = census.Whoami(ctx); outside != nil {
		return "", outside, nil
	}
	var seen []string
	var batch []driftdb.Machine
	flush := func() error {
		if len(batch) == 0 {
			return nil
		}
		werr := driftdb.PutMachines(ctx, a.Store, p.SiteID, batch)
		batch = batch[:0]
		return werr
	}
	r.Requests++
	outside = census.EachMachine(ctx, func(m providers.MAASMachine) error {
		seen = append(seen, m.SystemID)
		batch = append(batch, machineRow(m))
		if len(batch) < machineBatch {
			return nil
		}
		err = flush()
		return err
	})
	if err == nil && outside == nil {
		err = flush()
	}
	r.Machines = len(seen)
	if err != nil || outside != nil {
		return "", outside, err
	}
	if _, err := driftdb.DeleteUnlistedMachines(ctx, a.Store, p.SiteID, seen); err != nil {
		return "", nil, err
	}
	outside, err = a.readAddresses(ctx, census, p, r)
	return user, outside, err
}

// readAddresses asks where MAAS reaches the BMCs of nodes.
func (a *Activities) readAddresses(ctx context.Context, census providers.MAASCensus, p Pass, r *ListReport) (outside, err error) {
	for after := ""; ; {
		ids, err := driftdb.MachinesWithBMC(ctx, a.Store, p.SiteID, after, providers.MaxPowerAddresses)
		if err != nil || len(ids) == 0 {
			return nil, err
		}
		after = ids[len(ids)-1]
		r.Requests++
		addresses, outside := census.PowerAddresses(ctx, ids)
		if outside != nil {
			return outside, nil
		}
		if err := driftdb.SetPowerAddresses(ctx, a.Store, p.SiteID, addresses); err != nil {
			return nil, err
		}
	}
}

func machineRow(m providers.MAASMachine) driftdb.Machine {
	facts := Machine{
		SystemID: m.SystemID, Hostname: m.Hostname, Status: m.Status, Error: m.ErrorDescription, Power: m.PowerState, Owner: m.Owner, Locked: m.Locked,
		Pool: m.Pool, Serial: m.Serial, UUID: m.UUID, MACs: m.MACs, Addresses: m.IPAddresses, HWSync: m.EnableHWSync,
		SyncInterval: spec.Duration(m.SyncInterval), DeployedBy: m.Annotations[deployMark],
		Allocation: m.Annotations[lifecycle.MAASAllocationMark],
	}
	if !m.LastSync.IsZero() {
		at := m.LastSync.UTC().Truncate(time.Second)
		facts.LastSync = &at
	}
	return driftdb.Machine{SystemID: m.SystemID, Hostname: m.Hostname, Serial: m.Serial, MACs: append([]string{}, m.MACs...), Facts: encode(facts)}
}
