package chaos_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/internal/e2e/chaos"
)

func plugs() []*chaos.Plug { return []*chaos.Plug{chaos.Onboarding()} }

// TestCasesOfASeed: the same seed gives the same cases, another seed others, and
// each case comes back from the line that replays it.
func TestCasesOfASeed(t *testing.T) {
	t.Parallel()
	cases := chaos.Generate(plugs(), 1000, 7)
	require.Len(t, cases, 1000)
	require.Equal(t, cases, chaos.Generate(plugs(), 1000, 7))
	require.Equal(t, cases[:300], chaos.Generate(plugs(), 300, 7))
	require.NotEqual(t, cases, chaos.Generate(plugs(), 1000, 8))
	for _, c := range cases {
		again, err := chaos.ParseCase(c.String(), plugs())
		require.NoError(t, err)
		require.Equal(t, c.String(), again.String())
	}
}

// TestThreeHundredCasesCoverAll: each stage meets each kind of trouble, each
// point of each path is met, and some jobs suffer twice.
func TestThreeHundredCasesCoverAll(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		met, points, pairs := map[string]bool{}, map[string]bool{}, 0
		for _, c := range chaos.Generate(plugs(), 300, seed) {
			for _, h := range c.Hits {
				met[h.Point.Stage+" "+string(h.Kind)] = true
				points[c.Path+" "+h.Point.String()] = true
			}
			if len(c.Hits) == 2 && c.Hits[0].Kind != chaos.Cancel {
				pairs++
			}
		}
		for _, p := range plugs() {
			for _, stage := range p.Stages {
				for _, k := range chaos.Kinds() {
					require.True(t, met[stage+" "+string(k)], "seed %d: %s in %s", seed, k, stage)
				}
			}
			for _, path := range p.Paths {
				for _, at := range path.Points {
					require.True(t, points[path.Name+" "+at.String()], "seed %d: %s on path %s", seed, at, path.Name)
				}
			}
		}
		require.Greater(t, pairs, 5, "seed %d", seed)
	}
}

func TestACaseThatCannotBeReadSaysWhy(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                       `no job kind ""`,
		"reboot/plain:":          `no job kind "reboot"`,
		"onboarding/scenic:":     "it has plain, ",
		"onboarding/plain:x.Y=z": `no point "x.Y"`,
		"onboarding/plain:deploy_via_maas.DeployMachine=crash_after.soft": "the variants [silent panic]",
		"onboarding/plain:deploy_via_maas.DeployMachine=flood.all":        "is unknown",
	} {
		_, err := chaos.ParseCase(text, plugs())
		require.ErrorContains(t, err, want, text)
	}
}
