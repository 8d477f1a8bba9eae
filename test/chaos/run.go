package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"go.temporal.io/sdk/interceptor"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/test/runenv"
	"github.com/slipway-cloud/slipway/test/stack"
)

// Options say what to run.
type Options struct {
	Sets  []*ScenarioSet
	Cases []Case
	// AtOnce is how many jobs are under way at a time in an environment, 0 for 16.
	AtOnce int
	// Processes is how many worker processes share the cases in which workers
	// are killed, 0 for 3.
	Processes int
	// Patience is how long a job may stand still, 0 for 4 minutes. A job that goes
	// on is slow, not stuck: it has five times that in all.
	Patience time.Duration
	// Break makes interceptors for the worker in this process: how a test breaks
	// a stage.
	Break func(*stack.Stack) []interceptor.WorkerInterceptor
	// Progress gets a line now and then, Log the product's own log; nil drops.
	Progress, Log io.Writer
	// Verbose writes a line to Progress when a case ends.
	Verbose bool

	until time.Time // when cases that are open end as missed deadlines, the zero time for never
}

// fill sets the options that are not set.
func (o *Options) fill() {
	o.AtOnce, o.Processes = orElse(o.AtOnce, 16), orElse(o.Processes, 3)
	o.Patience = orElse(o.Patience, runenv.Patience(4*time.Minute))
}

// Result is what became of a case.
type Result struct {
	Case  Case
	Class Class // "" outside elastic runs
	JobID string
	End   lifecycle.JobStatus
	// Prepared is how long it took to make what the job works on, Took how long
	// the job and its checks took.
	Prepared, Took time.Duration
	Findings       []Finding
	// Waits is how often it was parked until a BMC's window of wrong logins had ended, and was sent
	// on by an operator.
	Waits int
	// Said is what the product logged of a job with findings, the last lines.
	Said []string
	// Replayed is how often the case was played again alone, Recurred how often
	// that found something.
	Replayed, Recurred int
	// Again are the findings of the repetitions.
	Again []Finding

	open bool // the time for the case ended before its job did
}

// run is one run of many cases.
type run struct {
	o          Options
	began      time.Time
	mu         sync.Mutex
	results    []Result
	logCapture *logCapture
}

// Run plays the cases, many at a time, and reports. An error means that the
// harness could not do its work; what the product did wrong is in the report.
// Cases that kill workers or database backends share one system, so that each
// has neighbours who must survive that; the others share another.
func Run(ctx context.Context, o Options) (Report, error) {
	o.fill()
	r := &run{o: o, began: time.Now(), logCapture: &logCapture{to: o.Log}}
	var calm, rough []Case
	for _, c := range o.Cases {
		if c.Has(WorkerKilled, PostgresKilled) {
			rough = append(rough, c)
		} else {
			calm = append(calm, c)
		}
	}
	stop := r.printProgress()
	defer stop()
	var wg sync.WaitGroup
	var killed int
	var errs [2]error
	play := func(i int, name string, cases []Case, processes int) {
		if len(cases) > 0 {
			wg.Go(func() {
				var n int
				n, errs[i] = r.play(ctx, name, cases, processes)
				r.mu.Lock()
				killed += n
				r.mu.Unlock()
			})
		}
	}
	play(0, "calm", calm, 0)
	play(1, "rough", rough, o.Processes)
	wg.Wait()
	return r.report(killed), errors.Join(errs[:]...)
}

// report is what the run found so far.
func (r *run) report(killed int) Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.results {
		if one := &r.results[i]; len(one.Findings) > 0 {
			one.Said = r.logCapture.of(one.JobID)
		}
	}
	return Report{Results: r.results, Killed: killed, Took: time.Since(r.began)}
}

func orElse[T comparable](v, dflt T) T {
	var zero T
	if v == zero {
		return dflt
	}
	return v
}

const progressEvery = 30 * time.Second

