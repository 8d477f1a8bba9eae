// Package clustersync looks at Kubernetes clusters now and then: it deletes the bootstrap tokens
// that nothing needs any more, and brings the conditions of machines up to their nodes. Any number
// of workers run it; a cluster has one look at a time.
package clustersync

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/slipway-cloud/slipway/db"
	clusterdb "github.com/slipway-cloud/slipway/db/cluster"
	"github.com/slipway-cloud/slipway/internal/poll"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
)

const (
	defaultEvery = 30 * time.Second
	longestLook  = 25 * time.Second
	// storeLimit bounds the storing of what one machine was found to be.
	storeLimit = 25 * time.Second
	// loopsOfAKind is how many clusters of those that answered last, and of the others, one worker
	// looks at at a time.
	loopsOfAKind = 4
	// freshFor is how long the answer of a cluster counts.
	freshFor  = 2 * time.Minute
	batchSize = 500
)

// Passes looks at the clusters of an installation.
type Passes struct {
	Store    *db.Store
	Secrets  providers.Secrets
	Clusters providers.ClusterJoin
	// Simulated returns what answers for a cluster that simulated machines have joined, nil for
	// every other cluster. Without it there are none.
	Simulated func(ref string) providers.ClusterJoin
	Log       *slog.Logger
	// Every is how often a cluster is looked at; 0 is 30 s.
	Every time.Duration
}

func (p *Passes) every() time.Duration {
	if p.Every == 0 {
		return defaultEvery
	}
	return p.Every
}

// lookLimit bounds one look. It is less than the time for which a look is claimed.
func (p *Passes) lookLimit() time.Duration { return min(longestLook, p.every()*5/6) }

// Run looks at the clusters until ctx ends. Clusters that gave no answer last have loops of their
// own, so that however many hang, the others have their look when it is due.
func (p *Passes) Run(ctx context.Context) {
	var loops sync.WaitGroup
	for i := range 2 * loopsOfAKind {
		loops.Go(func() {
			poll.Repeat(ctx, p.every()/6, p.Log, "not every cluster was looked at; will try again", func(ctx context.Context) error { return p.lookAtDue(ctx, i%2 == 1) })
		})
	}
	loops.Go(func() {
		poll.Repeat(ctx, p.every()/6, p.Log, "not every condition of machines was let go; will try again", p.letGo)
	})
	loops.Wait()
}

// Look looks at each cluster that is due, one after the other, and lets go of what no cluster has
// said lately. A cluster that does not answer keeps no other from its look: those that answered
// last come first.
func (p *Passes) Look(ctx context.Context) error {
	return errors.Join(p.lookAtDue(ctx, false), p.lookAtDue(ctx, true), p.letGo(ctx))
}

// lookAtDue looks at each cluster that is due, of those that answered last or of those that did
// not. Each look has a deadline.
func (p *Passes) lookAtDue(ctx context.Context, troubled bool) error {
	var errs []error
	for ctx.Err() == nil {
		row, found, err := clusterdb.ClaimLook(ctx, p.Store, p.every(), troubled)
		if err != nil {
			return errors.Join(append(errs, err)...)
		}
		if !found {
			break
		}
		problem := ""
		limited, cancel := context.WithTimeout(ctx, p.lookLimit())
		if err := p.lookAt(limited, row); err != nil {
			errs, problem = append(errs, fmt.Errorf("cluster %s: %w", row.Ref, err)), told(err)
		}
		cancel()
		if ctx.Err() != nil {
			break // this process ends: the cluster has no part in it
		}
		errs = append(errs, clusterdb.StoreLook(ctx, p.Store, row.Ref, problem))
	}
	return errors.Join(errs...)
}

// told is what an operator reads of a look that failed.
func told(err error) string {
	var pe *providers.Error
	if errors.As(err, &pe) {
		return pe.Error()
	}
	return "internal error; the worker's log holds the detail"
}

