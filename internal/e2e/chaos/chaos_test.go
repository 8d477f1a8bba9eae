package chaos_test

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/internal/e2e/chaos"
)

// seed of the runs below; CHAOS_SEED takes another.
const seed = 20260

func seedOf(t *testing.T) uint64 {
	t.Helper()
	text := os.Getenv("CHAOS_SEED")
	if text == "" {
		return seed
	}
	n, err := strconv.ParseUint(text, 10, 64)
	require.NoError(t, err, "CHAOS_SEED is a number")
	return n
}

// TestThreeHundredTroubles plays three hundred generated cases with the program,
// which is built without the race detector: no effect happens twice, no job is
// stuck, each ends as it should, and the database holds what it must.
func TestThreeHundredTroubles(t *testing.T) { troubles(t, "onboarding", 300) }

// TestThreeHundredTroublesOfLeaving does so with nodes that leave service.
func TestThreeHundredTroublesOfLeaving(t *testing.T) { troubles(t, "leaving", 300) }

// TestSixtyTroublesOfBootedNodes does so with nodes that boot from the network;
// each of them is installed for its case.
func TestSixtyTroublesOfBootedNodes(t *testing.T) { troubles(t, "booted", 60) }

func troubles(t *testing.T, jobs string, cases int) {
	t.Helper()
	if testing.Short() {
		t.Skip("hundreds of jobs in trouble take minutes")
	}
	bin := filepath.Join(t.TempDir(), "chaos")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "./cmd/chaos").CombinedOutput()
	require.NoError(t, err, string(out))
	cmd := exec.CommandContext(t.Context(), bin, "--jobs", jobs, "--cases", strconv.Itoa(cases), "--seed", strconv.FormatUint(seedOf(t), 10))
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	said, wrong := &progress{}, &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = said, wrong
	err = cmd.Run()
	t.Log("\n" + said.report())
	require.NoError(t, err, wrong.String())
	require.Contains(t, said.report(), strconv.Itoa(cases)+" cases in")
}

// TestTroublesUnderTheRaceDetector plays some cases of every kind inside this
// process, where the race detector watches.
func TestTroublesUnderTheRaceDetector(t *testing.T) {
	if testing.Short() {
		t.Skip("jobs in trouble take a minute")
	}
	for name, plugs := range sets() {
		o := chaos.Options{Plugs: plugs, Progress: &progress{}}
		every, step := chaos.Generate(plugs, 300, seedOf(t)+1), 17 // no multiple of the kinds: all of them come
		if name == "booted" {
			step = 51
		}
		for i := 0; i < len(every); i += step {
			o.Cases = append(o.Cases, every[i])
		}
		report, err := chaos.Run(t.Context(), o)
		t.Log("\n" + report.Table())
		for _, g := range report.Guilty() {
			t.Error(g.Blame())
		}
		require.NoError(t, err, name)
	}
}

// progress shows how far a run is as it goes, on the terminal alone, and keeps
// the rest: a failure's log holds what was found and not what it took.
type progress struct {
	mu sync.Mutex
	b  bytes.Buffer
}

var _ io.Writer = (*progress)(nil)

// Write implements io.Writer.
func (p *progress) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if bytes.Contains(b, []byte("cases ended")) {
		return os.Stderr.Write(b)
	}
	return p.b.Write(b)
}

func (p *progress) report() string { p.mu.Lock(); defer p.mu.Unlock(); return p.b.String() }