// printProgress prints how far the run is, every 30 seconds, until stop is called.
func (r *run) printProgress() (stop func()) {
	done := make(chan struct{})
	if r.o.Progress == nil {
		return func() {}
	}
	go func() {
		t := time.NewTicker(progressEvery)
		defer t.Stop()
		for {
			select {
			case <-done:
				return
			case <-t.C:
				r.mu.Lock()
				bad := len(Report{Results: r.results}.WithFindings())
				fmt.Fprintf(r.o.Progress, "%4.0f s: %d of %d cases ended, %d with findings\n",
					time.Since(r.began).Seconds(), len(r.results), len(r.o.Cases), bad)
				r.mu.Unlock()
			}
		}
	}()
	return func() { close(done) }
}

// play runs cases in one environment and holds them against its invariants.
func (r *run) play(ctx context.Context, name string, cases []Case, processes int) (killed int, err error) {
	t, err := newEnvironment(ctx, r.environment(name, len(cases), processes))
	if err != nil {
		return 0, err
	}
	defer t.close()
	if r.o.Verbose {
		r.printf("the %s environment is up", name)
	}
	errs := make([]error, len(cases))
	gate := make(chan struct{}, r.o.AtOnce)
	var wg sync.WaitGroup
	for i, c := range cases {
		gate <- struct{}{}
		wg.Go(func() {
			defer func() { <-gate }()
			var res Result
			res, errs[i] = r.playCase(ctx, t, c, r.o.until)
			if errs[i] == nil {
				r.addResult(res)
			}
		})
	}
	wg.Wait()
	return r.finish(ctx, t, errs)
}

// environment are the options of an environment of this run.
func (r *run) environment(name string, machines, processes int) environmentOptions {
	return environmentOptions{
		name: name + "-" + db.NewID("run"), machines: machines, processes: processes, breaks: r.o.Break, log: r.logCapture,
		keeps: slices.ContainsFunc(r.o.Sets, (*ScenarioSet).beginsInService), atOnce: r.o.AtOnce,
	}
}

// finish checks the invariants of an environment whose cases have ended.
func (r *run) finish(ctx context.Context, t *environment, errs []error) (killed int, err error) {
	t.endKeeping()
	if t.workers != nil {
		errs, killed = append(errs, t.workers.failure()), t.workers.killed()
	}
	if err := errors.Join(errs...); err != nil {
		return killed, err
	}
	found, err := t.violations(ctx)
	if err != nil {
		return killed, err
	}
	r.attribute(t, found)
	return killed, r.unlisted(t)
}

// addResult keeps a result. It prints at once what is wrong with it.
func (r *run) addResult(res Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.results = append(r.results, res)
	if r.o.Progress == nil {
		return
	}
	if len(res.Findings) > 0 {
		fmt.Fprintf(r.o.Progress, "%4.0f s: found: %s: %s\n", time.Since(r.began).Seconds(), res.Findings[0].Verdict, res.Case)
	} else if r.o.Verbose {
		fmt.Fprintf(r.o.Progress, "%4.0f s: %-9s prepared in %4.1f s, %s after %4.1f s: %s\n",
			time.Since(r.began).Seconds(), res.Class, res.Prepared.Seconds(), res.End, res.Took.Seconds(), res.Case)
	}
}

// playCase plays a case until a moment, or to its end when until is the zero time. A case that is
// still open then has a missed deadline as its finding.
func (r *run) playCase(ctx context.Context, t *environment, c Case, until time.Time) (Result, error) {
	playing := ctx
	if !until.IsZero() {
		var cancel context.CancelFunc
		playing, cancel = context.WithDeadline(ctx, until)
		defer cancel()
	}
	res := Result{Case: c}
	err := playing.Err()
	if err == nil {
		err = r.runJob(ctx, playing, t, &res)
	}
	if err != nil && playing.Err() != nil && ctx.Err() == nil {
		res.open = true
		res.Findings = append(res.Findings, Finding{Stuck, runenv.Deadline + "the time for this case ended before its job was accepted"})
		return res, nil
	}
	if err != nil {
		return res, fmt.Errorf("case %s: %w", c, err)
	}
	return res, nil
}

