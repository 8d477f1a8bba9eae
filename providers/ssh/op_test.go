package ssh

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// counting is a command that appends a line to a file each time it really runs,
// and then does what rest says.
func counting(file, opID, rest string) providers.SSHCommand {
	return providers.SSHCommand{
		Argv: []string{"sh", "-c", `echo ran >>"$1"; ` + rest, "sh", file, file + ".go"},
		OpID: opID, Timeout: 20 * time.Second,
	}
}

const untilReleased = `while [ ! -e "$2" ]; do sleep 0.05; done; echo late; exit 4`

func runs(t *testing.T, file string) int {
	t.Helper()
	b, err := os.ReadFile(file)
	if os.IsNotExist(err) {
		return 0
	}
	require.NoError(t, err)
	return strings.Count(string(b), "ran\n")
}

func TestAnOperationRunsOnce(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	file := filepath.Join(t.TempDir(), "count")
	cmd := counting(file, "op-1", `cat; echo oops >&2; exit 7`)
	cmd.Stdin = []byte("some input")
	for range 3 {
		res, err := n.runner().RunSSH(t.Context(), n.SSHTarget, cmd)
		require.NoError(t, err)
		require.Equal(t, providers.SSHResult{ExitCode: 7, Stdout: []byte("some input"), Stderr: []byte("oops\n")}, res)
	}
	require.Equal(t, 1, runs(t, file))
	require.NoFileExists(t, filepath.Join(n.stateDir, "op-1", "in"), "the input may hold a secret and must not stay on the node")

	other := cmd
	other.OpID = "op-2"
	_, err := n.runner().RunSSH(t.Context(), n.SSHTarget, other)
	require.NoError(t, err)
	require.Equal(t, 2, runs(t, file))
}

func TestConcurrentRunsOfAnOperationShareOneResult(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	file := filepath.Join(t.TempDir(), "count")
	cmd := counting(file, "op", `sleep 0.5; echo $$`)
	results := make([]providers.SSHResult, 4)
	errs := make([]error, len(results))
	var wg sync.WaitGroup
	for i := range results {
		wg.Go(func() { results[i], errs[i] = n.runner().RunSSH(t.Context(), n.SSHTarget, cmd) })
	}
	wg.Wait()
	for i := range results {
		require.NoError(t, errs[i])
		require.Equal(t, string(results[0].Stdout), string(results[i].Stdout))
		require.Equal(t, results[0].ExitCode, results[i].ExitCode)
		require.Empty(t, results[i].Stderr)
	}
	require.Equal(t, 1, runs(t, file))
}

func TestAnOperationOutlivesItsConnection(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	target, l := relay(t, n)
	file := filepath.Join(t.TempDir(), "count")
	cmd := counting(file, "op", untilReleased)

	first := make(chan error, 1)
	go func() {
		_, err := n.runner().RunSSH(t.Context(), target, cmd)
		first <- err
	}()
	require.Eventually(t, func() bool { return runs(t, file) == 1 }, runenv.Patience(10*time.Second), 20*time.Millisecond)
	l.cut()
	require.Equal(t, providers.KindUncertain, providers.KindOf(<-first))

	short := cmd
	short.Timeout = time.Second
	_, err := n.runner().RunSSH(t.Context(), n.SSHTarget, short)
	require.Equal(t, providers.KindBusy, providers.KindOf(err), "%v", err)

	require.NoError(t, os.WriteFile(file+".go", nil, 0o600))
	res, err := n.runner().RunSSH(t.Context(), n.SSHTarget, cmd)
	require.NoError(t, err)
	require.Equal(t, 4, res.ExitCode)
	require.Equal(t, "late\n", string(res.Stdout))
	require.Equal(t, 1, runs(t, file))
}

func TestAnOperationThatLeftNoResultStaysUncertain(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	file := filepath.Join(t.TempDir(), "count")
	cmd := counting(file, "op", `read -r pid _ <"`+n.stateDir+`/op/owner"; kill -KILL "$pid"`)
	for range 2 {
		_, err := n.runner().RunSSH(t.Context(), n.SSHTarget, cmd)
		require.Equal(t, providers.KindUncertain, providers.KindOf(err), "%v", err)
	}
	_, err := n.runner().RunSSH(t.Context(), n.SSHTarget, cmd)
	require.ErrorContains(t, err, "left no result")
	require.Equal(t, 1, runs(t, file))
}

