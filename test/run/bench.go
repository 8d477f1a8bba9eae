package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/slipway-cloud/slipway/test/runenv"
)

const (
	figuresFile     = "test/bench/figures.json"
	performanceFile = "docs/develop/performance.md"
	// leastOfBefore is the part of its committed ratio below which a row has fallen, and benchRuns
	// in how many runs at most it is measured. It fails when it has fallen in two of them: one run
	// may be disturbed.
	leastOfBefore = 0.85
	benchRuns     = 3
	fallsThatFail = 2
)

// figure is a line of test/bench/figures.json, and of what a benchmark writes.
type figure struct {
	Benchmark string  `json:"benchmark"`
	Row       string  `json:"row"`
	Figure    string  `json:"figure"`
	Aim       string  `json:"aim"`
	Limit     string  `json:"limit"`
	Ratio     float64 `json:"ratio,omitempty"` // of Slipway's speed to the bare engine's; 0 where the row has none
}

// hasFallen reports that a figure is clearly slower than the committed one.
func (f figure) hasFallen(committed figure) bool { return f.Ratio < leastOfBefore*committed.Ratio }

// benchAll is `make bench`: it runs the benchmarks that pattern matches, and those again whose
// ratio has fallen. With record it writes the figures to test/bench/figures.json and
// docs/develop/performance.md instead.
func benchAll(ctx context.Context, pattern string, record bool, stdout, stderr io.Writer) error {
	committed, err := readFigures(figuresFile)
	if err != nil {
		return err
	}
	packages, err := benchPackages(ctx)
	if err != nil {
		return err
	}
	return withServers(ctx, stderr, func(ctx context.Context, servers []string) error {
		measure := func(pattern string) ([]figure, error) {
			return runBenchmarks(ctx, pattern, packages, servers, stdout, stderr)
		}
		first, err := measure(pattern)
		if err != nil {
			return err
		}
		if record {
			return recordFigures(".", committed, first)
		}
		return compareFigures(stdout, committed, first, measure)
	})
}

// benchPackages are the packages that have a benchmark.
func benchPackages(ctx context.Context) ([]string, error) {
	cmd := exec.CommandContext(ctx, "git", "-c", "safe.directory=*", "grep", "--untracked", "-lE", "^func Benchmark", "--", "*_test.go")
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("look for benchmarks with git grep: %w", err)
	}
	var packages []string
	for _, file := range strings.Fields(string(out)) {
		packages = append(packages, "./"+path.Dir(file))
	}
	return slices.Compact(packages), nil
}

// runBenchmarks runs benchmarks and returns the figures of those that have a row.
func runBenchmarks(ctx context.Context, pattern string, packages, servers []string, stdout, stderr io.Writer) ([]figure, error) {
	into, err := filepath.Abs(filepath.Join(workFolder, "figures.jsonl"))
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(workFolder, 0o755); err != nil {
		return nil, err
	}
	if err := os.WriteFile(into, nil, 0o600); err != nil {
		return nil, err
	}
	args := []string{"go", "test", "-run", "^$", "-bench", pattern, "-benchtime", orDefault(os.Getenv("BENCHTIME"), "2s"), "-timeout", "60m", "-p", "1"}
	env := append(slices.Clone(servers), runenv.FiguresVar+"="+into)
	if err := runCommand(ctx, command(ctx, append(args, packages...), env, stdout, stderr)); err != nil {
		return nil, err
	}
	f, err := os.Open(into)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	var list []figure
	for dec := json.NewDecoder(f); ; {
		var one figure
		switch err := dec.Decode(&one); {
		case errors.Is(err, io.EOF):
			return list, nil
		case err != nil:
			return nil, fmt.Errorf("%s: %w", into, err)
		}
		list = append(list, one)
	}
}

