package maas

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/workflows/contract"
)

// RemoveMachineIn is the input of RemoveMachine.
type RemoveMachineIn struct {
	MachineIn
	// MACs find what the machine enlisted itself as meanwhile.
	MACs []string `json:"macs,omitempty"`
}

// removeLooks bounds how often records of one machine are deleted and looked for
// again: a machine that is off enlists no more.
const removeLooks = 4

// RemoveMachine deletes the machine's record in MAAS once its power is
// confirmed off, and every record that it enlisted itself under meanwhile, found
// by MAC (research, maas: remove_maas_record). A machine that somebody put to use
// is left alone. Absent is success.
func (a *Activities) RemoveMachine(ctx context.Context, in RemoveMachineIn) (contract.MachineFacts, error) {
	m, _, err := a.region(ctx, in.SiteID)
	if err != nil {
		return contract.MachineFacts{}, err
	}
	out := goneFacts(in.SystemID)
	for range removeLooks {
		left, err := a.records(ctx, m, in)
		if err != nil {
			return out, err
		}
		if len(left) == 0 {
			return out, nil
		}
		if in.ObserveOnly {
			out = facts(left[0])
			out.Note = "in MAAS: " + listed(left)
			return out, nil
		}
		for _, got := range left {
			if err := a.removeRecord(ctx, m, in, got); err != nil {
				return facts(got), err
			}
		}
		out.Note = "deleted in MAAS: " + listed(left)
	}
	return out, fault.New(lifecycle.FailStateDisagreement, "the machine with the MACs %s enlists itself in MAAS again and again; switch it off at its power supply",
		strings.Join(in.MACs, ", "))
}

// records lists what MAAS has of the machine: under its id, and by MAC.
func (a *Activities) records(ctx context.Context, m providers.MAAS, in RemoveMachineIn) ([]providers.MAASMachine, error) {
	var out []providers.MAASMachine
	got, err := m.Machine(ctx, in.SystemID)
	switch {
	case err == nil:
		out = append(out, got)
	case !providers.IsKind(err, providers.KindNotFound):
		return nil, fault.MAAS(ctx, err)
	}
	if len(in.MACs) == 0 {
		return out, nil
	}
	found, err := m.FindMachines(ctx, providers.MAASQuery{MACs: in.MACs})
	if err != nil {
		return nil, fault.MAAS(ctx, err)
	}
	for _, f := range found {
		if f.SystemID != in.SystemID {
			out = append(out, f)
		}
	}
	return out, nil
}

// removeRecord deletes one record of a machine that nobody uses and that is off.
func (a *Activities) removeRecord(ctx context.Context, m providers.MAAS, in RemoveMachineIn, got providers.MAASMachine) error {
	if err := a.refusal(ctx, in, got); err != nil {
		return err
	}
	if got.PowerType != "" && got.PowerType != "manual" {
		one := in.MachineIn
		one.SystemID = got.SystemID
		state, err := m.QueryPower(ctx, got.SystemID)
		if err != nil {
			return fault.MAAS(ctx, err)
		}
		if state != powerOff {
			if _, err := ask(ctx, m, one, powerOff); err != nil {
				return err
			}
		}
	}
	return fault.MAAS(ctx, m.DeleteMachine(ctx, got.SystemID))
}

// refusal fails with why a record must not be deleted.
func (a *Activities) refusal(ctx context.Context, in RemoveMachineIn, got providers.MAASMachine) error {
	why, err := a.taken(ctx, in, got)
	if err != nil || why == "" {
		return err
	}
	return fault.New(lifecycle.FailStateDisagreement, "MAAS machine %s (%s) is not deleted: %s", got.SystemID, got.Hostname, why)
}

// taken says why a record must not be deleted; "" when it may.
func (a *Activities) taken(ctx context.Context, in RemoveMachineIn, got providers.MAASMachine) (string, error) {
	switch {
	case got.Locked:
		return "it is locked; unlock it in MAAS", nil
	case inUse(got.Status), got.Status == providers.MAASReleasing, got.Status == providers.MAASDiskErasing, got.Status == providers.MAASReserved:
		return fmt.Sprintf("it is %s", got.Status), nil
	case got.SystemID != in.SystemID && got.Owner != "":
		return fmt.Sprintf("it belongs to the MAAS user %q", got.Owner), nil
	case got.SystemID != in.SystemID && !free(got.Status) && got.Status != providers.MAASFailedCommissioning:
		return fmt.Sprintf("it enlisted itself anew and is %s", got.Status), nil
	}
	node, err := a.Store.LiveNodeOfMachine(ctx, in.SiteID, got.SystemID)
	switch {
	case errors.Is(err, db.ErrNotFound):
		return "", nil
	case err != nil:
		return "", fault.Internal(ctx, err)
	case node.ID != in.NodeID:
		return "it is the machine of node " + node.ID, nil
	}
	return "", nil
}