func TestAnOperationOfAnEarlierBootIsUncertain(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	file := filepath.Join(t.TempDir(), "count")
	cmd := counting(file, "op", "true")
	_, err := n.runner().RunSSH(t.Context(), n.SSHTarget, cmd)
	require.NoError(t, err)
	dir := filepath.Join(n.stateDir, "op")
	require.NoError(t, os.Remove(filepath.Join(dir, "rc")))
	// The pid lives, but it is another process of another boot.
	require.NoError(t, os.WriteFile(filepath.Join(dir, "owner"), []byte("1 0 11111111-2222-3333-4444-555555555555\n"), 0o600))
	_, err = n.runner().RunSSH(t.Context(), n.SSHTarget, cmd)
	require.Equal(t, providers.KindUncertain, providers.KindOf(err), "%v", err)
	require.Equal(t, 1, runs(t, file))
}

func TestAnOperationIDBelongsToOneCommand(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	cmd := providers.SSHCommand{Argv: []string{"echo", "a", "b"}, OpID: "op"}
	_, err := n.runner().RunSSH(t.Context(), n.SSHTarget, cmd)
	require.NoError(t, err)
	for name, edit := range map[string]func(*providers.SSHCommand){
		"words":  func(c *providers.SSHCommand) { c.Argv = []string{"echo", "ab", ""} },
		"length": func(c *providers.SSHCommand) { c.Argv = []string{"echo", "a"}; c.Stdin = []byte("b") },
		"input":  func(c *providers.SSHCommand) { c.Stdin = []byte("x") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			other := cmd
			edit(&other)
			_, err := n.runner().RunSSH(t.Context(), n.SSHTarget, other)
			require.Equal(t, providers.KindInvalid, providers.KindOf(err), "%v", err)
		})
	}
}

func TestAnOperationKeepsItsDeadlineAndItsBounds(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	word := marker(t)
	cmd := providers.SSHCommand{
		Argv:    []string{"sh", "-c", "head -c 5000000 /dev/zero; sleep " + word + " & sleep " + word},
		Timeout: time.Second, MaxOutput: 1000, OpID: "op",
	}
	for range 2 {
		res, err := n.runner().RunSSH(t.Context(), n.SSHTarget, cmd)
		require.NoError(t, err)
		require.Equal(t, 124, res.ExitCode)
		require.Len(t, res.Stdout, 1000)
		require.Empty(t, res.Stderr)
		require.True(t, res.Truncated)
	}
	require.Eventually(t, func() bool { return len(processesWith(t, "sleep "+word)) == 0 }, runenv.Patience(10*time.Second), 50*time.Millisecond)
	info, err := os.Stat(filepath.Join(n.stateDir, "op", "out"))
	require.NoError(t, err)
	require.LessOrEqual(t, info.Size(), int64(2048), "the node must not keep more than the bound either")
}

func TestAnOperationDoesNotWaitForItsDaemons(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	began := time.Now()
	res, err := n.runner().RunSSH(t.Context(), n.SSHTarget, providers.SSHCommand{
		Argv: []string{"sh", "-c", "setsid timeout 9 sleep 9 & echo ready"}, OpID: "op", Timeout: 20 * time.Second,
	})
	require.NoError(t, err)
	require.Equal(t, "ready\n", string(res.Stdout))
	require.True(t, res.Truncated)
	require.Less(t, time.Since(began), runenv.Patience(8*time.Second), runenv.Deadline+"it took too long")
}

func TestANodeThatCannotKeepResultsRunsNothing(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	file := filepath.Join(t.TempDir(), "count")
	_, err := New(WithStateDir("/proc/nowhere")).RunSSH(t.Context(), n.SSHTarget, counting(file, "op", "true"))
	require.Equal(t, providers.KindStateConflict, providers.KindOf(err), "%v", err)
	require.Zero(t, runs(t, file))
}

// The script alone, without a server: half of the input has arrived when the
// connection ends.
func TestAnOperationWithoutItsWholeInputDoesNotRun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "count")
	cmd := exec.CommandContext(t.Context(), "sh", "-c", opScript, "slipway-op",
		filepath.Join(dir, "ops"), "op", "10", "5", "100", "101", "10", "digest", "mark", "touch", file)
	cmd.Stdin = bytes.NewReader([]byte("half"))
	out, err := cmd.Output()
	require.NoError(t, err)
	require.Equal(t, "mark noinput 0 0 0 0\n", string(out))
	require.NoFileExists(t, file)
	left, err := os.ReadDir(filepath.Join(dir, "ops"))
	require.NoError(t, err)
	require.Empty(t, left, "a run that was given up must leave nothing behind")
}
