package bmc

import (
	"context"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
)

// trust checks the certificate before any password is sent. When no pin is approved it approves the
// first one, if the site allows that, or stores it for an operator.
func (a *Activities) trust(ctx context.Context, opener providers.BMCOpener, r loginRequest, rec db.BMC, rule spec.AddressRule) (providers.BMCTarget, error) {
	target := providers.BMCTarget{
		Address: rec.Address, SystemID: rec.SystemID, PinSHA256: rec.PinSHA256, CAPEM: r.caPEM, CipherSuite: rec.IPMICipherSuite, Rule: rule,
	}
	if rec.PinSHA256 != "" || r.caPEM != "" {
		return target, nil
	}
	seen, err := a.seenPin(ctx, opener, target)
	if err != nil {
		return target, fault.BMC(ctx, err)
	}
	if seen == "" {
		return target, nil // no certificate: plain HTTP, said so by the address, or IPMI
	}
	if !r.trustFirstPin {
		if err := a.Store.SetBMCPinPending(ctx, rec.ID, seen); err != nil {
			return target, fault.Internal(ctx, err)
		}
		return target, fault.New(lifecycle.FailBMCPinMismatch,
			"BMC %s shows certificate pin %s, which nobody has approved; approve it, then retry the stage", rec.Address, seen)
	}
	target.PinSHA256 = seen
	return target, fault.Internal(ctx, a.Store.SetBMCPin(ctx, rec.ID, seen))
}

// seenPin returns the pin of the certificate that the BMC presents, "" without a certificate.
func (a *Activities) seenPin(ctx context.Context, opener providers.BMCOpener, target providers.BMCTarget) (string, error) {
	b, err := opener.OpenBMC(target)
	if err != nil {
		return "", err
	}
	defer a.close(ctx, b)
	id, err := b.Probe(ctx)
	return id.PinSHA256, err
}

// keepSeenPin stores the pin of a BMC whose certificate is not the approved one any more, so that
// an operator can compare and approve it. The approved pin stays until then. The job parks in any
// case.
func (a *Activities) keepSeenPin(ctx context.Context, s *loginSession) {
	id, err := s.bmc.Probe(ctx)
	if err != nil || id.PinSHA256 == "" || samePin(id.PinSHA256, s.rec.PinSHA256) {
		return
	}
	a.note(ctx, func(ctx context.Context) error { return a.Store.SetBMCPinPending(ctx, s.rec.ID, id.PinSHA256) })
}
