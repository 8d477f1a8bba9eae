package selfupdate

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/agent/protocol"
	"github.com/slipway-cloud/slipway/agent/task"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// bench is an installation of v1.2.3 in a, with an offline key.
type bench struct {
	t    *testing.T
	root string
	pub  ed25519.PublicKey
	key  ed25519.PrivateKey
}

const dir = "/opt/slipway-agent"

// program is a file that says its version, as a script.
func program(version string) []byte { return []byte("#!/bin/sh\necho " + version + "\n") }

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, root: t.TempDir()}
	var err error
	b.pub, b.key, err = ed25519.GenerateKey(nil)
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(filepath.Join(b.root, dir, "a"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(b.root, dir, "a", programName), program("v1.2.3"), 0o755))
	require.NoError(t, os.Symlink("a", filepath.Join(b.root, dir, currentLink)))
	return b
}

func (b *bench) updater(version string, trial time.Duration) *Updater {
	return &Updater{Root: b.root, Dir: dir, Key: b.pub, Version: version, Trial: trial}
}

func (b *bench) link() string {
	b.t.Helper()
	to, err := os.Readlink(filepath.Join(b.root, dir, currentLink))
	require.NoError(b.t, err)
	return to
}

func (b *bench) manifest(body []byte, change func(*Manifest)) *spec.UpdateArgs {
	b.t.Helper()
	sum := sha256.Sum256(body)
	m := Manifest{Version: "v1.3.0", SHA256: hex.EncodeToString(sum[:]), Size: int64(len(body)), OS: runtime.GOOS, Arch: runtime.GOARCH}
	if change != nil {
		change(&m)
	}
	raw, err := json.Marshal(m)
	require.NoError(b.t, err)
	return &spec.UpdateArgs{Manifest: raw, ManifestSignature: ed25519.Sign(b.key, append([]byte(Context), raw...)), BinaryURL: "https://x/agent"}
}

func (b *bench) request(args *spec.UpdateArgs, body []byte) task.Request {
	path := filepath.Join(b.t.TempDir(), "staged")
	require.NoError(b.t, os.WriteFile(path, body, 0o600))
	return task.Request{Task: protocol.Task{ID: "task-1"}, Args: args, Fetch: func(context.Context, task.File) (string, error) { return path, nil }}
}

func recorder() *task.Recorder { return task.NewRecorder(nil, nil, nil) }

func (b *bench) installed() {
	b.t.Helper()
	body := program("v1.3.0")
	res := b.updater("v1.2.3", 0).Run(b.t.Context(), b.request(b.manifest(body, nil), body), recorder())
	require.Equal(b.t, task.Restart(), res)
	require.Equal(b.t, "b", b.link())
}

func TestAnUpdateThatProvesItself(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.installed()
	u := b.updater("v1.3.0", time.Minute) // the process after the restart
	watched := make(chan error, 1)
	go func() { watched <- u.Watch(t.Context()) }()
	require.NoError(t, u.Healthy("v1.2.3"), "a heartbeat of the old version says nothing")
	require.NoError(t, u.Healthy("v1.3.0"))
	require.NoError(t, <-watched)
	res := u.Resume(t.Context(), task.Request{Task: protocol.Task{ID: "task-1"}, Resumed: true, Rebooted: true, Expired: true}, recorder())
	require.True(t, res.OK)
	require.JSONEq(t, `{"version": "v1.3.0"}`, string(res.Output))
	require.Equal(t, "b", b.link())

	// Nothing older or as old is taken from here on, even if an older one runs.
	body := program("v1.3.0")
	for _, running := range []string{"v1.3.0", "v1.2.3"} {
		res = b.updater(running, 0).Run(t.Context(), b.request(b.manifest(body, nil), body), recorder())
		require.Equal(t, lifecycle.TaskCodeRefused, res.Code)
		require.Contains(t, res.Message, "not newer")
	}
	body = program("v1.10.0")
	res = u.Run(t.Context(), b.request(b.manifest(body, func(m *Manifest) { m.Version = "v1.10.0"; m.MinVersion = "v1.3.0" }), body), recorder())
	require.Equal(t, task.Restart(), res)
	require.Equal(t, "a", b.link())
}

func TestAnUpdateThatIsNotHeardOfGoesBack(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.installed()
	next := b.updater("v1.3.0", 30*time.Millisecond)
	require.ErrorIs(t, next.Watch(t.Context()), task.ErrRestart)
	require.Equal(t, "a", b.link())
	require.NoError(t, next.Healthy("v1.3.0"), "too late")
	req := task.Request{Task: protocol.Task{ID: "task-1"}, Resumed: true}
	require.Equal(t, task.Restart(), next.Resume(t.Context(), req, recorder()), "the version that goes does not report for the one that comes")
	res := b.updater("v1.2.3", 0).Resume(t.Context(), req, recorder())
	require.Equal(t, task.CodeRolledBack, res.Code)
	require.Contains(t, res.Message, "no heartbeat was accepted within 30ms")
	require.NoError(t, b.updater("v1.2.3", 0).Watch(t.Context()))
	b.installed() // it may be tried again
}