// runJob starts the job of a case, waits for its end until playing ends, and checks it.
func (r *run) runJob(ctx, playing context.Context, t *environment, res *Result) error {
	c := res.Case
	i := slices.IndexFunc(r.o.Sets, func(p *ScenarioSet) bool { return p.Plays(c) })
	if i < 0 {
		return errors.New("no such job kind and path")
	}
	set, path := r.o.Sets[i], r.o.Sets[i].path(c.Path)
	arranging := time.Now()
	target, err := t.arrange(playing, c, path)
	if err != nil {
		return err
	}
	target.mode = path.Mode
	defer func() { t.keepOrRelease(ctx, target, path, res) }()
	if path.Prepare != nil {
		if err := path.Prepare(playing, target); err != nil {
			return err
		}
	}
	target.accept(db.Job{ID: db.NewID("job")})
	res.JobID = target.Job.ID
	t.targets.Store(res.JobID, target)
	t.plans.Plan(res.JobID, c.Faults)
	began := time.Now()
	res.Prepared = began.Sub(arranging)
	var job db.Job
	err = t.store.Tx(playing, func(tx *db.Tx) (err error) {
		job, err = set.Start(playing, tx, target)
		if err == nil && job.ID != res.JobID { // the intent has named it; nobody sees it before the commit
			res.JobID = job.ID
			target.accept(job)
			t.targets.Store(job.ID, target)
			t.plans.Plan(job.ID, c.Faults)
		}
		return err
	})
	if err != nil {
		return err
	}
	target.accept(job)
	r.checkJob(ctx, playing, t, target, path, res)
	res.Took, res.Waits = time.Since(began), target.waits()
	return nil
}

const (
	lookEvery  = 150 * time.Millisecond
	lateFaults = 20 * time.Second
)

// checkJob waits for the end of a target's job, and adds to the result what is wrong with it. It
// checks what the job did outside whatever its end.
func (r *run) checkJob(ctx, playing context.Context, t *environment, target *Target, path *Path, res *Result) {
	f := &findings{}
	job := r.awaitEnd(playing, t, target, path, f)
	if len(f.list) == 0 {
		r.checkEnd(playing, target, path, job, f)
	}
	res.End = job.Status
	if len(f.list) > 0 {
		res.open = playing.Err() != nil
		f.duplicates(ctx, target, path)
	} else {
		r.checkFaults(playing, t, target, f)
		f.list = append(f.list, path.Check(ctx, target, job.Status)...)
	}
	res.Findings = f.list
}

// duplicates adds the effects that a job without its expected end had more often than it should.
func (f *findings) duplicates(ctx context.Context, target *Target, path *Path) {
	f.list = append(f.list, slices.DeleteFunc(path.Check(ctx, target, noExpectedEnd), func(one Finding) bool { return one.Verdict != Duplicate })...)
}

// awaitEnd waits until the target's job has ended or is parked, and returns it. It adds a finding
// when the job stands still, takes too long, or playing ends.
func (r *run) awaitEnd(playing context.Context, t *environment, target *Target, path *Path, f *findings) db.Job {
	job, began, moved, ended := target.Job, time.Now(), time.Now(), false
	patience := stretching(r.o.Patience)
	eventually(playing, longest*r.o.Patience, func() bool {
		if got, err := t.store.Job(playing, job.ID); err == nil {
			if got.Version != job.Version {
				moved = time.Now()
			}
			job = got
		}
		pause(playing, lookEvery)
		sentOn := func() bool {
			return target.retries(playing, job) || t.workers != nil && target.waitsOut(playing, job) || path.Parked != nil && path.Parked(playing, target, job)
		}
		ended = lifecycle.Job.Terminal(job.Status) || job.Status.Parked() && !sentOn()
		return ended || time.Since(moved) > patience()
	})
	if !ended || playing.Err() != nil && !lifecycle.Job.Terminal(job.Status) {
		mark := ""
		if time.Since(moved) <= patience() { // the job makes progress, but slowly
			mark = runenv.Deadline
		}
		f.add(Stuck, "%sthe job is %s at %s after %s, and stood still for %s: %s", mark, job.Status, job.Stage,
			time.Since(began).Round(time.Second), time.Since(moved).Round(time.Second), job.Message)
	}
	return job
}

