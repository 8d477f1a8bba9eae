// Package bmc holds the activities that talk to a BMC. All logins go through one guard
// (loginguard.go): one at a time for each BMC, counted before they are made. A rejected login sets
// a stored flag that stops every further login to that BMC until an operator clears it. Nothing
// here retries a login.
package bmc

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
)

// Activities is what these activities need.
type Activities struct {
	Store   *db.Store
	Secrets providers.Secrets
	// Opener speaks Redfish; Openers has one for each protocol of a BMC record,
	// and comes first.
	Opener  providers.BMCOpener
	Openers map[string]providers.BMCOpener
	// Copies keeps rotated logins outside of the database, and Held reads those that MAAS holds:
	// after a restore the database may lack them. Either may be nil.
	Copies Copies
	Held   HeldLogin
	// Settle is how long a BMC may take until a changed password is in force;
	// 0 is two seconds.
	Settle time.Duration
	// NoteFor is how long it is tried to write down what became of a login while
	// the database is away; 0 is ten seconds.
	NoteFor time.Duration
	// Now is the clock of the lockout windows; nil is the wall's.
	Now func() time.Time
}

// ResolveIn is the input of ResolvePowerCredentials.
type ResolveIn struct {
	contract.JobRef
	BMCID string `json:"bmc_id"`
	CAPEM string `json:"ca_pem,omitempty"`
	// TrustFirstPin approves the certificate seen first, for a BMC that has
	// no approved pin yet; the site decides.
	TrustFirstPin bool `json:"trust_first_pin,omitempty"`
}

const (
	closeTimeout = 10 * time.Second
	maxVendor    = 200 // characters
)

// ResolvePowerCredentials resolves the BMC's login, checks its certificate
// against the approved pin, logs in once and reads the system's identity and the
// health of every part. It fails with node_unhealthy where a part is critical.
// It changes nothing on the BMC. Repeating it is one more login.
func (a *Activities) ResolvePowerCredentials(ctx context.Context, in ResolveIn) (contract.BMCFacts, error) {
	v, err := a.enter(ctx, loginRequest{job: in.JobRef, bmcID: in.BMCID, caPEM: in.CAPEM, trustFirstPin: in.TrustFirstPin})
	if err != nil {
		return contract.BMCFacts{}, err
	}
	defer v.leave()
	sys, err := v.bmc.Identify(ctx)
	if err != nil {
		a.blockOnRejection(ctx, v.rec.ID, err)
		return contract.BMCFacts{}, fault.BMC(ctx, err)
	}
	health, err := readHealth(ctx, v.bmc, healthLimit)
	if err != nil {
		a.blockOnRejection(ctx, v.rec.ID, err)
		return contract.BMCFacts{}, fault.BMC(ctx, err)
	}
	// The vendor is shown to operators; a known one stays where the BMC names none. The system id
	// is kept as it was stated: it selects the system.
	vendor := cmp.Or(strings.TrimSpace(sys.Manufacturer), v.rec.Vendor)
	if err := a.Store.SetBMCFacts(ctx, v.rec.ID, db.ClipText(vendor, maxVendor), v.rec.SystemID); err != nil {
		return contract.BMCFacts{}, fault.Internal(ctx, err)
	}
	if err := refuseCritical(health); err != nil {
		return contract.BMCFacts{}, err
	}
	keys := spec.MachineKeys{Serial: sys.Serial, UUID: sys.UUID}.Normal()
	return contract.BMCFacts{
		BMCID: v.rec.ID, Address: v.rec.Address, Vendor: sys.Manufacturer, Model: sys.Model, Serial: keys.Serial, SerialSource: sys.SerialSource,
		Health: health.Overall, HealthProblems: health.Problems,
		UUID: keys.UUID, MACs: sys.MACs, Power: string(sys.Power), Protocol: v.rec.Protocol, RedfishSysID: sys.ID,
	}, nil
}

func (a *Activities) close(ctx context.Context, b providers.BMC) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	_ = b.Close(ctx)
}
