package projection

import (
	"context"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/intent/subject"
	"github.com/slipway-cloud/slipway/internal/signing"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// Anybody with access to Temporal can send an action under any name. The sender counts as proven
// when the API's signature says so; any other action is recorded as the engine's, with the name
// that it claims.

// VerifyAction says whether an action is proven, before it is carried out. It uses nothing up: the
// projection that records the action does.
func (a *Activities) VerifyAction(ctx context.Context, in contract.ActionCheck) (contract.ActionVerdict, error) {
	why, err := a.Store.VerifyAction(ctx, in)
	return contract.ActionVerdict{Unproven: why}, fault.Projection(ctx, err)
}

// VerifyAction implements Store.
func (d *Database) VerifyAction(ctx context.Context, in contract.ActionCheck) (why string, err error) {
	err = d.Store.Tx(ctx, func(tx *db.Tx) error {
		why, _, err = signing.VerifyAction(ctx, tx, in.JobID, in.RunID, in.Entry, false)
		return err
	})
	return why, final(err)
}

// stored stands for the reason why an action is not proven, when a lost workflow task has stored it
// with the same effect: it has its audit row.
const stored = "stored"

// verify returns why each action of a projection is not proven, "" where it is, or stored. An
// action of a lost task that has another effect now gets another row.
func verify(ctx context.Context, tx *db.Tx, p contract.Projection) ([]string, error) {
	if len(p.Actions) == 0 {
		return nil, nil
	}
	job, err := tx.LockJob(ctx, p.JobID) // so that no other transaction uses the same nonce
	if err != nil {
		return nil, err
	}
	out, nonces := make([]string, len(p.Actions)), map[string]bool{}
	for i, a := range p.Actions {
		why, lost, err := signing.VerifyAction(ctx, tx, p.JobID, p.RunID, a, p.Seq <= job.Seq)
		if err != nil {
			return nil, err
		}
		if out[i] = why; why != "" {
			continue
		}
		switch {
		case nonces[a.Proof.Nonce]:
			out[i] = "its signature is that of another action of the same step"
		case lost == a.Effect:
			out[i] = stored
		}
		nonces[a.Proof.Nonce] = true
	}
	return out, nil
}

// attribute names the actors of a projection's actions as far as they are proven, and returns which
// are not.
func attribute(row *db.Projection, p contract.Projection, unproven []string) (indices []int) {
	for i, a := range p.Actions {
		if unproven[i] == stored {
			if a.Effect != lifecycle.EffectRefuse && a.Actor == p.By {
				row.Actor.ID = p.By
			}
			continue
		}
		row.Entries = append(row.Entries, actionEntry(a, p.RunID, unproven[i]))
		if unproven[i] != "" {
			indices = append(indices, i)
		}
		if a.Effect == lifecycle.EffectRefuse || a.Actor != p.By {
			continue
		}
		row.Actor.ID = p.By // the last of them caused the step
		if unproven[i] != "" {
			row.Actor.ID = string(lifecycle.OwnerEngine)
		}
		if unproven[i] != "" && a.Effect == lifecycle.EffectFreeze {
			row.Message = lifecycle.FrozenBy(lifecycle.Claimed(a.Actor), a.Reason)
			row.Actor.Comment = row.Message
		}
	}
	return indices
}

// auditCancels writes the cancellations of a step into the audit log of the project that the job's
// subject is for, in the transaction that stores the step.
func auditCancels(ctx context.Context, tx *db.Tx, p contract.Projection, unproven []string) error {
	cancelled := subject.Of(p.Kind).Cancelled
	for i, a := range p.Actions {
		if cancelled == nil || a.Action != lifecycle.ActionCancel || a.Effect == lifecycle.EffectRefuse || unproven[i] == stored {
			continue
		}
		if err := cancelled(ctx, tx, p.JobID, actionEntry(a, p.RunID, unproven[i]).Actor); err != nil {
			return err
		}
	}
	return nil
}

func actionEntry(a contract.ActionEntry, runID, unproven string) db.Entry {
	meta := map[string]any{"via": a.Via, "effect": string(a.Effect)}
	if a.Refused != "" {
		meta["refused"] = a.Refused
	}
	by := db.Actor{Owner: lifecycle.OwnerAdmin, ID: a.Actor, Comment: a.Reason, Metadata: meta}
	if a.Customer {
		by.Owner = lifecycle.OwnerCustomer
	}
	if unproven == "" {
		meta["nonce"], meta["run_id"] = a.Proof.Nonce, runID
	} else {
		by.Owner, by.ID, meta["unproven"] = lifecycle.OwnerEngine, string(lifecycle.OwnerEngine), unproven
	}
	if unproven != "" && a.Via != contract.ViaTemporalCancel {
		meta["claimed_actor"] = a.Actor
	}
	return db.Entry{Kind: db.EntryAction, Name: string(a.Action), Actor: by}
}
