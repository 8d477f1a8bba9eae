package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/slipway-cloud/slipway/test/chaos"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// flags are what the program is asked for.
type flags struct {
	lasts       time.Duration
	limit       time.Duration
	seed        uint64
	cases       int
	texts       []string
	jobs        string
	known, keep string
	left        string
	logTo       string
	o           chaos.Options
	sets        [][]*chaos.ScenarioSet
	all         []*chaos.ScenarioSet // of every job kind
	out         io.Writer
}

// play runs cases and prints the report.
func play(ctx context.Context, args []string, out io.Writer) error {
	f, err := parse(args, out)
	if err != nil {
		return err
	}
	if f.logTo != "" {
		file, err := os.Create(f.logTo)
		if err != nil {
			return err
		}
		defer file.Close() //nolint:errcheck // a log
		f.o.Log = file
	}
	switch {
	case len(f.o.Cases) > 0:
		return f.playCases(ctx)
	case f.lasts > 0:
		return f.playElastic(ctx)
	}
	var errs []error
	for _, set := range f.sets {
		fmt.Fprintf(out, "%d cases of seed %d: %s\n", f.cases, f.seed, set[0].Kind)
		f.o.Sets, f.o.Cases = set, chaos.Generate(set, f.cases, f.seed)
		errs = append(errs, f.playCases(ctx))
	}
	return errors.Join(errs...)
}

func parse(args []string, out io.Writer) (*flags, error) {
	f := &flags{out: out, o: chaos.Options{Progress: out}}
	fs := pflag.NewFlagSet("chaos", pflag.ContinueOnError)
	fs.DurationVar(&f.lasts, "for", 0, "play known cases, strata and random cases of all job kinds for this long")
	fs.DurationVar(&f.limit, "limit", 0, "with --for: play all known cases and strata, however long it takes, and fail when they have not ended after this time; 0 plays what fits")
	fs.Uint64Var(&f.seed, "seed", 0, "seed of the generated cases; without this flag the time is the seed")
	fs.IntVar(&f.cases, "cases", 1000, "how many cases, without --for")
	fs.StringArrayVar(&f.texts, "case", nil, "play this case alone, as a report prints it; may be repeated; empty ones do not count")
	fs.StringVar(&f.jobs, "jobs", "", "onboarding, decommission, booted, agents, allocations, runs or instances; empty plays all, one after the other without --for")
	fs.StringVar(&f.known, "known", "", "with --for: file of the cases to play first")
	fs.StringVar(&f.keep, "keep", "", "with --for: file to which findings that did not recur are appended; empty is the file of --known")
	fs.StringVar(&f.left, "left", "", "with --for: file of the strata that earlier runs left out, which are played first; it is replaced by those that this run leaves out")
	fs.IntVar(&f.o.AtOnce, "at-once", 0, "cases under way at a time in each of the two environments; 0 is 16")
	fs.DurationVar(&f.o.Patience, "patience", 0, "how long a job may stand still before it counts as stuck; 0 is 4 minutes, 150 s with --for, and longer on a slow machine")
	fs.BoolVar(&f.o.Verbose, "verbose", false, "print a line when a case ends")
	fs.StringVar(&f.logTo, "log", "", "file for the product's own log")
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	if !fs.Changed("seed") {
		f.seed = uint64(time.Now().Unix()) //nolint:gosec // after 1970
	}
	return f, f.choose()
}

// choose finds the job kinds and the cases that the flags name.
func (f *flags) choose() error {
	f.sets = [][]*chaos.ScenarioSet{{chaos.Onboarding()}, chaos.DecommissionJobs(), chaos.Booted(), chaos.AgentJobs(), chaos.AllocationJobs(), chaos.MachineRuns(), chaos.InstanceJobs()}
	f.all = slices.Concat(f.sets...)
	names := []string{"onboarding", "decommission", "booted", "agents", "allocations", "runs", "instances"}
	if i := slices.Index(names, f.jobs); i >= 0 {
		f.sets = f.sets[i : i+1]
	} else if f.jobs != "" {
		return fmt.Errorf("--jobs %s: write %s", f.jobs, strings.Join(names, ", "))
	}
	f.o.Sets = slices.Concat(f.sets...)
	for _, text := range f.texts {
		if strings.TrimSpace(text) == "" {
			continue
		}
		c, err := chaos.ParseCase(text, f.o.Sets)
		if err != nil {
			return err
		}
		f.o.Cases = append(f.o.Cases, c)
	}
	return nil
}

