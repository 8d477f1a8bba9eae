package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/slipway-cloud/slipway/test/runenv"
)

const (
	maxLine = 4 << 20 // one event; go test splits long output itself
	// keptOutput bounds how much of a test's output is kept for the classification of a failure.
	keptOutput = 256 << 10
	module     = "github.com/slipway-cloud/slipway"
)

// event is the part of a line of `go test -json` that counting needs (go doc test2json).
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
	Elapsed float64
}

// testKey names one test or subtest of a package; Test is empty for the package itself.
type testKey struct{ Package, Test string }

func (k testKey) String() string {
	name := strings.TrimPrefix(strings.TrimPrefix(k.Package, module), "/")
	if k.Test == "" {
		return name + " (the package itself: see above)"
	}
	return name + " " + k.Test
}

// top is the top-level test that k belongs to.
func (k testKey) top() testKey {
	name, _, _ := strings.Cut(k.Test, "/")
	return testKey{k.Package, name}
}

// results is what the tests of one or more files came to. A test that was run again has the
// outcome of its last run, but only a pass takes a failure back.
type results struct {
	action  map[testKey]string // "pass", "fail" or "skip"
	elapsed map[testKey]float64
	output  map[testKey]string // of failed tests
	broken  map[string]bool    // packages whose last run failed
	final   map[testKey]bool   // failures that no later run takes back
}

func newResults() *results {
	return &results{
		action: map[testKey]string{}, elapsed: map[testKey]float64{}, output: map[testKey]string{},
		broken: map[string]bool{}, final: map[testKey]bool{},
	}
}

// readFile adds the events of a file that `go test -json` wrote.
func (r *results) readFile(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("read the test results: %w", err)
	}
	defer file.Close() //nolint:errcheck // only read
	if err := r.read(file); err != nil {
		return fmt.Errorf("read the test results in %s: %w", path, err)
	}
	return nil
}

// reading is what is known of a file while it is read.
type reading struct {
	output map[testKey]string
	open   map[testKey]bool // tests that have begun and not ended
	alarm  map[testKey]bool // tests and packages whose output names a race, a panic or the like
}

func (r *results) read(in io.Reader) error {
	f := reading{output: map[testKey]string{}, open: map[testKey]bool{}, alarm: map[testKey]bool{}}
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 0, 64<<10), maxLine)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return fmt.Errorf("not a line of go test -json: %w", err)
		}
		key := testKey{e.Package, e.Test}
		switch e.Action {
		case "run":
			f.open[key] = true
		case "output":
			f.alarm[key] = f.alarm[key] || neverAgain.MatchString(e.Output)
			// A report of the race detector or of a crash may stand under any test of the package.
			crashed := testKey{Package: e.Package}
			f.alarm[crashed] = f.alarm[crashed] || crash.MatchString(e.Output)
			if len(f.output[key]) < keptOutput {
				f.output[key] += e.Output
			}
		case "pass", "fail", "skip":
			r.end(key, e, f)
			delete(f.open, key)
			delete(f.output, key)
		}
	}
	for key := range f.open { // the binary ended before them
		r.action[key], r.final[key] = "fail", true
		r.output[key] = f.output[key] + "\nthe test binary ended before this test did\n"
	}
	return lines.Err()
}

func (r *results) end(key testKey, e event, f reading) {
	failed := e.Action == "fail"
	if e.Test == "" {
		r.broken[e.Package] = failed
		r.final[key] = r.final[key] || failed && f.alarm[key]
		return
	}
	r.final[key] = r.final[key] || failed && f.alarm[key]
	if r.action[key] == "fail" && e.Action == "skip" {
		return
	}
	r.action[key], r.elapsed[key] = e.Action, e.Elapsed
	if delete(r.output, key); failed {
		r.output[key] = f.output[key]
	}
}

// failures lists the failed tests and subtests, sorted, and each package that failed without a
// failed test of its own (it did not compile, panicked, or ran out of time).
func (r *results) failures() []testKey {
	var failed []testKey
	explained := map[string]bool{}
	for key, action := range r.action {
		if action == "fail" || r.final[key] {
			failed = append(failed, key)
			explained[key.Package] = true
		}
	}
	for pkg, broken := range r.broken {
		key := testKey{Package: pkg}
		if r.final[key] || broken && !explained[pkg] {
			failed = append(failed, key)
		}
	}
	slices.SortFunc(failed, compareKeys)
	return failed
}

func compareKeys(a, b testKey) int {
	return cmp.Or(strings.Compare(a.Package, b.Package), strings.Compare(a.Test, b.Test))
}

