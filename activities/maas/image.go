package maas

import (
	"context"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/contract"
)

// ReadInstalledImage returns the system that MAAS has deployed on the machine, as MAAS's own record of
// it says and not as it was asked for. It fails with state_disagreement when none is deployed.
// Read-only.
func (a *Activities) ReadInstalledImage(ctx context.Context, in MachineIn) (contract.AllocationImage, error) {
	_, got, err := a.findMachine(ctx, in.JobRef, in.SystemID)
	if err != nil {
		return contract.AllocationImage{}, err
	}
	if got == nil || got.DistroSeries == "" {
		return contract.AllocationImage{}, fault.New(lifecycle.FailStateDisagreement, "MAAS names no system that is deployed on machine %s", in.SystemID)
	}
	return contract.AllocationImage{ID: got.OSystem + "/" + got.DistroSeries, Name: got.OSystem, Version: got.DistroSeries}, nil
}
