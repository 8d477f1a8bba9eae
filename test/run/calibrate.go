package main

import (
	"crypto/sha256"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/slipway-cloud/slipway/test/runenv"
)

// speed compares this machine, as busy as it is at the start of the run, with an idle reference
// machine (2 cores at 2.0 GHz). Both factors are at least 1 and at most maxFactor.
type speed struct {
	Wall float64 // by it deadlines of tests are multiplied
	CPU  float64 // by it budgets of CPU seconds are multiplied
}

const (
	maxFactor = 4
	// The calibration hashes calibrationBlocks blocks of 1 MiB on each of two threads. The
	// reference machine takes referenceCPU of CPU time for all of it, and half of that as wall time.
	calibrationBlocks = 150
	referenceCPU      = 1200 * time.Millisecond
)

// calibrate measures for about a second.
func calibrate() speed {
	const threads = 2
	block := make([]byte, 1<<20)
	before, began := ownCPU(), time.Now()
	var wg sync.WaitGroup
	for range threads {
		wg.Go(func() {
			sum := sha256.Sum256(block)
			for range calibrationBlocks - 1 {
				sum = sha256.Sum256(append(sum[:], block[len(sum):]...))
			}
			runtime.KeepAlive(sum)
		})
	}
	wg.Wait()
	return speed{
		Wall: factor(time.Since(began), referenceCPU/threads),
		CPU:  factor(ownCPU()-before, referenceCPU),
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

// env tells the tests how patient to be.
func (s speed) env() string {
	return runenv.PatienceVar + "=" + strconv.FormatFloat(s.Wall, 'f', 2, 64)
}
