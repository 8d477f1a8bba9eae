package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/slipway-cloud/slipway/test/runenv"
)

const (
	paceFile = workFolder + "/pace"
	// A sample is a little of the work of the calibration, every paceEvery: less than a hundredth
	// of one core. The mean of the last paceKept samples is the present factor. A mean, because a
	// machine that is throttled stands still in some samples and runs at full speed in the others.
	paceEvery  = 5 * time.Second
	paceKept   = 6
	paceRounds = 10
	paceStarts = 4
	// The run's own load makes a sample longer too. Deadlines that are right on the reference
	// machine allow for that, so a sample that takes ownLoad times as long as without load counts
	// as 1.
	ownLoad = 1.5

	paceWork     = referenceCPU / (2 * calibrationRounds) * paceRounds
	paceStarting = referenceStarts / (2 * calibrationStarts) * paceStarts
)

// pace measures during the run how slow the machine is, and publishes it to the tests in a file.
type pace struct {
	path string
	stop context.CancelFunc
	done sync.WaitGroup

	mu      sync.Mutex
	samples []float64
	largest float64
}

// newPace begins to measure.
func newPace(path string) *pace {
	ctx, stop := context.WithCancel(context.Background())
	p := &pace{path: path, stop: stop, largest: 1}
	p.done.Go(func() { p.measure(ctx) })
	return p
}

func (p *pace) measure(ctx context.Context) {
	for planned := time.Now().Add(paceEvery); ; planned = time.Now().Add(paceEvery) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Until(planned)):
		}
		// The delay of a sample counts too: on a busy machine a program waits before it may begin.
		late, began := time.Since(planned), time.Now()
		writeAndRead(paceRounds)
		work := time.Since(began)
		startPrograms(paceStarts)
		starting := time.Since(began) - work
		p.add(max(factor(late+work, scaled(paceWork, ownLoad)), factor(late+starting, scaled(paceStarting, ownLoad))))
	}
}

// add keeps a sample, and replaces the file. A file that cannot be written leaves the tests with
// the factor of the start.
func (p *pace) add(sample float64) {
	p.mu.Lock()
	p.samples = append(p.samples, sample)
	if len(p.samples) > paceKept {
		p.samples = p.samples[1:]
	}
	p.mu.Unlock()
	now := p.now()
	p.mu.Lock()
	p.largest = max(p.largest, now)
	p.mu.Unlock()
	fresh := p.path + ".new"
	if os.WriteFile(fresh, fmt.Appendf(nil, "%.2f\n", now), 0o644) == nil {
		_ = os.Rename(fresh, p.path)
	}
}

// now is the present factor, between 1 and maxFactor.
func (p *pace) now() float64 {
	if p == nil {
		return 1
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	sum := 0.0
	for _, one := range p.samples {
		sum += one
	}
	return min(max(1, sum/float64(max(1, len(p.samples)))), maxFactor)
}

// worst is the largest present factor of the run.
func (p *pace) worst() float64 {
	if p == nil {
		return 1
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.largest
}

// end stops measuring. It removes the file, so that no later run takes it for its own.
func (p *pace) end() {
	if p == nil {
		return
	}
	p.stop()
	p.done.Wait()
	_ = os.Remove(p.path)
}

// patience is the factor for what begins now.
func (s *session) patience() float64 { return max(s.speed.Wall, s.pace.now()) }

// paceEnv tells the tests where the present factor is.
func (s *session) paceEnv() string {
	return runenv.PaceFileVar + "=" + filepath.Join(s.root, paceFile)
}

// A machine was quiet during a run when other programs, and other virtual machines of the same
// host, had at most quietShare of its processors, and its measured slowness at start and end was at
// most quietFactor. On any other machine a run gives no verdict on time.
const (
	quietShare  = 0.1
	quietFactor = 1.5
)

// quietness is what is known of a machine during a run.
type quietness struct {
	Others float64 `json:"others"` // share of the processors that other programs had; -1 where it is not known
	Factor float64 `json:"factor"` // the larger of the factors of start and end
}

func (q quietness) quiet() bool {
	return q.Others >= 0 && q.Others <= quietShare && q.Factor <= quietFactor
}

func (q quietness) String() string {
	others := "an unknown share"
	if q.Others >= 0 {
		others = fmt.Sprintf("%.0f %%", 100*q.Others)
	}
	verdict := "quiet"
	if !q.quiet() {
		verdict = "busy or slow"
	}
	return fmt.Sprintf("%s: other programs had %s of its processors, factor %.2f", verdict, others, q.Factor)
}

// busyness is how much CPU time all processors have given, ours the part of this process and of its
// children that have ended.
type busyness struct {
	at        time.Time
	all, ours time.Duration
	known     bool
}

func readBusyness() busyness {
	b := busyness{at: time.Now(), ours: usedCPU()}
	text, err := os.ReadFile("/proc/stat")
	if err == nil {
		b.all, b.known = busyTime(string(text), runtime.NumCPU())
	}
	return b
}

// busyTime adds up what /proc/stat says of all processors: user, nice, system, irq, softirq and
// steal. A container may see more processors there than it may use; then nothing is known.
func busyTime(stat string, processors int) (time.Duration, bool) {
	const tick = 10 * time.Millisecond // USER_HZ is 100 on every Linux
	var total time.Duration
	found := 0
	for line := range strings.Lines(stat) {
		var n [8]int64
		var name string
		if _, err := fmt.Sscan(line, &name, &n[0], &n[1], &n[2], &n[3], &n[4], &n[5], &n[6], &n[7]); err != nil || !strings.HasPrefix(name, "cpu") {
			continue
		}
		if name == "cpu" {
			total = time.Duration(n[0]+n[1]+n[2]+n[5]+n[6]+n[7]) * tick
		} else {
			found++
		}
	}
	return total, found > 0 && found == processors
}

// others is the share of the processors that went to other programs since before.
func (b busyness) others(before busyness, processors int) float64 {
	span := b.at.Sub(before.at) * time.Duration(processors)
	if !b.known || !before.known || span <= 0 {
		return -1
	}
	others := (b.all - before.all) - (b.ours - before.ours)
	return max(0, float64(others)/float64(span))
}

// measuredQuietness says how quiet the machine was since the start of the run, and how fast it is
// now. All that the run started has ended: what of it still runs counts as other programs.
func (s *session) measuredQuietness() (quietness, speed) {
	others := readBusyness().others(s.before, runtime.NumCPU())
	now := s.speed.slower(calibrate())
	return quietness{Others: others, Factor: now.Wall}, now
}
