package maas

import (
	"context"
	"errors"
	"strings"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
)

// findNew implements the profile's auto_claim_single_new_machine: when neither MACs nor a serial
// number of the BMC match, the server is the one machine that has enlisted itself and is New. It
// returns nil when there is none. It fails with conflicting_candidates when there are several, and
// an operator has to decide.
func (a *Activities) findNew(ctx context.Context, m providers.MAAS, in CreateIn) (*providers.MAASMachine, error) {
	all, err := m.FindMachines(ctx, providers.MAASQuery{New: true})
	if err != nil {
		return nil, fault.MAAS(ctx, err)
	}
	var open []providers.MAASMachine
	for _, c := range all {
		free, err := a.unclaimed(ctx, in, c)
		if err != nil {
			return nil, err
		}
		if free {
			open = append(open, c)
		}
	}
	switch {
	case len(open) == 0:
		return nil, nil
	case len(open) > 1:
		return nil, fault.New(lifecycle.FailConflictingCandidates,
			"no MAAS machine matches %s and %d are New, any of which may be it: %s; delete what is not, or give the right one this BMC's address in MAAS",
			in.Hostname, len(open), listed(open))
	case open[0].PowerType == "" || open[0].PowerType == "manual":
		return nil, fault.New(lifecycle.FailConflictingCandidates,
			"MAAS machine %s is New and may be %s, but MAAS cannot power it; give it this BMC's address and login in MAAS, or delete it",
			listed(open), in.Hostname)
	}
	return &open[0], nil
}

// unclaimed reports whether a New machine may be the server: no node has it, and no known serial
// number or UUID differs.
func (a *Activities) unclaimed(ctx context.Context, in CreateIn, c providers.MAASMachine) (bool, error) {
	if c.Status != providers.MAASNew || c.Locked || c.Owner != "" || in.differs(c) {
		return false, nil
	}
	// A machine that another onboarding is just creating is New for a moment as well.
	for _, taken := range []func() (db.Node, error){
		func() (db.Node, error) { return a.Store.LiveNodeOfMachine(ctx, in.SiteID, c.SystemID) },
		func() (db.Node, error) { return a.Store.LiveNodeOfHost(ctx, in.SiteID, c.Hostname) },
	} {
		switch node, err := taken(); {
		case errors.Is(err, db.ErrNotFound):
		case err != nil:
			return false, fault.Internal(ctx, err)
		case node.ID != in.NodeID:
			return false, nil
		}
	}
	return true, nil
}

// differs reports that a serial number or UUID is known of both and not the same.
func (in CreateIn) differs(c providers.MAASMachine) bool {
	bmc := spec.MachineKeys{Serial: in.BMC.Serial, UUID: in.BMC.UUID}
	return len(bmc.Compare(spec.MachineKeys{Serial: c.Serial, UUID: c.UUID}).Differ) > 0
}

func listed(found []providers.MAASMachine) string {
	ids := make([]string, 0, len(found))
	for _, c := range found {
		ids = append(ids, c.SystemID+" ("+c.Hostname+")")
	}
	return strings.Join(ids, ", ")
}
