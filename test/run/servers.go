package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/slipway-cloud/slipway/assembly/devserver/pg"
	"github.com/slipway-cloud/slipway/assembly/devserver/temporal"
)

const (
	databaseVar = "TEST_DATABASE_URL"
	temporalVar = "SLIPWAY_TEMPORAL_ADDRESS"

	// grace is how long a command may take to end after an interrupt before it is killed.
	grace = 20 * time.Second
)

// withServers starts one PostgreSQL and one Temporal server, calls do with the variables that name
// them, and stops both.
func withServers(
	ctx context.Context, log io.Writer, do func(ctx context.Context, env []string) error,
) (err error) {
	database, err := pg.Acquire(ctx, databaseVar, pg.Options{Log: log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, database.Stop()) }()
	engine, err := temporal.Acquire(ctx, temporalVar, temporal.Options{Progress: log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, engine.Stop()) }()
	return do(ctx, []string{
		databaseVar + "=" + database.DSN("postgres"), temporalVar + "=" + engine.Address(),
	})
}

// command prepares a child process in a process group of its own, with an empty standard input.
// When ctx ends the group is interrupted, and killed after grace.
func command(ctx context.Context, args, env []string, stdout, stderr io.Writer) *exec.Cmd {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	cmd.Env = append(os.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = grace
	return cmd
}

// runCommand runs the command. The rest of its process group is killed when ctx has ended.
func runCommand(ctx context.Context, cmd *exec.Cmd) error {
	err := cmd.Run()
	if ctx.Err() != nil && cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // the group may be gone
	}
	return err
}
