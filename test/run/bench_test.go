package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCompareFigures_FailsWhatFallsTwice plays runs in which the ratio of a row is that of before
// or has fallen.
func TestCompareFigures_FailsWhatFallsTwice(t *testing.T) {
	t.Parallel()
	const good, bad = 0.44, 0.42 // of 0.5: 0.85 of it are 0.425
	for name, tc := range map[string]struct {
		runs  []float64 // ratios of the row, run by run
		fails bool
	}{
		"as fast":            {[]float64{good}, false},
		"slow once":          {[]float64{bad, good, good}, false},
		"slow in the first":  {[]float64{bad, bad}, true},
		"slow in two of all": {[]float64{bad, good, bad}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run := 0
			measure := func(ratio float64) []figure {
				run++
				return []figure{{Benchmark: "BenchmarkX", Row: "x", Ratio: ratio}, {Benchmark: "BenchmarkY/part", Row: "y", Ratio: 1}, {Benchmark: "BenchmarkZ", Row: "no ratio"}}
			}
			committed := []figure{{Row: "x", Ratio: 0.5}, {Row: "y", Ratio: 0.9}, {Row: "no ratio"}, {Row: "not run", Ratio: 1}}
			var out bytes.Buffer
			err := compareFigures(&out, committed, measure(tc.runs[0]), func(pattern string) ([]figure, error) {
				require.Equal(t, "^(BenchmarkX)$", pattern)
				return measure(tc.runs[run]), nil
			})
			require.Equal(t, len(tc.runs), run)
			if !tc.fails {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, "in 2 of 3 runs: x;")
			require.Regexp(t, `(?m)^x +0\.420 +0\.500 +0\.84 `, out.String())
		})
	}
}

// TestFigures_AreOnThePage holds docs/develop/performance.md to the committed figures, of which it
// is made.
func TestFigures_AreOnThePage(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	list, err := readFigures(filepath.Join(root, figuresFile))
	require.NoError(t, err)
	page, err := os.ReadFile(filepath.Join(root, performanceFile))
	require.NoError(t, err)
	made, err := withFigures(string(page), list)
	require.NoError(t, err)
	require.Equal(t, made, string(page), "run BENCH_RECORD=1 make bench")
}

func TestRecordFigures_ReplacesAndAddsRows(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for _, dir := range []string{filepath.Dir(figuresFile), filepath.Dir(performanceFile)} {
		require.NoError(t, os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	page := filepath.Join(root, performanceFile)
	require.NoError(t, os.WriteFile(page, []byte("head\n"+figuresBegin+"old\n"+figuresEnd+"foot\n"), 0o600))
	committed := []figure{{Row: "a", Figure: "1"}, {Row: "b", Figure: "2"}}
	require.NoError(t, recordFigures(root, committed, []figure{{Row: "b", Figure: "3", Ratio: 0.3}, {Row: "c", Figure: "4", Aim: "5", Limit: "6"}}))
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	require.Regexp(t, `^head\n<!-- [^\n]+\n\n\| benchmark[^\n]+\n[^\n]+\n\| a \| 1 [^\n]+\n\| b \| 3 [^\n]+\n\| c \| 4 \| 5 \| 6 \|\n\n<!-- [^\n]+\nfoot\n$`, string(text))
	list, err := readFigures(filepath.Join(root, figuresFile))
	require.NoError(t, err)
	require.Len(t, list, 3)
	require.NoError(t, os.WriteFile(page, []byte("nothing"), 0o600))
	require.ErrorContains(t, recordFigures(root, list, nil), "has no place for the figures")
}
