package chaos

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slipway-cloud/slipway/test/runenv"
)

// Report is what a run found.
type Report struct {
	Results []Result
	Killed  int // worker processes killed
	Took    time.Duration
	Strata  Coverage // of an elastic run
}

// WithFindings lists the results with findings.
func (r Report) WithFindings() []Result {
	var out []Result
	for _, one := range r.Results {
		if len(one.Findings) > 0 {
			out = append(out, one)
		}
	}
	return out
}

// Failed lists the results that fail the run: those with findings, but for random
// cases of an elastic run that found nothing when they were played again.
func (r Report) Failed() []Result {
	return slices.DeleteFunc(r.WithFindings(), func(one Result) bool { return one.passing() })
}

// Passing lists the random cases whose finding did not recur.
func (r Report) Passing() []Result {
	return slices.DeleteFunc(r.WithFindings(), func(one Result) bool { return !one.passing() })
}

// passing reports whether a finding did not recur when the case was played again.
func (r Result) passing() bool {
	return len(r.Findings) > 0 && !r.failsRun() && r.Replayed > 0 && r.Recurred == 0
}

// MissedDeadlines reports whether all that failed was too slow, and nothing else.
func (r Report) MissedDeadlines() bool {
	failed := r.Failed()
	return len(failed) > 0 && !slices.ContainsFunc(failed, func(one Result) bool { return !one.late() })
}

// late reports whether a case fails the run only because something took too long: the case itself,
// or what was found when it was played again.
func (r Result) late() bool {
	found := r.Findings
	if len(r.Again) > 0 && !r.failsRun() {
		found = r.Again
	}
	return !slices.ContainsFunc(found, func(f Finding) bool { return !strings.HasPrefix(f.Text, runenv.Deadline) })
}

// Summary is the last line of an elastic run's report.
func (r Report) Summary(seed uint64, cpu time.Duration) string {
	counts := map[Class]int{}
	for _, one := range r.Results {
		counts[one.Class]++
	}
	return fmt.Sprintf("seed %d: %d known, %d of %d strata (%d left out), %d exploring cases, %d of all not finished; %.0f s, CPU %.0f s", seed,
		counts[ClassKnown], r.Strata.Played, r.Strata.All, len(r.Strata.Left), counts[ClassExploring], r.Strata.Unfinished, r.Took.Seconds(), cpu.Seconds())
}

// Count is how many cases have a finding of this verdict.
func (r Report) Count(v Verdict) int {
	n := 0
	for _, one := range r.Results {
		if one.has(v) {
			n++
		}
	}
	return n
}

func (r Result) has(v Verdict) bool {
	return slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Verdict == v })
}

// row is the line of the table that a case counts in. Where a path begins with a
// cancellation, that is the path's and counts by itself only when alone.
func (r Result) row() string {
	faults := r.Case.Faults
	if len(faults) > 1 && faults[0].Kind == Cancel {
		faults = faults[1:]
	}
	switch len(faults) {
	case 0:
		return "none"
	case 1:
		return string(faults[0].Kind)
	}
	return "two in a job"
}

// Table counts the cases by kind of fault.
func (r Report) Table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-16s %6s", "fault", "cases")
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

// waited counts the cases in which an operator let a BMC's window pass.
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
	if r.Replayed > 0 {
		fmt.Fprintf(&b, "  played again alone %d times: found something %d times\n", r.Replayed, r.Recurred)
		for _, f := range r.Again {
			fmt.Fprintf(&b, "    %s: %s\n", f.Verdict, f.Text)
		}
	}
	fmt.Fprintf(&b, "  again: make chaos CHAOS_CASE='%s'\n", r.Case)
	return b.String()
}
