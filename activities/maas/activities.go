// Package maas holds the activities that work through a MAAS region. Each is idempotent: it reads
// the machine first, changes what differs, and reads again where MAAS answers before the effect.
package maas

import (
	"cmp"
	"context"
	"time"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/activities/login"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
)

// Activities is what these activities need.
type Activities struct {
	Store   *db.Store
	Secrets providers.Secrets
	Opener  providers.MAASOpener
	plan    bool // the audit log names a plan, and not the job that it is of
}

// forPlan returns the activities of a plan.
func (a *Activities) forPlan() *Activities {
	planned := *a
	planned.plan = true
	return &planned
}

// The workload annotations name the job and the attempt that deployed a machine. They make
// deploy_via_maas idempotent. MAAS deletes them on release.
const (
	annotationJob     = "slipway-job"
	annotationAttempt = "slipway-attempt"
)

// region opens the MAAS of a job's site. The audit log names the login before it is used.
func (a *Activities) region(ctx context.Context, job contract.JobRef) (providers.MAAS, spec.SiteSpec, error) {
	site, err := a.Store.Site(ctx, job.SiteID)
	if err != nil {
		return nil, spec.SiteSpec{}, deleted(ctx, err, "site", job.SiteID)
	}
	ref, use := providers.SecretRef(site.Spec.MAASAPIKeyRef), providers.Use{Kind: spec.SecretMAASKey, Site: site.ID, Address: site.Spec.MAASURL}
	audit := login.Attempt{Job: job, Ref: string(ref), Address: use.Address, Protocol: "maas"}
	if a.plan {
		audit.Job, audit.Actor = contract.JobRef{SiteID: site.ID}, login.EngineActor(ctx, "a plan")
	}
	rule, err := a.Secrets.AddressRule(ctx, ref, use)
	if err != nil {
		return nil, site.Spec, cmp.Or(audit.RecordRefusal(ctx, a.Store, err), fault.Login(ctx, err, fault.MAAS))
	}
	if err := audit.Record(ctx, a.Store, login.Started); err != nil {
		return nil, site.Spec, err
	}
	key, err := a.Secrets.Resolve(ctx, ref, use)
	if err != nil {
		return nil, site.Spec, fault.Login(ctx, err, fault.MAAS)
	}
	m, err := a.Opener.OpenMAAS(providers.MAASSite{URL: site.Spec.MAASURL, APIKey: key, CAPEM: site.Spec.MAASCAPEM, Rule: rule, Answered: audit.Recorder(a.Store)})
	if err != nil {
		return nil, site.Spec, fault.New(lifecycle.FailConfiguration, "the site's MAAS cannot be opened: %v", err)
	}
	return m, site.Spec, nil
}

// bmcLogin opens the login of the BMC of a job's node, to give it to MAAS.
func (a *Activities) bmcLogin(ctx context.Context, job contract.JobRef, address, ref string) (providers.Login, error) {
	use := providers.Use{Kind: spec.SecretBMCLogin, Site: job.SiteID, Node: job.NodeID, Address: address}
	login, err := providers.ResolveLogin(ctx, a.Secrets, providers.SecretRef(ref), use)
	return login, fault.Login(ctx, err, fault.BMC)
}

// MachineIn names the machine of a job.
type MachineIn struct {
	contract.JobRef
	SystemID string        `json:"system_id"`
	Poll     spec.Duration `json:"poll,omitempty"`
	// Commissioning is the last one known, which CommissionAgain supersedes.
	Commissioning int `json:"commissioning,omitempty"`
	// Within is how long a power request may take to be confirmed; zero is the longest.
	Within time.Duration `json:"within,omitempty"`
}

// ObserveMachine reads the machine and changes nothing outside. The addresses of one that this job
// has deployed are stored.
func (a *Activities) ObserveMachine(ctx context.Context, in MachineIn) (contract.MachineFacts, error) {
	_, got, err := a.findMachine(ctx, in.JobRef, in.SystemID)
	if err != nil {
		return contract.MachineFacts{}, err
	}
	if got == nil {
		return contract.MachineFacts{SystemID: in.SystemID, Status: providers.MAASAbsent}, nil
	}
	out := facts(*got)
	out.Foreign = got.Annotations[annotationJob] != in.JobID
	if !out.Foreign && got.Status == providers.MAASDeployed {
		return out, a.recordAddresses(ctx, in.JobRef, *got)
	}
	return out, nil
}