// checkEnd adds a finding when a job has ended otherwise than it should.
func (r *run) checkEnd(playing context.Context, target *Target, path *Path, job db.Job, f *findings) {
	if !waitAll(playing, &target.asked) {
		f.add(Stuck, "%sthe job is %s, and its cancellation has no answer", runenv.Deadline, job.Status)
		return
	}
	if want := target.expected(path.Ends); !slices.Contains(want, job.Status) {
		f.add(WrongEnd, "the job is %s at %s, should be %v: %s %s", job.Status, job.Stage, want, job.FailureClass, job.Message)
	}
}

// checkFaults waits for the faults that come after the job's last effect. It adds a finding for
// each that was never injected.
func (r *run) checkFaults(playing context.Context, t *environment, target *Target, f *findings) {
	late := ""
	missed := func() []Fault { return t.plans.Missed(target.jobID()) }
	if !eventually(playing, runenv.Patience(lateFaults), func() bool { return len(missed()) == 0 }) {
		if playing.Err() != nil {
			late = runenv.Deadline
		}
		f.add(NotReached, "%snever injected: %v", late, missed())
	}
	if !waitAll(playing, &target.injected) {
		f.add(NotReached, "%sa fault of the agent is still to be injected", runenv.Deadline)
		return
	}
	for _, text := range target.late {
		f.add(NotReached, "%s", text)
	}
}

// waitAll waits for a group. It returns false when ctx ends first.
func waitAll(ctx context.Context, wg *sync.WaitGroup) bool {
	done := make(chan struct{})
	go func() {
		wg.Wait()
		close(done)
	}()
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}

// longest is how many times the patience a job has in all.
const longest = 5

// attribute adds each violation to the findings of the case whose job or node it names, and the
// others to the first case. A case that was ended while its job made progress gets none, because
// the invariants describe jobs at rest. After such a case nobody gets those that no other case
// owns.
func (r *run) attribute(t *environment, found []violation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	atRest := !slices.ContainsFunc(r.results, func(one Result) bool { return one.open })
	for _, v := range found {
		owner, owned := 0, false
		for i, one := range r.results { // of several cases of one node the last
			target := t.target(one.JobID)
			if target != nil && (v.whose == one.JobID || v.whose == target.nodeID()) {
				owner, owned = i, true
			}
		}
		if owned && !r.results[owner].open || !owned && atRest && len(r.results) > 0 {
			r.results[owner].Findings = append(r.results[owner].Findings, Finding{Invariant, v.text})
		}
	}
}

// unlisted is an error when jobs ran through boundaries that no scenario set lists: then
// they were never given a fault.
func (r *run) unlisted(t *environment) error {
	known := map[Point]bool{}
	for _, p := range r.o.Sets {
		for _, path := range append(p.Paths, Path{Points: p.Also}) {
			for _, at := range path.Points {
				known[at] = true
			}
		}
	}
	var missing []string
	for at := range t.plans.Seen() {
		if !known[at] {
			missing = append(missing, at.String())
		}
	}
	if len(missing) == 0 {
		return nil
	}
	slices.Sort(missing)
	return fmt.Errorf("no path lists these boundaries that jobs went through: %v; add them to the scenario set", missing)
}
