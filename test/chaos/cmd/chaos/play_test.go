package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/test/chaos"
)

// TestParse_Seed: every number is a seed, 0 too. Without the flag the time is the seed.
func TestParse_Seed(t *testing.T) {
	t.Parallel()
	f, err := parse([]string{"--seed", "0", "--for", "1s", "--limit", "15m"}, io.Discard)
	require.NoError(t, err)
	require.Zero(t, f.seed)
	require.Equal(t, 15*time.Minute, f.limit)
	f, err = parse(nil, io.Discard)
	require.NoError(t, err)
	require.InDelta(t, time.Now().Unix(), f.seed, 60)
	_, err = parse([]string{"--seed", "-1"}, io.Discard)
	require.Error(t, err)
}

// TestTellLeft_KeepsThemForTheNextRun: the strata that were left out are named, and read again by
// the next run.
func TestTellLeft_KeepsThemForTheNextRun(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	f := &flags{out: &out, left: filepath.Join(t.TempDir(), "left")}
	require.Empty(t, readLeft(f.left), "the first run has no list")
	names := []string{"onboarding x cancel", "booted x timeout"}
	require.NoError(t, f.tellLeft(chaos.Coverage{Played: 1, All: 3, Left: names}))
	require.Contains(t, out.String(), "left out 2 of 3 strata for lack of time:\n  onboarding x cancel\n  booted x timeout\n")
	require.Equal(t, names, readLeft(f.left))
	require.NoError(t, f.tellLeft(chaos.Coverage{Played: 3, All: 3}))
	require.Empty(t, readLeft(f.left))
	left, err := os.ReadDir(filepath.Dir(f.left))
	require.NoError(t, err)
	require.Len(t, left, 1, "nothing else stays there")
}

// TestProof_PlaysEveryStratum: the cases of the areas of proof hold every stratum of every set,
// whatever the seed.
func TestProof_PlaysEveryStratum(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../proof/areas.json")
	require.NoError(t, err)
	var list struct {
		Areas []struct {
			Name    string
			Command []string
		}
	}
	require.NoError(t, json.Unmarshal(text, &list))
	played := map[string]bool{}
	for _, area := range list.Areas {
		if !strings.HasPrefix(area.Name, "chaos-") {
			continue
		}
		var args []string
		for _, arg := range area.Command[1:] {
			args = append(args, strings.ReplaceAll(arg, "{seed}", "1"))
		}
		f, err := parse(args, io.Discard)
		require.NoError(t, err, area.Name)
		require.Len(t, f.sets, 1, area.Name)
		for _, stratum := range chaos.Strata(f.o.Sets) {
			played[stratum.String()] = true
		}
		for seed := range uint64(50) {
			met := map[string]bool{}
			for _, c := range chaos.Generate(f.o.Sets, f.cases, seed) {
				for _, set := range f.o.Sets {
					if !set.Plays(c) {
						continue
					}
					for _, fault := range c.Faults {
						met[chaos.Stratum{ScenarioSet: set, Kind: fault.Kind}.String()] = true
					}
				}
			}
			for _, stratum := range chaos.Strata(f.o.Sets) {
				require.True(t, met[stratum.String()], "%s, seed %d: %s", area.Name, seed, stratum)
			}
		}
	}
	f, err := parse(nil, io.Discard)
	require.NoError(t, err)
	for _, stratum := range chaos.Strata(f.all) {
		require.True(t, played[stratum.String()], "no area of proof plays %s", stratum)
	}
}
