package chaos

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// TestSchedule_Order: known cases are handed out first, whatever the time, then the strata and then
// random cases, for as long as they are expected to end in time. A case that does not fit is left
// out.
func TestSchedule_Order(t *testing.T) {
	t.Parallel()
	began := time.Now()
	known, err := ParseCase(knownText, allSets())
	require.NoError(t, err)
	o := ElasticOptions{Options: Options{Sets: allSets(), AtOnce: 4}, For: time.Minute, Seed: 7, Known: []KnownCase{{Case: known}}}
	s := newSchedule(o, began)
	first, more := s.next(laneOf(known), began.Add(time.Hour))
	require.True(t, more, "a known case does not depend on the time")
	require.Equal(t, ClassKnown, first.class)
	_, more = s.next(laneOf(known), began.Add(time.Hour))
	require.False(t, more, "a stratum does")
	s.ended(first, Result{}, false)
	all := len(Strata(o.Sets))
	require.Equal(t, all, s.coverage().All)
	require.Len(t, s.coverage().Left, all)
	for l := range lanes {
		for len(s.required[l]) > 0 {
			p, more := s.next(l, began)
			require.True(t, more)
			require.Equal(t, ClassStratum, p.class)
			require.Equal(t, l, laneOf(p.c))
			s.ended(p, Result{Prepared: time.Second, Took: 9 * time.Second}, false)
		}
	}
	require.Equal(t, Coverage{Played: all, All: all}, s.coverage())
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

// TestSchedule_Complete: a run that must be complete hands out every stratum, whatever the time,
// and abandons none.
func TestSchedule_Complete(t *testing.T) {
	t.Parallel()
	began := time.Now()
	s := newSchedule(ElasticOptions{Options: Options{Sets: allSets(), AtOnce: 4}, For: time.Second, Limit: time.Hour, Seed: 7}, began)
	handed := 0
	for l := range lanes {
		for p, more := s.next(l, began.Add(time.Hour)); more; p, more = s.next(l, began.Add(time.Hour)) {
			require.Zero(t, p.until)
			handed++
		}
	}
	require.Equal(t, len(Strata(allSets())), handed)
}

// TestSchedule_LeftOutComeNext: a run that has time for a third of the strata leaves out the
// others, which come first in the next run, whatever its seed. After four runs each was played.
// Without the list no stratum is left out by every seed.
func TestSchedule_LeftOutComeNext(t *testing.T) {
	t.Parallel()
	began := time.Now()
	play := func(seed uint64, first []string) Coverage {
		s := newSchedule(ElasticOptions{Options: Options{Sets: allSets(), AtOnce: 4}, For: time.Hour, Seed: seed, First: first}, began)
		for l := range lanes {
			for range (len(s.required[l]) + 2) / 3 {
				p, more := s.next(l, began)
				require.True(t, more)
				s.ended(p, Result{Took: time.Second}, false)
			}
		}
		return s.coverage()
	}
	coverage := play(7, nil)
	missing := slices.Clone(coverage.Left)
	require.NotEmpty(t, missing)
	for seed := uint64(8); seed < 11; seed++ {
		coverage = play(seed, coverage.Left)
		missing = slices.DeleteFunc(missing, func(name string) bool { return !slices.Contains(coverage.Left, name) })
	}
	require.Empty(t, missing)

	always := play(0, nil).Left
	for seed := range uint64(60) {
		out := play(seed, nil).Left
		always = slices.DeleteFunc(always, func(name string) bool { return !slices.Contains(out, name) })
	}
	require.Empty(t, always, "each stratum has its chance")
}

// TestSchedule_Open: a required case is open until it has ended. A case that was abandoned does not
// count as played.
func TestSchedule_Open(t *testing.T) {
	t.Parallel()
	s := newSchedule(ElasticOptions{Options: Options{Sets: allSets(), AtOnce: 4}, For: time.Minute, Seed: 7}, time.Now())
	p, more := s.next(calm, time.Now())
	require.True(t, more)
	require.Contains(t, s.open(), p.c.String())
	s.ended(p, Result{}, true)
	require.NotContains(t, s.open(), p.c.String())
	require.Contains(t, s.coverage().Left, p.stratum)
	require.Equal(t, 1, s.coverage().Unfinished)
}

// TestPlayCases_StopsAtOnce: a finding of a required case ends the run, and so does a duplicate
// effect or a broken invariant of a random case. Any other finding of a random case is left for
// later.
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
			require.Equal(t, row.class == ClassExploring, s.coverage().Played == required, "a stratum ends the run before the others")
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
	require.Len(t, report.Strata.Left, 9)
	require.Empty(t, report.Results)
}