// playCases plays cases and prints what came of them.
func (f *flags) playCases(ctx context.Context) error {
	report, err := chaos.Run(ctx, f.o)
	fmt.Fprint(f.out, report.Table())
	return errors.Join(err, failure(report))
}

// playElastic plays for as long as the flags say. Its last line sums up the run.
func (f *flags) playElastic(ctx context.Context) error {
	o := chaos.ElasticOptions{Options: f.o, For: f.lasts, Limit: runenv.Patience(f.limit), Seed: f.seed, First: readLeft(f.left)}
	if f.known != "" {
		known, err := chaos.ReadKnown(f.known, f.all)
		if err != nil {
			return err
		}
		for _, k := range known {
			if slices.ContainsFunc(f.o.Sets, func(p *chaos.ScenarioSet) bool { return p.Plays(k.Case) }) {
				o.Known = append(o.Known, k)
			}
		}
	}
	fmt.Fprintf(f.out, "%s of seed %d: %d known cases, %d strata in an order of the seed (first %d that an earlier run left out), then random ones\n",
		f.lasts, f.seed, len(o.Known), len(chaos.Strata(o.Sets)), len(o.First))
	report, err := chaos.RunElastic(ctx, o)
	fmt.Fprint(f.out, report.Table())
	err = errors.Join(err, failure(report), f.keepFindings(report), f.tellLeft(report.Strata))
	fmt.Fprintln(f.out, report.Summary(f.seed, cpuTime()))
	return err
}

// tellLeft prints the strata that the run left out, and keeps them for the next run.
func (f *flags) tellLeft(c chaos.Coverage) error {
	if len(c.Left) > 0 {
		fmt.Fprintf(f.out, "left out %d of %d strata for lack of time:\n  %s\n", len(c.Left), c.All, strings.Join(c.Left, "\n  "))
	}
	if f.left == "" {
		return nil
	}
	fresh, err := os.CreateTemp(filepath.Dir(f.left), filepath.Base(f.left)+".new-")
	if err != nil {
		return fmt.Errorf("keep the strata that were left out: %w", err)
	}
	_, err = fresh.WriteString(strings.Join(append(c.Left, ""), "\n"))
	return errors.Join(err, fresh.Close(), os.Rename(fresh.Name(), f.left))
}

// readLeft reads the strata that an earlier run left out. Without that list the seed alone decides
// the order.
func readLeft(path string) []string {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	return strings.FieldsFunc(string(text), func(r rune) bool { return r == '\n' })
}

// keepFindings adds the random cases whose finding did not recur to the list of known cases.
func (f *flags) keepFindings(report chaos.Report) error {
	passing := report.Passing()
	if len(passing) == 0 {
		return nil
	}
	lines := make([]string, 0, len(passing))
	for _, one := range passing {
		fmt.Fprintf(f.out, "found once, and not when it was played again alone:\n%s", one.Blame())
		lines = append(lines, chaos.KnownLine(one, f.seed, time.Now()))
	}
	file := f.keep
	if file == "" {
		file = f.known
	}
	if file == "" {
		fmt.Fprintf(f.out, "add to the known cases:\n%s\n", strings.Join(lines, "\n"))
		return nil
	}
	fmt.Fprintf(f.out, "commit %s\n", file)
	return chaos.AppendKnown(file, lines)
}

// failure is an error that says what is wrong with each case that fails the run, nil when none
// does. It begins as a missed deadline when the cases were only too slow.
func failure(report chaos.Report) error {
	failed := report.Failed()
	if len(failed) == 0 {
		return nil
	}
	var b strings.Builder
	if report.MissedDeadlines() {
		b.WriteString(runenv.Deadline)
	}
	b.WriteString("not everything went well; each of these says how to play it again:\n")
	for _, one := range failed {
		b.WriteString(one.Blame())
	}
	return errors.New(b.String())
}

// cpuTime is the CPU time of this program and of all that it started and that has ended.
func cpuTime() time.Duration {
	var total time.Duration
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		if syscall.Getrusage(who, &u) == nil {
			total += time.Duration(u.Utime.Nano() + u.Stime.Nano())
		}
	}
	return total
}
