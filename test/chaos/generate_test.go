package chaos_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/test/chaos"
)

func onboarding() []*chaos.ScenarioSet { return []*chaos.ScenarioSet{chaos.Onboarding()} }

func allSets() []*chaos.ScenarioSet {
	return slices.Concat(onboarding(), chaos.DecommissionJobs(), chaos.Booted(), chaos.AgentJobs(), chaos.AllocationJobs(), chaos.InstanceJobs())
}

// sets are the sets that are played together.
func sets() map[string][]*chaos.ScenarioSet {
	return map[string][]*chaos.ScenarioSet{"onboarding": onboarding(), "decommission": chaos.DecommissionJobs(), "booted": chaos.Booted(), "agents": chaos.AgentJobs(),
		"allocations": chaos.AllocationJobs(), "instances": chaos.InstanceJobs()}
}

// TestCases_FollowTheSeed: the same seed gives the same cases, another seed others, and
// each case comes back from the line that replays it.
func TestCases_FollowTheSeed(t *testing.T) {
	t.Parallel()
	for _, sets := range sets() {
		cases := chaos.Generate(sets, 1000, 7)
		require.Len(t, cases, 1000)
		require.Equal(t, cases, chaos.Generate(sets, 1000, 7))
		require.Equal(t, cases[:300], chaos.Generate(sets, 300, 7))
		require.NotEqual(t, cases, chaos.Generate(sets, 1000, 8))
		for _, c := range cases {
			again, err := chaos.ParseCase(c.String(), sets)
			require.NoError(t, err)
			require.Equal(t, c.String(), again.String())
		}
	}
}

// coveredBy is how many cases cover all, where three hundred do not.
var coveredBy = map[string]int{"allocations": 400}

// TestCases_CoverAllFaults checks that each stage meets each kind of fault that can
// come to it, each point of each path is met, and some jobs get two faults.
func TestCases_CoverAllFaults(t *testing.T) {
	t.Parallel()
	for name, sets := range sets() {
		for seed := range uint64(20) {
			met, points, pairs := map[string]bool{}, map[string]bool{}, 0
			for _, c := range chaos.Generate(sets, max(300, coveredBy[name]), seed) {
				for _, h := range c.Faults {
					met[string(c.Job)+h.Point.Stage+" "+string(h.Kind)] = true
					points[string(c.Job)+" "+h.Point.String()], points[string(c.Job)+"/"+c.Path+" "+h.Point.String()] = true, true
				}
				if len(c.Faults) == 2 && c.Faults[0].Kind != chaos.Cancel {
					pairs++
				}
			}
			for _, p := range sets {
				covers(t, p, met, points)
			}
			require.GreaterOrEqual(t, pairs, 3, "%s: seed %d", name, seed)
		}
	}
}

func covers(t *testing.T, p *chaos.ScenarioSet, met, points map[string]bool) {
	t.Helper()
	asks := map[string]bool{} // stages that ask the agent
	for _, path := range p.Paths {
		for _, at := range path.Points {
			where := string(p.Kind)
			if len(path.First) > 0 { // each clean-up meets its own; straight paths share their stages
				where += "/" + path.Name
			}
			require.True(t, points[where+" "+at.String()], "%s on path %s", at, path.Name)
			asks[at.Stage] = asks[at.Stage] || at.Activity == "RunTask" && len(path.First) == 0
		}
	}
	for _, stage := range p.Stages {
		for _, k := range chaos.Kinds() {
			ofAgent, ofTenant := k == chaos.AgentKilled || k == chaos.AgentCut, k == chaos.ReleaseAsked
			required := len(p.Strata) == 0 || slices.Contains(p.Strata, k)
			if required && (!ofAgent || asks[stage]) && (!ofTenant || p.Name == "allocation_provision") {
				require.True(t, met[string(p.Kind)+stage+" "+string(k)], "%s in %s", k, stage)
			}
		}
	}
}

func TestParseCase_SaysWhy(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                       `no job kind ""`,
		"reboot/plain:":          `no job kind "reboot"`,
		"onboarding/scenic:":     "it has plain, ",
		"onboarding/plain:x.Y=z": `no point "x.Y"`,
		"onboarding/plain:deploy_via_maas.DeployMachine=crash_after.soft": "the variants [silent panic]",
		"onboarding/plain:deploy_via_maas.DeployMachine=flood.all":        "is unknown",
	} {
		_, err := chaos.ParseCase(text, onboarding())
		require.ErrorContains(t, err, want, text)
	}
}
