package bmc

import (
	"context"
	"errors"
	"strings"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/workflows/contract"
)

// PowerIn is the input of what reads and sets a machine's power at its BMC.
type PowerIn struct {
	contract.JobRef
	BMCID string `json:"bmc_id"`
	CAPEM string `json:"ca_pem,omitempty"`
	// NotBootID, for PowerCycleByBMC: once the agent has reported another boot
	// than this, the machine has been cycled and is left alone.
	NotBootID string `json:"not_boot_id,omitempty"`
}

// PowerOffByBMC switches the machine off and reads it off. With ObserveOnly it
// only reads. Repeatable; each time is one login.
func (a *Activities) PowerOffByBMC(ctx context.Context, in PowerIn) (contract.PowerFacts, error) {
	if in.ObserveOnly {
		return a.inBMC(ctx, in, "")
	}
	return a.inBMC(ctx, in, providers.IntentForceOff)
}

// PowerCycleByBMC switches the machine off and on again, each confirmed. A
// repetition begins anew unless the agent has reported the new boot.
func (a *Activities) PowerCycleByBMC(ctx context.Context, in PowerIn) (contract.PowerFacts, error) {
	if in.NotBootID != "" {
		beat, err := a.Store.LatestHeartbeat(ctx, in.NodeID)
		switch {
		case err == nil && beat.BootID != in.NotBootID:
			return contract.PowerFacts{State: "on", By: "the agent", Done: true, Note: "booted anew already: " + beat.BootID}, nil
		case err != nil && !errors.Is(err, db.ErrNotFound):
			return contract.PowerFacts{}, fault.Internal(ctx, err)
		}
	}
	return a.inBMC(ctx, in, providers.IntentForceOff, providers.IntentOn)
}

// inBMC is one visit: each intent is asked for and confirmed in turn; "" only
// reads.
func (a *Activities) inBMC(ctx context.Context, in PowerIn, intents ...providers.PowerIntent) (contract.PowerFacts, error) {
	out := contract.PowerFacts{By: "BMC", State: "unknown"}
	v, err := a.enter(ctx, entry{job: in.JobRef, bmcID: in.BMCID, caPEM: in.CAPEM})
	if err != nil {
		return out, err
	}
	defer v.leave()
	for _, intent := range intents {
		var state providers.PowerState
		if intent == "" {
			state, err = v.bmc.Power(ctx)
		} else {
			state, err = v.bmc.SetPower(ctx, intent)
		}
		if err != nil {
			a.blockOnRejection(ctx, v.rec.ID, err)
			return out, fault.BMC(ctx, err)
		}
		out.State = strings.ToLower(string(state))
		want := providers.PowerOff
		if intent == providers.IntentOn {
			want = providers.PowerOn
		}
		if out.Done = state == want; !out.Done && intent != "" {
			return out, fault.New(lifecycle.FailPowerNotConfirmed, "BMC %s was asked for %s and reads %s", v.rec.Address, intent, state)
		}
	}
	return out, nil
}
