package pxejob

import (
	"context"
	"errors"
	"fmt"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// NodeBMC is the BMC that a request gives a PXE node. Its NodeID names the node. PinSHA256 is the
// pin of its certificate that an operator has compared; "" approves none.
type NodeBMC struct {
	intent.BMC
	PinSHA256 string
}

// CheckNodeBMC names everything that is wrong with the BMC of a request.
func CheckNodeBMC(ctx context.Context, store *db.Store, b NodeBMC) error {
	bad, err := intent.CheckBMC(ctx, store, b.BMC)
	if err != nil {
		return err
	}
	if b.PinSHA256 != "" && b.Protocol == intent.ProtocolIPMI {
		bad = append(bad, intent.Field{Name: "pin_sha256", Message: "is for redfish only; IPMI shows no certificate"})
	}
	return intent.InvalidIf(bad)
}

// PutNodeBMC gives a PXE node its BMC and approves the pin. The same once more changes nothing. It
// refuses a node that MAAS provisions, a retired node, and another BMC while a rotation works on
// the one that the node has. The last is found out after a write, so the caller rolls back on any
// error.
func PutNodeBMC(ctx context.Context, tx *db.Tx, b NodeBMC, actor db.Actor) (db.BMC, error) {
	n, err := tx.LockNode(ctx, b.NodeID)
	if err != nil {
		return db.BMC{}, err
	}
	if n.Lifecycle != lifecycle.NodePXE.Lifecycle {
		return db.BMC{}, &intent.Refusal{Kind: intent.Conflict, Advice: intent.Advice{Reason: intent.ReasonMAASBMC},
			Detail: "the BMC of a node that MAAS provisions comes with its onboarding: onboard it again, or change the login alone"}
	}
	if n.Status == lifecycle.NodeRetired {
		return db.BMC{}, &intent.Refusal{Kind: intent.IllegalTransition, Detail: "the node is retired, and its machine is another node when it boots again"}
	}
	id, err := takeBMC(ctx, tx, n, b.BMC, actor)
	if err != nil {
		return db.BMC{}, err
	}
	return approvePin(ctx, tx, n, id, b.PinSHA256, actor)
}

// takeBMC gives the node its BMC and returns the id of its record.
func takeBMC(ctx context.Context, tx *db.Tx, n db.Node, b intent.BMC, actor db.Actor) (string, error) {
	had, err := tx.BMCOfNode(ctx, n.ID)
	if err != nil && !errors.Is(err, db.ErrNotFound) {
		return "", err
	}
	given, err := tx.GiveBMC(ctx, n.ID, db.BMCSpec{NewBMC: db.NewBMC{
		Address: b.Address, Protocol: b.Protocol, CredentialRef: b.CredentialRef, SystemID: b.SystemID, CipherSuite: b.CipherSuite,
	}}, actor)
	if err != nil || given.ID == had.ID && given.Version == had.Version {
		return given.ID, err
	}
	if live, err := tx.LiveJobOfNode(ctx, n.ID); err == nil && live.Kind == string(contract.KindBMCRotation) {
		return "", &intent.Refusal{Kind: intent.LiveJob, Existing: live.ID, Advice: intent.Advice{Reason: intent.ReasonJobHoldsNode, JobID: live.ID},
			Detail: fmt.Sprintf("job %s changes the login of this BMC; wait for it to end, or cancel it", live.ID)}
	} else if err != nil && !errors.Is(err, db.ErrNotFound) {
		return "", err
	}
	return given.ID, nil
}

// approvePin approves the pin that the request names, if it names one.
func approvePin(ctx context.Context, tx *db.Tx, n db.Node, id, pin string, actor db.Actor) (db.BMC, error) {
	b, err := tx.BMC(ctx, id)
	if err != nil || pin == "" || b.PinSHA256 == pin {
		return b, err
	}
	if err := tx.SetBMCPin(ctx, id, pin); err != nil {
		return b, err
	}
	actor.Metadata = map[string]any{"pin_sha256": pin}
	err = tx.AppendAudit(ctx, db.Entry{ResourceKind: "bmc", ResourceID: id, NodeID: &n.ID, Kind: db.EntryAction, Name: "approve_pin", Actor: actor})
	if err != nil {
		return b, err
	}
	return tx.BMC(ctx, id)
}
