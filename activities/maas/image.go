package maas

import (
	"context"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
)

const (
	// eventDeployed is the type of MAAS's event of a machine that has been deployed.
	eventDeployed = "Deployed"
	// imageEvents is how many of the newest events are looked through for it.
	imageEvents = 1000
)

// ReadInstalledImage returns the system that MAAS has deployed on the machine, as MAAS's own record
// of it says and not as it was asked for, and when its newest event says that it was. MAAS keeps no
// hash of what it deployed, so none is told. It fails with state_disagreement when none is
// deployed. Read-only.
func (a *Activities) ReadInstalledImage(ctx context.Context, in MachineIn) (contract.AllocationImage, error) {
	client, got, err := a.findMachine(ctx, in.JobRef, in.SystemID)
	if err != nil {
		return contract.AllocationImage{}, err
	}
	if got == nil || got.DistroSeries == "" {
		return contract.AllocationImage{}, fault.New(lifecycle.FailStateDisagreement, "MAAS names no system that is deployed on machine %s", in.SystemID)
	}
	out := contract.AllocationImage{ID: got.OSystem + "/" + got.DistroSeries, Name: got.OSystem, Version: got.DistroSeries}
	events, err := client.Events(ctx, in.SystemID, "INFO", imageEvents)
	if err != nil {
		return out, fault.MAAS(ctx, err)
	}
	for _, e := range events { // newest first
		if e.Type == eventDeployed {
			out.InstalledAt = e.At.UTC()
			break
		}
	}
	return out, nil
}