// lookAt deletes spent tokens of a cluster and reads its nodes. When it fails, the conditions of
// its machines are not known.
func (p *Passes) lookAt(ctx context.Context, row clusterdb.Cluster) error {
	cluster, err := providers.OpenCluster(ctx, p.Secrets, row.Ref, row.Spec)
	api := p.clusterOf(row.Ref)
	if err == nil && api == nil {
		err = &providers.Error{Kind: providers.KindUnsupported, Op: "kube.nodes", Message: "no worker reaches Kubernetes, and no simulated machine has joined the cluster"}
	}
	var nodes []providers.ClusterNode
	if err == nil {
		err = p.deleteTokens(ctx, api, cluster)
	}
	if err == nil {
		nodes, err = api.Nodes(ctx, cluster)
	}
	known := err == nil
	byUUID := map[string][]providers.ClusterNode{}
	for _, n := range nodes {
		if uuid, ok := spec.NormalUUID(n.SystemUUID); ok {
			byUUID[uuid] = append(byUUID[uuid], n)
		}
	}
	for after := ""; ; {
		members, merr := clusterdb.Members(ctx, p.Store, row.Ref, after, batchSize)
		if merr != nil {
			return errors.Join(err, merr)
		}
		for _, m := range members {
			after = m.MachineID
			facts := lifecycle.ClusterFacts{Known: known}
			if known {
				var ferr error
				facts, ferr = factsOf(ctx, api, cluster, m, byUUID)
				err = errors.Join(err, ferr)
			}
			err = errors.Join(err, p.observe(ctx, m.MachineID, facts))
		}
		if len(members) < batchSize {
			return err
		}
	}
}

// clusterOf returns what answers for a cluster.
func (p *Passes) clusterOf(ref string) providers.ClusterJoin {
	if p.Simulated != nil {
		if api := p.Simulated(ref); api != nil {
			return api
		}
	}
	return p.Clusters
}

// deleteTokens deletes the tokens that nothing needs any more.
func (p *Passes) deleteTokens(ctx context.Context, api providers.ClusterJoin, cluster providers.Cluster) error {
	tokens, err := clusterdb.SpentTokens(ctx, p.Store, cluster.Ref, batchSize)
	for _, t := range tokens {
		if err := api.RevokeToken(ctx, cluster, t.ID); err != nil {
			return err
		}
		if err := clusterdb.ForgetToken(ctx, p.Store, t); err != nil {
			return err
		}
	}
	return err
}

// factsOf returns what the cluster says of a machine. It is known by its system UUID, whatever the
// name of its node is; of two nodes with one UUID, none is believed.
func factsOf(ctx context.Context, api providers.ClusterJoin, cluster providers.Cluster, m clusterdb.Member, byUUID map[string][]providers.ClusterNode) (lifecycle.ClusterFacts, error) {
	found := byUUID[m.SystemUUID]
	if other, ok := spec.SwappedUUID(m.SystemUUID); ok {
		found = append(found[:len(found):len(found)], byUUID[other]...)
	}
	switch len(found) {
	case 0:
		return lifecycle.ClusterFacts{Known: true}, nil
	case 1:
	default:
		return lifecycle.ClusterFacts{}, fmt.Errorf("machine %s: %d nodes of the cluster have its system UUID", m.MachineID, len(found))
	}
	n := found[0]
	facts := lifecycle.ClusterFacts{Known: true, Found: true, Ready: n.Ready, Cordoned: n.Unschedulable}
	if !n.Unschedulable {
		return facts, nil
	}
	pods, err := api.BlockingPods(ctx, cluster, n.Name)
	facts.PodsKnown, facts.Pods = err == nil, pods
	return facts, err
}

func (p *Passes) observe(ctx context.Context, machineID string, facts lifecycle.ClusterFacts) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeLimit) // what is known is stored
	defer cancel()
	return p.Store.Tx(ctx, func(tx *db.Tx) error {
		return clusterdb.Observe(ctx, tx, machineID, func(c lifecycle.Conditions) lifecycle.Conditions { return c.ObserveCluster(facts, time.Now()) })
	})
}

// letGo has the conditions of machines say that nothing is known, where their cluster has said
// nothing for too long: no worker looked, or the cluster was deleted.
func (p *Passes) letGo(ctx context.Context) error {
	ids, err := clusterdb.ListSilent(ctx, p.Store, freshFor, batchSize)
	errs := []error{err}
	for _, id := range ids {
		errs = append(errs, p.observe(ctx, id, lifecycle.ClusterFacts{}))
	}
	return errors.Join(errs...)
}
