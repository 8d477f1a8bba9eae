package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// The budget of `make test` in CPU seconds of the reference machine: test binaries with their
// children, the shared servers, and the demo run. Building, lint and the elastic chaos step are not
// in it. A new capability gets a row of its own, of at most maxCapability.
const (
	budgetFile    = "test/run/budget.json"
	maxCapability = 50
	// tolerance is what a run may take above the sum: two runs of one tree differ by so much.
	tolerance = 1.25
)

type budgetRow struct {
	Capability string  `json:"capability"`
	CPUSeconds float64 `json:"cpu_seconds"`
}

func readBudget(root string) ([]budgetRow, error) {
	text, err := os.ReadFile(filepath.Join(root, budgetFile))
	if err != nil {
		return nil, err
	}
	var rows []budgetRow
	if err := json.Unmarshal(text, &rows); err != nil {
		return nil, fmt.Errorf("%s: %w", budgetFile, err)
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("%s has no rows", budgetFile)
	}
	for i, row := range rows {
		if row.Capability == "" || row.CPUSeconds <= 0 || i > 0 && row.CPUSeconds > maxCapability {
			return nil, fmt.Errorf("%s, row %d (%q, %.0f s): a capability has a name and adds at most %d CPU seconds; "+
				"move the long form of its tests to an area of make proof", budgetFile, i+1, row.Capability, row.CPUSeconds, maxCapability)
		}
	}
	return rows, nil
}

// checkBudget compares what the run used with the sum of the rows. It returns one line for the
// report, and an error when the run is over budget.
func checkBudget(rows []budgetRow, used time.Duration, s speed) (string, error) {
	var sum float64
	for _, row := range rows {
		sum += row.CPUSeconds
	}
	limit := sum * s.CPU * tolerance
	line := fmt.Sprintf("budget: tests, servers and demo used %.0f CPU s; %s allows %.0f (%.0f, times %.2f for this machine, times %.2f)",
		used.Seconds(), budgetFile, limit, sum, s.CPU, tolerance)
	if used.Seconds() > limit {
		return line, fmt.Errorf("%s: over budget; the packages above say where", line)
	}
	return line, nil
}
