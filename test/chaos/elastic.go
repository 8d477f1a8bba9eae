package chaos

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/slipway-cloud/slipway/test/runenv"
)

// ElasticOptions say what an elastic run plays and for how long.
type ElasticOptions struct {
	Options
	// For is how long the run may take, from its start. Known cases and strata are
	// played completely, also when that takes longer. Random cases that are open one
	// minute later, times the patience of the run, end as missed deadlines.
	For time.Duration
	// Limit is after how long known cases and strata have to be complete; 0 is
	// twice For, and 3 minutes at least.
	Limit time.Duration
	Seed  uint64
	Known []KnownCase
}

// replays is how often a case in which exploring found something is played again
// alone. A run plays at most mostReplayed such cases again, and fails when there are more.
// replaysEnd is how long all repetitions may take together.
const (
	replays      = 3
	mostReplayed = 3
	replaysEnd   = 3 * time.Minute
)

// exploringEnds is how long after For exploring cases may be open.
const exploringEnds = time.Minute

// standsStill is how long a job of an elastic run may stand still. The longest wait without incident
// is over a minute: for the lease of a killed agent's task, or for a BMC that does not answer.
const standsStill = 150 * time.Second

// errFailed ends a run whose report says why.
var errFailed = errors.New("a case failed")

// RunElastic plays the known cases, one case of each stratum, and random cases
// until the time is over, in one pair of environments. A finding of a known case
// or a stratum ends the run at once. So do a duplicate effect and a broken
// invariant in a random case; with any other finding the random case is played
// again alone. An error means that the run could not be completed; what went
// wrong in the cases is in the report.
func RunElastic(ctx context.Context, o ElasticOptions) (Report, error) {
	o.Limit = orElse(o.Limit, max(2*o.For, runenv.Patience(3*time.Minute)))
	o.Patience = orElse(o.Patience, runenv.Patience(standsStill))
	o.fill()
	r := &run{o: o.Options, began: time.Now(), logCapture: &logCapture{to: o.Log}}
	s := newSchedule(o, r.began)
	playing, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	limit := time.AfterFunc(o.Limit, func() {
		if open := s.open(); len(open) > 0 {
			stop(fmt.Errorf("%safter %s these cases have not ended:\n  %s", runenv.Deadline, o.Limit, strings.Join(open, "\n  ")))
		}
	})
	defer limit.Stop()
	var wg sync.WaitGroup
	var errs [lanes]error
	var killed [lanes]int
	for lane := range lanes {
		wg.Go(func() {
			l := &elasticLane{r: r, s: s, lane: lane, stop: stop}
			killed[lane], errs[lane] = l.play(playing)
		})
	}
	wg.Wait()
	report := r.report(killed[calm] + killed[rough])
	report.Strata = s.strata
	if cause := context.Cause(playing); cause != nil { // what else went wrong follows from that
		if errors.Is(cause, errFailed) {
			cause = nil
		}
		return report, cause
	}
	if err := errors.Join(errs[:]...); err != nil {
		return report, err
	}
	return r.playAgain(ctx, report, time.Now().Add(runenv.Patience(replaysEnd)))
}

// elasticLane is one of the two environments of an elastic run.
type elasticLane struct {
	r    *run
	s    *schedule
	lane lane
	stop context.CancelCauseFunc
}

