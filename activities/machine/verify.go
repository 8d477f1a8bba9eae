package machine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/db"
	clusterdb "github.com/slipway-cloud/slipway/db/cluster"
	"github.com/slipway-cloud/slipway/internal/poll"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/runplan"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
)

// VerifyIn is the input of VerifyInCluster. Before lists the boot ids that the machine had before
// the restarts of the run.
type VerifyIn struct {
	StepIn
	Before []string `json:"before,omitempty"`
}

// keepAway lists the taints of a node that accepts no pods because something is missing.
var keepAway = []string{"node.kubernetes.io/not-ready", "node.kubernetes.io/network-unavailable", "node.kubernetes.io/unreachable"}

// VerifyInCluster waits until the machine is a node of its cluster: by its system UUID, by the boot
// that the machine itself names, Ready, with a heartbeat that came since the call, of the release
// that is wanted, and open for pods.
func (a *Activities) VerifyInCluster(ctx context.Context, in VerifyIn) (StepFacts, error) {
	s, err := a.open(ctx, in.StepIn)
	if err != nil {
		return StepFacts{}, err
	}
	if s.step.Verify == nil {
		return StepFacts{}, s.lacks(runplan.CapClusterJoin)
	}
	limited, cancel := context.WithTimeout(ctx, s.step.Timeout())
	defer cancel()
	m, err := s.openMember(limited, s.step.Verify.ClusterRef)
	if err != nil {
		return StepFacts{}, err
	}
	v := &verification{member: m, before: in.Before, wanted: s.step.Verify.KubeletVersion}
	if v.wanted == "" {
		v.wanted = m.row.Spec.KubernetesVersion
	}
	for {
		problem, err := v.look(limited)
		switch {
		case ctx.Err() != nil:
			return StepFacts{}, ctx.Err()
		case err != nil && limited.Err() == nil:
			return StepFacts{}, err
		case err == nil && problem == "":
			return v.proven(ctx)
		case problem != "" && (limited.Err() == nil || v.last == ""): // the time is over; that does not mean that the cluster is silent
			v.last = problem
		}
		if poll.Sleep(limited, a.poll()) != nil {
			return StepFacts{}, fault.New(lifecycle.FailClusterNotReady, "the machine was no ready node of cluster %s within %s: %s", m.row.Ref, s.step.Timeout(), v.last)
		}
	}
}

// verification is the state of one wait.
type verification struct {
	*member
	before  []string
	wanted  string
	seen    string // the time of the first heartbeat that was read
	last    string // what was missing at the last read
	kubelet string
}

// look reads the cluster and returns what is missing, or "".
func (v *verification) look(ctx context.Context) (string, error) {
	n, err := v.adapter.ClusterJoin.Node(ctx, v.cluster, v.node)
	switch kind := providers.KindOf(err); {
	case kind == providers.KindNotFound:
		return fmt.Sprintf("the cluster has no node %s", v.node), nil
	case kind == providers.KindUnreachable, kind == providers.KindUnavailable:
		return "the API server of the cluster does not answer", nil
	case err != nil:
		return "", v.failure(ctx, err)
	}
	if n.SystemUUID != "" && !spec.SameUUID(n.SystemUUID, v.uuid) {
		_, err := v.ownNode([]providers.ClusterNode{n})
		return "", err
	}
	if n.BootID != v.facts.BootID { // the machine may have restarted since it was asked
		if err := v.ask(ctx); err != nil {
			return "", err
		}
	}
	v.kubelet = n.KubeletVersion
	switch {
	case n.SystemUUID == "":
		return "the node has reported no status yet", nil
	case n.BootID != v.facts.BootID:
		return fmt.Sprintf("the node reports boot id %s, and the machine says %s", clip(n.BootID), v.facts.BootID), nil
	case slices.Contains(v.before, n.BootID):
		return "the machine still runs in the boot of before its restart", nil
	case !n.Ready:
		return "the node is not Ready: " + clip(n.Reason), nil
	case n.Unschedulable:
		return "the node is cordoned", nil
	case release(n.KubeletVersion) != v.wanted:
		return fmt.Sprintf("the kubelet is %s and not %s", clip(n.KubeletVersion), v.wanted), nil
	}
	for _, taint := range keepAway {
		if slices.Contains(n.Taints, taint) {
			return "the node has the taint " + taint, nil
		}
	}
	return v.awaitsHeartbeat(ctx)
}

// awaitsHeartbeat returns what is missing until the heartbeat of the node has changed. The
// heartbeat's time comes from the node's clock, so it is only compared with earlier ones.
func (v *verification) awaitsHeartbeat(ctx context.Context) (string, error) {
	heartbeat, err := v.adapter.ClusterJoin.Heartbeat(ctx, v.cluster, v.node)
	switch kind := providers.KindOf(err); {
	case kind == providers.KindNotFound, kind == providers.KindUnreachable, kind == providers.KindUnavailable:
		return "the node has sent no heartbeat", nil
	case err != nil:
		return "", v.failure(ctx, err)
	case v.seen == "":
		v.seen = heartbeat
		return "the node is Ready and sends no other heartbeat", nil
	case v.seen == heartbeat:
		return "the node is Ready and sends no other heartbeat", nil
	}
	return "", nil
}

// proven notes what was proven.
func (v *verification) proven(ctx context.Context) (StepFacts, error) {
	err := v.a.Store.Tx(ctx, func(tx *db.Tx) error {
		if err := clusterdb.PutMember(ctx, tx, clusterdb.Member{MachineID: v.machine.ID, ClusterRef: &v.row.Ref, NodeName: v.node, SystemUUID: v.uuid}); err != nil {
			return err
		}
		return clusterdb.Observe(ctx, tx, v.machine.ID, func(c lifecycle.Conditions) lifecycle.Conditions {
			return c.ObserveCluster(lifecycle.ClusterFacts{Known: true, Found: true, Ready: true}, time.Now())
		})
	})
	var conflict *db.ConflictError
	if errors.As(err, &conflict) {
		return StepFacts{}, fault.New(lifecycle.FailClusterNotReady, "%s", conflict.Message)
	}
	if err != nil {
		return StepFacts{}, fault.Internal(ctx, err)
	}
	f := v.session.facts("the machine is node %s of cluster %s: Ready, kubelet %s, boot %s", v.node, v.row.Ref, clip(v.kubelet), v.facts.BootID)
	f.Simulated = f.Simulated || isStandIn(v.kubelet)
	if f.Simulated {
		f.Note += " (simulated)"
	}
	return f, nil
}
