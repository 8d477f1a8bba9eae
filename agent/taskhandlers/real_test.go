package taskhandlers

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/agent/task"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// Revoking on the machine itself: a throw-away account with a process that does
// not hear TERM, a key, a crontab and sudo rights.
func TestRevokingARealUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("this needs root: it makes and removes an account of this machine")
	}
	for _, tool := range []string{"useradd", "userdel", "usermod", "setpriv"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip(tool + " is not installed")
		}
	}
	name := fmt.Sprintf("slipwaytest%d", os.Getpid())
	run := func(name string, args ...string) {
		out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
		require.NoError(t, err, "%s: %s", name, out)
	}
	run("useradd", "--create-home", "--home-dir", "/home/"+name, name)
	t.Cleanup(func() {
		_ = exec.CommandContext(context.Background(), "userdel", "--remove", "--force", name).Run()
		_ = os.Remove("/etc/sudoers.d/" + name)
	})
	require.NoError(t, os.MkdirAll("/home/"+name+"/.ssh", 0o700))
	require.NoError(t, os.WriteFile("/home/"+name+"/.ssh/authorized_keys", []byte("ssh-ed25519 AAAA\n"), 0o600))
	require.NoError(t, os.MkdirAll("/etc/sudoers.d", 0o755))
	require.NoError(t, os.WriteFile("/etc/sudoers.d/"+name, []byte(name+" ALL=(ALL) ALL\n"), 0o440))
	stubborn := exec.CommandContext(t.Context(), "setpriv", "--reuid", name, "--regid", name, "--clear-groups", "sh", "-c", `trap "" TERM; sleep 300 & sleep 300 & wait; wait`)
	stubborn.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	require.NoError(t, stubborn.Start())
	reaped := make(chan struct{})
	go func() { defer close(reaped); _ = stubborn.Wait() }() // so that it is no zombie
	t.Cleanup(func() { _ = stubborn.Process.Kill(); <-reaped })
	bystander := exec.CommandContext(t.Context(), "sleep", "300")
	require.NoError(t, bystander.Start())
	t.Cleanup(func() { _ = bystander.Process.Kill(); _ = bystander.Wait() })

	h := Host{Root: "/", Poll: 20 * time.Millisecond, HasTool: func(name string) bool { _, err := exec.LookPath(name); return err == nil && name != "loginctl" },
		Tool: func(ctx context.Context, name string, args ...string) ([]byte, error) {
			return exec.CommandContext(ctx, name, args...).CombinedOutput()
		}}
	require.Eventually(t, func() bool {
		v, err := h.victim(name)
		if err != nil || !v.exists {
			return false
		}
		p, err := h.processes(func(uid int) bool { return uid == v.UID })
		return err == nil && len(p) >= 3
	}, runenv.Patience(10*time.Second), 20*time.Millisecond)
	rec := task.NewRecorder(nil, nil, nil)
	res := h.RevokeUser(t.Context(), task.Request{Args: &spec.RevokeUserArgs{User: name, RemoveHome: true}}, rec)
	require.True(t, res.OK, "%s %+v", res.Message, rec.Steps())
	all, err := h.accounts()
	require.NoError(t, err)
	for _, a := range all {
		require.NotEqual(t, name, a.Name)
	}
	require.NoDirExists(t, "/home/"+name)
	require.NoFileExists(t, "/etc/sudoers.d/"+name)
	require.NoError(t, bystander.Process.Signal(syscall.Signal(0)), "nobody else was touched")
	again := h.RevokeUser(t.Context(), task.Request{Args: &spec.RevokeUserArgs{User: name, RemoveHome: true}}, task.NewRecorder(nil, nil, nil))
	require.True(t, again.OK)
}