func (l *elasticLane) play(ctx context.Context) (killed int, err error) {
	processes := 0
	if l.lane == rough {
		processes = l.r.o.Processes
	}
	t, err := newEnvironment(ctx, l.r.environment(l.lane.String(), l.s.machines(l.lane), processes))
	if err != nil {
		l.stop(err)
		return 0, err
	}
	defer t.close()
	l.r.printf("the %s environment is up", l.lane)
	var wg sync.WaitGroup
	for range l.s.slots(l.lane) {
		wg.Go(func() {
			l.playCases(ctx, func(p planned) (Result, error) { return l.r.playCase(ctx, t, p.c, l.s.until(p)) })
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return t.killed(), context.Cause(ctx)
	}
	return l.r.finish(ctx, t, nil)
}

// playCases plays one case after the other until none is left, or one fails the run.
func (l *elasticLane) playCases(ctx context.Context, play func(planned) (Result, error)) {
	for ctx.Err() == nil {
		next, more := l.s.next(l.lane, time.Now())
		if !more {
			return
		}
		res, err := play(next)
		if ctx.Err() != nil {
			return // the run has ended, so the result does not count
		}
		if errors.Is(err, errNoMachine) && next.class == ClassExploring {
			l.r.printf("the %s environment has no machine left", l.lane)
			return
		}
		if err != nil {
			l.stop(err)
			return
		}
		res.Class = next.class
		l.s.ended(next, res)
		l.r.addResult(res)
		if res.failsRun() {
			l.stop(errFailed)
		}
	}
}

// failsRun reports whether a result fails the run whatever a repetition shows.
func (r Result) failsRun() bool {
	if r.Class != ClassExploring {
		return len(r.Findings) > 0
	}
	return r.has(Duplicate) || r.has(Invariant)
}

// playAgain plays each random case that has a finding again, alone. A repetition that has not ended
// at until counts as one in which the finding recurred.
func (r *run) playAgain(ctx context.Context, report Report, until time.Time) (Report, error) {
	doubtful := 0
	for i := range report.Results {
		one := &report.Results[i]
		if len(one.Findings) == 0 || one.failsRun() {
			continue
		}
		if doubtful++; doubtful > mostReplayed {
			continue
		}
		if !time.Now().Before(until) {
			one.Replayed, one.Recurred = replays, replays
			one.Again = []Finding{{Stuck, runenv.Deadline + "no time was left to play the case again"}}
			continue
		}
		r.printf("plays again alone, %d times: %s", replays, one.Case)
		o := r.o
		o.AtOnce, o.Cases, o.until = 1, slices.Repeat([]Case{one.Case}, replays), until
		again, err := Run(ctx, o)
		if err != nil {
			return report, err
		}
		one.Replayed, one.Recurred = replays, len(again.WithFindings())
		for _, g := range again.WithFindings() {
			one.Again = append(one.Again, g.Findings...)
			r.printf("found again: %s: %s", g.Findings[0].Verdict, g.Findings[0].Text)
		}
	}
	report.Took = time.Since(r.began)
	return report, nil
}

func (r *run) printf(format string, args ...any) {
	if r.o.Progress != nil {
		fmt.Fprintf(r.o.Progress, "%4.0f s: %s\n", time.Since(r.began).Seconds(), fmt.Sprintf(format, args...))
	}
}

// lane says in which of the two environments a case is played.
type lane int

// The lanes: calm has its worker inside this process, rough has worker processes
// that are killed.
const (
	calm lane = iota
	rough
	lanes
)

func (l lane) String() string { return [lanes]string{"calm", "rough"}[l] }

func laneOf(c Case) lane {
	if c.Has(WorkerKilled, PostgresKilled) {
		return rough
	}
	return calm
}

// planned is a case that a schedule hands out.
type planned struct {
	c     Case
	class Class
}

// schedule hands out the cases of an elastic run.
type schedule struct {
	o      ElasticOptions
	end    time.Time // when the run should be over
	strata Coverage

	mu       sync.Mutex
	required [lanes][]planned // not handed out
	under    map[string]int   // required cases that have not ended
	explorer *Explorer
	drawn    [lanes][]Case
	took     map[string][]time.Duration // by scenario set and lane
}

// Coverage is how many strata a run has played.
type Coverage struct{ Played, All int }

func newSchedule(o ElasticOptions, began time.Time) *schedule {
	s := &schedule{
		o: o, end: began.Add(o.For), under: map[string]int{}, took: map[string][]time.Duration{}, explorer: NewExplorer(o.Sets, o.Seed),
	}
	for _, k := range o.Known {
		s.require(planned{c: k.Case, class: ClassKnown})
	}
	s.strata.All = len(Strata(o.Sets))
	strata := make([]planned, 0, s.strata.All)
	for _, c := range StratumCases(o.Sets, o.Seed) {
		strata = append(strata, planned{c: c, class: ClassStratum})
	}
	slices.SortStableFunc(strata, func(a, b planned) int { return s.rank(a.c) - s.rank(b.c) })
	for _, one := range strata {
		s.require(one)
	}
	return s
}

// rank orders the strata: what takes longest begins first, and onboarding begins
// before the cases that take over its nodes.
func (s *schedule) rank(c Case) int {
	if c.Has(AgentKilled, Timeout) {
		return 0
	}
	order := []string{"booted", "onboarding", "allocation_release", "allocation_provision", "decommission_root", "decommission", "node_operation", "agent_update", "agent_reissue", "instance_terminate", "instance_create"}
	i := slices.IndexFunc(s.o.Sets, func(p *ScenarioSet) bool { return p.Plays(c) })
	return 1 + slices.Index(order, s.o.Sets[i].Name)
}

func (s *schedule) require(p planned) {
	l := laneOf(p.c)
	s.required[l] = append(s.required[l], p)
	s.under[p.c.String()]++
}

// slots is how many cases a lane plays at a time.
func (s *schedule) slots(l lane) int {
	if l == rough {
		return max(2, s.o.AtOnce*3/8)
	}
	return s.o.AtOnce
}

// perSlot is how long a slot is busy with a case of its own machine at the least,
// on average.
const perSlot = 15 * time.Second

// machines is how many machines of MAAS a lane gets: one for each required case,
// and one for each that can be played in the time. A lane that has used them up
// plays no more random cases.
func (s *schedule) machines(l lane) int {
	return len(s.required[l]) + s.slots(l)*int(math.Ceil(s.o.For.Seconds()/perSlot.Seconds()))
}

// mostDraws bounds the search for a random case that ends in time.
const mostDraws = 40

// next hands out a case: a required one, or a random one that is expected to end
// before the time is over.
func (s *schedule) next(l lane, now time.Time) (planned, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if left := s.required[l]; len(left) > 0 {
		s.required[l] = left[1:]
		return left[0], true
	}
	for range mostDraws {
		c := s.draw(l)
		if now.Add(s.expected(c)).Before(s.end) {
			return planned{c: c, class: ClassExploring}, true
		}
	}
	return planned{}, false
}

// until is when a case ends although it is open: the zero time, for never, for a required case.
func (s *schedule) until(p planned) time.Time {
	if p.class != ClassExploring {
		return time.Time{}
	}
	return s.end.Add(runenv.Patience(exploringEnds))
}

// draw takes the next random case of a lane.
func (s *schedule) draw(l lane) Case {
	for len(s.drawn[l]) == 0 {
		c := s.explorer.Next()
		s.drawn[laneOf(c)] = append(s.drawn[laneOf(c)], c)
	}
	c := s.drawn[l][0]
	s.drawn[l] = s.drawn[l][1:]
	return c
}

// untilMeasured is how long a case is expected to take while none of its kind has
// ended; closing is how long the checks of the whole take at the end.
const (
	untilMeasured = 30 * time.Second
	closing       = 3 * time.Second
)

// expected is how long a case takes with its preparation, by what most of the
// same kind took.
func (s *schedule) expected(c Case) time.Duration {
	seen := s.took[s.kindOf(c)]
	if len(seen) == 0 {
		return untilMeasured + closing
	}
	sorted := slices.Sorted(slices.Values(seen))
	return sorted[len(sorted)*4/5] + closing
}

func (s *schedule) kindOf(c Case) string {
	for _, p := range s.o.Sets {
		if p.Plays(c) {
			return p.Name + " " + laneOf(c).String()
		}
	}
	return ""
}

// ended notes a case that has ended.
func (s *schedule) ended(p planned, res Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kind := s.kindOf(p.c)
	s.took[kind] = append(s.took[kind], res.Prepared+res.Took)
	if p.class == ClassExploring {
		return
	}
	if p.class == ClassStratum {
		s.strata.Played++
	}
	text := p.c.String()
	if s.under[text]--; s.under[text] == 0 {
		delete(s.under, text)
	}
}

// open lists the required cases that have not ended.
func (s *schedule) open() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for text := range s.under {
		out = append(out, text)
	}
	slices.Sort(out)
	return out
}
