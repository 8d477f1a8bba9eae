package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// The budget of `make test`: for each step the CPU seconds of the reference machine that its test
// binaries may use with their children, and the demo. Shared servers and compilers are not in it.
// The first row is what was there when steps got budgets: with the tolerance, one and a half times
// what a whole run used on two cores whose factor was between 1 and 4. A new capability gets a row
// of its own, of at most maxCapability in all steps together.
const (
	budgetFile    = "test/run/budget.json"
	maxCapability = 50
	// tolerance is what a step may take above the sum: two runs of one tree differ by so much.
	tolerance = 1.25
	// shownOver is how many packages of a step over budget are named.
	shownOver = 5
)

type budgetRow struct {
	Capability string             `json:"capability"`
	Steps      map[string]float64 `json:"cpu_seconds"` // by step
}

// budgetSteps are the steps that have a budget.
var budgetSteps = []string{endToEndStep, demoStep, portalStep, harnessStep, racedStep, otherStep}

func readBudget(root string) ([]budgetRow, error) {
	text, err := os.ReadFile(filepath.Join(root, budgetFile))
	if err != nil {
		return nil, err
	}
	var rows []budgetRow
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&rows); err != nil {
		return nil, fmt.Errorf("%s: %w", budgetFile, err)
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("%s has no rows", budgetFile)
	}
	for i, row := range rows {
		sum, wrong := 0.0, row.Capability == "" || len(row.Steps) == 0
		for step, seconds := range row.Steps {
			sum += seconds
			wrong = wrong || seconds <= 0 || !slices.Contains(budgetSteps, step)
		}
		if wrong || i > 0 && sum > maxCapability {
			return nil, fmt.Errorf("%s, row %d (%q, %.0f s): a capability has a name, adds to steps of %q, and adds at most %d CPU seconds; "+
				"move the long form of its tests to an area of make proof", budgetFile, i+1, row.Capability, sum, budgetSteps, maxCapability)
		}
	}
	return rows, nil
}

// checkBudget compares what each step used with the sum of its rows. It returns the lines of the
// report, and an error that names each step over budget with its costliest packages.
func checkBudget(rows []budgetRow, usage []binaryCost, demo time.Duration, factor float64) (string, error) {
	allowed, used := map[string]float64{}, map[string]float64{demoStep: demo.Seconds()}
	for _, row := range rows {
		for step, seconds := range row.Steps {
			allowed[step] += seconds * factor * tolerance
		}
	}
	for _, one := range usage {
		used[one.Step] += one.CPU.Seconds()
	}
	var report strings.Builder
	var errs []error
	fmt.Fprintf(&report, "%-34s %12s %12s\n", "CPU seconds of test binaries", "used", "budget")
	for _, step := range slices.Sorted(maps.Keys(allowed)) {
		fmt.Fprintf(&report, "%-34s %12.0f %12.0f\n", step, used[step], allowed[step])
		if used[step] > allowed[step] {
			errs = append(errs, fmt.Errorf("over budget: step %q used %.0f CPU s, %s allows %.0f on this machine; its costliest packages: %s",
				step, used[step], budgetFile, allowed[step], costliestOf(step, usage)))
		}
	}
	return report.String(), errors.Join(errs...)
}

// costliestOf names the packages of a step that used most.
func costliestOf(step string, usage []binaryCost) string {
	of := slices.DeleteFunc(slices.Clone(usage), func(one binaryCost) bool { return one.Step != step })
	slices.SortFunc(of, func(a, b binaryCost) int { return cmp.Compare(b.CPU, a.CPU) })
	var names []string
	for _, one := range of[:min(shownOver, len(of))] {
		names = append(names, fmt.Sprintf("%s %.0f s", one.Package, one.CPU.Seconds()))
	}
	return cmp.Or(strings.Join(names, ", "), "none")
}
