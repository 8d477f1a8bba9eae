package chaos

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/lifecycle"
)

func allSets() []*ScenarioSet {
	return slices.Concat([]*ScenarioSet{Onboarding()}, DecommissionJobs(), Booted(), AgentJobs(), AllocationJobs(), MachineRuns(), InstanceJobs())
}

func TestStratumCases_EverySeedHasAll(t *testing.T) {
	t.Parallel()
	sets := allSets()
	strata := Strata(sets)
	require.Len(t, strata, 9+11+11+3+11+9+11+12+11+12+9+5+3, "no agent gets a task during an onboarding or a reissue")
	drawn := map[string]map[string]bool{} // stratum to stages
	for seed := range uint64(1000) {
		cases := StratumCases(sets, seed)
		require.Len(t, cases, len(strata))
		for i, c := range cases {
			last := c.Faults[len(c.Faults)-1]
			require.True(t, strata[i].ScenarioSet.Plays(c), "%s: %s", strata[i], c)
			require.Equal(t, strata[i].Kind, last.Kind, "%s: %s", strata[i], c)
			again, err := ParseCase(c.String(), sets)
			require.NoError(t, err)
			require.Equal(t, c, again)
			if name := strata[i].String(); drawn[name] == nil {
				drawn[name] = map[string]bool{}
			}
			drawn[strata[i].String()][last.Point.Stage] = true
		}
	}
	for _, s := range strata {
		for _, stage := range stagesWith(s.ScenarioSet, s.Kind) {
			require.True(t, drawn[s.String()][stage], "%s: no seed draws %s", s, stage)
		}
	}
}

func TestStratumCases_FollowTheSeed(t *testing.T) {
	t.Parallel()
	sets := allSets()
	require.Equal(t, StratumCases(sets, 7), StratumCases(sets, 7))
	require.NotEqual(t, StratumCases(sets, 7), StratumCases(sets, 8))
	one, same, other := NewExplorer(sets, 7), NewExplorer(sets, 7), NewExplorer(sets, 8)
	differs := false
	for range 100 {
		c := one.Next()
		require.Equal(t, c, same.Next())
		differs = differs || c.String() != other.Next().String()
	}
	require.True(t, differs)
}

// TestStrata_KillWorkersInBootedStages: each stage of the jobs of booted nodes can lose its worker.
func TestStrata_KillWorkersInBootedStages(t *testing.T) {
	t.Parallel()
	booted := Booted()[0]
	met := map[string]bool{}
	for _, path := range booted.Paths {
		if info, ok := lifecycle.DecommissionModeOf(path.Mode); ok && len(path.First) == 0 {
			for _, stage := range info.Stages {
				require.True(t, slices.ContainsFunc(placesOf(booted, stage, WorkerKilled), func(at place) bool { return at.path.Name == path.Name }),
					"%s in %s", stage, path.Name)
				met[stage] = true
			}
		}
	}
	require.ElementsMatch(t, booted.Stages, stagesWith(booted, WorkerKilled))
	require.Len(t, met, len(booted.Stages))
}
