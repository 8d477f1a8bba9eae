package lifecycle_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/lifecycle"
)

func TestObserveCluster(t *testing.T) {
	t.Parallel()
	now := time.Now()
	before := lifecycle.Conditions{}.Observe(lifecycle.InCustomerClusterCondition, true, "NodeReady", now).Observe(lifecycle.DrainedCondition, true, "CordonedWithoutPods", now)
	type want struct {
		in, drained             bool
		inReason, drainedReason string
	}
	for name, tc := range map[string]struct {
		facts lifecycle.ClusterFacts
		want  want
	}{
		"no answer":          {lifecycle.ClusterFacts{}, want{true, true, "Unknown", "Unknown"}},
		"no node":            {lifecycle.ClusterFacts{Known: true}, want{false, false, "NotJoined", "NotJoined"}},
		"ready":              {lifecycle.ClusterFacts{Known: true, Found: true, Ready: true}, want{true, false, "NodeReady", "NotCordoned"}},
		"not ready":          {lifecycle.ClusterFacts{Known: true, Found: true}, want{true, false, "NodeNotReady", "NotCordoned"}},
		"pods were not read": {lifecycle.ClusterFacts{Known: true, Found: true, Ready: true, Cordoned: true}, want{true, true, "NodeReady", "Unknown"}},
		"pods are left":      {lifecycle.ClusterFacts{Known: true, Found: true, Ready: true, Cordoned: true, PodsKnown: true, Pods: 1}, want{true, false, "NodeReady", "PodsLeft"}},
		"drained":            {lifecycle.ClusterFacts{Known: true, Found: true, Cordoned: true, PodsKnown: true}, want{true, true, "NodeNotReady", "CordonedWithoutPods"}},
	} {
		after := before.ObserveCluster(tc.facts, now.Add(time.Minute))
		in, _ := after.Find(lifecycle.InCustomerClusterCondition)
		drained, _ := after.Find(lifecycle.DrainedCondition)
		require.Equal(t, tc.want, want{in.Status, drained.Status, in.Reason, drained.Reason}, name)
	}
	require.Empty(t, lifecycle.Conditions{}.ObserveCluster(lifecycle.ClusterFacts{}, now), "what was never observed stays absent")
}
