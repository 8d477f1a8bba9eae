package chaos

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// TestSchedule_Order: known cases are handed out first, then the strata, then random cases for as
// long as they are expected to end in time.
func TestSchedule_Order(t *testing.T) {
	t.Parallel()
	began := time.Now()
	known, err := ParseCase(knownText, allSets())
	require.NoError(t, err)
	o := ElasticOptions{Options: Options{Sets: allSets(), AtOnce: 4}, For: time.Minute, Seed: 7, Known: []KnownCase{{Case: known}}}
	s := newSchedule(o, began)
	required := s.strata.All + 1
	var classes []Class
	for l := range lanes {
		for len(s.required[l]) > 0 {
			p, more := s.next(l, began.Add(time.Hour))
			require.True(t, more, "required cases do not depend on the time")
			require.Equal(t, l, laneOf(p.c))
			classes = append(classes, p.class)
			s.ended(p, Result{Prepared: time.Second, Took: 9 * time.Second})
		}
	}
	require.Len(t, classes, required)
	require.Equal(t, ClassKnown, classes[0])
	require.Equal(t, required-1, s.strata.Played)
	require.Empty(t, s.open())
	for l := range lanes {
		p, more := s.next(l, began.Add(o.For-closing-11*time.Second))
		require.True(t, more)
		require.Equal(t, ClassExploring, p.class)
		require.Equal(t, l, laneOf(p.c))
		_, more = s.next(l, began.Add(o.For-closing-9*time.Second))
		require.False(t, more, "cases take 10 s")
	}
}

// TestSchedule_Open: a required case is open until it has ended.
func TestSchedule_Open(t *testing.T) {
	t.Parallel()
	s := newSchedule(ElasticOptions{Options: Options{Sets: allSets(), AtOnce: 4}, For: time.Minute, Seed: 7}, time.Now())
	p, more := s.next(calm, time.Now())
	require.True(t, more)
	require.Contains(t, s.open(), p.c.String())
	s.ended(p, Result{})
	require.NotContains(t, s.open(), p.c.String())
}

// TestPlayCases_StopsAtOnce: a finding of a required case ends the run, and so does a duplicate effect
// or a broken invariant of a random case. Any other finding of a random case is left for later.
func TestPlayCases_StopsAtOnce(t *testing.T) {
	t.Parallel()
	const seed = 7
	for name, row := range map[string]struct {
		class   Class
		verdict Verdict
		stops   bool
	}{
		"stratum":               {ClassStratum, Stuck, true},
		"exploring, stuck":      {ClassExploring, Stuck, false},
		"exploring, wrong end":  {ClassExploring, WrongEnd, false},
		"exploring, duplicate":  {ClassExploring, Duplicate, true},
		"exploring, invariant":  {ClassExploring, Invariant, true},
		"exploring, no machine": {ClassExploring, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := ElasticOptions{Options: Options{Sets: allSets(), AtOnce: 1}, For: time.Hour, Seed: seed}
			s := newSchedule(o, time.Now())
			required := len(s.required[calm])
			ctx, stop := context.WithCancelCause(t.Context())
			defer stop(nil)
			r := &run{began: time.Now()}
			found, after := 0, 0
			l := &elasticLane{r: r, s: s, lane: calm, stop: stop}
			l.playCases(ctx, func(p planned) (Result, error) {
				if found > 0 {
					if after++; after == 3 {
						return Result{}, errNoMachine // so that the lane ends
					}
				}
				if found+after == 0 && (row.class == ClassStratum || len(r.results) == required) {
					if row.verdict == "" {
						return Result{}, errNoMachine
					}
					found++
					return Result{Case: p.c, Findings: []Finding{{Verdict: Stuck}, {Verdict: row.verdict}}}, nil
				}
				return Result{Case: p.c}, nil
			})
			if row.stops {
				require.ErrorIs(t, context.Cause(ctx), errFailed)
				require.Zero(t, after, "nothing is played after it")
			} else {
				require.NoError(t, ctx.Err())
			}
			require.Equal(t, row.class == ClassExploring, s.strata.Played == required, "a stratum ends the run before the others")
		})
	}
}

// TestRunElastic_MissedDeadline: a run whose strata take too long says so, and names what is open.
func TestRunElastic_MissedDeadline(t *testing.T) {
	t.Parallel()
	o := ElasticOptions{Options: Options{Sets: []*ScenarioSet{Onboarding()}}, For: time.Second, Limit: time.Nanosecond, Seed: 7}
	report, err := RunElastic(t.Context(), o)
	require.ErrorContains(t, err, runenv.Deadline)
	for _, c := range StratumCases(o.Sets, o.Seed) {
		require.ErrorContains(t, err, c.String())
	}
	require.Equal(t, Coverage{Played: 0, All: 9}, report.Strata)
	require.Empty(t, report.Results)
}

