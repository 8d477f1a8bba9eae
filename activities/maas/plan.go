package maas

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
)

// DryRunIn asks what an activity would do with its input. The input is a field and
// not embedded, so that a look is no entry on the node's timeline.
type DryRunIn[I any] struct {
	In I `json:"in"`
	// Absent: no machine of this hostname is in MAAS yet. Ready: by the time of
	// this stage the machine will be Ready, whatever it is now.
	Absent string `json:"absent,omitempty"`
	Ready  bool   `json:"ready,omitempty"`
}

// DryRunOut is what an activity would do: nothing when Done, the changes in
// Steps, or fail with Failure. Both are set when some changes come before the
// failure.
type DryRunOut struct {
	Machine contract.MachineFacts `json:"machine"`
	// MachineKnown is set when the machine was read.
	MachineKnown bool     `json:"machine_known,omitempty"`
	Steps        []string `json:"steps,omitempty"`
	Waits        bool     `json:"waits,omitempty"`
	// Unknown: it depends on what MAAS will know only later. Assumed: looked at
	// as though the machine were Ready.
	Unknown  bool                   `json:"unknown,omitempty"`
	Assumed  bool                   `json:"assumed,omitempty"`
	Observed string                 `json:"observed,omitempty"`
	Outcome  contract.DeployOutcome `json:"outcome,omitempty"`
	Failure  *contract.Failure      `json:"failure,omitempty"`
}

// dryRun runs a stage's own activity on a dryRunMAAS, so that a plan and a run cannot differ.
func dryRun[I any](ctx context.Context, a *Activities, l DryRunIn[I], reads int, act func(*Activities, context.Context, I) (contract.MachineFacts, error)) (DryRunOut, error) {
	d := &dryRunMAAS{MAASOpener: a.Opener, absent: l.Absent, assumeReady: l.Ready, reads: reads}
	dry := a.forPlan()
	dry.Opener, dry.Secrets = d, drySecrets{a.Secrets}
	ctx, cancel := context.WithTimeout(ctx, dryRunLimit)
	defer cancel()
	f, err := act(dry, ctx, l.In)
	out := DryRunOut{Machine: f, Steps: d.steps, Waits: d.waits, Unknown: d.unknown, Assumed: d.assumed, Observed: d.describe(f.Note)}
	if d.seen != nil {
		out.MachineKnown = true
		seen := facts(*d.seen)
		seen.Created, seen.Done, seen.Note, seen.Foreign = f.Created, f.Done, f.Note, f.Foreign
		out.Machine = seen
	}
	if err == nil || d.waits || d.readBack || d.unknown {
		return out, nil
	}
	out.Failure, err = failure(ctx, err)
	return out, err
}

// dryRunLimit bounds one activity of a plan, so that a region that hangs does not delay the rest.
const dryRunLimit = 6 * time.Second

// failure returns the failure of a run. A dry run that ran out of time has one too.
func failure(ctx context.Context, err error) (*contract.Failure, error) {
	if f, ok := fault.Failure(err); ok {
		return &f, nil
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return &contract.Failure{
			Class: lifecycle.FailMAASUnavailable, Message: fmt.Sprintf("the region controller did not answer within %s", dryRunLimit),
		}, nil
	}
	return nil, err
}

// drySecrets reads secrets and writes none. The user-data of a deployment that
// is only planned is not sealed yet: any document will do.
type drySecrets struct{ providers.Secrets }

// PlannedUserData is the reference of the user-data that a planned deployment
// would have.
const PlannedUserData = "plan/user-data"

func (s drySecrets) Resolve(ctx context.Context, ref providers.SecretRef, use providers.Use) (providers.Secret, error) {
	if ref == PlannedUserData {
		return providers.NewSecret("{}"), nil
	}
	return s.Secrets.Resolve(ctx, ref, use)
}

func (drySecrets) Put(context.Context, string, providers.Secret) (providers.SecretRef, error) {
	return "", stop("a plan stores no secret")
}

func (drySecrets) Delete(context.Context, string) error { return stop("a plan deletes no secret") }

// SitePlan is what load_site_config would find. Facts are as far as they could
// be read.
type SitePlan struct {
	Facts   contract.SiteFacts `json:"facts"`
	Failure *contract.Failure  `json:"failure,omitempty"`
}

// PlanSite is what load_site_config would find. Read-only.
func (a *Activities) PlanSite(ctx context.Context, l DryRunIn[LoadSiteIn]) (SitePlan, error) {
	tctx, cancel := context.WithTimeout(ctx, dryRunLimit)
	defer cancel()
	f, err := a.forPlan().LoadSiteConfig(tctx, l.In)
	out := SitePlan{Facts: f}
	if err == nil {
		return out, nil
	}
	if out.Failure, err = failure(tctx, err); err != nil {
		return out, err
	}
	if f.Site.MAASURL == "" {
		site, err := a.Store.Site(ctx, l.In.SiteID)
		if err != nil {
			return out, fault.Internal(ctx, err)
		}
		out.Facts.Site = site.Spec
	}
	return out, nil
}

