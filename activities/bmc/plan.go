package bmc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/workflows/contract"
)

// PlanIn is the input of PlanPower. The stage's input is a field and not
// embedded: a look is no entry on the node's timeline.
type PlanIn struct {
	In ResolveIn `json:"in"`
	// Asked is the record that a dry run's request would leave (a db.BMC, its id
	// empty where there is none yet); without it the record of In is read.
	Asked json.RawMessage `json:"asked,omitempty"`
	// Login allows one login. Without it only the service root is read, which a
	// BMC shows to everybody.
	Login bool `json:"login,omitempty"`
}

// PowerPlan is what resolve_power_credentials would find. Facts beyond the
// vendor need a login.
type PowerPlan struct {
	Facts contract.BMCFacts `json:"facts"`
	Steps []string          `json:"steps,omitempty"`
	Seen  string            `json:"seen,omitempty"`
	// LoggedIn is set when the facts come from a login.
	LoggedIn bool              `json:"logged_in,omitempty"`
	Failure  *contract.Failure `json:"failure,omitempty"`
}

// PlanPower is what resolve_power_credentials would do: the same gate (stored
// login block, certificate, login), in the same order, without storing a pin.
// It logs in only when it is asked to; a rejection then sets the stored flag as
// in a run, where the BMC has a record. Otherwise read-only.
func (a *Activities) PlanPower(ctx context.Context, in PlanIn) (PowerPlan, error) {
	rec, err := a.planned(ctx, in)
	if err != nil {
		return PowerPlan{}, err
	}
	out := PowerPlan{Facts: contract.BMCFacts{BMCID: rec.ID, Address: rec.Address}}
	tctx, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	err = a.look(tctx, in, rec, &out)
	if err == nil {
		return out, nil
	}
	failure, ok := fault.Failure(err)
	switch {
	case ok:
	case errors.Is(tctx.Err(), context.DeadlineExceeded):
		failure = contract.Failure{Class: lifecycle.FailBMCUnreachable, Message: fmt.Sprintf("the BMC did not answer within %s", lookLimit)}
	default:
		return out, err
	}
	out.Failure = &failure
	return out, nil
}

// lookLimit bounds one look, so that a BMC that hangs does not take the whole
// plan with it.
const lookLimit = 6 * time.Second

// planned is the record, or what the record of a dry run would be.
func (a *Activities) planned(ctx context.Context, in PlanIn) (db.BMC, error) {
	if len(in.Asked) == 0 {
		rec, err := a.Store.BMC(ctx, in.In.BMCID)
		return rec, fault.Internal(ctx, err)
	}
	var rec db.BMC
	err := json.Unmarshal(in.Asked, &rec)
	return rec, fault.Internal(ctx, err)
}

func (a *Activities) look(ctx context.Context, in PlanIn, rec db.BMC, out *PowerPlan) error {
	if rec.AuthBlockedAt != nil {
		return fault.New(lifecycle.FailBMCAuthRejected, "logins to BMC %s are stopped: %s", rec.Address, rec.AuthBlockedReason)
	}
	login, err := providers.ResolveLogin(ctx, a.Secrets, providers.SecretRef(rec.CredentialRef))
	if err != nil {
		return fault.Secret(ctx, err)
	}
	target := providers.BMCTarget{Address: rec.Address, SystemID: rec.SystemID, PinSHA256: rec.PinSHA256, CAPEM: in.In.CAPEM}
	id, err := a.root(ctx, target)
	if err != nil {
		return err
	}
	out.Facts.Vendor = id.Vendor // its UUID is the BMC's, not the system's
	out.Seen = "BMC answers: " + strings.TrimSpace(id.Vendor+" "+id.Product)
	switch {
	case id.PinSHA256 == "" || rec.PinSHA256 == "" && in.In.CAPEM != "":
	case rec.PinSHA256 == "" && in.In.TrustFirstPin:
		out.Steps = append(out.Steps, "approve the certificate pin "+id.PinSHA256+", the first that is seen")
		target.PinSHA256 = id.PinSHA256
	case rec.PinSHA256 == "":
		return fault.New(lifecycle.FailBMCPinMismatch, "BMC %s shows certificate pin %s, which nobody has approved", rec.Address, id.PinSHA256)
	case !samePin(rec.PinSHA256, id.PinSHA256):
		return fault.New(lifecycle.FailBMCPinMismatch,
			"BMC %s shows certificate pin %s, which differs from the approved one", rec.Address, id.PinSHA256)
	}
	out.Steps = append(out.Steps, fmt.Sprintf("log in to the BMC at %s with %s and read the system's identity", rec.Address, rec.CredentialRef))
	if !in.Login {
		return nil
	}
	target.User, target.Password = login.Username, login.Password
	return a.identity(ctx, rec, target, out)
}

// samePin compares pins as an operator may have written them.
func samePin(a, b string) bool {
	plain := func(s string) string { return strings.ToLower(strings.ReplaceAll(strings.TrimSpace(s), ":", "")) }
	return plain(a) == plain(b)
}

// root reads what a BMC shows to everybody.
func (a *Activities) root(ctx context.Context, target providers.BMCTarget) (providers.BMCIdent, error) {
	b, err := a.Opener.OpenBMC(target)
	if err != nil {
		return providers.BMCIdent{}, fault.BMC(ctx, err)
	}
	defer a.close(ctx, b)
	id, err := b.Probe(ctx)
	return id, fault.BMC(ctx, err)
}

// identity logs in once.
func (a *Activities) identity(ctx context.Context, rec db.BMC, target providers.BMCTarget, out *PowerPlan) error {
	b, err := a.Opener.OpenBMC(target)
	if err != nil {
		return fault.BMC(ctx, err)
	}
	defer a.close(ctx, b)
	sys, err := b.Identify(ctx)
	if err != nil && rec.ID == "" {
		failed, _ := fault.Failure(fault.BMC(ctx, err))
		if lifecycle.Failure(failed.Class).AutoAttempts == 1 {
			return fault.New(failed.Class, "%s; there is no record yet that would stop a second try: correct the credential first, for BMCs lock accounts", failed.Message)
		}
		return fault.BMC(ctx, err)
	}
	if err != nil {
		a.blockOnRejection(ctx, rec.ID, err)
		return fault.BMC(ctx, err)
	}
	out.LoggedIn = true
	out.Facts.Vendor, out.Facts.Model, out.Facts.Serial = sys.Manufacturer, sys.Model, sys.Serial
	out.Facts.UUID, out.Facts.MACs, out.Facts.Power, out.Facts.RedfishSysID = sys.UUID, sys.MACs, string(sys.Power), sys.ID
	out.Seen = fmt.Sprintf("%s %s, serial %s, power %s", sys.Manufacturer, sys.Model, sys.Serial, sys.Power)
	return nil
}
