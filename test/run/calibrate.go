package main

import (
	"context"
	"encoding/json"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/slipway-cloud/slipway/test/runenv"
)

// speed compares this machine, as busy as it is, with an idle reference machine of 2 cores. Both
// factors are at least 1 and at most maxFactor.
type speed struct {
	Wall float64 // by it deadlines of tests are multiplied
	CPU  float64 // by it budgets of CPU seconds are multiplied
}

const (
	maxFactor = 4
	// The calibration writes and reads calibrationRounds documents on each of two threads: it
	// allocates, branches and misses caches as tests do. A checksum would not: processors have
	// instructions for it. The reference machine takes referenceCPU of CPU time for all of it, and
	// half of that as wall time.
	calibrationRounds = 1000
	referenceCPU      = 1400 * time.Millisecond
	// Then it starts calibrationStarts programs on each thread: tests start thousands, and on some
	// virtual machines the kernel's part of that, above all new pages of memory, takes many times
	// as long while calculations do not.
	calibrationStarts = 100
	referenceStarts   = 300 * time.Millisecond
)

// calibrate measures for about a second. The kind of work that this machine is slower at counts:
// where the kernel was four times as slow, the tests took almost three times the CPU time.
func calibrate() speed {
	return measure(func() { writeAndRead(calibrationRounds) }, referenceCPU).
		slower(measure(func() { startPrograms(calibrationStarts) }, referenceStarts))
}

// measure compares what work takes on two threads with the CPU time that it takes on the reference
// machine.
func measure(work func(), reference time.Duration) speed {
	const threads = 2
	before, began := usedCPU(), time.Now()
	var wg sync.WaitGroup
	for range threads {
		wg.Go(work)
	}
	wg.Wait()
	return speed{Wall: factor(time.Since(began), reference/threads), CPU: factor(usedCPU()-before, reference)}
}

func startPrograms(n int) {
	for range n {
		if exec.CommandContext(context.Background(), "true").Run() != nil {
			return // not installed
		}
	}
}

// slower returns the slower of two measures. Another machine on the same processor may come or go
// between them.
func (s speed) slower(o speed) speed { return speed{Wall: max(s.Wall, o.Wall), CPU: max(s.CPU, o.CPU)} }

func writeAndRead(rounds int) {
	type document struct {
		Name   string
		Values map[string]int
		Tags   []string
	}
	documents := make([]document, 200)
	for i := range documents {
		documents[i] = document{"node-" + strconv.Itoa(i), map[string]int{"cpus": i, "disks": 2 * i, "links": 3 * i}, []string{"gpu", "rack", "row"}}
	}
	for range rounds {
		raw, err := json.Marshal(documents)
		if err == nil {
			documents = nil
			err = json.Unmarshal(raw, &documents)
		}
		if err != nil {
			panic(err)
		}
	}
}

func factor(measured, reference time.Duration) float64 {
	return min(max(float64(measured)/float64(reference), 1), maxFactor)
}

// usedCPU returns the CPU time of this process and of the programs that it has started and that
// have ended.
func usedCPU() (sum time.Duration) {
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var used syscall.Rusage
		if syscall.Getrusage(who, &used) == nil {
			sum += time.Duration(used.Utime.Nano() + used.Stime.Nano())
		}
	}
	return sum
}

// patienceEnv tells the tests how long to wait at least.
func patienceEnv(factor float64) string {
	return runenv.PatienceVar + "=" + strconv.FormatFloat(factor, 'f', 2, 64)
}
