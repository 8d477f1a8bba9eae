package main

import (
	"encoding/json"
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
	// The calibration writes and reads calibrationRounds documents on each of two threads: it allocates,
	// branches and misses caches as tests do. A checksum would not: processors have instructions for it.
	// The reference machine takes referenceCPU of CPU time for all of it, and half of that as wall time.
	calibrationRounds = 1000
	referenceCPU      = 1400 * time.Millisecond
)

// calibrate measures for about a second.
func calibrate() speed {
	const threads = 2
	before, began := ownCPU(), time.Now()
	var wg sync.WaitGroup
	for range threads {
		wg.Go(writeAndRead)
	}
	wg.Wait()
	return speed{
		Wall: factor(time.Since(began), referenceCPU/threads),
		CPU:  factor(ownCPU()-before, referenceCPU),
	}
}

// slower returns the slower of two measures. Another machine on the same processor may come or go
// between them.
func (s speed) slower(o speed) speed { return speed{Wall: max(s.Wall, o.Wall), CPU: max(s.CPU, o.CPU)} }

func writeAndRead() {
	type document struct {
		Name   string
		Values map[string]int
		Tags   []string
	}
	documents := make([]document, 200)
	for i := range documents {
		documents[i] = document{"node-" + strconv.Itoa(i), map[string]int{"cpus": i, "disks": 2 * i, "links": 3 * i}, []string{"gpu", "rack", "row"}}
	}
	for range calibrationRounds {
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

func ownCPU() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// env tells the tests how long to wait.
func (s speed) env() string {
	return runenv.PatienceVar + "=" + strconv.FormatFloat(s.Wall, 'f', 2, 64)
}
