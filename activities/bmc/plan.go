package bmc

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/activities/login"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
)

// PlanIn is the input of PlanPower. The stage's input is a field and not
// embedded: a look is no entry on the node's timeline.
type PlanIn struct {
	In ResolveIn `json:"in"`
	// BMCRecord is the record that a dry run's request would leave (a db.BMC, its id
	// empty where there is none yet); without it the record of In is read.
	BMCRecord json.RawMessage `json:"bmc_record,omitempty"`
	// Login allows one login. Without it only the service root is read, which a
	// BMC shows to everybody.
	Login bool `json:"login,omitempty"`
	// Actor is who is said to ask for the plan, for the audit log. Nothing proves it.
	Actor string `json:"actor,omitempty"`
}

// PowerPlan is what resolve_power_credentials would find. Facts beyond the
// vendor need a login.
type PowerPlan struct {
	Facts    contract.BMCFacts `json:"facts"`
	Steps    []string          `json:"steps,omitempty"`
	Observed string            `json:"observed,omitempty"`
	// LoggedIn is set when the facts come from a login.
	LoggedIn bool              `json:"logged_in,omitempty"`
	Failure  *contract.Failure `json:"failure,omitempty"`
}

// PlanPower is what resolve_power_credentials would do: it asks in the order of
// the login guard (stored login block, slot, certificate) and stores no pin. It logs in
// only when it is asked to, through the login guard where the BMC has a record: a
// rejection then stops further logins as in a run. Otherwise read-only.
func (a *Activities) PlanPower(ctx context.Context, in PlanIn) (PowerPlan, error) {
	rec, err := a.planned(ctx, in)
	if err != nil {
		return PowerPlan{}, err
	}
	out := PowerPlan{Facts: contract.BMCFacts{BMCID: rec.ID, Address: rec.Address, Protocol: rec.Protocol}}
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
	if len(in.BMCRecord) == 0 {
		rec, err := a.Store.BMC(ctx, in.In.BMCID)
		return rec, fault.Internal(ctx, err)
	}
	var rec db.BMC
	err := json.Unmarshal(in.BMCRecord, &rec)
	return rec, fault.Internal(ctx, err)
}

func (a *Activities) look(ctx context.Context, in PlanIn, rec db.BMC, out *PowerPlan) error {
	if err := a.stopped(ctx, rec); err != nil {
		return err
	}
	ref, err := slotRef(rec, "")
	if err != nil {
		return err
	}
	opener, err := a.opener(rec.Protocol)
	if err != nil {
		return err
	}
	use, err := a.loginUse(ctx, rec, in.In.JobRef)
	if err != nil {
		return err
	}
	rule, err := a.Secrets.AddressRule(ctx, providers.SecretRef(ref), use)
	var login providers.Login
	if err == nil {
		login, err = providers.ResolveLogin(ctx, a.Secrets, providers.SecretRef(ref), use)
	}
	if err != nil && in.Login {
		return a.refusedLogin(ctx, planLogin(ctx, in), rec, ref, err)
	}
	if err != nil {
		return fault.Login(ctx, err, fault.BMC)
	}
	target := providers.BMCTarget{
		Address: rec.Address, SystemID: rec.SystemID, PinSHA256: rec.PinSHA256, CAPEM: in.In.CAPEM, CipherSuite: rec.IPMICipherSuite,
		Rule: rule,
	}
	id, err := root(ctx, a, opener, target)
	if err != nil {
		return err
	}
	out.Facts.Vendor = id.Vendor // its UUID is the BMC's, not the system's
	out.Observed = "BMC answers: " + strings.TrimSpace(id.Vendor+" "+id.Product)
	settled := id.PinSHA256 == "" || rec.PinSHA256 != "" || in.In.CAPEM != ""
	switch {
	case !settled && !in.In.TrustFirstPin:
		return fault.New(lifecycle.FailBMCPinMismatch, "BMC %s shows certificate pin %s, which nobody has approved", rec.Address, id.PinSHA256)
	case !settled:
		out.Steps = append(out.Steps, "approve the certificate pin "+id.PinSHA256+", the first that is seen")
		target.PinSHA256 = id.PinSHA256
	case rec.PinSHA256 != "" && id.PinSHA256 != "" && !samePin(rec.PinSHA256, id.PinSHA256):
		return fault.New(lifecycle.FailBMCPinMismatch,
			"BMC %s shows certificate pin %s, which differs from the approved one", rec.Address, id.PinSHA256)
	}
	out.Steps = append(out.Steps, fmt.Sprintf("log in to the BMC at %s with %s and read the system's identity", rec.Address, ref))
	if !in.Login {
		return nil
	}
	target.User, target.Password = login.Username, login.Password
	return a.tryLogin(ctx, in, rec, opener, target, settled, out)
}

