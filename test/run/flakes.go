package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// A test that missed a deadline and passes alone is a flake. Every flake is kept in a committed
// file, so that a test that keeps missing deadlines fails the run in the end, on a quiet machine.
const (
	flakesFile = "test/run/flakes.json"
	// maxOccurrences is how often one test may be listed, and maxFlakes how many tests of one run.
	maxOccurrences, maxFlakes = 2, 3
)

// flake is a test that missed a deadline beside the others and passed alone.
type flake struct {
	Test string  `json:"test"` // "folder TestName"
	Date string  `json:"date"` // YYYY-MM-DD, UTC
	Seed uint64  `json:"seed"`
	Load float64 `json:"load"` // the machine's load average over one minute
}

// flakes is the committed list and what this run adds to it.
type flakes struct {
	path  string
	known []flake
	fresh []flake
}

func readFlakes(root string) (*flakes, error) {
	f := &flakes{path: filepath.Join(root, flakesFile)}
	text, err := os.ReadFile(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &f.known); err != nil {
		return nil, fmt.Errorf("%s: %w", flakesFile, err)
	}
	return f, nil
}

func (f *flakes) add(test testKey, seed uint64, load float64) {
	f.fresh = append(f.fresh, flake{
		Test: test.String(), Date: time.Now().UTC().Format(time.DateOnly), Seed: seed, Load: load,
	})
}

// verdict returns an error when a test is listed too often, or this run has too many flakes.
func (f *flakes) verdict() error {
	var errs []error
	if n := len(f.fresh); n > maxFlakes {
		errs = append(errs, fmt.Errorf("%d tests missed a deadline in this run; at most %d may", n, maxFlakes))
	}
	for _, one := range f.fresh {
		seen := 1
		for _, before := range f.known {
			if before.Test == one.Test {
				seen++
			}
		}
		if seen > maxOccurrences {
			errs = append(errs, fmt.Errorf("%s missed a deadline %d times: fix it, show it by 30 runs beside a CPU hog, "+
				"and remove it from %s", one.Test, seen, flakesFile))
		}
	}
	return errors.Join(errs...)
}

// save appends the flakes of this run to the committed file. It does nothing when there are none.
func (f *flakes) save() error {
	if len(f.fresh) == 0 {
		return nil
	}
	text, err := json.MarshalIndent(slices.Concat(f.known, f.fresh), "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(f.path, append(text, '\n'), 0o644)
}

// loadAverage is the machine's load over the last minute, 0 where the kernel does not tell.
func loadAverage() float64 {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	var load float64
	if _, err := fmt.Sscan(string(text), &load); err != nil {
		return 0
	}
	return load
}
