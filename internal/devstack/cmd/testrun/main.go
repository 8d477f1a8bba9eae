// Command testrun gives a whole test run one PostgreSQL and one Temporal server, instead of one of each for every package:
//
//	testrun run -- go test ./...        start both, run the command with TEST_DATABASE_URL and SLIPWAY_TEMPORAL_ADDRESS set, stop both
//	testrun count results.jsonl         read what `go test -json` wrote; name what failed, then "N passed, N failed, N skipped"
//	testrun temporal                    build bin/devtemporal if it is missing or old
//
// A server that these variables already name is used as it is. run exits with the command's status; count exits 1 when a test failed or none ran.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/slipway-cloud/slipway/internal/devstack/pg"
	"github.com/slipway-cloud/slipway/internal/devstack/temporal"
)

const (
	databaseVar = "TEST_DATABASE_URL"
	temporalVar = "SLIPWAY_TEMPORAL_ADDRESS"

	usage = "usage: testrun run -- COMMAND [ARGS], testrun count FILE, or testrun temporal"
	// grace is how long the command may take to end after Ctrl-C before it is killed.
	grace = 20 * time.Second
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err == nil {
		return
	}
	var ended *exec.ExitError
	if errors.As(err, &ended) && ended.ExitCode() > 0 {
		os.Exit(ended.ExitCode()) // the command has said why
	}
	fmt.Fprintln(os.Stderr, "testrun: "+err.Error())
	os.Exit(1)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	switch {
	case len(args) > 2 && args[0] == "run" && args[1] == "--":
		return withServers(ctx, args[2:], stdout, stderr)
	case len(args) == 2 && args[0] == "count":
		return countFile(args[1], stdout)
	case len(args) == 1 && args[0] == "temporal":
		_, err := temporal.EnsureBuilt(ctx, stderr)
		return err
	default:
		return errors.New(usage)
	}
}

func withServers(ctx context.Context, command []string, stdout, stderr io.Writer) (err error) {
	database, err := pg.Acquire(ctx, databaseVar, pg.Options{Log: stderr})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, database.Stop()) }()
	engine, err := temporal.Acquire(ctx, temporalVar, temporal.Options{Progress: stderr})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, engine.Stop()) }()

	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, stdout, stderr
	cmd.Env = append(os.Environ(), databaseVar+"="+database.DSN("postgres"), temporalVar+"="+engine.Address())
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = grace
	return cmd.Run()
}