// TestPlayCases_TimeIsNoFinding: a case of any class that was open when its time ended is told and
// not counted against the run. A job that stood still for too long, a duplicate effect and a wrong
// end fail the run at any time.
func TestPlayCases_TimeIsNoFinding(t *testing.T) {
	t.Parallel()
	late := Finding{Stuck, runenv.Deadline + "the job is running"}
	for name, row := range map[string]struct {
		found   []Finding
		over    bool // the time for the case
		stopped bool
	}{
		"slow":                  {[]Finding{late}, true, false},
		"slow before the end":   {[]Finding{late}, false, true},
		"stood still":           {[]Finding{{Stuck, "the job stood still"}}, true, true},
		"a duplicate beside it": {[]Finding{late, {Duplicate, "two deployments"}}, true, true},
		"a wrong end":           {[]Finding{{WrongEnd, "failed"}}, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := ElasticOptions{Options: Options{Sets: allSets(), AtOnce: 1, Patience: time.Minute}, For: time.Hour, Seed: 7}
			s := newSchedule(o, time.Now())
			for i := range s.required[calm] {
				if s.required[calm][i].until = time.Now().Add(time.Hour); row.over {
					s.required[calm][i].until = time.Now()
				}
			}
			ctx, stop := context.WithCancelCause(t.Context())
			defer stop(nil)
			r := &run{began: time.Now()}
			l := &elasticLane{r: r, s: s, lane: calm, stop: stop}
			played := 0
			l.playCases(ctx, func(p planned) (Result, error) {
				if played++; played > 1 {
					s.required[calm] = nil
					return Result{}, errNoMachine // the lane ends
				}
				return Result{Case: p.c, Findings: slices.Clone(row.found), open: true}, nil
			})
			require.Equal(t, row.stopped, errors.Is(context.Cause(ctx), errFailed))
			require.Len(t, r.results[0].Findings, len(row.found)*one(row.stopped))
			require.Equal(t, one(!row.stopped), s.coverage().Unfinished)
		})
	}
}

// TestPlayCase_EndsAtItsTime: a case whose time is over is a missed deadline and not an error. It
// is watched for as long as a job may stand still, so that one that hung when the time ended is
// found.
func TestPlayCase_EndsAtItsTime(t *testing.T) {
	t.Parallel()
	s := newSchedule(ElasticOptions{Options: Options{Sets: allSets(), AtOnce: 4, Patience: 150 * time.Second}, For: time.Minute, Seed: 7}, time.Now())
	stratum, more := s.next(calm, s.end.Add(-time.Minute))
	require.True(t, more)
	require.Equal(t, s.end.Add(150*time.Second), stratum.until)
	s.required[calm] = nil
	random, more := s.next(calm, s.end.Add(-time.Minute))
	require.True(t, more)
	require.Equal(t, stratum.until, random.until)

	r := &run{o: s.o.Options}
	over := time.Now().Add(-time.Second)
	res, err := r.playCase(t.Context(), nil, s.draw(calm), over)
	require.NoError(t, err)
	require.Len(t, res.Findings, 1)
	require.True(t, res.unfinished(over, time.Now()))
	require.False(t, res.unfinished(time.Time{}, time.Now()), "outside elastic runs it is a finding")
}

// TestPlayAgain_TimeIsNoVerdict: the first repetition has all the time that it needs, so that there
// is a verdict. Those that begin later do not count when they are open at the end.
func TestPlayAgain_TimeIsNoVerdict(t *testing.T) {
	t.Parallel()
	late := Result{Findings: []Finding{{Stuck, runenv.Deadline + "open"}}, open: true}
	wrong := Result{Findings: []Finding{{WrongEnd, "x"}}}
	for name, row := range map[string]struct {
		until  time.Duration
		plays  []Result
		played int
		failed bool
	}{
		"no time is left, and it is well":    {-time.Second, []Result{{}}, 1, false},
		"no time is left, and it recurs":     {-time.Second, []Result{wrong}, 1, true},
		"well three times":                   {time.Hour, []Result{{}, {}, {}}, 3, false},
		"recurs in the last":                 {time.Hour, []Result{{}, {}, wrong}, 3, true},
		"the second has not ended":           {10 * time.Millisecond, []Result{{}, late}, 1, false},
		"the first never ends by itself":     {-time.Second, []Result{late}, 1, true},
		"the second is open, but duplicates": {10 * time.Millisecond, []Result{{}, {Findings: append(slices.Clone(late.Findings), Finding{Duplicate, "x"})}}, 2, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			report := Report{Results: []Result{{Class: ClassExploring, Findings: []Finding{{Stuck, "x"}}}}}
			until, n := time.Now().Add(row.until), 0
			report, err := (&run{}).playAgain(t.Context(), report, until, func(ctx context.Context, _ Case, end time.Time) (Result, error) {
				require.Equal(t, n == 0, end.IsZero())
				n++
				if n == len(row.plays) && !end.IsZero() && row.until < time.Second {
					pause(ctx, time.Until(end)+time.Millisecond)
				}
				return row.plays[n-1], nil
			})
			require.NoError(t, err)
			require.Equal(t, len(row.plays), n)
			require.Equal(t, row.played, report.Results[0].Replayed)
			require.Len(t, report.Failed(), one(row.failed))
			require.Len(t, report.Passing(), one(!row.failed))
		})
	}
}

// TestEventually_StretchesWithTheMachine: a wait that began while the machine was fast gets longer
// when it becomes slow.
func TestEventually_StretchesWithTheMachine(t *testing.T) {
	t.Parallel()
	factor := time.Duration(2)
	patience := func(d time.Duration) time.Duration { return factor * d }
	limit := stretchingBy(time.Minute, patience)
	require.Equal(t, time.Minute, limit())
	factor = 6
	require.Equal(t, 3*time.Minute, limit())
	require.Equal(t, time.Minute, stretchingBy(time.Minute, patience)(), "a wait that begins now has its patience already")
}

// TestDuplicates_WithoutExpectedEnd: a job that is stuck is checked for effects made too often, and
// for nothing else.
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
