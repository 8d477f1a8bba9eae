package maas

import (
	"context"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// HolderIn is the input of the activities that mark a machine for an allocation.
type HolderIn struct {
	MachineIn
	// AllocationID is whose mark it is; "" stands for any, in jobs of a release before this one.
	AllocationID string `json:"allocation_id,omitempty"`
}

// MarkAllocation writes into MAAS which allocation has the machine, and reads it again: after a
// restore of the database the mark says that the node is not free. It fails with state_disagreement
// when the machine is marked for another allocation. It can be repeated.
func (a *Activities) MarkAllocation(ctx context.Context, in HolderIn) (contract.MachineFacts, error) {
	m, got, err := a.openMachine(ctx, in.JobRef, in.SystemID)
	if err != nil {
		return contract.MachineFacts{}, err
	}
	out := facts(got)
	switch out.Allocation {
	case in.AllocationID:
		out.Done = true
		return out, nil
	case "":
	default:
		return out, fault.New(lifecycle.FailStateDisagreement, "MAAS has machine %s marked for allocation %s", in.SystemID, out.Allocation)
	}
	if err := a.checkBelongs(ctx, m, in.MachineIn, got); err != nil {
		return out, err
	}
	if err := m.SetWorkloadAnnotations(ctx, in.SystemID, map[string]string{lifecycle.MAASAllocationMark: in.AllocationID}); err != nil {
		return out, fault.MAAS(ctx, err)
	}
	if got, err = machine(ctx, m, in.SystemID); err != nil {
		return out, err
	}
	out = facts(got)
	if out.Done = out.Allocation == in.AllocationID; !out.Done {
		return out, fault.New(lifecycle.FailStateDisagreement, "MAAS accepted the mark of machine %s and does not show it", in.SystemID)
	}
	out.Note = "MAAS has the machine marked for the allocation"
	return out, nil
}

// ClearAllocation removes the mark of an allocation that has let go of the machine. The mark of
// another allocation stays. A machine that is not in MAAS has none. It can be repeated.
func (a *Activities) ClearAllocation(ctx context.Context, in HolderIn) (contract.MachineFacts, error) {
	m, got, err := a.findMachine(ctx, in.JobRef, in.SystemID)
	if err != nil {
		return contract.MachineFacts{}, err
	}
	if got == nil {
		return absentFacts(in.SystemID, notInMAAS), nil
	}
	out := facts(*got)
	if out.Done = out.Allocation == "" || in.AllocationID != "" && out.Allocation != in.AllocationID; out.Done {
		return out, nil
	}
	if err := m.SetWorkloadAnnotations(ctx, in.SystemID, map[string]string{lifecycle.MAASAllocationMark: ""}); err != nil {
		return out, fault.MAAS(ctx, err)
	}
	out.Allocation, out.Done, out.Note = "", true, "MAAS no longer has the machine marked for the allocation"
	return out, nil
}