// PlanCreateOrFind is what create_or_find_in_maas would do: take up the machine
// that matches, or create one. Read-only.
func (a *Activities) PlanCreateOrFind(ctx context.Context, l DryRunIn[CreateIn]) (DryRunOut, error) {
	in := l.In
	in.ObserveOnly = true
	l.In = in
	out, err := dryRun(ctx, a, l, 0, (*Activities).CreateOrFindMachine)
	if err != nil || out.Failure != nil {
		return out, err
	}
	if out.Machine.SystemID == "" {
		site, err := a.Store.Site(ctx, in.SiteID)
		out.Steps = []string{in.creationStep(site.Spec)}
		return out, fault.Internal(ctx, err)
	}
	out.MachineKnown = true
	other, err := a.Store.LiveNodeOfMachine(ctx, in.SiteID, out.Machine.SystemID)
	switch {
	case errors.Is(err, db.ErrNotFound):
		out.Machine.Done = false // nobody's yet
	case err != nil:
		return out, fault.Internal(ctx, err)
	case other.ID != in.NodeID:
		out.Failure = &contract.Failure{Class: lifecycle.FailConflictingCandidates, Message: fmt.Sprintf(
			"MAAS machine %s belongs to another node already, %s", out.Machine.SystemID, other.ID)}
	}
	return out, nil
}

// creationStep describes what create would send.
func (in CreateIn) creationStep(site spec.SiteSpec) string {
	parts := []string{"create " + in.Hostname + " in MAAS"}
	for _, p := range []struct{ name, value string }{
		{"domain", site.DefaultDomain}, {"zone", site.Zone}, {"pool", site.Pool}, {"architecture", in.Profile.Architecture},
		{"power " + in.powerType() + " at", in.BMC.Address}, {"MAC", strings.Join(in.BMC.MACs, " ")},
	} {
		if p.value != "" {
			parts = append(parts, p.name+" "+p.value)
		}
	}
	return strings.Join(parts, ", ")
}

// PlanCommission is what commission_node would do. Read-only.
func (a *Activities) PlanCommission(ctx context.Context, l DryRunIn[MachineIn]) (DryRunOut, error) {
	return dryRun(ctx, a, l, 0, (*Activities).CommissionMachine)
}

// PlanRecommission is what commission_node would do when the machine is to be
// commissioned again. Read-only.
func (a *Activities) PlanRecommission(ctx context.Context, l DryRunIn[MachineIn]) (DryRunOut, error) {
	return dryRun(ctx, a, l, 0, (*Activities).CommissionAgain)
}

// pollSoon makes an activity that polls read again at once, where it is stopped.
const pollSoon = spec.Duration(time.Millisecond)

// PlanReady is whether wait_for_ready would wait. Read-only.
func (a *Activities) PlanReady(ctx context.Context, l DryRunIn[MachineIn]) (DryRunOut, error) {
	l.In.Poll = pollSoon
	return dryRun(ctx, a, l, 1, (*Activities).WaitForReady)
}

// PlanStorage is what configure_storage would do. Read-only.
func (a *Activities) PlanStorage(ctx context.Context, l DryRunIn[StorageIn]) (DryRunOut, error) {
	return dryRun(ctx, a, l, 0, (*Activities).ConfigureStorage)
}

// PlanRoCE is what apply_roce_phase2 would do. Read-only.
func (a *Activities) PlanRoCE(ctx context.Context, l DryRunIn[NetworkIn]) (DryRunOut, error) {
	return dryRun(ctx, a, l, 0, (*Activities).ApplyRoCE)
}

// PlanPXE is what ensure_pxe_interface_auto would do. Read-only.
func (a *Activities) PlanPXE(ctx context.Context, l DryRunIn[NetworkIn]) (DryRunOut, error) {
	return dryRun(ctx, a, l, 0, (*Activities).EnsurePXEInterfaceAuto)
}

// PlanDeploy is what deploy_via_maas would do. Read-only.
func (a *Activities) PlanDeploy(ctx context.Context, l DryRunIn[DeployIn]) (DryRunOut, error) {
	return dryRun(ctx, a, l, 0, (*Activities).DeployMachine)
}

// farFuture keeps a deadline out of a dry run.
const farFuture = 24 * time.Hour

