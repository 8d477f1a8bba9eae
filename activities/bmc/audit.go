package bmc

import (
	"cmp"
	"context"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/activities/login"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/providers"
)

// loginEntry returns the audit row of a login: who logs in, with which stored login, and where.
func (a *Activities) loginEntry(r loginRequest, rec db.BMC, ref, outcome string) db.Entry {
	entry := login.Attempt{Actor: r.actor, Job: r.job, Ref: ref, Address: rec.Address, Protocol: rec.Protocol}.Entry(outcome)
	entry.ResourceKind, entry.ResourceID, entry.NodeID = "bmc", cmp.Or(rec.ID, rec.Address), rec.NodeID
	return entry
}

// refusedLogin classifies an error of the secret store, and audits it where the use or the address
// forbids the login. An outage is no refusal.
func (a *Activities) refusedLogin(ctx context.Context, r loginRequest, rec db.BMC, ref string, err error) error {
	reason := fault.Login(ctx, err, fault.BMC)
	if !providers.IsKind(err, providers.KindInvalid) {
		return reason
	}
	entry := a.loginEntry(r, rec, ref, login.Refused)
	entry.Actor.Comment = db.ClipText(reason.Error(), db.MaxComment)
	if err := a.mustNote(ctx, func(ctx context.Context) error { return a.Store.AppendAudit(ctx, entry) }); err != nil {
		return err
	}
	return reason
}

// auditing returns a write of one audit row about the login that a record names.
func (a *Activities) auditing(r loginRequest, rec db.BMC, outcome string) func(context.Context) error {
	return func(ctx context.Context) error {
		return a.Store.AppendAudit(ctx, a.loginEntry(r, rec, rec.CredentialRef, outcome))
	}
}

// planActor returns the engine. Nothing proves who asked for a plan, so that name is only a claim.
func planActor(ctx context.Context, in PlanIn) db.Actor {
	by := login.EngineActor(ctx, "a plan with login")
	if in.Actor != "" {
		by.Metadata = map[string]any{"claimed_actor": in.Actor}
	}
	return by
}

// planLogin returns the request of a plan's login.
func planLogin(ctx context.Context, in PlanIn) loginRequest {
	job := contract.JobRef{SiteID: in.In.SiteID, NodeID: in.In.NodeID}
	return loginRequest{job: job, actor: planActor(ctx, in), bmcID: in.In.BMCID, caPEM: in.In.CAPEM}
}
