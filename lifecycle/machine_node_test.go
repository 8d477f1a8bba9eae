package lifecycle_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/lifecycle"
)

func TestConditions_ObserveNode(t *testing.T) {
	t.Parallel()
	const unknown = lifecycle.ReasonUnknown
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	before := lifecycle.Conditions{}.
		Observe(lifecycle.ReachableCondition, true, lifecycle.ReasonAgentReports, now).
		Observe(lifecycle.ProvisionedCondition, true, lifecycle.ReasonNodeInstalled, now).
		Observe(lifecycle.InCustomerClusterCondition, true, "NodeReady", now)
	type reasons struct{ reachable, bmc, provisioned, degraded, intervention string }
	for name, c := range map[string]struct {
		facts   lifecycle.NodeFacts
		want    reasons
		banners int
	}{
		"active": {lifecycle.NodeFacts{Status: lifecycle.NodeActive, BMCKnown: true, BMCAnswers: true},
			reasons{"AgentReports", "BMCAnswers", "NodeInstalled", "NoCriticalDrift", "NothingParked"}, 0},
		"offline": {lifecycle.NodeFacts{Status: lifecycle.NodeOffline, BMCKnown: true},
			reasons{"AgentSilent", "BMCSilent", "NodeInstalled", "NoCriticalDrift", "NothingParked"}, 0},
		"quarantined": {lifecycle.NodeFacts{Status: lifecycle.NodeQuarantined, CriticalDrift: true},
			reasons{unknown, unknown, unknown, "CriticalDrift", "NodeQuarantined"}, 2},
		"a parked job": {lifecycle.NodeFacts{Status: lifecycle.NodeDraining, JobParked: true},
			reasons{unknown, unknown, unknown, "NoCriticalDrift", "JobParked"}, 1},
		"enrolling": {lifecycle.NodeFacts{Status: lifecycle.NodeEnrolling},
			reasons{unknown, unknown, "NodeNotInstalled", "NoCriticalDrift", "NothingParked"}, 0},
		"deleted": {lifecycle.NodeFacts{Status: lifecycle.NodeDeleted},
			reasons{unknown, unknown, "NodeLeft", "NoCriticalDrift", "NothingParked"}, 0},
	} {
		got := before.ObserveNode(c.facts, now.Add(time.Hour))
		reason := func(of lifecycle.ConditionType) string { found, _ := got.Find(of); return found.Reason }
		require.Equal(t, c.want, reasons{
			reason(lifecycle.ReachableCondition), reason(lifecycle.BMCReachableCondition), reason(lifecycle.ProvisionedCondition),
			reason(lifecycle.DegradedCondition), reason(lifecycle.NeedsInterventionCondition),
		}, name)
		require.Len(t, lifecycle.Banners(got), c.banners, name)
		require.Equal(t, "NodeReady", reason(lifecycle.InCustomerClusterCondition), "%s: it is no fact of the node", name)
		reachable, _ := got.Find(lifecycle.ReachableCondition)
		require.Equal(t, c.facts.Status != lifecycle.NodeOffline, reachable.Status, "%s: what is unknown keeps its status", name)
	}
}