// TestPlayCase_EndsAtItsTime: a case whose time is over is a missed deadline and not an error, so that it is
// played again.
func TestPlayCase_EndsAtItsTime(t *testing.T) {
	t.Parallel()
	s := newSchedule(ElasticOptions{Options: Options{Sets: allSets()}, For: time.Minute, Seed: 7}, time.Now())
	require.Zero(t, s.until(planned{class: ClassStratum}), "a required case is bounded by the limit alone")
	require.Equal(t, s.end.Add(runenv.Patience(time.Minute)), s.until(planned{class: ClassExploring}))

	r := &run{o: s.o.Options}
	res, err := r.playCase(t.Context(), nil, s.draw(calm), time.Now().Add(-time.Second))
	require.NoError(t, err)
	require.Len(t, res.Findings, 1)
	res.Class = ClassExploring
	require.False(t, res.failsRun())
	require.True(t, Report{Results: []Result{res}}.MissedDeadlines())
}

// TestPlayAgain_EndsAtItsTime: a case that cannot be played again in time fails the run, as a missed deadline.
func TestPlayAgain_EndsAtItsTime(t *testing.T) {
	t.Parallel()
	report := Report{Results: []Result{{Class: ClassExploring, Findings: []Finding{{Stuck, "x"}}}}}
	report, err := (&run{}).playAgain(t.Context(), report, time.Now())
	require.NoError(t, err)
	require.Equal(t, replays, report.Results[0].Recurred)
	require.Len(t, report.Failed(), 1)
	require.True(t, report.MissedDeadlines())
}

// TestDuplicates_WithoutExpectedEnd: a job that is stuck is checked for effects made too often, and for
// nothing else.
func TestDuplicates_WithoutExpectedEnd(t *testing.T) {
	t.Parallel()
	path := &Path{Check: func(_ context.Context, _ *Target, end lifecycle.JobStatus) []Finding {
		require.Equal(t, noExpectedEnd, end)
		return []Finding{{WrongEnd, "too few"}, {Duplicate, "too many"}}
	}}
	f := &findings{}
	f.add(Stuck, "%sslow", runenv.Deadline)
	f.duplicates(t.Context(), nil, path)
	require.Equal(t, []Finding{{Stuck, runenv.Deadline + "slow"}, {Duplicate, "too many"}}, f.list)
}

func TestReport_WhatFailsARun(t *testing.T) {
	t.Parallel()
	found := func(v Verdict, text string) []Finding { return []Finding{{v, text}} }
	for name, row := range map[string]struct {
		result  Result
		fails   bool
		passing bool
		late    bool
	}{
		"nothing found":            {result: Result{Class: ClassExploring}},
		"stratum":                  {result: Result{Class: ClassStratum, Findings: found(Stuck, "x")}, fails: true},
		"known":                    {result: Result{Class: ClassKnown, Findings: found(NotReached, "x")}, fails: true},
		"no elastic run":           {result: Result{Findings: found(WrongEnd, "x")}, fails: true},
		"stratum was slow":         {result: Result{Class: ClassStratum, Findings: found(Stuck, runenv.Deadline+"x")}, fails: true, late: true},
		"exploring, recurred":      {result: Result{Class: ClassExploring, Findings: found(Stuck, "x"), Replayed: 3, Recurred: 1}, fails: true},
		"exploring, did not recur": {result: Result{Class: ClassExploring, Findings: found(Stuck, "x"), Replayed: 3}, passing: true},
		"exploring, recurred too late": {result: Result{Class: ClassExploring, Findings: found(WrongEnd, "x"), Replayed: 3, Recurred: 1,
			Again: found(Stuck, runenv.Deadline)}, fails: true, late: true},
		"exploring, slow, then a duplicate": {result: Result{Class: ClassExploring, Findings: found(Stuck, runenv.Deadline), Replayed: 3, Recurred: 1,
			Again: found(Duplicate, "x")}, fails: true},
		"exploring, never repeated":       {result: Result{Class: ClassExploring, Findings: found(WrongEnd, "x")}, fails: true},
		"exploring, duplicate effect":     {result: Result{Class: ClassExploring, Findings: found(Duplicate, "x"), Replayed: 3}, fails: true},
		"exploring, broken invariant":     {result: Result{Class: ClassExploring, Findings: found(Invariant, "x"), Replayed: 3}, fails: true},
		"exploring, slow and a duplicate": {result: Result{Class: ClassExploring, Findings: slices.Concat(found(Stuck, runenv.Deadline), found(Duplicate, "x"))}, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := Report{Results: []Result{{Class: ClassStratum}, row.result}}
			require.Len(t, r.Failed(), one(row.fails))
			require.Len(t, r.Passing(), one(row.passing))
			require.Equal(t, row.late, r.MissedDeadlines())
		})
	}
}
