package bmc

import (
	"context"
	"errors"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	allocationdb "github.com/slipway-cloud/slipway/db/allocation"
)

// FormerIn is the input of CompareFormerSettings: the BMC, and what it says of its machine.
type FormerIn struct {
	contract.JobRef
	CAPEM string            `json:"ca_pem,omitempty"`
	BMC   contract.BMCFacts `json:"bmc"`
	// Rotated says that the job has given the BMC another password, since root could have learnt
	// it.
	Rotated bool `json:"rotated,omitempty"`
}

// CompareFormerSettings compares the BMC of a machine that comes back with the snapshot of before
// the tenant who left it last: a full_decommission compares nothing, and the machine is a new node.
// The former record is found by serial number, hardware UUID or MAC address. A BMC that is as it
// was and has another password ends the mark of the records of which two of them are the same, none
// differs, and a certificate says that the disks were erased; without the password it names the
// record. Where nothing can be compared, since there is no such record or the BMC shows nothing, no
// mark changes. It changes nothing on the BMC, and can be repeated.
func (a *Activities) CompareFormerSettings(ctx context.Context, in FormerIn) (contract.SettingsFacts, error) {
	n, err := a.Store.Node(ctx, in.NodeID)
	if err != nil {
		return contract.SettingsFacts{}, fault.Internal(ctx, err)
	}
	former, err := a.Store.FindFormerTenancy(ctx, in.NodeID, db.Hardware{
		Serial: in.BMC.Serial, HardwareUUID: in.BMC.UUID, MACs: append(n.MACs, in.BMC.MACs...),
	})
	if errors.Is(err, db.ErrNotFound) {
		return contract.SettingsFacts{Done: true, Note: "no tenant has left this machine without a proof"}, nil
	}
	if err != nil {
		return contract.SettingsFacts{}, fault.Internal(ctx, err)
	}
	raw, err := allocationdb.FirmwareSnapshot(ctx, a.Store, former.AllocationID)
	if err != nil {
		return contract.SettingsFacts{}, fault.Internal(ctx, err)
	}
	ref := contract.AllocationRef{JobRef: in.JobRef, AllocationID: former.AllocationID}
	out, err := a.compareWith(ctx, SettingsIn{AllocationRef: ref, BMCID: in.BMC.BMCID, CAPEM: in.CAPEM}, raw)
	if err != nil || !out.Done {
		return out, err
	}
	if !in.Rotated {
		out.FormerNode = former.NodeID
		return out, nil
	}
	if !former.Same {
		return out, nil // it may be another machine's record, and keeps its mark
	}
	return out, fault.Internal(ctx, a.Store.Tx(ctx, func(tx *db.Tx) error { return endMarks(ctx, tx, former.Records, in.NodeID) }))
}

// endMarks ends the marks of records that are one machine, whose BMC was proven. The disks of a
// record that was removed without an erasure, or at an operator's risk, are as its tenant left
// them: its mark goes to the node.
func endMarks(ctx context.Context, tx *db.Tx, records []string, nodeID string) error {
	now, err := tx.Clock(ctx)
	if err != nil {
		return err
	}
	var erased []string
	for _, id := range records {
		is, err := tx.ProvenErased(ctx, id, nodeID)
		if err != nil {
			return err
		}
		if is {
			erased = append(erased, id)
		}
	}
	for _, id := range erased {
		if err := tx.MarkSanitized(ctx, id, now); err != nil {
			return err
		}
	}
	return nil
}
