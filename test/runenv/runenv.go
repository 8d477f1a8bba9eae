// Package runenv tells a test how the whole run is configured: how long it may wait on this
// machine, which seed generates its cases, and whether it is part of `make proof`. `make test` and
// `make proof` set the variables; a plain `go test` takes the defaults.
package runenv

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	// PatienceVar names the factor by which deadlines of tests are multiplied at least. It is 1 or
	// more.
	PatienceVar = "SLIPWAY_TEST_PATIENCE"
	// PaceFileVar names the file that holds the factor which the run measures at present.
	PaceFileVar = "SLIPWAY_TEST_PACE_FILE"
	// SeedVar names the seed of generated cases, an unsigned integer.
	SeedVar = "SLIPWAY_SEED"
	// ProofVar names the area of `make proof` that runs; it is empty in `make test`.
	ProofVar = "SLIPWAY_PROOF"
	// FiguresVar names the file to which a benchmark appends what it has measured.
	FiguresVar = "SLIPWAY_BENCH_FIGURES"

	// maxPatience bounds the factor, so that a test that hangs still ends.
	maxPatience = 8
	// defaultSeed is the seed of a plain `go test`.
	defaultSeed = 20260
)

// Patience returns d multiplied by the factor that the run has measured for this machine: the one
// of its start, or the present one where that is larger. It never returns less than d. Within a
// process the factor never falls, so that a wait is not shorter than a setting that was made before
// with Patience too. Use it for every deadline at which a test gives up, and for nothing else. A
// wait that polls asks again while it waits, because the machine may become busier.
func Patience(d time.Duration) time.Duration {
	factor := max(1, number(os.Getenv(PatienceVar)))
	if path := os.Getenv(PaceFileVar); path != "" {
		if text, err := os.ReadFile(path); err == nil { // without a file the factor of the start holds
			factor = max(factor, number(string(text)))
		}
	}
	return time.Duration(float64(d) * largest.raise(min(factor, maxPatience)))
}

// largest is the largest factor that this process has used.
var largest peak

type peak struct {
	mu    sync.Mutex
	value float64
}

func (p *peak) raise(to float64) float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.value = max(p.value, to)
	return p.value
}

// number returns the number in a text, and 0 where there is none.
func number(text string) float64 {
	n, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil || n != n { // NaN
		return 0
	}
	return n
}

// Seed returns the seed of the run's generated cases. A test that uses it must log it.
func Seed(t testing.TB) uint64 {
	t.Helper()
	text := os.Getenv(SeedVar)
	if text == "" {
		return defaultSeed
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s=%q: write an unsigned integer", SeedVar, text)
	}
	return seed
}

// Proof reports whether the test runs in the long form of `make proof`.
func Proof() bool { return os.Getenv(ProofVar) != "" }

// ProofOnly skips the test unless its area of `make proof` runs, or all do: a test by hand sets the variable to
// 1. A test checks that the area runs the test.
func ProofOnly(t testing.TB, area string) {
	t.Helper()
	if running := os.Getenv(ProofVar); running != area && running != "1" {
		t.Skipf("runs in `make proof AREA=%s`", area)
	}
}

// Scale returns the size of a generated input: short in `make test`, long in `make proof`. A
// variable, named by override and set to an integer above 0, wins over both.
func Scale(t testing.TB, override string, short, long int) int {
	t.Helper()
	if text := os.Getenv(override); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			t.Fatalf("%s=%q: write an integer above 0", override, text)
		}
		return n
	}
	if Proof() {
		return long
	}
	return short
}

// Deadline is the text that marks a test failure as a missed deadline. Only a test whose every
// failure carries it (or testify's "Condition never satisfied") is run again by `make test`.
const Deadline = "missed deadline: "
