package lifecycle_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/lifecycle"
)

func TestConditions_ObserveProbes(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	later := now.Add(time.Hour)
	before := lifecycle.Conditions{}.
		Observe(lifecycle.ReachableCondition, true, lifecycle.ReasonAgentReports, now).
		Observe(lifecycle.BMCReachableCondition, false, lifecycle.ReasonBMCSilent, now).
		Observe(lifecycle.InCustomerClusterCondition, true, "NodeReady", now)
	yes := func(reason string, at time.Time) lifecycle.Condition {
		return lifecycle.Condition{Status: true, Reason: reason, LastTransition: at}
	}
	no := func(reason string, at time.Time) lifecycle.Condition {
		return lifecycle.Condition{Reason: reason, LastTransition: at}
	}
	for name, c := range map[string]struct {
		facts          lifecycle.ProbeFacts
		reachable, bmc lifecycle.Condition
	}{
		"both answer":    {lifecycle.ProbeFacts{SSH: lifecycle.ProbeAnswered, BMC: lifecycle.ProbeAnswered}, yes("SSHAnswers", now), yes("BMCAnswers", later)},
		"neither does":   {lifecycle.ProbeFacts{SSH: lifecycle.ProbeSilent, BMC: lifecycle.ProbeSilent}, no("SSHSilent", later), no("BMCSilent", now)},
		"another key":    {lifecycle.ProbeFacts{SSH: lifecycle.ProbeOtherKey}, no("HostKeyChanged", later), no("Unknown", now)},
		"none was asked": {lifecycle.ProbeFacts{}, yes("Unknown", now), no("Unknown", now)},
	} {
		got := before.ObserveProbes(c.facts, later)
		c.reachable.Type, c.bmc.Type = lifecycle.ReachableCondition, lifecycle.BMCReachableCondition
		require.Equal(t, lifecycle.Conditions{c.reachable, c.bmc, before[2]}, got, name)
	}
	require.Empty(t, lifecycle.Conditions(nil).ObserveProbes(lifecycle.ProbeFacts{}, now), "what was never observed stays absent")
}
