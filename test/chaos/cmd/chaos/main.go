// Command chaos injects generated faults into the jobs of a whole simulated system and reports what
// went wrong: see package chaos. With the argument "worker" it is a worker process, which such a
// run starts and kills.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/slipway-cloud/slipway/test/chaos"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) > 0 && args[0] == chaos.WorkerArgument {
		return chaos.RunWorker(ctx, args[1:])
	}
	return play(ctx, args, os.Stdout)
}
