package bmc

import (
	"context"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
)

// trust settles the certificate before any password leaves. Of a BMC that has
// no approved pin the first one is approved, where the site says so, or kept
// for an operator.
func (a *Activities) trust(ctx context.Context, opener providers.BMCOpener, e entry, rec db.BMC) (providers.BMCTarget, error) {
	target := providers.BMCTarget{
		Address: rec.Address, SystemID: rec.SystemID, PinSHA256: rec.PinSHA256, CAPEM: e.caPEM, CipherSuite: rec.IPMICipherSuite,
	}
	if rec.PinSHA256 != "" || e.caPEM != "" {
		return target, nil
	}
	seen, err := a.seenPin(ctx, opener, target)
	if err != nil {
		return target, fault.BMC(ctx, err)
	}
	if seen == "" {
		return target, nil // no certificate: plain HTTP, said so by the address, or IPMI
	}
	if !e.trustFirstPin {
		if err := a.Store.SetBMCPinPending(ctx, rec.ID, seen); err != nil {
			return target, fault.Internal(ctx, err)
		}
		return target, fault.New(lifecycle.FailBMCPinMismatch,
			"BMC %s shows certificate pin %s, which nobody has approved; approve it, then retry the stage", rec.Address, seen)
	}
	target.PinSHA256 = seen
	return target, fault.Internal(ctx, a.Store.SetBMCPin(ctx, rec.ID, seen))
}

// seenPin is the pin that the BMC shows to anyone; "" without a certificate.
func (a *Activities) seenPin(ctx context.Context, opener providers.BMCOpener, target providers.BMCTarget) (string, error) {
	b, err := opener.OpenBMC(target)
	if err != nil {
		return "", err
	}
	defer a.close(ctx, b)
	id, err := b.Probe(ctx)
	return id.PinSHA256, err
}

// keepSeenPin keeps the pin of a BMC whose certificate is no longer the approved
// one, so that an operator can compare and approve it. Nothing is approved by
// itself, and the approved pin stays until then. The job parks in any case.
func (a *Activities) keepSeenPin(ctx context.Context, v *visit) {
	id, err := v.bmc.Probe(ctx)
	if err != nil || id.PinSHA256 == "" || samePin(id.PinSHA256, v.rec.PinSHA256) {
		return
	}
	a.note(ctx, func(ctx context.Context) error { return a.Store.SetBMCPinPending(ctx, v.rec.ID, id.PinSHA256) })
}
