package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

// step is one line of the step table.
type step struct {
	Name    string
	Outcome string // "running", "ok", "failed", or "see tests" where a test failed
	err     error
	cost
	began     time.Time
	ended, of int // packages, where they are counted
}

// board runs the steps of a run and keeps their table. Steps of different lanes run side by side.
type board struct {
	out   io.Writer
	began time.Time
	// compiles lists what the run compiles at present; nil is nothing.
	compiles func() []string

	mu    sync.Mutex
	said  time.Time // when something was last printed
	alive time.Time // when a step or a program last said something, printed or not
	steps []*step
}

func newBoard(out io.Writer) *board {
	now := time.Now()
	return &board{out: out, began: now, said: now, alive: now}
}

// printf writes one or more whole lines.
func (b *board) printf(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.said, b.alive = time.Now(), time.Now()
	fmt.Fprintf(b.out, format, args...)
}

// step runs one step, prints its start and end, and reports whether it succeeded. The cost that do
// returns is the step's, where do knows it; the wall time is measured here.
func (b *board) step(ctx context.Context, name string, do func(context.Context) (cost, error)) bool {
	s := &step{Name: name, Outcome: "running", began: time.Now()}
	b.mu.Lock()
	b.said, b.alive = time.Now(), time.Now()
	b.steps = append(b.steps, s)
	fmt.Fprintf(b.out, "\n== %s\n", name)
	b.mu.Unlock()
	used, err := do(ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	s.cost, s.Wall, s.Outcome = used, time.Since(s.began), "ok"
	if s.err = err; err != nil {
		if s.Outcome = "failed"; errors.Is(err, errTestsFailed) {
			s.Outcome = "see tests"
		}
		fmt.Fprintf(b.out, "== %s: FAILED after %.0f s: %v\n", name, s.Wall.Seconds(), err)
		return false
	}
	fmt.Fprintf(b.out, "== %s: done in %.0f s, %.0f CPU s\n", name, s.Wall.Seconds(), s.CPU.Seconds())
	return true
}

// failed lists the steps that could not do their work. Failed tests are in the results.
func (b *board) failed() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var names []string
	for _, s := range b.steps {
		if s.Outcome != "ok" && s.Outcome != "see tests" {
			names = append(names, s.Name)
		}
	}
	return names
}

// reasons says of each failed step how it ended, with the last lines of its program.
func (b *board) reasons() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out strings.Builder
	for _, s := range b.steps {
		if s.Outcome == "failed" {
			fmt.Fprintf(&out, "FAILED step %s after %.0f s: %v\n", s.Name, s.Wall.Seconds(), s.err)
		}
	}
	return out.String()
}

// cpuOf is the CPU time of a step.
func (b *board) cpuOf(name string) (sum time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.steps {
		if s.Name == name {
			sum += s.CPU
		}
	}
	return sum
}

// table is the step table: CPU seconds of the step's processes, wall seconds, peak memory. The
// last rows are what no step accounts for (the shared servers, the runner's own builds) and all.
func (b *board) table(all time.Duration) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var t strings.Builder
	fmt.Fprintf(&t, "%-34s %-8s %8s %8s %9s\n", "step", "outcome", "CPU s", "wall s", "peak MiB")
	var known cost
	for _, s := range b.steps {
		c := s.cost
		if s.Outcome == "running" {
			c.Wall = time.Since(s.began)
		}
		known = known.plus(c)
		fmt.Fprintf(&t, "%-34s %-8s %8.0f %8.0f %9d\n", s.Name, s.Outcome, c.CPU.Seconds(), c.Wall.Seconds(), c.RSS>>10)
	}
	fmt.Fprintf(&t, "%-34s %-8s %8.0f\n", "PostgreSQL, Temporal, other", "", max(all-known.CPU, 0).Seconds())
	fmt.Fprintf(&t, "%-34s %-8s %8.0f %8.0f %9d\n", "all", "", all.Seconds(), time.Since(b.began).Seconds(), known.RSS>>10)
	return t.String()
}

// prefixed writes each whole line behind a prefix, so that two lanes can print at a time.
type prefixed struct {
	b      *board
	prefix string
	part   []byte
	shows  func(line string) bool // whether a line is printed; nil prints all
	last   []string               // the last lines that are not empty, at most keptLines
}

// The part of a program's output that is kept, to be printed again at the end of the run when the
// program failed. Some machines keep only the end of a run.
const (
	keptLines = 8
	keptWidth = 240
)

// keep adds a line to the last ones.
func (p *prefixed) keep(line string) {
	if strings.TrimSpace(line) == "" {
		return
	}
	if cut := len(line) - keptWidth; cut > 0 {
		line = "..." + strings.ToValidUTF8(line[cut:], "")
	}
	p.last = append(p.last[max(0, len(p.last)+1-keptLines):], line)
}

// Write implements io.Writer. It keeps an unfinished line until its end comes.
func (p *prefixed) Write(text []byte) (int, error) {
	p.part = append(p.part, text...)
	for {
		i := slices.Index(p.part, '\n')
		if i < 0 {
			return len(text), nil
		}
		line := string(p.part[:i])
		p.keep(line)
		if p.shows == nil || p.shows(line) {
			p.b.printf("%s%s\n", p.prefix, line)
		}
		p.part = p.part[i+1:]
	}
}

// flush writes the unfinished last line.
func (p *prefixed) flush() {
	if len(p.part) > 0 {
		p.keep(string(p.part))
		p.b.printf("%s%s\n", p.prefix, p.part)
		p.part = nil
	}
}
