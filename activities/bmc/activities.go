// Package bmc holds the activities that talk to a BMC. A rejected login sets a
// stored flag that stops every further login to that BMC until an operator
// clears it; nothing here retries a login.
package bmc

import (
	"context"
	"time"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/workflows/contract"
)

// Activities is what these activities need.
type Activities struct {
	Store   *db.Store
	Secrets providers.Secrets
	Opener  providers.BMCOpener
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

const closeTimeout = 10 * time.Second

// ResolvePowerCredentials resolves the BMC's login, checks its certificate
// against the approved pin, logs in once and reads the system's identity. It
// changes nothing on the BMC. Repeating it is one more login.
func (a *Activities) ResolvePowerCredentials(ctx context.Context, in ResolveIn) (contract.BMCFacts, error) {
	rec, err := a.Store.BMC(ctx, in.BMCID)
	if err != nil {
		return contract.BMCFacts{}, fault.Internal(ctx, err)
	}
	if rec.AuthBlockedAt != nil {
		return contract.BMCFacts{}, fault.New(lifecycle.FailBMCAuthRejected,
			"logins to BMC %s are stopped since %s: %s", rec.Address, rec.AuthBlockedAt.Format(time.RFC3339), rec.AuthBlockedReason)
	}
	login, err := providers.ResolveLogin(ctx, a.Secrets, providers.SecretRef(rec.CredentialRef))
	if err != nil {
		return contract.BMCFacts{}, fault.Secret(ctx, err)
	}
	target := providers.BMCTarget{
		Address: rec.Address, User: login.Username, Password: login.Password,
		SystemID: rec.SystemID, PinSHA256: rec.PinSHA256, CAPEM: in.CAPEM,
	}
	if target, err = a.trust(ctx, in, rec, target); err != nil {
		return contract.BMCFacts{}, err
	}
	return a.identify(ctx, in, rec, target)
}

// trust settles the certificate before any credential leaves.
func (a *Activities) trust(ctx context.Context, in ResolveIn, rec db.BMC, target providers.BMCTarget) (providers.BMCTarget, error) {
	if rec.PinSHA256 != "" || in.CAPEM != "" {
		return target, nil
	}
	b, err := a.Opener.OpenBMC(target)
	if err != nil {
		return target, fault.BMC(ctx, err)
	}
	defer a.close(ctx, b)
	id, err := b.Probe(ctx)
	if err != nil {
		return target, fault.BMC(ctx, err)
	}
	if id.PinSHA256 == "" {
		return target, nil // plain HTTP, said so by the address
	}
	if !in.TrustFirstPin {
		if err := a.Store.SetBMCPinPending(ctx, rec.ID, id.PinSHA256); err != nil {
			return target, fault.Internal(ctx, err)
		}
		return target, fault.New(lifecycle.FailBMCPinMismatch,
			"BMC %s shows certificate pin %s, which nobody has approved; approve it, then retry the stage", rec.Address, id.PinSHA256)
	}
	target.PinSHA256 = id.PinSHA256
	return target, fault.Internal(ctx, a.Store.SetBMCPin(ctx, rec.ID, id.PinSHA256))
}

func (a *Activities) identify(ctx context.Context, in ResolveIn, rec db.BMC, target providers.BMCTarget) (contract.BMCFacts, error) {
	b, err := a.Opener.OpenBMC(target)
	if err != nil {
		return contract.BMCFacts{}, fault.BMC(ctx, err)
	}
	defer a.close(ctx, b)
	sys, err := b.Identify(ctx)
	if err != nil {
		a.blockOnRejection(ctx, rec.ID, err)
		return contract.BMCFacts{}, fault.BMC(ctx, err)
	}
	return contract.BMCFacts{
		BMCID: rec.ID, Address: rec.Address, Vendor: sys.Manufacturer, Model: sys.Model, Serial: sys.Serial,
		UUID: sys.UUID, MACs: sys.MACs, Power: string(sys.Power), RedfishSysID: sys.ID,
	}, nil
}

// blockOnRejection keeps a wrong password from being tried again: a few more
// tries would lock the account.
func (a *Activities) blockOnRejection(ctx context.Context, bmcID string, err error) {
	switch providers.KindOf(err) {
	case providers.KindUnauthorized, providers.KindForbidden, providers.KindLocked, providers.KindPasswordChangeRequired:
		if berr := a.Store.BlockBMCLogin(ctx, bmcID, err.Error()); berr != nil {
			_ = fault.Internal(ctx, berr) // logs it; the caller returns the rejection
		}
	default:
	}
}

func (a *Activities) close(ctx context.Context, b providers.BMC) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	_ = b.Close(ctx)
}
