package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

// maxLine bounds one event; go test splits long output itself.
const maxLine = 4 << 20

// event is the part of a line of `go test -json` that counting needs (go doc test2json).
type event struct {
	Action  string
	Package string
	Test    string
}

// tally is what a test run came to. A package that failed without a failed test of its own (it did not compile, panicked, or
// ran out of time) counts as one failure.
type tally struct {
	passed, failed, skipped int
	failures                []string // "package test", sorted
}

func countFile(path string, out io.Writer) error {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("read the test results: %w", err)
	}
	defer func() { _ = file.Close() }()
	sum, err := count(file)
	if err != nil {
		return fmt.Errorf("read the test results in %s: %w", path, err)
	}
	for _, name := range sum.failures {
		if _, err := fmt.Fprintln(out, "FAILED", name); err != nil {
			return err
		}
	}
	if _, err := fmt.Fprintf(out, "%d passed, %d failed, %d skipped\n", sum.passed, sum.failed, sum.skipped); err != nil {
		return err
	}
	switch {
	case sum.failed > 0:
		return errors.New("tests failed")
	case sum.passed == 0:
		return errors.New("no test ran")
	default:
		return nil
	}
}

func count(in io.Reader) (tally, error) {
	type key struct{ pkg, test string }
	last := map[key]string{} // the last word on each test; a rerun replaces it
	packageFailed := map[string]bool{}
	testFailed := map[string]bool{}
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 0, 64<<10), maxLine)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return tally{}, fmt.Errorf("not a line of go test -json: %w", err)
		}
		switch {
		case e.Action != "pass" && e.Action != "fail" && e.Action != "skip":
		case e.Test != "":
			last[key{e.Package, e.Test}] = e.Action
		case e.Action == "fail":
			packageFailed[e.Package] = true
		}
	}
	if err := lines.Err(); err != nil {
		return tally{}, err
	}
	var sum tally
	for k, action := range last {
		switch action {
		case "pass":
			sum.passed++
		case "skip":
			sum.skipped++
		case "fail":
			testFailed[k.pkg] = true
			sum.failures = append(sum.failures, k.pkg+" "+k.test)
		}
	}
	for pkg := range packageFailed {
		if !testFailed[pkg] {
			sum.failures = append(sum.failures, pkg+" (the package itself: see above)")
		}
	}
	slices.Sort(sum.failures)
	sum.failed = len(sum.failures)
	return sum, nil
}
