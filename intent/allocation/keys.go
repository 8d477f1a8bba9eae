package allocation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	allocationdb "github.com/slipway-cloud/slipway/db/allocation"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// KeysSet is an allocation whose keys were replaced. Job is the job that brings them to the node;
// nil when nothing has to be done, or while another job has the node: the sweeper starts it then.
type KeysSet struct {
	Allocation allocationdb.Allocation
	Job        *db.Job
	Changed    bool
}

// SetKeys replaces the keys of an active allocation by these SSH keys of its project. It can be
// repeated. A job takes the others off the node; the last set that was asked for is the one that
// stays.
func SetKeys(ctx context.Context, tx *db.Tx, id string, keyIDs []string, actor db.Actor) (KeysSet, error) {
	if len(keyIDs) == 0 {
		return KeysSet{}, invalid("ssh_key_ids", "must name at least one of the project's SSH keys; release the allocation to end all access")
	}
	a, err := allocationdb.Lock(ctx, tx, id)
	if err != nil {
		return KeysSet{}, err
	}
	if a.Status != lifecycle.AllocationActive {
		return KeysSet{}, &intent.Refusal{Kind: intent.IllegalTransition, Existing: a.ID, Allowed: lifecycle.Allocation.Reachable(a.Status),
			Detail: fmt.Sprintf("the allocation is %s; keys are replaced while it is active: wait for that, or ask for another allocation", a.Status)}
	}
	keys, err := chooseKeys(ctx, tx, Request{ProjectID: a.ProjectID, KeyIDs: keyIDs})
	if err != nil {
		return KeysSet{}, err
	}
	changed, err := allocationdb.ReplaceKeys(ctx, tx, a, keys)
	if err != nil {
		return KeysSet{}, err
	}
	if changed > 0 {
		if err := boundKeyJobs(ctx, tx, a); err != nil {
			return KeysSet{}, err
		}
	}
	all, err := allocationdb.ListKeys(ctx, tx, a.ID)
	if err != nil {
		return KeysSet{}, err
	}
	if len(all) > allocationdb.MaxKeys {
		return KeysSet{}, &intent.Refusal{Kind: intent.Conflict, Existing: a.ID, Detail: fmt.Sprintf(
			"nothing proves yet that the node refuses the former keys of the allocation, and it may have %d keys with them; wait until they are proven, or release it",
			allocationdb.MaxKeys)}
	}
	job, err := startKeys(ctx, tx, a, actor)
	return KeysSet{Allocation: a, Job: job, Changed: changed > 0}, err
}

// boundKeyJobs refuses to replace keys that jobs were created for too often. The deletion of an SSH
// key still withdraws it at once.
func boundKeyJobs(ctx context.Context, tx *db.Tx, a allocationdb.Allocation) error {
	jobs, wait, err := allocationdb.KeyJobs(ctx, tx, a.ID)
	if err != nil || jobs < allocationdb.MaxKeyJobs {
		return err
	}
	return &intent.Refusal{Kind: intent.RateLimited, Existing: a.ID, Detail: fmt.Sprintf(
		"the keys of the allocation were brought to its node %d times within %s; replace them again in %s, or delete an SSH key of the project, which withdraws it at once",
		jobs, allocationdb.KeysAgain, max(wait, time.Second).Round(time.Second))}
}

// startKeys writes the job that brings the keys of an active allocation to its node, where
// something is due and neither the allocation nor the node has a live job. It returns nil
// otherwise: the job that is there ends first, and what is due is looked at again with its end, and
// by the sweeper.
func startKeys(ctx context.Context, tx *db.Tx, a allocationdb.Allocation, actor db.Actor) (*db.Job, error) {
	if a.Status != lifecycle.AllocationActive {
		return nil, nil
	}
	due, err := allocationdb.KeysDue(ctx, tx, a.ID)
	if err != nil || !due {
		return nil, err
	}
	in, err := json.Marshal(contract.AllocationInput{AllocationID: a.ID})
	if err != nil {
		return nil, err
	}
	job, err := tx.CreateJob(ctx, db.NewJob{
		Kind: string(contract.KindAllocationKeys), NodeID: a.NodeID, SiteID: a.SiteID, ResourceKind: allocationdb.Resource, ResourceID: a.ID, Input: in, Actor: actor,
	})
	var conflict *db.ConflictError
	if errors.As(err, &conflict) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &job, allocationdb.MarkKeysTried(ctx, tx, a.ID)
}

// StartKeyJobs writes the jobs that are due of the allocations of a project, or of all projects
// (""), each in a transaction of its own, and returns the allocations. A job that cannot be started
// does not stop the others.
func StartKeyJobs(ctx context.Context, store *db.Store, projectID string, actor db.Actor, limit int) ([]string, error) {
	ids, err := allocationdb.ListWithKeysDue(ctx, store, projectID, limit)
	if err != nil {
		return nil, err
	}
	var started []string
	var errs []error
	for _, id := range ids {
		var job *db.Job
		err := store.Tx(ctx, func(tx *db.Tx) error {
			a, err := allocationdb.Lock(ctx, tx, id)
			if err == nil {
				job, err = startKeys(ctx, tx, a, actor)
			}
			return err
		})
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("allocation %s: %w", id, err))
		case job != nil:
			started = append(started, id)
		}
	}
	return started, errors.Join(errs...)
}