// A crash between the steps of an update: what a new process makes of it.
func TestAnUpdateThatWasInterrupted(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	body := program("v1.3.0")
	req := b.request(b.manifest(body, nil), body)
	req.Resumed = true
	u := b.updater("v1.2.3", 50*time.Millisecond)
	expired := req
	expired.Expired = true
	require.Equal(t, lifecycle.TaskCodeExpired, u.Resume(t.Context(), expired, recorder()).Code, "nothing was changed, and nothing will be")
	require.Equal(t, task.Restart(), u.Resume(t.Context(), req, recorder()), "before the switch it starts from the beginning")
	require.Equal(t, "b", b.link())
	require.NoError(t, u.point("a")) // as if it had died between the trial and the link
	require.Equal(t, task.Restart(), u.Resume(t.Context(), req, recorder()))
	require.Equal(t, "b", b.link())
	next := b.updater("v1.3.0", 20*time.Millisecond)
	require.ErrorIs(t, next.Watch(t.Context()), task.ErrRestart)
	require.NoError(t, next.point("b")) // as if it had died before the link went back
	require.Equal(t, task.Restart(), next.Resume(t.Context(), req, recorder()))
	require.Equal(t, "a", b.link())
}

// A process that the agent started meanwhile holds the new program open for writing for a moment.
func TestProbe_WaitsForABusyProgram(t *testing.T) {
	t.Parallel()
	busy := 3
	u := &Updater{Ask: func(context.Context, string) (string, error) {
		if busy--; busy >= 0 {
			return "", fmt.Errorf("start: %w", syscall.ETXTBSY)
		}
		return "v2", nil
	}}
	says, err := u.probe(t.Context(), "b", Manifest{Version: "v2"})
	require.NoError(t, err)
	require.Equal(t, "it starts", says)
	busy = busyTries + 2
	_, err = u.probe(t.Context(), "b", Manifest{Version: "v2"})
	require.ErrorIs(t, err, syscall.ETXTBSY, "it does not wait for ever")
}

func TestManifestsThatAreRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	body := program("v1.3.0")
	for says, change := range map[string]func(*Manifest){
		"not newer than v1.2.3":  func(m *Manifest) { m.Version = "v1.2.3" },
		"not of the form":        func(m *Manifest) { m.Version = "v1.3.0-rc1" },
		"is for plan9":           func(m *Manifest) { m.OS = "plan9" },
		"sha256 or size":         func(m *Manifest) { m.Size = MaxSize + 1 },
		"over v1.2.9 or newer":   func(m *Manifest) { m.MinVersion = "v1.2.9" },
		"min_version":            func(m *Manifest) { m.MinVersion = "1.2" },
		"is for " + runtime.GOOS: func(m *Manifest) { m.Arch = "pdp11" },
		"1 to 268435456 bytes":   func(m *Manifest) { m.SHA256 = strings.ToUpper(m.SHA256) },
	} {
		res := b.updater("v1.2.3", 0).Run(t.Context(), b.request(b.manifest(body, change), body), recorder())
		require.Equal(t, lifecycle.TaskCodeRefused, res.Code, says)
		require.Contains(t, res.Message, says)
	}
	args := b.manifest(body, nil)
	args.Manifest = append(args.Manifest, ' ')
	require.Contains(t, b.updater("v1.2.3", 0).Run(t.Context(), b.request(args, body), recorder()).Message, "not signed")
	bare := b.manifest(body, nil)
	bare.ManifestSignature = ed25519.Sign(b.key, bare.Manifest)
	require.Contains(t, b.updater("v1.2.3", 0).Run(t.Context(), b.request(bare, body), recorder()).Message, "not signed", "a signature without its context")
	u := b.updater("v1.2.3", 0)
	u.Key = nil
	require.Contains(t, u.Run(t.Context(), b.request(b.manifest(body, nil), body), recorder()).Message, "update_key")
	require.NoError(t, os.Remove(filepath.Join(b.root, dir, currentLink)))
	require.Contains(t, b.updater("v1.2.3", 0).Run(t.Context(), b.request(b.manifest(body, nil), body), recorder()).Message, "installer")
}

func TestProgramsThatAreNotTaken(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	good := program("v1.3.0")
	liar, broken := program("v1.4.0"), []byte("#!/nonexistent\n")
	for says, c := range map[string]struct {
		manifest *spec.UpdateArgs
		body     []byte
	}{
		"does not have the manifest's sha256": {b.manifest(good, nil), append([]byte("x"), good[1:]...)},
		"not a file of":                       {b.manifest(good, nil), append(good, 'x')},
		`says that it is "v1.4.0"`:            {b.manifest(liar, nil), liar},
		"does not start":                      {b.manifest(broken, nil), broken},
	} {
		rec := recorder()
		res := b.updater("v1.2.3", 0).Run(t.Context(), b.request(c.manifest, c.body), rec)
		require.Equal(t, lifecycle.TaskCodeStepFailed, res.Code, says)
		require.Contains(t, res.Message, says)
		require.Equal(t, "a", b.link())
	}
	// The file that the other half staged may be a trap: a link, a device, a pipe.
	path := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink("/etc/shadow", path))
	req := b.request(b.manifest(good, nil), good)
	req.Fetch = func(context.Context, task.File) (string, error) { return path, nil }
	require.Contains(t, b.updater("v1.2.3", 0).Run(t.Context(), req, recorder()).Message, "open what was fetched")
	req.Fetch = func(context.Context, task.File) (string, error) { return "", errors.New("404") }
	require.Contains(t, b.updater("v1.2.3", 0).Run(t.Context(), req, recorder()).Message, "404")
	require.Equal(t, "a", b.link())
}