// PlanDeployed is how the deployment stands that wait_for_deployed waits for.
// Read-only.
func (a *Activities) PlanDeployed(ctx context.Context, l DryRunIn[WaitDeployedIn]) (DryRunOut, error) {
	l.In.Poll, l.In.Until = pollSoon, time.Now().Add(farFuture)
	var outcome contract.DeployOutcome
	out, err := dryRun(ctx, a, l, 1, func(a *Activities, ctx context.Context, in WaitDeployedIn) (contract.MachineFacts, error) {
		f, err := a.WaitForDeployed(ctx, in)
		outcome = f.Outcome
		return f.MachineFacts, err
	})
	if !out.Waits && out.Failure == nil {
		out.Outcome = outcome
	}
	return out, err
}

// PlanClassify is what classify_deploy_failure would find. Read-only.
func (a *Activities) PlanClassify(ctx context.Context, l DryRunIn[ClassifyIn]) (DryRunOut, error) {
	return dryRun(ctx, a, l, 0, func(a *Activities, ctx context.Context, in ClassifyIn) (contract.MachineFacts, error) {
		c, err := a.ClassifyDeployFailure(ctx, in)
		if err == nil && !c.Recovered {
			err = fault.New(c.Class, "%s", c.Message)
		}
		return c.MachineFacts, err
	})
}

// PlanRecover is what recover_for_datasource_retry would do. Read-only.
func (a *Activities) PlanRecover(ctx context.Context, l DryRunIn[ReleaseIn]) (DryRunOut, error) {
	l.In.Poll = pollSoon
	return dryRun(ctx, a, l, 2, (*Activities).ReturnToReady)
}

// PlanSyncOn is whether ensure_hardware_sync_configured would change anything
// in MAAS. Read-only.
func (a *Activities) PlanSyncOn(ctx context.Context, l DryRunIn[MachineIn]) (DryRunOut, error) {
	return dryRun(ctx, a, l, 0, (*Activities).EnsureHardwareSync)
}

// PlanSynced is whether wait_for_hardware_sync_healthy would wait. Read-only.
func (a *Activities) PlanSynced(ctx context.Context, l DryRunIn[WaitSyncIn]) (DryRunOut, error) {
	l.In.Poll, l.In.ObserveOnly = pollSoon, false
	l.In.Until = time.Now().Add(farFuture)
	return dryRun(ctx, a, l, 1, (*Activities).WaitForHardwareSync)
}

// describe returns what was read, as text for operators.
func (d *dryRunMAAS) describe(note string) string {
	var parts []string
	if d.seen != nil {
		text := "MAAS " + d.seen.Status.String()
		if d.seen.PowerState != "" {
			text += ", power " + d.seen.PowerState
		}
		parts = append(parts, text)
	}
	if note != "" {
		parts = append(parts, note)
	}
	if len(d.disks) > 0 {
		names := make([]string, 0, len(d.disks))
		for _, b := range d.disks {
			names = append(names, d.disk(b.ID))
		}
		parts = append(parts, "disks: "+strings.Join(names, "; "))
	}
	for _, f := range d.ifaces {
		if d.seen == nil || f.ID != d.seen.BootInterfaceID {
			continue
		}
		links := make([]string, 0, len(f.Links))
		for _, l := range f.Links {
			links = append(links, d.link(l))
		}
		if len(links) == 0 {
			links = []string{"none"}
		}
		parts = append(parts, fmt.Sprintf("links of %s: %s", f.Name, strings.Join(links, ", ")))
	}
	return strings.Join(parts, "; ")
}

func (d *dryRunMAAS) disk(id int) string {
	i := slices.IndexFunc(d.disks, func(b providers.MAASBlockDevice) bool { return b.ID == id })
	if i < 0 {
		return fmt.Sprintf("disk %d", id)
	}
	b := d.disks[i]
	if b.Model == "" {
		return fmt.Sprintf("%s (%d GB)", b.Name, b.SizeBytes/1_000_000_000)
	}
	return fmt.Sprintf("%s (%s, %d GB)", b.Name, b.Model, b.SizeBytes/1_000_000_000)
}

func (d *dryRunMAAS) iface(id int) providers.MAASInterface {
	i := slices.IndexFunc(d.ifaces, func(f providers.MAASInterface) bool { return f.ID == id })
	if i < 0 {
		return providers.MAASInterface{ID: id, Name: fmt.Sprintf("interface %d", id)}
	}
	return d.ifaces[i]
}

func (d *dryRunMAAS) subnet(id int) string {
	i := slices.IndexFunc(d.subnets, func(s providers.MAASSubnet) bool { return s.ID == id })
	if i < 0 {
		return fmt.Sprintf("subnet %d", id)
	}
	return d.subnets[i].CIDR
}

func (d *dryRunMAAS) link(l providers.MAASLink) string {
	text := l.Mode
	if l.SubnetID != 0 {
		text += " " + d.subnet(l.SubnetID)
	}
	if l.IP != "" {
		text += " " + l.IP
	}
	return text
}
