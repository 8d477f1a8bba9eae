package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const shownSlowest = 12

// finish prints the tables, the flakes, the budget and the counts, and returns the verdict.
func (s *session) finish(ctx context.Context, err error) error {
	r, rerr := s.results()
	err = errors.Join(err, rerr)
	if ctx.Err() != nil {
		err = errors.Join(err, context.Cause(ctx))
	}
	if names := s.board.failed(); len(names) > 0 {
		err = errors.Join(err, fmt.Errorf("failed steps: %s", strings.Join(names, ", ")))
	}
	all := childrenCPU()
	usage, uerr := readUsage(filepath.Join(s.root, usageFile), s.root)
	s.board.printf("\n%s\n%s\n%s\n", slowestTests(r), costliestPackages(usage), s.board.table(all))
	err = errors.Join(err, uerr, s.tellFlakes(r), s.tellBudget(usage, all))
	for _, key := range r.failures() {
		s.board.printf("FAILED %s\n%s", key, r.excerpt(key))
	}
	passed, failed, skipped := r.counts()
	minutes := time.Since(s.board.began).Minutes()
	switch {
	case failed > 0:
		err = errors.Join(err, fmt.Errorf("%d tests failed", failed))
	case passed == 0:
		err = errors.Join(err, errors.New("no test ran"))
	}
	if err != nil {
		s.board.printf("\nFAILED (%.0f minutes): %v\n", minutes, err)
		failed = max(failed, 1)
	} else {
		s.board.printf("\neverything passed (%.0f minutes)\n", minutes)
	}
	s.board.printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped)
	return err
}

// tellFlakes names the tests that passed only when they ran again, and keeps them.
func (s *session) tellFlakes(r *results) error {
	f, err := readFlakes(s.root)
	if err != nil {
		return err
	}
	for _, top := range s.again {
		if r.action[top] != "pass" {
			continue // it failed again and counts as failed
		}
		f.add(top, s.seed, loadAverage())
		s.board.printf("FLAKE %s missed a deadline beside the others and passed alone (seed %d, load %.1f); commit %s\n",
			top, s.seed, loadAverage(), flakesFile)
	}
	return errors.Join(f.save(), f.verdict())
}

// tellBudget compares the cost of a whole run with the budget.
func (s *session) tellBudget(usage []binaryCost, all time.Duration) error {
	if !s.whole {
		return nil
	}
	rows, err := readBudget(s.root)
	if err != nil {
		return err
	}
	line, err := checkBudget(rows, s.budgeted(usage, all), s.speed.slower(calibrate()))
	s.board.printf("%s\n", line)
	return err
}

// budgeted is what the budget is about: the test binaries, the demo, and the servers that no step
// accounts for.
func (s *session) budgeted(usage []binaryCost, all time.Duration) time.Duration {
	var sum time.Duration
	for _, one := range usage {
		sum += one.CPU
	}
	s.board.mu.Lock()
	defer s.board.mu.Unlock()
	for _, one := range s.board.steps {
		all -= one.CPU
		if one.Name == demoStep {
			sum += one.CPU
		}
	}
	return sum + max(all, 0)
}

func slowestTests(r *results) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-80s %8s\n", "slowest tests", "wall s")
	for _, key := range r.slowest(shownSlowest) {
		fmt.Fprintf(&b, "%-80s %8.1f\n", key, r.elapsed[key])
	}
	return b.String()
}

func costliestPackages(usage []binaryCost) string {
	slices.SortFunc(usage, func(x, y binaryCost) int { return cmp.Compare(y.CPU, x.CPU) })
	var b strings.Builder
	fmt.Fprintf(&b, "%-34s %-26s %8s %8s %9s\n", "costliest test binaries", "step", "CPU s", "wall s", "peak MiB")
	for _, one := range usage[:min(shownSlowest, len(usage))] {
		fmt.Fprintf(&b, "%-34s %-26s %8.1f %8.1f %9d\n", one.Package, one.Step, one.CPU.Seconds(), one.Wall.Seconds(), one.RSS>>10)
	}
	var sum time.Duration
	for _, one := range usage {
		sum += one.CPU
	}
	fmt.Fprintf(&b, "%-34s %-26s %8.1f\n", fmt.Sprintf("all %d", len(usage)), "", sum.Seconds())
	return b.String()
}
