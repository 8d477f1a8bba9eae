package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// usageVar names the file to which `testrun exec` appends one line of JSON per test binary.
const usageVar = "TESTRUN_USAGE"

// cost is what a process and all its ended children used.
type cost struct {
	CPU  time.Duration `json:"cpu_ns"`  // user and system time
	Wall time.Duration `json:"wall_ns"` // from start to end
	RSS  int64         `json:"rss_kib"` // the largest resident set of one process
}

func (c cost) plus(other cost) cost {
	return cost{CPU: c.CPU + other.CPU, Wall: c.Wall + other.Wall, RSS: max(c.RSS, other.RSS)}
}

// binaryCost is the cost of one test binary.
type binaryCost struct {
	Package string `json:"package"` // folder relative to the checkout, for example "db"
	Step    string `json:"step"`    // the step of the run that started it
	cost
}

// stepVar names the step for the test binaries that it starts.
const stepVar = "TESTRUN_STEP"

// execMeasured runs a test binary as `go test -exec` asks for, with its standard streams, and
// appends its cost to the file that usageVar names. It returns the error of the process. The child
// dies with this process, and gets the signals that go test sends.
func execMeasured(ctx context.Context, args []string) error {
	runtime.LockOSThread() // Pdeathsig is bound to the thread that starts the child
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(context.WithoutCancel(ctx), args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGQUIT, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(signals)
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() {
		for s := range signals {
			_ = cmd.Process.Signal(s)
		}
	}()
	err := cmd.Wait()
	return errors.Join(err, recordUsage(costOf(cmd.ProcessState, time.Since(began))))
}

func costOf(state *os.ProcessState, wall time.Duration) cost {
	c := cost{Wall: wall}
	if state == nil {
		return c
	}
	c.CPU = state.UserTime() + state.SystemTime()
	if used, ok := state.SysUsage().(*syscall.Rusage); ok {
		c.RSS = used.Maxrss
	}
	return c
}

func recordUsage(c cost) error {
	path := os.Getenv(usageVar)
	if path == "" {
		return nil
	}
	folder, err := os.Getwd()
	if err != nil {
		return err
	}
	line, err := json.Marshal(binaryCost{Package: folder, Step: os.Getenv(stepVar), cost: c})
	if err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("record what the test binary used: %w", err)
	}
	_, err = file.Write(append(line, '\n')) // one write: lines of other binaries do not mix
	return errors.Join(err, file.Close())
}

// readUsage reads what execMeasured recorded. A missing file is an empty list.
func readUsage(path, root string) ([]binaryCost, error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // only read
	var all []binaryCost
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		var one binaryCost
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if rel, err := filepath.Rel(root, one.Package); err == nil && !strings.HasPrefix(rel, "..") {
			one.Package = filepath.ToSlash(rel)
		}
		all = append(all, one)
	}
	return all, lines.Err()
}

// childrenCPU is the CPU time of all ended children of this process and their ended children.
func childrenCPU() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &used); err != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
