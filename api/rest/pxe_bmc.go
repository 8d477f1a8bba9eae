package rest

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/contract"
)

// NodeBMCRequest is the BMC of a PXE node.
type NodeBMCRequest struct {
	BMCRequest
	PinSHA256 string `json:"pin_sha256,omitempty" maxLength:"64" pattern:"^[0-9a-f]{64}$" doc:"The pin of its certificate's public key, if you have compared it: approved at once. Else the first job that logs in waits for approve-pin"`
}

func (s *server) registerPXEBMC() {
	op.Add(s.api, huma.Operation{
		OperationID: "put-node-bmc", Method: http.MethodPut, Path: "/nodes/{id}/bmc", Tags: []string{"pxe"}, Summary: "Say which BMC a PXE node has",
		Description: "By it the node's jobs switch the machine on and off. Repeatable; one that another node in service has is refused. Another address is another BMC, with a record of its own: the node lets go of the one that it has, whose record keeps its login. " +
			"The BMC of a node of lifecycle maas comes with its onboarding; a migration brings that of the new hardware.",
	}, s.putNodeBMC)
}

func (s *server) putNodeBMC(ctx context.Context, in *struct {
	NodePath
	Body NodeBMCRequest
}) (*op.Versioned[BMC], error) {
	bmc := in.Body.bmc(intent.ProtocolRedfish) // no profile names the protocol of a PXE node
	bmc.NodeID = in.ID
	bad, err := intent.CheckBMC(ctx, s.store, bmc)
	if err != nil {
		return nil, err
	}
	if in.Body.PinSHA256 != "" && bmc.Protocol == intent.ProtocolIPMI {
		bad = append(bad, intent.Field{Name: "pin_sha256", Message: "is for redfish only; IPMI shows no certificate"})
	}
	if err := intent.InvalidIf(bad); err != nil {
		return nil, err
	}
	var row db.BMC
	err = s.store.Tx(ctx, func(tx *db.Tx) error {
		n, err := tx.LockNode(ctx, in.ID)
		if err != nil {
			return err
		}
		if n.Lifecycle != lifecycle.NodePXE.Lifecycle {
			return problem.New(problem.Conflict, "the BMC of a node that MAAS provisions comes with its onboarding: onboard it again (slipway node onboard), or change the login alone with slipway bmc set-credential")
		}
		if n.Status == lifecycle.NodeRetired {
			return problem.New(problem.IllegalTransition, "the node is retired, and its machine is another node when it boots again")
		}
		id, err := takeNodeBMC(ctx, tx, n, bmc)
		if err != nil {
			return err
		}
		row, err = s.pinBMC(ctx, tx, n, id, in.Body.PinSHA256)
		return err
	})
	if err != nil {
		return nil, err
	}
	return op.WithVersion(row.Version, bmcView(row)), nil
}

// pinBMC approves the pin that the request names, if it names one.
func (s *server) pinBMC(ctx context.Context, tx *db.Tx, n db.Node, id, pin string) (db.BMC, error) {
	b, err := tx.BMC(ctx, id)
	if err != nil || pin == "" || b.PinSHA256 == pin {
		return b, err
	}
	if err := tx.SetBMCPin(ctx, id, pin); err != nil {
		return b, err
	}
	if err := op.Audit(ctx, tx, "bmc", id, &n.ID, "approve_pin", map[string]any{"pin_sha256": pin}); err != nil {
		return b, err
	}
	return tx.BMC(ctx, id)
}

// takeNodeBMC gives a PXE node its BMC; the same once more changes nothing. While
// a rotation works on the one it has, only the same is accepted.
func takeNodeBMC(ctx context.Context, tx *db.Tx, n db.Node, b intent.BMC) (string, error) {
	had, err := tx.BMCOfNode(ctx, n.ID)
	if err != nil && !errors.Is(err, db.ErrNotFound) {
		return "", err
	}
	given, err := tx.GiveBMC(ctx, n.ID, db.BMCSpec{NewBMC: db.NewBMC{
		Address: b.Address, Protocol: b.Protocol, CredentialRef: b.CredentialRef, SystemID: b.SystemID, CipherSuite: b.CipherSuite,
	}}, op.Actor(ctx))
	if err != nil || given.ID == had.ID && given.Version == had.Version {
		return given.ID, err
	}
	if live, err := tx.LiveJobOfNode(ctx, n.ID); err == nil && live.Kind == string(contract.KindBMCRotation) {
		return "", problem.New(problem.LiveJob, fmt.Sprintf("job %s changes the login of this BMC; wait for it to end, or cancel it (slipway job cancel %s)", live.ID, live.ID)).With(live.ID)
	} else if err != nil && !errors.Is(err, db.ErrNotFound) {
		return "", err
	}
	return given.ID, nil
}
