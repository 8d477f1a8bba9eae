package ssh

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/test/runenv"
)

// shim counts the calls of a program by the wrapper, and kills the wrapper before or after the call
// with the number $KILL_AT.
const shim = `#!/bin/sh
printf x >>"$KILL_DIR/calls"
n=$(%[2]s -c <"$KILL_DIR/calls")
if [ "$n" = "$KILL_AT" ] && [ "$KILL_WHEN" = before ]; then kill -KILL "$(%[3]s "$KILL_DIR/pid")"; fi
%[1]s "$@"
rc=$?
if [ "$n" = "$KILL_AT" ] && [ "$KILL_WHEN" = after ]; then kill -KILL "$(%[3]s "$KILL_DIR/pid")"; fi
exit $rc
`

// killsOfARun is at how many programs `make test` kills the wrapper.
const killsOfARun = 6

// killRig runs the wrapper without a server.
type killRig struct {
	t                  *testing.T
	shims, base, count string
	program            map[string]string
}

func newKillRig(t *testing.T) *killRig {
	t.Helper()
	r := &killRig{t: t, shims: t.TempDir(), base: t.TempDir(), program: map[string]string{}}
	r.count = filepath.Join(r.base, "count")
	for _, name := range []string{"cat", "mkdir", "mktemp", "mkfifo", "head", "wc", "rm", "mv", "sync", "timeout", "sleep"} {
		path, err := exec.LookPath(name)
		require.NoError(t, err)
		r.program[name] = path
	}
	for name, path := range r.program {
		text := fmt.Sprintf(shim, path, r.program["wc"], r.program["cat"])
		require.NoError(t, os.WriteFile(filepath.Join(r.shims, name), []byte(text), 0o700))
	}
	return r
}

// repeat runs the operation to its end. It returns the state that the wrapper answered.
func (r *killRig) repeat(id string) string {
	state, _ := r.start(id, `exec sh -c "$@"`, "never", 0)
	return state
}

// run runs the operation, which is killed at the call with the number at; 0 is never. It returns
// the state that the wrapper answered, "" for none, and the number of calls.
func (r *killRig) run(id, when string, at int) (state string, calls int) {
	r.t.Helper()
	return r.start(id, `echo $$ >"$KILL_DIR/pid"; PATH=`+r.shims+`:$PATH; exec sh -c "$@"`, when, at)
}

func (r *killRig) start(id, begin, when string, at int) (state string, calls int) {
	r.t.Helper()
	dir := r.t.TempDir()
	cmd := exec.CommandContext(r.t.Context(), "sh", "-c", begin, "sh", opScript, "slipway-op",
		filepath.Join(r.base, "ops"), id, "20", "5", "100", "101", "5", "digest", "mark", "sh", "-c", `printf x >>"$1"`, "sh", r.count+id)
	cmd.Env = append(os.Environ(), "KILL_DIR="+dir, "KILL_WHEN="+when, fmt.Sprintf("KILL_AT=%d", at))
	cmd.Stdin = strings.NewReader("input")
	out, err := os.CreateTemp(dir, "out") // a file: a pipe would be held open by what the wrapper leaves
	require.NoError(r.t, err)
	defer out.Close()
	cmd.Stdout = out
	_ = cmd.Run() // being killed is the point
	text, err := os.ReadFile(out.Name())
	require.NoError(r.t, err)
	if words := strings.Fields(string(text)); len(words) > 1 && words[0] == "mark" {
		state = words[1]
	}
	made, _ := os.ReadFile(filepath.Join(dir, "calls"))
	return state, len(made)
}

// counted returns how often the command has run.
func (r *killRig) counted(id string) int {
	made, _ := os.ReadFile(r.count + id)
	return bytes.Count(made, []byte("x"))
}

// The wrapper is killed before and after each program that it starts, from before it claims the
// operation to after it has answered. The command never runs twice, and when a repeated call
// reports a result, it ran once, and each later call reports it.
//
// `make test` draws some of the programs by the seed of the run; `make proof` takes all.
func TestOperation_KilledAtEachBoundaryRunsOnce(t *testing.T) {
	t.Parallel()
	r := newKillRig(t)
	state, calls := r.run("whole", "never", 0)
	require.Equal(t, "done", state)
	require.Greater(t, calls, 15)
	all := make([]int, calls)
	for i := range all {
		all[i] = i + 1
	}
	played, outcomes := runenv.Sample(t, "SLIPWAY_OPERATION_KILLS", "programs of the wrapper", all, killsOfARun), map[string]int{}
	for _, at := range played {
		for _, when := range []string{"before", "after"} {
			id := fmt.Sprintf("%s-%d", when, at)
			r.run(id, when, at)
			again := r.repeat(id)
			require.Contains(t, []string{"done", "lost"}, again, id)
			// A command that a killed wrapper has started goes on, so that a result may still come:
			// it stays.
			then := r.repeat(id)
			require.Contains(t, []string{again, "done"}, then, id)
			if then == "done" {
				require.Equal(t, 1, r.counted(id), id)
			}
			outcomes[again]++
		}
	}
	if len(played) == calls {
		require.Positive(t, outcomes["done"])
		require.Positive(t, outcomes["lost"], "no kill fell between claim and result")
	}
	require.Never(t, func() bool {
		for _, at := range played {
			if r.counted(fmt.Sprintf("before-%d", at)) > 1 || r.counted(fmt.Sprintf("after-%d", at)) > 1 {
				return true
			}
		}
		return false
	}, runenv.Patience(300*time.Millisecond), 50*time.Millisecond, "a command ran twice")
	t.Logf("%d kills: %d with the result, %d uncertain", 2*len(played), outcomes["done"], outcomes["lost"])
}
