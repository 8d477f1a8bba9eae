package chaos

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const knownText = "onboarding/plain:deploy_via_maas.DeployMachine=crash_after.silent"

func writeKnown(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "known.txt")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestReadKnown(t *testing.T) {
	t.Parallel()
	for name, one := range map[string]struct {
		text, fails string
		cases       int
	}{
		"empty":        {text: "# a heading\n\n", cases: 0},
		"one":          {text: "# a heading\n" + knownText + " # 2026-01-02 seed 7: stuck\n", cases: 1},
		"no comment":   {text: "\n" + knownText + "\n", fails: "known.txt:2: the case has no comment"},
		"unknown path": {text: "# a\n# b\nonboarding/scenic: # 2026-01-02\n", fails: `known.txt:3: case "onboarding/scenic:"`},
		"unknown kind": {text: "onboarding/plain:deploy_via_maas.DeployMachine=flood.all # x", fails: "known.txt:1: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := ReadKnown(writeKnown(t, one.text), allSets())
			if one.fails != "" {
				require.ErrorContains(t, err, one.fails)
				return
			}
			require.NoError(t, err)
			require.Len(t, got, one.cases)
		})
	}
	_, err := ReadKnown(filepath.Join(t.TempDir(), "none.txt"), allSets())
	require.ErrorIs(t, err, os.ErrNotExist)
}

// TestReadKnown_Committed: the list in the repository can be read.
func TestReadKnown_Committed(t *testing.T) {
	t.Parallel()
	_, err := ReadKnown(filepath.Join("testdata", "known.txt"), allSets())
	require.NoError(t, err)
}

// TestAppendKnown: what a run appends is read by the next one.
func TestAppendKnown(t *testing.T) {
	t.Parallel()
	path := writeKnown(t, "# a heading\n")
	c, err := ParseCase(knownText, allSets())
	require.NoError(t, err)
	res := Result{Case: c, Findings: []Finding{{Verdict: Stuck}}}
	require.NoError(t, AppendKnown(path, []string{KnownLine(res, 7, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))}))
	got, err := ReadKnown(path, allSets())
	require.NoError(t, err)
	require.Equal(t, []KnownCase{{Case: c, Comment: "2026-01-02 seed 7: stuck"}}, got)
}
