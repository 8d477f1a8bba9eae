package toolrunner

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/agent/agentconfig"
	"github.com/slipway-cloud/slipway/test/runenv"
)

const machinePath = "/usr/bin:/bin"

// These tests write programs, so those that also start them do not run in parallel: a program that
// another process holds open for writing, if only between fork and exec, cannot be started.

// newRunner returns a Runner whose first directory holds one program, called tool.
func newRunner(t *testing.T, script string) Runner {
	t.Helper()
	r := Runner{Root: t.TempDir(), Tools: t.TempDir(), Commands: []Command{{Program: "tool"}, {Program: "other"}}}
	r.Path = r.Tools + ":" + machinePath
	writeProgram(t, r.Tools, "tool", script)
	return r
}

func writeProgram(t *testing.T, dir, name, script string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755))
}

func TestRun_GivesOnlyAKnownEnvironment(t *testing.T) {
	t.Setenv("SLIPWAY_TEST_SECRET", "s3cret")
	r := newRunner(t, `/usr/bin/env | grep -v -e ^PWD= -e ^OLDPWD= -e ^_= -e ^SHLVL= | sort; pwd; echo "$@"; cat`)
	out, err := r.Run(t.Context(), "tool", "a b", "$c")
	require.NoError(t, err)
	lines := strings.Split(string(out), "\n")
	require.Equal(t, []string{"LC_ALL=C", "PATH=" + r.Path, "SLIPWAY_ROOT=" + r.Root, r.Root, "a b $c"}, lines[:5])
	require.Len(t, lines, 6, "standard input is empty")

	r.Path = ""
	writeProgram(t, r.Tools, "tool", `echo "$PATH"`)
	out, err = r.Run(t.Context(), "tool")
	require.NoError(t, err)
	require.Equal(t, r.Tools+"\n", string(out))
}

func TestRun_FailureHoldsOutputAndLastLine(t *testing.T) {
	r := newRunner(t, "echo one\necho two\nexit 3")
	out, err := r.Run(t.Context(), "tool")
	require.EqualError(t, err, "tool failed (exit status 3): two")
	require.Equal(t, "one\ntwo\n", string(out))

	writeProgram(t, r.Tools, "tool", `echo out; printf 'first\nwhy\033[31m\n\n' >&2; exit 9`)
	_, err = r.Run(t.Context(), "tool")
	require.EqualError(t, err, "tool failed (exit status 9): why[31m")

	writeProgram(t, r.Tools, "tool", "head -c 5000 /dev/zero | tr '\\0' x >&2; exit 1")
	_, err = r.Run(t.Context(), "tool")
	require.Error(t, err)
	require.Less(t, len(err.Error()), 400)
}

func TestRun_EndlessOutputEndsTheProgram(t *testing.T) {
	r := newRunner(t, "exec cat /dev/zero")
	out, err := r.Run(t.Context(), "tool")
	require.ErrorContains(t, err, "tool wrote over 8388608 bytes")
	require.Nil(t, out)

	writeProgram(t, r.Tools, "tool", "head -c 8388608 /dev/zero")
	out, err = r.Run(t.Context(), "tool")
	require.NoError(t, err)
	require.Len(t, out, maxOutput)
}

func TestRun_DeadlineKillsTheProcessGroup(t *testing.T) {
	limit := runenv.Patience(time.Second)
	for name, run := range map[string]func(Runner) ([]byte, error){
		"of the runner": func(r Runner) ([]byte, error) {
			r.Timeout = limit
			return r.Run(t.Context(), "tool")
		},
		"of the caller": func(r Runner) ([]byte, error) {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			return r.Run(ctx, "tool")
		},
	} {
		r := newRunner(t, "trap '' TERM\necho begun\nsleep 600 &\necho $! >child\nwait")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begin := time.Now()
			out, err := run(r)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorContains(t, err, "tool did not end in time")
			require.Equal(t, "begun\n", string(out))
			require.Less(t, time.Since(begin), limit+runenv.Patience(10*time.Second), runenv.Deadline+"it took too long")
			raw, err := os.ReadFile(filepath.Join(r.Root, "child"))
			require.NoError(t, err)
			pid, err := strconv.Atoi(strings.TrimSpace(string(raw)))
			require.NoError(t, err)
			require.Eventually(t, func() bool {
				stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
				return err != nil || strings.Contains(string(stat), ") Z ")
			}, runenv.Patience(5*time.Second), 10*time.Millisecond, "the child ends too")
		})
	}
}

