package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// progressEvery is how long the run may be silent before it says what it does.
	progressEvery = 20 * time.Second
	// stalledAfter ends a run that shows no sign of life: no step, no line of a program. It is a
	// detector of hangs and no verdict on speed, so it is longer than hangLimit, after which go
	// test prints what its goroutines wait for.
	stalledAfter = 45 * time.Minute
)

var errStalled = fmt.Errorf("the run showed no sign of life for %s; the table says which steps were running", stalledAfter)

// watch says what the run does where it would be silent, and ends it when it has stalled. It
// returns when ctx ends.
func (b *board) watch(ctx context.Context, every, stalled time.Duration, end context.CancelCauseFunc) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		b.mu.Lock()
		if time.Since(b.alive) > stalled {
			end(errStalled)
		} else if time.Since(b.said) >= every/2 {
			var compiled []string
			if b.compiles != nil {
				compiled = b.compiles()
			}
			fmt.Fprint(b.out, b.running(compiled))
		}
		b.mu.Unlock()
	}
}

// running describes the steps that run. The caller holds the lock.
func (b *board) running(compiled []string) string {
	var lines strings.Builder
	for _, s := range b.steps {
		if s.Outcome != "running" {
			continue
		}
		fmt.Fprintf(&lines, "... %s: %.0f s", s.Name, time.Since(s.began).Seconds())
		if s.of > 0 {
			fmt.Fprintf(&lines, ", %d of %d packages", s.ended, s.of)
		}
		lines.WriteByte('\n')
	}
	if len(compiled) > 0 {
		fmt.Fprintf(&lines, "... compiling %s\n", strings.Join(compiled, ", "))
	}
	return lines.String()
}

// counts says how many packages a running step has in all.
func (b *board) counts(name string, of int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.steps {
		if s.Name == name && s.Outcome == "running" {
			s.of = of
		}
	}
}

// counted notes that a running step has done one more package.
func (b *board) counted(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.alive = time.Now()
	for _, s := range b.steps {
		if s.Name == name && s.Outcome == "running" {
			s.ended++
		}
	}
}

// endsPackage reports whether a line of gotestsum says that a package has ended.
func endsPackage(line string) bool {
	return strings.HasPrefix(line, "✓") || strings.HasPrefix(line, "✖") || strings.HasPrefix(line, "∅")
}

// isPackage reports whether a line of `go build -v` is the path of a package that is compiled.
// Lines that report errors have spaces.
func isPackage(line string) bool { return line != "" && !strings.ContainsAny(line, " \t") }

// build compiles packages of the checkout. It counts them instead of printing them.
func (s *session) build(ctx context.Context, name string, args ...string) bool {
	return s.board.step(ctx, name, func(ctx context.Context) (cost, error) {
		all, err := goList(ctx, s.root, append([]string{"-deps", "-f", "{{.ImportPath}}"}, args[len(args)-1])...)
		if err != nil {
			return cost{}, err
		}
		s.board.counts(name, len(all))
		return s.childLines(ctx, name, append([]string{"go", "build", "-v"}, args...), nil, func(line string) bool {
			if isPackage(line) {
				s.board.counted(name)
			}
			return !isPackage(line)
		})
	})
}

// shownCompiled bounds how many packages one line of progress names.
const shownCompiled = 3

// compiling lists the packages that processes below the given one compile at present.
func compiling(proc string, below int) []string {
	entries, err := os.ReadDir(proc)
	if err != nil {
		return nil
	}
	parents, names := map[int]int{}, map[int]string{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile(filepath.Join(proc, e.Name(), "stat"))
		if err != nil {
			continue // it has ended
		}
		// The name of the program stands in brackets and may hold anything; state and parent follow
		// it.
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(fields) < 2 {
			continue
		}
		parents[pid], _ = strconv.Atoi(fields[1])
		line, err := os.ReadFile(filepath.Join(proc, e.Name(), "cmdline"))
		args := strings.Split(string(line), "\x00")
		if at := slices.Index(args, "-p"); err == nil && filepath.Base(args[0]) == "compile" && at > 0 && at+1 < len(args) {
			names[pid] = args[at+1]
		}
	}
	var found []string
	for pid, name := range names {
		for at, known := pid, true; known; at, known = parents[at], parents[at] > 0 {
			if at == below {
				found = append(found, name)
				break
			}
		}
	}
	slices.Sort(found)
	found = slices.Compact(found)
	return found[:min(shownCompiled, len(found))]
}

// begin watches over a run. It returns the context of the run, and what ends the watch.
func (s *session) begin(ctx context.Context) (context.Context, func()) {
	ctx, end := context.WithCancelCause(ctx)
	s.board.compiles = func() []string { return compiling("/proc", os.Getpid()) }
	watched := make(chan struct{})
	go func() {
		s.board.watch(ctx, progressEvery, scaled(stalledAfter, s.speed.Wall), end)
		close(watched)
	}()
	return ctx, func() {
		end(errEnded)
		<-watched
	}
}

var errEnded = errors.New("the run has ended")
