package bmc

import (
	"cmp"
	"context"
	"maps"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/workflows/contract"
)

// The outcomes of a login in the audit log. A login has loginStarted, written before it is sent, and
// then one of the others. One that was refused before it was sent has loginRefused alone.
const (
	loginStarted  = "started"
	loginAccepted = "accepted"
	loginRejected = "rejected"
	loginUnsent   = "not_sent"
	loginUnknown  = "unknown"
	loginRefused  = "refused"
)

// loginEntry returns the audit row of a login: who logs in, with which stored login, and where.
func (a *Activities) loginEntry(r loginRequest, rec db.BMC, ref, outcome string) db.Entry {
	actor := r.actor
	if actor.Owner == "" {
		actor = db.Actor{Owner: lifecycle.OwnerJob, ID: cmp.Or(r.job.JobID, "plan")}
	}
	meta := map[string]any{"credential_ref": ref, "address": rec.Address, "protocol": rec.Protocol}
	maps.Copy(meta, actor.Metadata)
	actor.Metadata = meta
	if r.job.JobID != "" {
		actor.Metadata["job_id"], actor.Metadata["stage"] = r.job.JobID, r.job.Stage
	}
	return db.Entry{
		ResourceKind: "bmc", ResourceID: cmp.Or(rec.ID, rec.Address), NodeID: rec.NodeID, Kind: db.EntryCall, Name: "login", To: outcome, Actor: actor,
	}
}

// refusedLogin classifies an error of the secret store, and audits it where the use or the address
// forbids the login. An outage is no refusal.
func (a *Activities) refusedLogin(ctx context.Context, r loginRequest, rec db.BMC, ref string, err error) error {
	reason := useFailure(ctx, err)
	if !providers.IsKind(err, providers.KindInvalid) {
		return reason
	}
	entry := a.loginEntry(r, rec, ref, loginRefused)
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
func planActor(in PlanIn) db.Actor {
	by := db.Actor{Owner: lifecycle.OwnerEngine, ID: string(lifecycle.OwnerEngine), Comment: "a plan with login"}
	if in.Actor != "" {
		by.Metadata = map[string]any{"claimed_actor": in.Actor}
	}
	return by
}

// planLogin returns the request of a plan's login.
func planLogin(in PlanIn) loginRequest {
	job := contract.JobRef{SiteID: in.In.SiteID, NodeID: in.In.NodeID}
	return loginRequest{job: job, actor: planActor(in), bmcID: in.In.BMCID, caPEM: in.In.CAPEM}
}
