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
	// For is how long the run may take, from its start. Known cases come first, then strata, then
	// random cases. None begins that is not expected to end in time. A case that is open at the end
	// is watched for as long as a job may stand still: one that stands still all the time is a
	// finding, and one that goes on is abandoned.
	For time.Duration
	// Limit makes the run complete: it plays all known cases and strata whatever For is, and fails
	// when they have not ended after Limit.
	Limit time.Duration
	Seed  uint64
	Known []KnownCase
	// First are the names of strata that are played before the others, in this order: those which
	// an earlier run left out.
	First []string
}

// replays is how often a case in which exploring found something is played again
// alone. A run plays at most mostReplayed such cases again, and fails when there are more.
// replaysEnd is after how long no further repetition begins, but for the first one of each case.
const (
	replays      = 3
	mostReplayed = 3
	replaysEnd   = 3 * time.Minute
)

// standsStill is how long a job of an elastic run may stand still. The longest wait without
// incident is over a minute: for the lease of a killed agent's task, or for a BMC that does not
// answer.
const standsStill = 150 * time.Second

// errFailed ends a run whose report says why.
var errFailed = errors.New("a case failed")

// RunElastic plays the known cases, one case of each stratum, and random cases
// until the time is over, in one pair of environments. A finding of a known case
// or a stratum ends the run at once. So do a duplicate effect and a broken
// invariant in a random case; with any other finding the random case is played
// again alone. That the time ends is no finding. An error means that the run could
// not be completed; what went wrong in the cases is in the report.
func RunElastic(ctx context.Context, o ElasticOptions) (Report, error) {
	o.Patience = orElse(o.Patience, runenv.Patience(standsStill))
	o.fill()
	r := &run{o: o.Options, began: time.Now(), logCapture: &logCapture{to: o.Log}}
	s := newSchedule(o, r.began)
	playing, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	if o.Limit > 0 {
		limit := time.AfterFunc(o.Limit, func() {
			if open := s.open(); len(open) > 0 {
				stop(fmt.Errorf("%safter %s these cases have not ended:\n  %s", runenv.Deadline, o.Limit, strings.Join(open, "\n  ")))
			}
		})
		defer limit.Stop()
	}
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
	report.Strata = s.coverage()
	if cause := context.Cause(playing); cause != nil { // what else went wrong follows from that
		if errors.Is(cause, errFailed) {
			cause = nil
		}
		return report, cause
	}
	if err := errors.Join(errs[:]...); err != nil {
		return report, err
	}
	return r.playAgain(ctx, report, time.Now().Add(runenv.Patience(replaysEnd)), r.playAlone)
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
			l.playCases(ctx, func(p planned) (Result, error) { return l.r.playCase(ctx, t, p.c, p.until) })
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
		abandoned := res.unfinished(next.until, time.Now())
		if abandoned {
			l.r.printf("not finished: %s", next.c)
			res.Findings = nil
		}
		l.s.ended(next, res, abandoned)
		l.r.addResult(res)
		if res.failsRun() {
			l.stop(errFailed)
		}
	}
}

// unfinished reports whether all that was found is that the time for the case ended. A job that
// stood still for longer than it may, a duplicate effect and a wrong end are none of that.
func (r Result) unfinished(until, now time.Time) bool {
	return len(r.Findings) > 0 && r.late() && r.Replayed == 0 && !until.IsZero() && !now.Before(until)
}

// failsRun reports whether a result fails the run whatever a repetition shows.
func (r Result) failsRun() bool {
	if r.Class != ClassExploring {
		return len(r.Findings) > 0
	}
	return r.has(Duplicate) || r.has(Invariant)
}

// playAgain plays each random case that has a finding again, alone. The first repetition of each
// has all the time that it needs. Those that begin later end at until, and do not count when they
// are open then.
func (r *run) playAgain(ctx context.Context, report Report, until time.Time, play func(context.Context, Case, time.Time) (Result, error)) (Report, error) {
	doubtful := 0
	for i := range report.Results {
		one := &report.Results[i]
		if len(one.Findings) == 0 || one.failsRun() {
			continue
		}
		if doubtful++; doubtful > mostReplayed {
			continue
		}
		r.printf("plays again alone, at most %d times: %s", replays, one.Case)
		for n := range replays {
			end := until
			if n == 0 {
				end = time.Time{}
			} else if !time.Now().Before(until) {
				break
			}
			again, err := play(ctx, one.Case, end)
			if err != nil {
				return report, err
			}
			if again.unfinished(end, time.Now()) {
				break
			}
			one.Replayed++
			if len(again.Findings) > 0 {
				one.Recurred++
				one.Again = append(one.Again, again.Findings...)
				r.printf("found again: %s: %s", again.Findings[0].Verdict, again.Findings[0].Text)
			}
		}
	}
	report.Took = time.Since(r.began)
	return report, nil
}

