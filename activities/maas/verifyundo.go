package maas

import (
	"context"
	"fmt"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/providers"
)

// The activities here verify an undo: each reads the machine and changes nothing. Done is false
// when something is left, and Note names it.

// CheckRecordRemoved proves RemoveCreatedMachine: the record that this job made,
// under its known id or by a create whose answer was lost, is no longer in MAAS.
func (a *Activities) CheckRecordRemoved(ctx context.Context, in RemoveIn) (contract.MachineFacts, error) {
	out := absentFacts(in.SystemID, "")
	if in.SystemID != "" && !in.Created {
		out.Status, out.Note = "", "the machine was not created by this job"
		return out, nil
	}
	m, _, err := a.region(ctx, in.JobRef)
	if err != nil {
		return contract.MachineFacts{}, err
	}
	got, err := a.createdMachine(ctx, m, in)
	if got == nil || err != nil {
		return out, err
	}
	out = facts(*got)
	out.Note = fmt.Sprintf("the record %s that this job created is still in MAAS, %s", got.SystemID, got.Status)
	return out, nil
}

// CheckReleased proves ReturnToReady: the machine is not allocated, deploying,
// deployed or on its way out by this job's doing.
func (a *Activities) CheckReleased(ctx context.Context, in ReleaseIn) (contract.MachineFacts, error) {
	m, got, err := a.findMachine(ctx, in.JobRef, in.SystemID)
	if err != nil {
		return contract.MachineFacts{}, err
	}
	if got == nil {
		return absentFacts(in.SystemID, ""), nil
	}
	out := facts(*got)
	if got.Status == providers.MAASReady || got.Status == providers.MAASNew {
		out.Done = true
		return out, nil
	}
	ours, err := in.ours(ctx, m, *got)
	if err != nil {
		return out, err
	}
	if got.Status == providers.MAASReleasing || got.Status == providers.MAASDiskErasing {
		out.Note = fmt.Sprintf("machine %s is still %s", in.SystemID, got.Status)
		return out, nil
	}
	if out.Done = !ours; ours {
		out.Note = fmt.Sprintf("machine %s is still %s for this job", in.SystemID, got.Status)
	}
	return out, nil
}

// CheckNotCommissioning proves AbortCommissioning.
func (a *Activities) CheckNotCommissioning(ctx context.Context, in MachineIn) (contract.MachineFacts, error) {
	out, err := a.ObserveMachine(ctx, in)
	if err != nil {
		return out, err
	}
	running := out.Status == providers.MAASCommissioning.String() || out.Status == providers.MAASTesting.String()
	if out.Done = !running; running {
		out.Note = fmt.Sprintf("machine %s is still %s", in.SystemID, out.Status)
	}
	return out, nil
}
