// Package rotation accepts the replacement of a BMC's password, by a job or by hand.
package rotation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// Accept writes the job that replaces the BMC's password, with its audit row, event and outbox row.
// It returns the hostname of the BMC's node too, "" without one.
func Accept(ctx context.Context, tx *db.Tx, bmcID, reason string, actor db.Actor) (db.Job, string, error) {
	b, err := tx.BMC(ctx, bmcID)
	if err != nil {
		return db.Job{}, "", err
	}
	live, err := liveJob(ctx, tx, b)
	if err != nil {
		return db.Job{}, "", err
	}
	if live != nil {
		return db.Job{}, "", &intent.Refusal{Kind: intent.LiveJob, Existing: live.ID, Detail: fmt.Sprintf(
			"job %s (%s) is at work on this BMC or its node; wait for it to end, or cancel it", live.ID, intent.JobLabel(*live))}
	}
	if b.AuthBlockedAt != nil {
		return db.Job{}, "", &intent.Refusal{Kind: intent.Conflict, Advice: intent.Advice{Reason: intent.ReasonLoginsBlocked, BMCID: b.ID}, Detail: fmt.Sprintf(
			"logins to this BMC are stopped since %s: %s; store the right login, name it to the BMC, lift the block, then rotate",
			b.AuthBlockedAt.UTC().Format(time.RFC3339), b.AuthBlockedReason)}
	}
	in := contract.BMCRotationInput{BMCID: b.ID, Reason: reason}
	actor.Comment = reason
	row := db.NewJob{Kind: string(contract.KindBMCRotation), NodeID: b.NodeID, BMCID: &b.ID, Actor: actor}
	if b.NodeID != nil {
		node, err := tx.Node(ctx, *b.NodeID)
		if err != nil {
			return db.Job{}, "", err
		}
		in.Hostname = node.Hostname
		if node.SiteID != "" { // a PXE node belongs to none
			row.SiteID = &node.SiteID
		}
	}
	if row.Input, err = json.Marshal(in); err != nil {
		return db.Job{}, "", fmt.Errorf("rotation input: %w", err)
	}
	job, err := tx.CreateJob(ctx, row)
	return job, in.Hostname, err
}

// CheckCredential refuses a login that is not stored.
func CheckCredential(ctx context.Context, store *db.Store, ref string) error {
	bad, err := intent.CheckCredential(ctx, store, ref)
	if err != nil {
		return err
	}
	return intent.InvalidIf(bad)
}

// SetCredential names another stored login to a BMC whose version is the one given, and returns the
// live job that may go on with it, nil for none. It refuses while a job may be using the login.
func SetCredential(ctx context.Context, tx *db.Tx, b db.BMC, version int64, ref string) (*db.Job, error) {
	live, err := liveJob(ctx, tx, b)
	if err != nil {
		return nil, err
	}
	if b.RotationState == lifecycle.RotationApplied || b.RotationState == lifecycle.RotationVerified {
		r := &intent.Refusal{Kind: intent.Conflict, Detail: "a rotation has set a password of its own on this BMC and is not ended; " +
			"finish or cancel its job, which settles what the BMC takes, and set the login afterwards"}
		if live != nil {
			r.Existing = live.ID
		}
		return nil, r
	}
	if live != nil && !live.Status.Parked() {
		return nil, &intent.Refusal{Kind: intent.LiveJob, Existing: live.ID, Detail: fmt.Sprintf(
			"job %s (%s) is %s and may be using the login; wait until it ends or parks, or freeze it with mark_manual_intervention_required",
			live.ID, intent.JobLabel(*live), live.Status)}
	}
	b.Version, b.CredentialRef = version, ref
	_, err = tx.UpdateBMC(ctx, b)
	return live, err
}

// liveJob returns the live job of the BMC's node, or else of the BMC; nil for none.
func liveJob(ctx context.Context, tx *db.Tx, b db.BMC) (*db.Job, error) {
	if b.NodeID != nil {
		job, err := tx.LiveJobOfNode(ctx, *b.NodeID)
		if !errors.Is(err, db.ErrNotFound) {
			return &job, err
		}
	}
	job, err := tx.LiveJobOfBMC(ctx, b.ID)
	if errors.Is(err, db.ErrNotFound) {
		return nil, nil
	}
	return &job, err
}