// playAlone plays a case until a moment in environments of its own.
func (r *run) playAlone(ctx context.Context, c Case, until time.Time) (Result, error) {
	o := r.o
	o.AtOnce, o.Cases, o.until = 1, []Case{c}, until
	report, err := Run(ctx, o)
	if err != nil || len(report.Results) == 0 {
		return Result{Case: c}, err
	}
	return report.Results[0], nil
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
	c       Case
	class   Class
	stratum string    // its name, of a stratum
	until   time.Time // when it ends although it is open; the zero time is never
}

// schedule hands out the cases of an elastic run.
type schedule struct {
	o   ElasticOptions
	end time.Time // when the run should be over

	mu       sync.Mutex
	required [lanes][]planned // not handed out
	under    map[string]int   // required cases that have not ended
	order    []string         // names of the strata, as they should be played
	played   map[string]bool  // by name of a stratum: whether its case has ended
	abandons int              // cases that were open when their time ended
	explorer *Explorer
	drawn    [lanes][]Case
	took     map[string][]time.Duration // by scenario set and lane
}

// Coverage is how many strata a run has played, and which it has left out, those first that came
// first.
type Coverage struct {
	Played, All int
	Left        []string
	// Unfinished is how many cases of all classes were open when the time ended.
	Unfinished int
}

func newSchedule(o ElasticOptions, began time.Time) *schedule {
	s := &schedule{
		o: o, end: began.Add(o.For), under: map[string]int{}, took: map[string][]time.Duration{}, explorer: NewExplorer(o.Sets, o.Seed),
		played: map[string]bool{},
	}
	for _, k := range o.Known {
		s.require(planned{c: k.Case, class: ClassKnown})
	}
	strata, cases := Strata(o.Sets), StratumCases(o.Sets, o.Seed)
	var queues [lanes][]planned
	for _, i := range strataOrder(strata, o.First, o.Seed) {
		p := planned{c: cases[i], class: ClassStratum, stratum: strata[i].String()}
		s.order = append(s.order, p.stratum)
		queues[laneOf(p.c)] = append(queues[laneOf(p.c)], p)
	}
	for l, queue := range queues {
		for part := range slices.Chunk(queue, 2*s.slots(lane(l))) {
			slices.SortStableFunc(part, func(a, b planned) int { return s.rank(a.c) - s.rank(b.c) })
			for _, p := range part {
				s.require(p)
			}
		}
	}
	return s
}

// rank orders the strata that are played at about the same time, two for each slot: what takes
// longest begins first, and onboarding begins before the cases that take over its nodes. Which
// strata these are is decided by strataOrder.
func (s *schedule) rank(c Case) int {
	if c.Has(AgentKilled, Timeout) {
		return 0
	}
	order := []string{"booted", "onboarding", "allocation_release", "allocation_provision", "decommission_root", "decommission", "node_operation", "agent_update", "agent_reissue", "instance_terminate", "instance_create"}
	i := slices.IndexFunc(s.o.Sets, func(p *ScenarioSet) bool { return p.Plays(c) })
	return 1 + slices.Index(order, s.o.Sets[i].Name)
}

func (s *schedule) require(p planned) {
	if s.o.Limit == 0 {
		p.until = s.abandonsAt()
	}
	l := laneOf(p.c)
	s.required[l] = append(s.required[l], p)
	s.under[p.c.String()]++
}

// abandonsAt is when a case that goes on is abandoned. A job that stood still when the time was
// over has stood still for longer than it may by then, and is found.
func (s *schedule) abandonsAt() time.Time { return s.end.Add(s.o.Patience) }

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

// next hands out a case: a known one, one of a stratum, or a random one. A case of a stratum or a
// random one is expected to end before the time is over, unless the run must be complete.
func (s *schedule) next(l lane, now time.Time) (planned, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fits := func(c Case) bool { return now.Add(s.expected(c)).Before(s.end) }
	at := slices.IndexFunc(s.required[l], func(p planned) bool { return s.o.Limit > 0 || p.class == ClassKnown || fits(p.c) })
	if at >= 0 {
		p := s.required[l][at]
		s.required[l] = slices.Delete(s.required[l], at, at+1)
		return p, true
	}
	for range mostDraws {
		if c := s.draw(l); fits(c) {
			return planned{c: c, class: ClassExploring, until: s.abandonsAt()}, true
		}
	}
	return planned{}, false
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

// ended notes a case that has ended, or was abandoned.
func (s *schedule) ended(p planned, res Result, abandoned bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kind := s.kindOf(p.c)
	s.took[kind] = append(s.took[kind], res.Prepared+res.Took)
	if abandoned {
		s.abandons++
	}
	if p.class == ClassExploring {
		return
	}
	if p.class == ClassStratum && !abandoned {
		s.played[p.stratum] = true
	}
	text := p.c.String()
	if s.under[text]--; s.under[text] == 0 {
		delete(s.under, text)
	}
}

// coverage says which strata have been played.
func (s *schedule) coverage() Coverage {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := Coverage{All: len(s.order), Unfinished: s.abandons}
	for _, name := range s.order {
		if !s.played[name] {
			c.Left = append(c.Left, name)
		}
	}
	c.Played = c.All - len(c.Left)
	return c
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
