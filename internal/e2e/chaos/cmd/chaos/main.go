// Command chaos injects generated faults into the jobs of a whole simulated system and reports what
// went wrong: see package chaos. Its "worker" argument is the worker process that it kills.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

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
	injectorURL := fs.String("injector", "", "URL of the injector that says which faults to inject")
	src := config.Flags(fs)
	if err := fs.Parse(args); err != nil {
		return err
	}
	cfg, err := src.Load(os.LookupEnv, config.PartDatabase, config.PartTemporal, config.PartAgent, config.PartSecrets, config.PartWorker)
	if err != nil {
		return err
	}
	return chaos.RunWorker(ctx, *injectorURL, cfg, os.Stdin)
}
