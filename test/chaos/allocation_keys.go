package chaos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	allocationdb "github.com/slipway-cloud/slipway/db/allocation"
	"github.com/slipway-cloud/slipway/intent/allocation"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/test/runenv"
	"github.com/slipway-cloud/slipway/test/stack"
)

// allocationKeys is the change of keys that takes one member's key off a node and leaves the
// other's.
func allocationKeys() *ScenarioSet {
	kind := contract.KindAllocationKeys
	const set, prove, record = lifecycle.StageSetKeys, lifecycle.StageProveKeys, lifecycle.StageRecordKeys
	points := remote("job", "ReadAllocation", set, "LoadNodeConfig", set, "ReadNodeFacts", set, runTask,
		prove, "ObserveMachine", prove, "OfferKeys", prove, "RecordKeys", record, "RecordKeys", record, "DescribeInstance", record, runTask)
	return &ScenarioSet{
		Name: string(kind), Kind: kind, Stages: contract.Stages(kind), Start: startKeys,
		Also: append(remote("job", "RevokeTasks"),
			project(string(lifecycle.JobCompensating)), project(string(lifecycle.JobCancelled))),
		Paths: []Path{{
			Name: "one_key_ends", From: lifecycle.NodeActive, Points: append(points, projectionsOf(kind)...), Prepare: letToTwo, Check: checkKeys,
			Ends: []lifecycle.JobStatus{lifecycle.JobCompleted, lifecycle.JobCancelled},
		}},
	}
}

// letToTwo gives the node to a tenant with two members.
func letToTwo(ctx context.Context, t *Target) error {
	l := letting{name: "other"}
	if err := l.offer(ctx, t); err != nil {
		return err
	}
	var err error
	if t.former, err = t.tenant.AddMember(ctx, t.Store, "bob"); err != nil {
		return err
	}
	t.log.addKey(t.former)
	for range mostProvisions {
		if err = t.through(ctx, contract.KindAllocationProvision, startProvision); err == nil {
			return countEffects(ctx, t)
		}
		if again := t.returnToService(ctx); again != nil {
			return errors.Join(err, again)
		}
	}
	return fmt.Errorf("let the node: %w", err)
}

// startKeys leaves the first member's key alone on the node.
func startKeys(ctx context.Context, tx *db.Tx, t *Target) (db.Job, error) {
	got, err := allocation.SetKeys(ctx, tx, t.allocation, []string{t.tenant.Key.ID}, db.Actor{Owner: lifecycle.OwnerAdmin, ID: "chaos"})
	if err == nil && got.Job == nil {
		err = fmt.Errorf("allocation %s has no job for its keys", t.allocation)
	}
	if err != nil {
		return db.Job{}, err
	}
	return *got.Job, nil
}

// keysSettle is how long the sweeper and the job that it starts may take.
const keysSettle = 3 * time.Minute

// checkKeys: the node refuses the former key in the end, and takes the other. A job that ended
// without the proof is followed by another one, for which the check does not wait ten minutes.
func checkKeys(ctx context.Context, t *Target, end lifecycle.JobStatus) []Finding {
	f := &findings{}
	now, err := t.effects(ctx)
	if err != nil {
		f.add(WrongEnd, "%v", err)
		return f.list
	}
	if t.wasGivenBack() && end != noExpectedEnd {
		t.givenBackMeanwhile(ctx, f)
		return f.list
	}
	did := now.since(t.before)
	for what, n := range did.maas {
		f.none("MAAS "+what, n)
	}
	f.none("resets by the BMC", sum(did.bmc.Resets))
	f.none("installations", did.machine.Installs)
	if end == noExpectedEnd {
		return f.list
	}
	if end == lifecycle.JobCancelled && len(t.Case.Faults) == 0 {
		j, _ := t.Store.Job(ctx, t.jobID())
		f.add(WrongEnd, "the job gave up: %s %s", j.FailureClass, j.Message)
	}
	if !eventually(ctx, runenv.Patience(keysSettle), func() bool {
		_, err := t.Store.DBTX().Exec(ctx, "UPDATE allocation_keys SET tried_at = NULL WHERE allocation_id = $1 AND tried_at < now() - interval '20 seconds'", t.allocation)
		pause(ctx, lookEvery)
		return err == nil && t.keysProven(ctx)
	}) {
		f.add(Stuck, "nothing proves that the node refuses the former key, %s after the job is %s", keysSettle, end)
		return f.list
	}
	a, err := allocationdb.Get(ctx, t.Store, t.allocation)
	if err != nil || a.Status != lifecycle.AllocationActive {
		f.add(WrongEnd, "the allocation is %s, should be active: %v", a.Status, err)
		return f.list
	}
	for who, wanted := range map[*stack.Tenant]bool{t.tenant: true, t.former: false} {
		in, err := who.IsAdmitted(ctx, t.node().SSHAddress(), lifecycle.TenantAccount(a.ID))
		if err != nil || in != wanted {
			f.add(WrongEnd, "the node admits %s: %t, should be %t (%v)", who.Key.Name, in, wanted, err)
		}
	}
	return f.list
}

// givenBackMeanwhile: the release that was asked for while the keys changed has begun with the end
// of that job, and ends as any other.
func (t *Target) givenBackMeanwhile(ctx context.Context, f *findings) {
	a, err := t.allocationEnds(ctx)
	if err == nil && a.Status == lifecycle.AllocationReleaseFailed && t.Case.Has(SiteCut) {
		a, err = t.retryRelease(ctx)
	}
	switch {
	case err != nil:
		f.add(WrongEnd, "%v", err)
	case !lifecycle.Allocation.Terminal(a.Status):
		f.add(Stuck, "the allocation was given back, and is %s", a.Status)
	default:
		t.returned(ctx, f, a)
	}
}

// keysProven reports whether the node was seen to refuse the former key, and the keys have no job.
func (t *Target) keysProven(ctx context.Context) bool {
	keys, err := allocationdb.ListKeys(ctx, t.Store, t.allocation)
	jobs, jerr := t.Store.LiveJobsOfResources(ctx, allocationdb.Resource, []string{t.allocation})
	return err == nil && jerr == nil && len(jobs) == 0 && slices.ContainsFunc(keys, func(k allocationdb.Key) bool {
		return k.Fingerprint == t.former.Key.Fingerprint && k.WithdrawnAt != nil && k.RefusedAt != nil
	})
}
