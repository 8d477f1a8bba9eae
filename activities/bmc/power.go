package bmc

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
)

// PowerIn is the input of PowerOffByBMC, PowerOnByBMC and PowerCycleByBMC.
type PowerIn struct {
	contract.JobRef
	BMCID string `json:"bmc_id"`
	CAPEM string `json:"ca_pem,omitempty"`
	// NotBootID is for PowerCycleByBMC, which does nothing when the agent has reported another
	// boot: the machine has been cycled then.
	NotBootID string `json:"not_boot_id,omitempty"`
}

// PowerOffByBMC switches the machine off and reads it off. With ObserveOnly it
// only reads. Repeatable; each time is one login.
func (a *Activities) PowerOffByBMC(ctx context.Context, in PowerIn) (contract.PowerFacts, error) {
	if in.ObserveOnly {
		return a.setPower(ctx, in, "")
	}
	return a.setPower(ctx, in, providers.IntentForceOff)
}

// PowerCycleByBMC switches the machine off and on again, each confirmed. A repetition starts again
// unless the agent has reported the new boot.
func (a *Activities) PowerCycleByBMC(ctx context.Context, in PowerIn) (contract.PowerFacts, error) {
	if in.NotBootID != "" {
		heartbeat, err := a.Store.LatestHeartbeat(ctx, in.NodeID)
		switch {
		case err == nil && heartbeat.BootID != in.NotBootID:
			return contract.PowerFacts{State: "on", ReportedBy: "the agent", Done: true, Note: "restarted already: " + heartbeat.BootID}, nil
		case err != nil && !errors.Is(err, db.ErrNotFound):
			return contract.PowerFacts{}, fault.Internal(ctx, err)
		}
	}
	until, limited := ctx.Deadline()
	if !limited {
		until = time.Now().Add(cycleLimit)
	}
	// A cancel in the middle would leave the machine off.
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), until)
	defer cancel()
	return a.setPower(ctx, in, providers.IntentForceOff, providers.IntentOn)
}

// cycleLimit bounds a power cycle of a caller without a deadline.
const cycleLimit = 2 * time.Minute

// PowerOnByBMC switches the machine on and reads it on. A machine that is on stays as it is.
// Repeatable; each time is one login.
func (a *Activities) PowerOnByBMC(ctx context.Context, in PowerIn) (contract.PowerFacts, error) {
	return a.setPower(ctx, in, providers.IntentOn)
}

// setPower requests and confirms each intent in turn, in one session. The intent "" only reads.
func (a *Activities) setPower(ctx context.Context, in PowerIn, intents ...providers.PowerIntent) (contract.PowerFacts, error) {
	out := contract.PowerFacts{ReportedBy: "BMC", State: "unknown"}
	v, err := a.enter(ctx, loginRequest{job: in.JobRef, bmcID: in.BMCID, caPEM: in.CAPEM})
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

// LookIn is the input of LookAtPower and LookAtParts. CAPEM is the site's bundle for BMCs. Device
// says that the BMC is a switch tray's or a power shelf's, which has no host.
type LookIn struct {
	BMCID  string `json:"bmc_id"`
	CAPEM  string `json:"ca_pem,omitempty"`
	Device bool   `json:"device,omitempty"`
}

// LookOut is the result of LookAtPower.
type LookOut struct {
	Power providers.PowerState `json:"power"`
}

// LookAtPower logs in once and reads the machine's power. It changes nothing on the BMC and
// approves no certificate. A rejected login stops further ones. A repetition is one more login.
func (a *Activities) LookAtPower(ctx context.Context, in LookIn) (LookOut, error) {
	v, err := a.enter(ctx, loginRequest{bmcID: in.BMCID, caPEM: in.CAPEM, actor: db.Actor{Owner: lifecycle.OwnerReconciler, ID: "reconciler"}})
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

// PowerOffPlanIn is the input of PlanPowerOffByBMC.
type PowerOffPlanIn struct {
	BMCID string `json:"bmc_id"`
}

// PowerOffPlan is what is known without a login.
type PowerOffPlan struct {
	Address string            `json:"address,omitempty"`
	Failure *contract.Failure `json:"failure,omitempty"`
}

// PlanPowerOffByBMC reports whether Slipway may log in to a BMC: logins are not stopped, the login
// is stored and the certificate approved. It sends nothing.
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
		err = a.checkLoginStored(ctx, rec)
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

func (a *Activities) checkLoginStored(ctx context.Context, rec db.BMC) error {
	ref, err := slotRef(rec, "")
	if err != nil {
		return err
	}
	use, err := a.loginUse(ctx, rec, contract.JobRef{})
	if err != nil {
		return err
	}
	if _, err := a.resolve(ctx, ref, use); err != nil {
		return err
	}
	if rec.PinPending != "" && rec.PinPending != rec.PinSHA256 {
		return fault.New(lifecycle.FailBMCPinMismatch, "BMC %s shows certificate pin %s, which nobody has approved", rec.Address, rec.PinPending)
	}
	return nil
}
