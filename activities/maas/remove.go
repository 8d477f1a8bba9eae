package maas

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
)

// RemoveMachineIn is the input of RemoveMachine.
type RemoveMachineIn struct {
	MachineIn
	// MACs find what the machine enlisted itself as meanwhile.
	MACs []string `json:"macs,omitempty"`
}

// removeRounds bounds how often records of one machine are searched and deleted: a machine that is
// off cannot enlist again.
const removeRounds = 4

// RemoveMachine deletes the machine's record in MAAS when its power is confirmed off, and every
// record under which it has enlisted itself since, found by MAC. It fails when somebody uses a
// record. An absent machine is success.
func (a *Activities) RemoveMachine(ctx context.Context, in RemoveMachineIn) (contract.MachineFacts, error) {
	m, _, err := a.region(ctx, in.JobRef)
	if err != nil {
		return contract.MachineFacts{}, err
	}
	out := absentFacts(in.SystemID, notInMAAS)
	for range removeRounds {
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
			if err := a.removeRecord(ctx, m, in, got); err != nil && !isGone(ctx, m, got.SystemID) {
				return facts(got), err
			}
		}
		out.Note = "deleted in MAAS: " + listed(left)
	}
	return out, fault.New(lifecycle.FailStateDisagreement, "the machine with the MACs %s enlists itself in MAAS again and again; switch it off at its power supply",
		strings.Join(in.MACs, ", "))
}

// isGone reports whether MAAS has no record of the machine: another delivery of the same activity
// may have deleted it since it was listed.
func isGone(ctx context.Context, m providers.MAAS, systemID string) bool {
	got, err := machineOrNil(ctx, m, systemID)
	return err == nil && got == nil
}

// records lists what MAAS has of the machine: under its id, and by MAC.
func (a *Activities) records(ctx context.Context, m providers.MAAS, in RemoveMachineIn) ([]providers.MAASMachine, error) {
	var out []providers.MAASMachine
	got, err := machineOrNil(ctx, m, in.SystemID)
	if err != nil {
		return nil, err
	}
	if got != nil {
		out = append(out, *got)
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
	if err := a.checkDeletable(ctx, in, got); err != nil {
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
			if _, err := requestPower(ctx, m, one, powerOff); err != nil {
				return err
			}
		}
	}
	return fault.MAAS(ctx, m.DeleteMachine(ctx, got.SystemID))
}

// checkDeletable fails when a record must not be deleted.
func (a *Activities) checkDeletable(ctx context.Context, in RemoveMachineIn, got providers.MAASMachine) error {
	why, err := a.inUseReason(ctx, in, got)
	if err != nil || why == "" {
		return err
	}
	return fault.New(lifecycle.FailStateDisagreement, "MAAS machine %s (%s) is not deleted: %s", got.SystemID, got.Hostname, why)
}

// inUseReason returns why a record must not be deleted, "" when it may be.
func (a *Activities) inUseReason(ctx context.Context, in RemoveMachineIn, got providers.MAASMachine) (string, error) {
	switch {
	case got.Locked:
		return "it is locked; unlock it in MAAS", nil
	case inUse(got.Status), got.Status == providers.MAASReleasing, got.Status == providers.MAASDiskErasing, got.Status == providers.MAASReserved:
		return fmt.Sprintf("it is %s", got.Status), nil
	case got.SystemID != in.SystemID && got.Owner != "":
		return fmt.Sprintf("it belongs to the MAAS user %q", got.Owner), nil
	case got.SystemID != in.SystemID && !free(got.Status) && got.Status != providers.MAASFailedCommissioning:
		return fmt.Sprintf("it enlisted itself again and is %s", got.Status), nil
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

// RemoveIn is the input of RemoveCreatedMachine.
type RemoveIn struct {
	MachineIn
	Created bool `json:"created"`
	// Hostname and BMC find the record of a create whose answer never came.
	Hostname string            `json:"hostname,omitempty"`
	BMC      contract.BMCFacts `json:"bmc"`
}

// RemoveCreatedMachine is the compensation of create_or_find_in_maas: a record
// that this job made is deleted, power confirmed off first so that it cannot
// enlist again; a machine that was found, or that someone else has put to use
// meanwhile, is left as it is. Absent is success.
func (a *Activities) RemoveCreatedMachine(ctx context.Context, in RemoveIn) (contract.MachineFacts, error) {
	out := absentFacts(in.SystemID, "")
	if in.SystemID != "" && !in.Created {
		out.Status, out.Note = "", "the machine was not created by this job"
		return out, nil
	}
	m, _, err := a.region(ctx, in.JobRef)
	if err != nil {
		return out, err
	}
	got, err := a.createdMachine(ctx, m, in)
	if err != nil {
		return out, err
	}
	if got == nil {
		return out, a.untie(ctx, in)
	}
	in.SystemID, out.SystemID = got.SystemID, got.SystemID
	if inUse(got.Status) && got.Annotations[annotationJob] != in.JobID {
		return facts(*got), fault.New(lifecycle.FailStateDisagreement,
			"machine %s was created by this job but is %s by someone else; it is not deleted", got.SystemID, got.Status)
	}
	if got.PowerState == "on" {
		if err := switchOff(ctx, m, in.MachineIn); err != nil {
			return facts(*got), err
		}
	}
	if err := m.DeleteMachine(ctx, in.SystemID); err != nil {
		return out, fault.MAAS(ctx, err)
	}
	return out, a.untie(ctx, in)
}

// untie ends that the node is the machine that this job created and has deleted. Otherwise a
// machine that is absent as it should be would be a critical finding of drift.
func (a *Activities) untie(ctx context.Context, in RemoveIn) error {
	node, err := a.Store.Node(ctx, in.NodeID)
	if err != nil {
		return fault.Internal(ctx, err)
	}
	if node.MAASSystemID == nil || *node.MAASSystemID != in.SystemID {
		return nil
	}
	return fault.Internal(ctx, a.Store.SetNodeMachine(ctx, in.NodeID, db.NodeMachine{}))
}

func inUse(s providers.MAASStatus) bool {
	return s == providers.MAASDeployed || s == providers.MAASDeploying || s == providers.MAASAllocated
}

// createdMachine reads the record that this job created, nil for none. Without
// a known id it looks for what a create with a lost answer may have left.
func (a *Activities) createdMachine(ctx context.Context, m providers.MAAS, in RemoveIn) (*providers.MAASMachine, error) {
	if in.SystemID != "" {
		return machineOrNil(ctx, m, in.SystemID)
	}
	node, err := a.Store.Node(ctx, in.NodeID)
	if err != nil {
		return nil, fault.Internal(ctx, err)
	}
	if node.MAASCreateIntent != in.JobID || in.Hostname == "" {
		return nil, nil
	}
	found, err := a.find(ctx, m, CreateIn{JobRef: in.JobRef, Hostname: in.Hostname, BMC: in.BMC})
	if found == nil || err != nil || found.Hostname != in.Hostname {
		return nil, err
	}
	return found, nil
}

// switchOff asks for power off until MAAS has taken it, and confirms it.
func switchOff(ctx context.Context, m providers.MAAS, in MachineIn) error {
	var off once
	_, err := pollMachine(ctx, m, in.SystemID, in.Poll.D(), func(providers.MAASMachine) error {
		if err := off.send(ctx, func() error { return m.PowerOff(ctx, in.SystemID, true) }); err != nil {
			return err
		}
		if state, err := m.QueryPower(ctx, in.SystemID); err == nil && state == "off" {
			return nil
		}
		return errKeepWaiting
	})
	return err
}
