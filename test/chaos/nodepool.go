package chaos

import (
	"context"
	"fmt"
	"time"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
	simnode "github.com/slipway-cloud/slipway/sim/node"
)

// Jobs that begin with a node in service need one each. To onboard them all would
// take longer than the faults, so a node that a case left in good order is kept
// for a later case; what is counted is counted from where that one begins.

// arrange makes what a case works on: a bare machine, or a node in the state that
// its path begins with.
func (t *environment) arrange(ctx context.Context, c Case, path *Path) (*Target, error) {
	if path.Boots {
		return t.boot(ctx, c, path)
	}
	if path.Cloud {
		return t.stageInstance(c), nil
	}
	if path.From == "" {
		return t.stage(ctx, c)
	}
	if kept, err := t.takeClean(ctx, path.From); err != nil || kept != nil {
		return kept.again(c), err
	}
	target, err := t.takeClean(ctx, lifecycle.NodeActive)
	if err != nil {
		return nil, err
	}
	if target = target.again(c); target == nil {
		if target, err = t.stage(ctx, c); err != nil {
			return nil, err
		}
		if err := target.through(ctx, contract.KindOnboarding, startOnboarding); err != nil {
			return nil, fmt.Errorf("onboard: %w", err)
		}
	}
	if path.From == lifecycle.NodeRetired {
		if err := target.through(ctx, contract.KindNodeOperation, startDecommission(lifecycle.ModeRetire)); err != nil {
			return nil, fmt.Errorf("retire: %w", err)
		}
	}
	if !target.becomes(ctx, path.From) {
		return nil, fmt.Errorf("node %s did not become %s", target.NodeID, path.From)
	}
	return target, target.requireClean(ctx)
}

// requireClean returns an error when a node that no other case has left is not clean.
func (t *Target) requireClean(ctx context.Context) error {
	why, err := t.unclean(ctx)
	if err == nil && len(why) > 0 {
		err = fmt.Errorf("no case can begin: %s", t.uncleanText(ctx, why))
	}
	return err
}

// through takes the target through a job to which nothing is done, but the faults of its
// neighbours.
func (t *Target) through(ctx context.Context, kind contract.JobKind, start func(context.Context, *db.Tx, *Target) (db.Job, error)) error {
	t.accept(db.Job{ID: db.NewID("job")})
	var job db.Job
	err := t.Store.Tx(ctx, func(tx *db.Tx) (err error) {
		job, err = start(ctx, tx, t)
		return err
	})
	if err != nil {
		return err
	}
	eventually(ctx, preparation, func() bool {
		if got, err := t.Store.Job(ctx, job.ID); err == nil {
			job = got
		}
		pause(ctx, lookEvery)
		return job.Status.Parked() || lifecycle.Job.Terminal(job.Status)
	})
	if job.Status != lifecycle.JobCompleted {
		return fmt.Errorf("%s %s is %s at %s: %s %s", kind, job.ID, job.Status, job.Stage, job.FailureClass, job.Message)
	}
	t.NodeID = *job.NodeID
	t.accept(db.Job{})
	return nil
}

const (
	preparation = 5 * time.Minute
	becoming    = 90 * time.Second // a heartbeat after the end makes a node active
)

// becomes waits until the node is in a state.
func (t *Target) becomes(ctx context.Context, want lifecycle.NodeStatus) bool {
	return eventually(ctx, becoming, func() bool {
		n, err := t.Store.Node(ctx, t.NodeID)
		pause(ctx, lookEvery)
		return err == nil && n.Status == want
	})
}

// again is the same node for another case, or nil for no node.
func (t *Target) again(c Case) *Target {
	if t == nil {
		return nil
	}
	t.log.add("case %s gets it", c)
	return &Target{
		Stack: t.Stack, Store: t.Store, Machine: t.Machine, Host: t.Host, Site: t.Site, Profile: t.Profile, SKU: t.SKU,
		NodeID: t.NodeID, Case: c, DSN: t.DSN, plans: t.plans, maas: t.maas, bmc: t.bmc, retried: map[int64]bool{},
		releases: t.releases, updates: t.updates, shared: t.shared, operated: map[int64]bool{}, log: t.log,
	}
}

// keepOrRelease keeps a node for later cases when its case completed without findings and left it
// active or retired. It releases everything else.
func (t *environment) keepOrRelease(ctx context.Context, target *Target, path *Path, res *Result) {
	ends := path.Keeps
	if ends == "" || res.End != lifecycle.JobCompleted || len(res.Findings) > 0 || ctx.Err() != nil {
		target.leave()
		return
	}
	if target.NodeID == "" {
		target.NodeID = *target.Job.NodeID
	}
	t.keeping.Go(func() { // the next heartbeat may be seconds away
		if n := target.node(); n != nil { // the next case begins with a node that has no faults
			if err := n.SetFaults(simnode.Faults{}); err != nil {
				target.leave()
				return
			}
		}
		if !t.enough(ends) && target.becomes(t.keepingCtx, ends) {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.pool[ends] = append(t.pool[ends], target)
			return
		}
		target.leave()
	})
}

// enough reports whether no more nodes of a state are kept.
func (t *environment) enough(state lifecycle.NodeStatus) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.pool[state]) >= t.keepAtMost
}

func (t *environment) take(state lifecycle.NodeStatus) *Target {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := t.pool[state]
	if len(all) == 0 {
		return nil
	}
	t.pool[state] = all[1:]
	return all[0]
}
