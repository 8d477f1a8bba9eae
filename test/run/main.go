// Command run is the test runner of Slipway, built as bin/testrun:
//
//	testrun test                        what `make test` runs, with a table of steps at the end
//	testrun check                       what `make check` runs: linters, generated code, the CPU budget
//	testrun proof [AREA...]             the long form of the tests, area by area; a stamped area is not run again
//	testrun bench REGEXP                run benchmarks, each ratio beside the committed one; BENCH_RECORD=1 writes the new ones
//	testrun run -- COMMAND [ARGS]       run a command with one PostgreSQL and one Temporal server for all its tests
//	testrun count FILE                  count the results that `go test -json` wrote
//	testrun exec BINARY [ARGS]          run a test binary and record what it used (go test -exec)
//	testrun tool NAME                   build a pinned tool into the user's cache and link it as bin/NAME
//
// A PostgreSQL that TEST_DATABASE_URL names, and a Temporal server that SLIPWAY_TEMPORAL_ADDRESS
// names, are used as they are.
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
)

const usage = "usage: testrun test, testrun check, testrun proof [AREA...], testrun bench REGEXP, testrun run -- COMMAND [ARGS], " +
	"testrun count FILE, testrun exec BINARY [ARGS], or testrun tool NAME"

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
	if len(args) == 0 {
		return errors.New(usage)
	}
	name, rest := args[0], args[1:]
	switch {
	case name == "test" && len(rest) == 0:
		return testAll(ctx, stdout, stderr)
	case name == "check" && len(rest) == 0:
		return checkAll(ctx, stdout)
	case name == "proof":
		return proveAreas(ctx, rest, stdout, stderr)
	case name == "bench" && len(rest) == 1:
		return benchAll(ctx, rest[0], os.Getenv("BENCH_RECORD") != "", stdout, stderr)
	case name == "run" && len(rest) > 1 && rest[0] == "--":
		return withServers(ctx, stderr, func(ctx context.Context, env []string) error {
			return runCommand(ctx, command(ctx, rest[1:], env, stdout, stderr))
		})
	case name == "count" && len(rest) == 1:
		return countFile(rest[0], stdout)
	case name == "exec" && len(rest) > 0:
		return execMeasured(ctx, rest)
	case name == "tool" && len(rest) == 1:
		_, err := ensureTool(ctx, rest[0], stderr)
		return err
	}
	return errors.New(usage)
}