// tryLogin makes the one login: through the login guard where the BMC has a record, by itself where
// there is none. A login that requires something to be stored first is not tried.
func (a *Activities) tryLogin(ctx context.Context, in PlanIn, rec db.BMC, opener providers.BMCOpener, target providers.BMCTarget, settled bool, out *PowerPlan) error {
	stored, there, err := a.recordOf(ctx, rec)
	switch {
	case err != nil:
		return err
	case !there:
		return a.loginUnkept(ctx, planLogin(ctx, in), rec, opener, target, out)
	case !settled:
		out.Observed += "; no login was tried: the run approves the certificate first"
		return nil
	case stored.CredentialRef != rec.CredentialRef || stored.Protocol != rec.Protocol || stored.SystemID != rec.SystemID || stored.PinSHA256 != rec.PinSHA256:
		out.Observed += "; no login was tried: the BMC is stored with another login, protocol, system or certificate, which the run replaces first"
		return nil
	}
	r := planLogin(ctx, in)
	r.bmcID = stored.ID
	v, err := a.enter(ctx, r)
	if err != nil {
		return err
	}
	defer v.leave()
	sys, err := v.bmc.Identify(ctx)
	if err != nil {
		a.blockOnRejection(ctx, stored.ID, err)
		return fault.BMC(ctx, err)
	}
	out.identified(sys)
	return nil
}

// recordOf is the stored record of the BMC that answers at rec's address: its
// own, or else the one of another hostname.
func (a *Activities) recordOf(ctx context.Context, rec db.BMC) (stored db.BMC, there bool, err error) {
	known, err := a.Store.BMCsAt(ctx, rec.Address)
	if err != nil || len(known) == 0 {
		return db.BMC{}, false, fault.Internal(ctx, err)
	}
	for _, k := range known {
		if k.ID == rec.ID {
			return k, true, nil
		}
	}
	return known[0], true, nil
}

// loginUnkept logs in to a BMC of which there is no record. Should it be
// rejected, it gets one, without a node, to carry the flag that stops every
// further login until an operator clears it: the one thing that a plan writes.
func (a *Activities) loginUnkept(ctx context.Context, r loginRequest, rec db.BMC, opener providers.BMCOpener, target providers.BMCTarget, out *PowerPlan) error {
	b, err := opener.OpenBMC(target)
	if err != nil {
		return fault.BMC(ctx, err)
	}
	defer a.close(ctx, b)
	if err := a.mustNote(ctx, a.auditing(r, rec, login.Started)); err != nil {
		return err
	}
	sys, err := b.Identify(ctx)
	outcome := login.Unknown
	switch {
	case err == nil:
		outcome = login.Accepted
	case rejected(err):
		outcome = login.Rejected
	}
	a.note(ctx, a.auditing(r, rec, outcome))
	if rejected(err) {
		if kerr := a.keepRejected(ctx, rec, err); kerr != nil {
			return fault.Internal(ctx, kerr)
		}
	}
	if err != nil {
		return fault.BMC(ctx, err)
	}
	out.identified(sys)
	return nil
}

// keepRejected stores the BMC with its logins stopped, also when the caller is
// out of time by now.
func (a *Activities) keepRejected(ctx context.Context, rec db.BMC, why error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	return a.Store.Tx(ctx, func(tx *db.Tx) error {
		kept, err := tx.CreateBMC(ctx, db.NewBMC{
			Address: rec.Address, Protocol: rec.Protocol, CredentialRef: rec.CredentialRef, SystemID: rec.SystemID, CipherSuite: rec.IPMICipherSuite,
		})
		if err != nil {
			return err
		}
		return tx.BlockBMCLogin(ctx, kept.ID, why.Error())
	})
}

func (p *PowerPlan) identified(sys providers.BMCSystem) {
	p.LoggedIn = true
	f := &p.Facts
	keys := spec.MachineKeys{Serial: sys.Serial, UUID: sys.UUID}.Normal()
	f.Vendor, f.Model, f.Serial, f.UUID, f.SerialSource = sys.Manufacturer, sys.Model, keys.Serial, keys.UUID, sys.SerialSource
	f.MACs, f.Power, f.RedfishSysID = sys.MACs, string(sys.Power), sys.ID
	p.Observed = fmt.Sprintf("%s %s, serial %s, power %s", sys.Manufacturer, sys.Model, cmp.Or(keys.Serial, "unknown"), sys.Power)
}

// samePin compares pins as an operator may have written them.
func samePin(a, b string) bool {
	plain := func(s string) string { return strings.ToLower(strings.ReplaceAll(strings.TrimSpace(s), ":", "")) }
	return plain(a) == plain(b)
}

// root reads what a BMC shows to everybody.
func root(ctx context.Context, a *Activities, opener providers.BMCOpener, target providers.BMCTarget) (providers.BMCIdent, error) {
	b, err := opener.OpenBMC(target)
	if err != nil {
		return providers.BMCIdent{}, fault.BMC(ctx, err)
	}
	defer a.close(ctx, b)
	id, err := b.Probe(ctx)
	return id, fault.BMC(ctx, err)
}
