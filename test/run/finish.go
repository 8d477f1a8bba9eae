package main

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const shownSlowest = 12

// finish prints the tables, the flakes, the budget and the counts, and returns the verdict. All
// that the run started has ended.
func (s *session) finish(err error) error {
	r, rerr := s.results()
	err = errors.Join(err, rerr)
	if names := s.board.failed(); len(names) > 0 {
		err = errors.Join(err, fmt.Errorf("failed steps: %s", strings.Join(names, ", ")))
	}
	all := childrenCPU()
	quietness, now := s.measuredQuietness()
	usage, uerr := readUsage(filepath.Join(s.root, usageFile), s.root)
	s.board.printf("\n%s\n%s\n%s\n", slowestTests(r), costliestPackages(usage), s.board.table(all))
	s.board.printf("the machine was %s; deadlines were up to %.2f times as long\n", quietness, max(s.speed.Wall, s.pace.worst()))
	err = errors.Join(err, uerr, s.tellFlakes(r, quietness))
	kept := record{Tree: s.tree, Whole: s.whole, Quietness: quietness, CPU: now.CPU, Demo: s.board.cpuOf(demoStep)}
	kept.Passed, kept.Failed, kept.Skipped = r.counts()
	if s.whole {
		over, berr := s.tellBudget(usage, kept)
		if err = errors.Join(err, berr); over != nil {
			s.board.printf("%v\n(make check decides on it)\n", over)
		}
	}
	for _, key := range r.failures() {
		s.board.printf("FAILED %s\n%s", key, r.excerpt(key))
	}
	s.board.printf("%s", s.board.reasons())
	minutes := time.Since(s.board.began).Minutes()
	switch {
	case kept.Failed > 0:
		err = errors.Join(err, fmt.Errorf("%d tests failed", kept.Failed))
	case kept.Passed == 0:
		err = errors.Join(err, errors.New("no test ran"))
	}
	if err != nil {
		kept.Failed = max(kept.Failed, 1)
	}
	if serr := kept.save(s.root); serr != nil {
		err = errors.Join(err, serr)
		kept.Failed = max(kept.Failed, 1)
	}
	if err != nil {
		s.board.printf("\nFAILED (%.0f minutes): %v\n", minutes, err)
	} else {
		s.board.printf("\neverything passed (%.0f minutes)\n", minutes)
	}
	s.board.printf("%s", kept.counts())
	return err
}

// tellFlakes names the tests that passed only when they ran again, and keeps them. Too many of them
// fail the run only on a machine that was quiet.
func (s *session) tellFlakes(r *results, q quietness) error {
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
	verdict := f.verdict()
	if verdict != nil && !q.quiet() {
		s.board.printf("no verdict on missed deadlines, because the machine was %s:\n%v\n", q, verdict)
		verdict = nil
	}
	return errors.Join(f.save(), verdict)
}

// tellBudget prints what each step used and may use. It returns an error for the steps over budget,
// and one when the budget cannot be read.
func (s *session) tellBudget(usage []binaryCost, r record) (over, err error) {
	rows, err := readBudget(s.root)
	if err != nil {
		return nil, err
	}
	report, over := checkBudget(rows, usage, r.Demo, r.CPU)
	s.board.printf("%s", report)
	return over, nil
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
	return b.String() + longPackages(usage)
}

// longTests is how long a test binary should take at most, on a quiet machine. A longer one is
// named, and fails nothing.
const longTests = 90 * time.Second

func longPackages(usage []binaryCost) string {
	long := slices.DeleteFunc(slices.Clone(usage), func(one binaryCost) bool { return one.Wall <= longTests })
	slices.SortFunc(long, func(x, y binaryCost) int { return cmp.Compare(y.Wall, x.Wall) })
	var names []string
	for _, one := range long {
		names = append(names, fmt.Sprintf("%s (%s) %.0f s", one.Package, one.Step, one.Wall.Seconds()))
	}
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("took more than %.0f s: %s\n", longTests.Seconds(), strings.Join(names, ", "))
}