// A child that holds the output open must not hold up the agent.
func TestRun_DoesNotWaitForADetachedChild(t *testing.T) {
	r := newRunner(t, "sleep 600 &\necho $! >child")
	begin := time.Now()
	_, err := r.Run(t.Context(), "tool")
	require.ErrorContains(t, err, "tool failed")
	require.Less(t, time.Since(begin), runenv.Patience(10*time.Second), runenv.Deadline+"it took too long")
	raw, err := os.ReadFile(filepath.Join(r.Root, "child"))
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	require.NoError(t, err)
	child, err := os.FindProcess(pid)
	require.NoError(t, err)
	require.NoError(t, child.Kill())
}

func TestRun_FindsProgramsOnlyInItsDirectories(t *testing.T) {
	r := newRunner(t, "echo first")
	second := t.TempDir()
	writeProgram(t, second, "tool", "echo second")
	writeProgram(t, second, "other", "echo other")
	require.NoError(t, os.WriteFile(filepath.Join(second, "data"), nil, 0o600))
	require.NoError(t, os.Mkdir(filepath.Join(second, "folder"), 0o755))
	r.Tools += "::" + second
	out, err := r.Run(t.Context(), "tool")
	require.NoError(t, err)
	require.Equal(t, "first\n", string(out))
	require.True(t, r.Has("other"))
	for _, name := range []string{"sh", "data", "folder"} {
		require.False(t, r.Has(name), name)
		_, err = r.Run(t.Context(), name)
		require.ErrorIs(t, err, ErrNotInstalled)
	}
	require.False(t, Runner{}.Has("sh"))
	here, err := os.Getwd()
	require.NoError(t, err)
	relative, err := filepath.Rel(here, second)
	require.NoError(t, err)
	require.False(t, Runner{Tools: relative}.Has("other"))
}

// A task of a simulated node runs recorded tools only: the machine that runs the simulation has a
// docker and a userdel of its own.
func TestForTasks_FindsRecordedToolsOnly(t *testing.T) {
	recorded, machine := t.TempDir(), t.TempDir()
	writeProgram(t, recorded, "docker", "")
	writeProgram(t, machine, "userdel", "")
	both := recorded + ":" + machine
	root := t.TempDir()
	require.Equal(t, Runner{Root: root, Tools: recorded, Path: both}, ForTasks(root, both))
	require.True(t, ForTasks(root, both).Has("docker"))
	require.False(t, ForTasks(root, both).Has("userdel"))
	require.Equal(t, Runner{Root: "/", Tools: both, Path: both}, ForTasks("/", both))
	require.True(t, ForTasks("/", both).Has("userdel"))
	for _, toolsPath := range []string{"", agentconfig.DefaultToolsPath, "/usr/bin/:" + recorded} {
		require.False(t, ForTasks(root, toolsPath).Has("sh"), toolsPath)
		require.Empty(t, ForTasks(root, toolsPath).Tools, toolsPath)
	}
}

// A program that waits for a device in the kernel gets no signal. The agent goes on without it.
func TestRun_LeavesAProgramThatHangsInTheKernel(t *testing.T) {
	r := newRunner(t, "sleep 60")
	answers, waited := make(chan struct{}), make(chan error, 1)
	r.wait = func(cmd *exec.Cmd) error {
		err := cmd.Wait()
		<-answers
		waited <- err
		return err
	}
	r.Timeout = 50 * time.Millisecond
	_, err := r.Run(t.Context(), "tool")
	require.ErrorContains(t, err, "it hangs in the kernel")
	close(answers) // the device answers at last
	require.Error(t, <-waited)
}
