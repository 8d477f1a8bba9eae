package bmc

import (
	"context"
	"errors"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/workflows/contract"
)

// PowerOffPlanIn asks whether a BMC could be asked to switch its machine off.
type PowerOffPlanIn struct {
	BMCID string `json:"bmc_id"`
}

// PowerOffPlan is the answer, as far as it can be known without a login.
type PowerOffPlan struct {
	Address string            `json:"address,omitempty"`
	Failure *contract.Failure `json:"failure,omitempty"`
}

// PlanPowerOffByBMC is whether Slipway may log in to a BMC: logins are not
// stopped, the login is stored and the certificate approved. Nothing is sent.
func (a *Activities) PlanPowerOffByBMC(ctx context.Context, l PowerOffPlanIn) (PowerOffPlan, error) {
	rec, err := a.Store.BMC(ctx, l.BMCID)
	if errors.Is(err, db.ErrNotFound) {
		return PowerOffPlan{}, nil
	}
	if err != nil {
		return PowerOffPlan{}, fault.Internal(ctx, err)
	}
	out := PowerOffPlan{Address: rec.Address}
	err = a.stopped(ctx, rec)
	if err == nil {
		err = a.stored(ctx, rec)
	}
	if err == nil {
		return out, nil
	}
	f, ok := fault.Failure(err)
	if !ok {
		return out, err
	}
	out.Failure = &f
	return out, nil
}

func (a *Activities) stored(ctx context.Context, rec db.BMC) error {
	ref, err := slotRef(rec, "")
	if err != nil {
		return err
	}
	if _, err := providers.ResolveLogin(ctx, a.Secrets, providers.SecretRef(ref)); err != nil {
		return fault.Secret(ctx, err)
	}
	if rec.PinPending != "" && rec.PinPending != rec.PinSHA256 {
		return fault.New(lifecycle.FailBMCPinMismatch, "BMC %s shows certificate pin %s, which nobody has approved", rec.Address, rec.PinPending)
	}
	return nil
}
