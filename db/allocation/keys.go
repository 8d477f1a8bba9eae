package allocationdb

import (
	"context"
	"encoding/json"
	"time"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/allocation/gen"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// KeysAgain is after how long a job is created again for keys that no job could prove.
const KeysAgain = 10 * time.Minute

// MaxKeyJobs is how many jobs for the keys of an allocation may be created within KeysAgain before
// its keys are not replaced any more: a tenant who replaces them all the time would keep the node,
// its agent and the workers busy. A key that ends is always withdrawn.
const MaxKeyJobs = 6

// MaxKeys is how many keys an allocation may have, with the former ones of which nothing proves
// that its node refuses them. A release offers all of them.
const MaxKeys = 60

// keptFormer is how many former keys that the node refuses stay with an allocation.
const keptFormer = 20

// SplitKeys returns the keys in force, and those that were withdrawn.
func SplitKeys(keys []Key) (inForce, former []Key) {
	for _, k := range keys {
		if k.WithdrawnAt == nil {
			inForce = append(inForce, k)
		} else {
			former = append(former, k)
		}
	}
	return inForce, former
}

// KeysDue reports whether a job has to change the keys on the node of an active allocation, or to
// prove them.
func KeysDue(ctx context.Context, c Conn, id string) (bool, error) {
	due, err := queries(c).KeysDue(ctx, gen.KeysDueParams{ID: id, AgainSeconds: KeysAgain.Seconds()})
	return due, db.MapError("keys of "+what(id), err)
}

// KeyJobs counts the jobs for the keys of an allocation that were created within KeysAgain, and
// returns for how long the first of them still counts.
func KeyJobs(ctx context.Context, c Conn, id string) (jobs int64, wait time.Duration, err error) {
	row, err := queries(c).CountKeyJobs(ctx, gen.CountKeyJobsParams{ID: id, WithinSeconds: KeysAgain.Seconds()})
	return row.Jobs, time.Duration(row.WaitSeconds * float64(time.Second)), db.MapError("keys of "+what(id), err)
}

// ListWithKeysDue lists allocations of a project, or of all (""), with keys due, that no live job
// works on, and whose node is free of jobs and heard.
func ListWithKeysDue(ctx context.Context, c Conn, projectID string, limit int) ([]string, error) {
	ids, err := queries(c).AllocationsWithKeysDue(ctx, gen.AllocationsWithKeysDueParams{
		ProjectID: projectID, AgainSeconds: KeysAgain.Seconds(), MaxRows: db.PageLimit(limit),
	})
	return ids, db.MapError("list allocations with keys due", err)
}

// MarkKeysTried stores that a job was created for the keys that are due. A key that is withdrawn or
// added later is due at once.
func MarkKeysTried(ctx context.Context, tx *db.Tx, id string) error {
	return db.MapError("keys of "+what(id), queries(tx).MarkKeysTried(ctx, id))
}

// WithdrawEndedKeys withdraws keys of allocations that their projects do not have any more, and
// returns how many. The deletion of a key withdraws it too; it does not see an allocation that is
// written at the same moment.
func WithdrawEndedKeys(ctx context.Context, c Conn, limit int) (int64, error) {
	n, err := queries(c).WithdrawEndedKeys(ctx, db.PageLimit(limit))
	return n, db.MapError("withdraw keys that have ended", err)
}

// ReplaceKeys puts these keys of the project in force for a locked allocation and withdraws all
// others. It returns how many of them have changed.
func ReplaceKeys(ctx context.Context, tx *db.Tx, a Allocation, keys []PublicKey) (int64, error) {
	put := gen.PutKeysParams{ProjectID: a.ProjectID, AllocationID: a.ID, Fingerprints: []string{}, PublicKeys: []string{}}
	for _, k := range keys {
		put.Fingerprints, put.PublicKeys = append(put.Fingerprints, k.Fingerprint), append(put.PublicKeys, k.PublicKey)
	}
	q := queries(tx)
	withdrawn, err := q.WithdrawOtherKeys(ctx, gen.WithdrawOtherKeysParams{ProjectID: a.ProjectID, AllocationID: a.ID, Fingerprints: put.Fingerprints})
	if err != nil {
		return 0, db.MapError("keys of "+what(a.ID), err)
	}
	added, err := q.PutKeys(ctx, put)
	if err != nil {
		return 0, db.MapError("keys of "+what(a.ID), err)
	}
	_, err = q.DeleteFormerKeys(ctx, gen.DeleteFormerKeysParams{ProjectID: a.ProjectID, AllocationID: a.ID, Kept: keptFormer})
	return withdrawn + added, db.MapError("keys of "+what(a.ID), err)
}

// TellKeysChanged writes the event that says which keys the node accepts and refuses.
func TellKeysChanged(ctx context.Context, tx *db.Tx, a Allocation) error {
	keys, err := ListKeys(ctx, tx, a.ID)
	if err != nil {
		return err
	}
	accepted, refused := []string{}, []string{}
	for _, k := range keys {
		switch {
		case k.WithdrawnAt == nil && k.AcceptedAt != nil:
			accepted = append(accepted, k.Fingerprint)
		case k.WithdrawnAt != nil && k.RefusedAt != nil:
			refused = append(refused, k.Fingerprint)
		}
	}
	payload, err := json.Marshal(map[string]any{
		"allocation_id": a.ID, "project_id": a.ProjectID, "name": a.Name, "status": a.Status, "accepted": accepted, "refused": refused,
	})
	if err != nil {
		return err
	}
	return tx.AppendEvent(ctx, db.Event{
		ResourceKind: Resource, ResourceID: a.ID, ProjectID: &a.ProjectID, NodeID: a.NodeID, Type: lifecycle.EventKeysChanged, Payload: payload,
	})
}
