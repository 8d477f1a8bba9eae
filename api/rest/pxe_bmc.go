package rest

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/intent/pxejob"
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
	bmc := pxejob.NodeBMC{BMC: in.Body.bmc(intent.ProtocolRedfish), PinSHA256: in.Body.PinSHA256} // no profile names the protocol of a PXE node
	bmc.NodeID = in.ID
	if err := pxejob.CheckNodeBMC(ctx, s.store, bmc); err != nil {
		return nil, err
	}
	var row db.BMC
	err := s.store.Tx(ctx, func(tx *db.Tx) (err error) {
		row, err = pxejob.PutNodeBMC(ctx, tx, bmc, op.Actor(ctx))
		return err
	})
	if err != nil {
		return nil, err
	}
	return op.WithVersion(row.Version, bmcView(row)), nil
}
