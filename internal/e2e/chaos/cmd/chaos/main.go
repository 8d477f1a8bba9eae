// Command chaos lets hundreds of jobs of a whole simulated system suffer
// generated troubles and says what went wrong: see package chaos. Its "worker"
// argument is the worker process that it kills.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/slipway-cloud/slipway/internal/config"
	"github.com/slipway-cloud/slipway/internal/e2e/chaos"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	run, args := play, os.Args[1:]
	if len(args) > 0 && args[0] == "worker" {
		run, args = work, args[1:]
	}
	err := run(ctx, args, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

// work is the worker process.
func work(ctx context.Context, args []string, _ io.Writer) error {
	fs := pflag.NewFlagSet("chaos worker", pflag.ContinueOnError)
	director := fs.String("director", "", "URL of the director that says what to suffer")
	src := config.Flags(fs)
	if err := fs.Parse(args); err != nil {
		return err
	}
	cfg, err := src.Load(os.LookupEnv, config.PartDatabase, config.PartTemporal, config.PartAgent, config.PartSecrets, config.PartWorker)
	if err != nil {
		return err
	}
	return chaos.RunWorker(ctx, *director, cfg, os.Stdin)
}

// play runs cases and prints the report.
func play(ctx context.Context, args []string, out io.Writer) error {
	fs := pflag.NewFlagSet("chaos", pflag.ContinueOnError)
	seed := fs.Uint64("seed", 0, "seed of the generated cases; 0 takes the time")
	n := fs.Int("cases", 1000, "how many cases")
	texts := fs.StringArray("case", nil, "play this case alone, as a report prints it; may be repeated; empty ones do not count")
	jobs := fs.String("jobs", "", "onboarding, leaving or booted; empty plays all, one after the other")
	o := chaos.Options{Progress: out}
	fs.IntVar(&o.AtOnce, "at-once", 0, "jobs under way at a time in each of the two systems")
	fs.DurationVar(&o.Patience, "patience", 0, "how long a job may take before it counts as stuck")
	logTo := fs.String("log", "", "file for the product's own log")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if *logTo != "" {
		f, err := os.Create(*logTo)
		if err != nil {
			return err
		}
		defer f.Close() //nolint:errcheck // a log
		o.Log = f
	}
	sets := [][]*chaos.Plug{{chaos.Onboarding()}, chaos.Leaving(), chaos.Booted()}
	switch *jobs {
	case "":
	case "onboarding":
		sets = sets[:1]
	case "leaving":
		sets = sets[1:2]
	case "booted":
		sets = sets[2:]
	default:
		return fmt.Errorf("--jobs %s: write onboarding, leaving or booted", *jobs)
	}
	o.Plugs = slices.Concat(sets...)
	for _, text := range *texts {
		if strings.TrimSpace(text) == "" {
			continue
		}
		c, err := chaos.ParseCase(text, o.Plugs)
		if err != nil {
			return err
		}
		o.Cases = append(o.Cases, c)
	}
	if o.Cases != nil {
		return suffer(ctx, o, out)
	}
	if *seed == 0 {
		*seed = uint64(time.Now().Unix()) //nolint:gosec // after 1970
	}
	var errs []error
	for _, set := range sets {
		fmt.Fprintf(out, "%d cases of seed %d: %s\n", *n, *seed, set[0].Kind)
		o.Plugs, o.Cases = set, chaos.Generate(set, *n, *seed)
		errs = append(errs, suffer(ctx, o, out))
	}
	return errors.Join(errs...)
}

// suffer plays cases and says what came of them.
func suffer(ctx context.Context, o chaos.Options, out io.Writer) error {
	report, err := chaos.Run(ctx, o)
	fmt.Fprint(out, report.Table())
	if guilty := report.Guilty(); len(guilty) > 0 {
		var blame strings.Builder
		for _, g := range guilty {
			blame.WriteString(g.Blame())
		}
		err = errors.Join(err, fmt.Errorf("not everything went well; each of these says how to play it again:\n%s", blame.String()))
	}
	return err
}