// compareFigures prints each figure beside the committed ratio, measures again what has fallen, and
// returns an error that names the rows that have fallen in two runs.
func compareFigures(out io.Writer, committed, first []figure, measure func(pattern string) ([]figure, error)) error {
	before := map[string]figure{}
	for _, f := range committed {
		before[f.Row] = f
	}
	fmt.Fprintf(out, "\n%s\n", comparison(before, first))
	falls := map[string]int{}
	suspects := fallen(before, first, falls)
	for run := 2; run <= benchRuns && len(suspects) > 0; run++ {
		fmt.Fprintf(out, "run %d of %d, of the benchmarks whose ratio is below %.2f of the committed one\n", run, benchRuns, leastOfBefore)
		again, err := measure(patternOf(suspects))
		if err != nil {
			return err
		}
		rows := slices.DeleteFunc(again, func(f figure) bool {
			return !slices.ContainsFunc(suspects, func(s figure) bool { return s.Row == f.Row })
		})
		fmt.Fprintf(out, "\n%s\n", comparison(before, rows))
		fallen(before, rows, falls)
		suspects = slices.DeleteFunc(rows, func(f figure) bool { return falls[f.Row] >= fallsThatFail })
	}
	var slower []string
	for _, f := range committed {
		if falls[f.Row] >= fallsThatFail {
			slower = append(slower, f.Row)
		}
	}
	if len(slower) > 0 {
		return fmt.Errorf("slower than %s says, in %d of %d runs: %s; make them as fast again, or record the figures with BENCH_RECORD=1 and say why",
			figuresFile, fallsThatFail, benchRuns, strings.Join(slower, "; "))
	}
	return nil
}

// fallen returns the figures that have fallen, and counts them.
func fallen(before map[string]figure, list []figure, falls map[string]int) []figure {
	out := slices.DeleteFunc(slices.Clone(list), func(f figure) bool { return !f.hasFallen(before[f.Row]) })
	for _, f := range out {
		falls[f.Row]++
	}
	return out
}

// patternOf matches the benchmarks of the figures, and no other.
func patternOf(list []figure) string {
	var names []string
	for _, f := range list {
		name, _, _ := strings.Cut(f.Benchmark, "/")
		names = append(names, name)
	}
	slices.Sort(names)
	return "^(" + strings.Join(slices.Compact(names), "|") + ")$"
}

// comparison is a table of figures, each with its ratio, the committed ratio, and the first to the
// second.
func comparison(before map[string]figure, list []figure) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-90s %7s %9s %6s  %s\n", "row", "ratio", "committed", "of it", "figure")
	for _, f := range list {
		ratio, committed, of := "-", "-", "-"
		if f.Ratio > 0 {
			ratio = fmt.Sprintf("%.3f", f.Ratio)
		}
		if old := before[f.Row].Ratio; old > 0 {
			committed, of = fmt.Sprintf("%.3f", old), fmt.Sprintf("%.2f", f.Ratio/old)
		}
		fmt.Fprintf(&b, "%-90s %7s %9s %6s  %s\n", f.Row, ratio, committed, of, f.Figure)
	}
	return b.String()
}

func readFigures(name string) ([]figure, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var list []figure
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return list, nil
}

// recordFigures replaces the committed figures of the rows that were measured, and adds rows that
// are new, in figures.json and in the table of docs/develop/performance.md.
func recordFigures(root string, committed, measured []figure) error {
	for _, f := range measured {
		if i := slices.IndexFunc(committed, func(c figure) bool { return c.Row == f.Row }); i >= 0 {
			committed[i] = f
		} else {
			committed = append(committed, f)
		}
	}
	text, err := json.MarshalIndent(committed, "", "  ")
	if err != nil {
		return err
	}
	page := filepath.Join(root, performanceFile)
	old, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	made, err := withFigures(string(old), committed)
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(filepath.Join(root, figuresFile), append(text, '\n'), 0o644), os.WriteFile(page, []byte(made), 0o644))
}

const (
	figuresBegin = "<!-- figures: BENCH_RECORD=1 make bench -->\n"
	figuresEnd   = "<!-- end of figures -->\n"
)

// withFigures returns a page with the table of the figures between its two marks.
func withFigures(page string, list []figure) (string, error) {
	before, rest, begins := strings.Cut(page, figuresBegin)
	_, after, ends := strings.Cut(rest, figuresEnd)
	if !begins || !ends {
		return "", fmt.Errorf("%s has no place for the figures: it needs the lines %q and %q", performanceFile, strings.TrimSpace(figuresBegin), strings.TrimSpace(figuresEnd))
	}
	var b strings.Builder
	b.WriteString("\n| benchmark | figure | aim | limited by |\n|---|---|---|---|\n")
	for _, f := range list {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", f.Row, f.Figure, f.Aim, f.Limit)
	}
	return before + figuresBegin + b.String() + "\n" + figuresEnd + after, nil
}