// counts are the numbers of the last line.
func (r *results) counts() (passed, failed, skipped int) {
	for _, action := range r.action {
		switch action {
		case "pass":
			passed++
		case "skip":
			skipped++
		}
	}
	return passed, len(r.failures()), skipped
}

// excerptBytes bounds what excerpt returns of one test.
const excerptBytes = 1500

// excerpt returns the end of what a failed test printed, indented, from its first report on: where
// only the end of a run is kept, its name alone would not say what failed.
func (r *results) excerpt(key testKey) string {
	text := r.output[key]
	if at := block.FindStringIndex(text); at != nil {
		text = text[at[0]:]
	}
	if cut := len(text) - excerptBytes; cut > 0 {
		text = "...\n" + strings.ToValidUTF8(text[cut:], "")
	}
	var out strings.Builder
	for line := range strings.Lines(text) {
		fmt.Fprintf(&out, "    %s\n", strings.TrimSpace(line))
	}
	return out.String()
}

// slowest lists the n slowest top-level tests.
func (r *results) slowest(n int) []testKey {
	var tops []testKey
	for key := range r.elapsed {
		if key == key.top() {
			tops = append(tops, key)
		}
	}
	slices.SortFunc(tops, func(a, b testKey) int {
		return cmp.Or(cmp.Compare(r.elapsed[b], r.elapsed[a]), compareKeys(a, b))
	})
	return tops[:min(n, len(tops))]
}

// neverAgain matches output that must not be explained away by a second run: a data race, a panic,
// or the words by which tests name a doubled effect, a broken invariant or a secret. crash is the
// part of it that concerns the whole test binary.
var (
	neverAgain = regexp.MustCompile(`(?i)WARNING: DATA RACE|race detected during|\bpanic: |^fatal error: |` +
		`\bduplicate|\binvariant|\bsecret|\banother tenant|\bbalance`)
	crash = regexp.MustCompile(`WARNING: DATA RACE|race detected during|^panic: |^fatal error: `)
	// block is the begin of what a test logs or reports: file.go:12: at the begin of a line.
	block = regexp.MustCompile(`(?m)^\s+\w+\.go:\d+: `)
)

// missedDeadline reports whether the whole failure of a test is that it waited in vain: every
// failed assertion of testify is a missed deadline, or the last thing that it reported is one.
func missedDeadline(output string) bool {
	if neverAgain.MatchString(output) {
		return false
	}
	starts := block.FindAllStringIndex(output, -1)
	missed := false // what the last block was
	for i, at := range starts {
		end := len(output)
		if i+1 < len(starts) {
			end = starts[i+1][0]
		}
		text := output[at[0]:end]
		missed = strings.Contains(text, runenv.Deadline) || strings.Contains(text, "Condition never satisfied")
		if strings.Contains(text, "Error Trace:") && !missed {
			return false
		}
	}
	return missed
}

// late lists the top-level tests all of whose failures are missed deadlines, and whether any
// other failure is there.
func (r *results) late() (again []testKey, red bool) {
	verdicts := map[testKey]bool{}
	failed := r.failures()
	for _, key := range failed {
		if key.Test == "" {
			red = true
			continue
		}
		// A parent fails with its subtests; it counts by what it says itself.
		parent := slices.ContainsFunc(failed, func(other testKey) bool {
			return other.Package == key.Package && strings.HasPrefix(other.Test, key.Test+"/")
		})
		if parent && !r.final[key] && !block.MatchString(r.output[key]) {
			continue
		}
		top := key.top()
		if before, known := verdicts[top]; !known || before {
			verdicts[top] = !r.final[key] && missedDeadline(r.output[key])
		}
	}
	for top, deadline := range verdicts {
		if deadline {
			again = append(again, top)
		} else {
			red = true
		}
	}
	slices.SortFunc(again, compareKeys)
	return again, red
}

func countFile(path string, out io.Writer) error {
	r := newResults()
	if err := r.readFile(path); err != nil {
		return err
	}
	return r.report(out)
}

// report names what failed and prints the last line. It returns an error when a test failed or
// none passed.
func (r *results) report(out io.Writer) error {
	for _, key := range r.failures() {
		if _, err := fmt.Fprintln(out, "FAILED", key); err != nil {
			return err
		}
	}
	passed, failed, skipped := r.counts()
	if _, err := fmt.Fprintf(out, "%d passed, %d failed, %d skipped\n", passed, failed, skipped); err != nil {
		return err
	}
	switch {
	case failed > 0:
		return errors.New("tests failed")
	case passed == 0:
		return errors.New("no test ran")
	}
	return nil
}
