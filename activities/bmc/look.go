package bmc

import (
	"context"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/providers"
)

// LookIn names the BMC of a look. CAPEM is the site's bundle for BMCs.
type LookIn struct {
	BMCID string `json:"bmc_id"`
	CAPEM string `json:"ca_pem,omitempty"`
}

// LookOut is what a look saw.
type LookOut struct {
	Power providers.PowerState `json:"power"`
}

// LookAtPower logs in once, through the gate like everybody, and reads the
// machine's power; it changes nothing on the BMC and approves no certificate. A
// rejected login stops further ones as in a job. Repeating it is one more login.
func (a *Activities) LookAtPower(ctx context.Context, in LookIn) (LookOut, error) {
	v, err := a.enter(ctx, entry{bmcID: in.BMCID, caPEM: in.CAPEM})
	if err != nil {
		return LookOut{}, err
	}
	defer v.leave()
	state, err := v.bmc.Power(ctx)
	if err != nil {
		a.blockOnRejection(ctx, v.rec.ID, err)
		return LookOut{}, fault.BMC(ctx, err)
	}
	return LookOut{Power: state}, nil
}
