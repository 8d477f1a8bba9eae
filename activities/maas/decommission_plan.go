package maas

import (
	"context"
	"strings"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
)

// DecommissionPlanIn is the input of PlanMachineDecommission. The reference is a field and not
// embedded, so that a plan is no entry on the node's timeline.
type DecommissionPlanIn struct {
	In       contract.JobRef `json:"in"`
	SystemID string          `json:"system_id,omitempty"`
	Hostname string          `json:"hostname"`
	MACs     []string        `json:"macs,omitempty"`
	// Keys and Install also read what a scrub and a new installation need.
	Keys    bool `json:"keys,omitempty"`
	Install bool `json:"install,omitempty"`
}

// DecommissionPlan is what a plan of a decommission needs of site and region. Each failure is the
// one that the stage would end with.
type DecommissionPlan struct {
	Config  contract.DecommissionConfig `json:"config"`
	Machine contract.MachineFacts       `json:"machine"`
	Disks   []string                    `json:"disks,omitempty"` // physical, "name serial"
	// Records are the ids of all records of the machine, its own first.
	Records        []string          `json:"records,omitempty"`
	ConfigFailure  *contract.Failure `json:"config_failure,omitempty"`
	SiteFailure    *contract.Failure `json:"site_failure,omitempty"`
	MachineFailure *contract.Failure `json:"machine_failure,omitempty"`
	RecordFailure  *contract.Failure `json:"record_failure,omitempty"`
}

// PlanMachineDecommission reads what a plan of a decommission needs of site and region, by the
// activities that a run uses. Read-only.
func (a *Activities) PlanMachineDecommission(ctx context.Context, l DecommissionPlanIn) (DecommissionPlan, error) {
	ctx, cancel := context.WithTimeout(ctx, dryRunLimit)
	defer cancel()
	a = a.forPlan()
	var out DecommissionPlan
	var err error
	out.Config, err = a.LoadNodeConfig(ctx, NodeConfigIn{JobRef: l.In, Keys: l.Keys})
	if out.ConfigFailure, err = expectedFailure(ctx, err); err != nil || l.SystemID == "" {
		return out, err
	}
	if out.SiteFailure, err = expectedFailure(ctx, a.checkSite(ctx, l, out.Config)); err != nil {
		return out, err
	}
	in := MachineIn{JobRef: l.In, SystemID: l.SystemID}
	f, err := a.ReadMachineBeforeRelease(ctx, in)
	out.Machine = f.MachineFacts
	if out.MachineFailure, err = expectedFailure(ctx, err); err != nil {
		return out, err
	}
	for _, d := range f.Disks {
		out.Disks = append(out.Disks, strings.TrimSpace(d.Name+" "+d.Serial))
	}
	out.Records, err = a.deletableRecords(ctx, RemoveMachineIn{MachineIn: in, MACs: l.MACs})
	out.RecordFailure, err = expectedFailure(ctx, err)
	return out, err
}

// expectedFailure turns an error into the failure of a run.
func expectedFailure(ctx context.Context, err error) (*contract.Failure, error) {
	if err == nil {
		return nil, nil
	}
	return failure(ctx, err)
}

func (a *Activities) checkSite(ctx context.Context, l DecommissionPlanIn, c contract.DecommissionConfig) error {
	if !l.Install {
		_, err := a.ProbeRegion(ctx, l.In)
		return err
	}
	_, err := a.LoadSiteConfig(ctx, LoadSiteIn{JobRef: l.In, Request: contract.OnboardingInput{
		SiteID: l.In.SiteID, ProfileID: c.ProfileID, SKUID: c.SKUID, Hostname: l.Hostname,
	}})
	return err
}

// deletableRecords lists the records that a run would delete. It fails when somebody uses a record
// other than the machine's own, which a run releases before.
func (a *Activities) deletableRecords(ctx context.Context, in RemoveMachineIn) ([]string, error) {
	m, _, err := a.region(ctx, in.JobRef)
	if err != nil {
		return nil, err
	}
	all, err := a.records(ctx, m, in)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, got := range all {
		ids = append(ids, got.SystemID)
		if got.SystemID == in.SystemID {
			continue
		}
		if err := a.checkDeletable(ctx, in, got); err != nil {
			return ids, err
		}
	}
	return ids, nil
}

// Released reports whether the machine needs no release.
func (p DecommissionPlan) Released() bool {
	s := p.Machine.Status
	return s == providers.MAASReady.String() || s == providers.MAASNew.String() || s == providers.MAASAbsent
}

// Unreleasable returns the failure of a release in the machine's present state, nil when MAAS would
// release it.
func (p DecommissionPlan) Unreleasable() *contract.Failure {
	for s := providers.MAASNew; s <= providers.MAASFailedTesting; s++ {
		passing := s == providers.MAASReleasing || s == providers.MAASDiskErasing || free(s)
		if s.String() == p.Machine.Status && !passing && !releasable(s) {
			return &contract.Failure{Class: lifecycle.FailStateDisagreement, Message: "machine " + p.Machine.SystemID + " is " + p.Machine.Status + ", from which MAAS releases nothing"}
		}
	}
	return nil
}
