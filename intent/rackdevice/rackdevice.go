// Package rackdevice accepts switch trays and power shelves of a rack: records of a BMC with health
// and firmware. They are no nodes, so that nothing can claim them.
package rackdevice

import (
	"context"
	"fmt"
	"strings"

	"github.com/slipway-cloud/slipway/db"
	hardwaredb "github.com/slipway-cloud/slipway/db/hardware"
	"github.com/slipway-cloud/slipway/intent"
)

// Request is a rack device with its BMC. PinSHA256 is the pin of its certificate that an operator
// has compared; "" approves none.
type Request struct {
	SiteID, Kind, Name, Rack string
	BMC                      intent.BMC
	PinSHA256                string
}

// Check names everything that is wrong with a request.
func Check(ctx context.Context, store *db.Store, r Request) error {
	site, err := store.Site(ctx, r.SiteID)
	if err != nil {
		return err
	}
	r.BMC.Site = &site
	bad, err := intent.CheckBMC(ctx, store, r.BMC)
	if err != nil {
		return err
	}
	if r.PinSHA256 != "" && r.BMC.Protocol == intent.ProtocolIPMI {
		bad = append(bad, intent.Field{Name: "pin_sha256", Message: "is for redfish only; IPMI shows no certificate"})
	}
	if strings.TrimSpace(r.Name) == "" {
		bad = append(bad, intent.Field{Name: "name", Message: "is empty"})
	}
	return intent.InvalidIf(bad)
}

// Create adds a rack device and the record of its BMC. A BMC that has a record is refused: one
// login is stopped for all records of a BMC, and a machine's BMC is no rack device's.
func Create(ctx context.Context, tx *db.Tx, r Request) (hardwaredb.RackDevice, error) {
	if err := tx.LockBMCAddress(ctx, r.BMC.Address); err != nil {
		return hardwaredb.RackDevice{}, err
	}
	at, err := tx.BMCsAt(ctx, r.BMC.Address)
	if err != nil {
		return hardwaredb.RackDevice{}, err
	}
	if len(at) > 0 {
		return hardwaredb.RackDevice{}, &intent.Refusal{Kind: intent.Conflict, Existing: at[0].ID, Detail: fmt.Sprintf("BMC %s is recorded at this address already", at[0].ID)}
	}
	rec, err := tx.CreateBMC(ctx, db.NewBMC{
		Address: r.BMC.Address, Protocol: r.BMC.Protocol, CredentialRef: r.BMC.CredentialRef, SystemID: r.BMC.SystemID, CipherSuite: r.BMC.CipherSuite, PinSHA256: r.PinSHA256,
	})
	if err != nil {
		return hardwaredb.RackDevice{}, err
	}
	return hardwaredb.CreateRackDevice(ctx, tx, hardwaredb.NewRackDevice{SiteID: r.SiteID, Kind: r.Kind, Name: strings.TrimSpace(r.Name), Rack: strings.TrimSpace(r.Rack), BMCID: rec.ID})
}
