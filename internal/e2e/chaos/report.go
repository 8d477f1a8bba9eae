package chaos

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Report is what a run found.
type Report struct {
	Results []Result
	Killed  int // worker processes killed
	Took    time.Duration
}

// Guilty lists the results with findings.
func (r Report) Guilty() []Result {
	var out []Result
	for _, one := range r.Results {
		if len(one.Findings) > 0 {
			out = append(out, one)
		}
	}
	return out
}

// Count is how many cases have a finding of this verdict.
func (r Report) Count(v Verdict) int {
	n := 0
	for _, one := range r.Results {
		if one.guilty(v) {
			n++
		}
	}
	return n
}

func (r Result) guilty(v Verdict) bool {
	return slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Verdict == v })
}

// row is the line of the table that a case counts in. Where a path begins with a
// cancellation, that is the path's and counts by itself only when alone.
func (r Result) row() string {
	hits := r.Case.Hits
	if len(hits) > 1 && hits[0].Kind == Cancel {
		hits = hits[1:]
	}
	switch len(hits) {
	case 0:
		return "none"
	case 1:
		return string(hits[0].Kind)
	}
	return "two in a job"
}

// Table counts the cases by kind of trouble.
func (r Report) Table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-16s %6s", "trouble", "cases")
	for _, v := range Verdicts() {
		fmt.Fprintf(&b, " %12s", v)
	}
	b.WriteByte('\n')
	rows := []string{"none"}
	for _, k := range Kinds() {
		rows = append(rows, string(k))
	}
	for _, name := range append(rows, "two in a job", "all") {
		part := Report{}
		for _, one := range r.Results {
			if name == "all" || one.row() == name {
				part.Results = append(part.Results, one)
			}
		}
		fmt.Fprintf(&b, "%-16s %6d", name, len(part.Results))
		for _, v := range Verdicts() {
			fmt.Fprintf(&b, " %12d", part.Count(v))
		}
		b.WriteByte('\n')
	}
	if n := r.waited(); n > 0 {
		fmt.Fprintf(&b, "%d cases were parked so that a BMC locks no account, sent on when its window had passed, and held to their end\n", n)
	}
	fmt.Fprintf(&b, "%d cases in %.0f s; %d worker processes killed\n", len(r.Results), r.Took.Seconds(), r.Killed)
	return b.String()
}

// waited counts the cases in which a person let a BMC's window pass.
func (r Report) waited() int {
	n := 0
	for _, one := range r.Results {
		if one.Waits > 0 {
			n++
		}
	}
	return n
}

// Blame says what is wrong with a case and how to play it again.
func (r Result) Blame() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s (%s, %s after %.1f s)\n", r.Case, r.JobID, r.End, r.Took.Seconds())
	for _, f := range r.Findings {
		fmt.Fprintf(&b, "  %s: %s\n", f.Verdict, f.Text)
	}
	for _, line := range r.Said {
		fmt.Fprintf(&b, "  log: %s\n", line)
	}
	fmt.Fprintf(&b, "  again: make chaos CHAOS_CASE='%s'\n", r.Case)
	return b.String()
}
