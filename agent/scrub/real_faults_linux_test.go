package scrub

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/agent/toolrunner"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// tools are programs of the test before those of the machine, and for a machine
// that has them the only ones.
func tools(t *testing.T, alone bool, scripts map[string]string) func(context.Context, string, ...string) ([]byte, error) {
	t.Helper()
	dir := t.TempDir()
	for name, body := range scripts {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+body+"\n"), 0o700))
	}
	if alone {
		return toolrunner.ForTasks("/", dir).Run
	}
	return toolrunner.ForTasks("/", dir+":/usr/sbin:/usr/bin:/sbin:/bin").Run
}

// respawn keeps a process of this account alive, however often it is ended, as a
// unit with Restart=always does.
func (p testAccount) respawn(t *testing.T) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	uid := uint32(p.uid) //nolint:gosec // below 2^31
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			cmd := exec.CommandContext(ctx, "sleep", "300")
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
			_ = cmd.Run() // it is killed
		}
	}()
	t.Cleanup(func() { stop(); <-ended })
}

// Each step of a scrub that can fail on a host without GPUs fails here on real
// accounts, keys, processes, files, mounts and disks, and the step is named.
// Those of GPUs and firmware have their failures on the simulated node.
func TestAPlantedFailureOnThisHostNamesItsStep(t *testing.T) {
	t.Parallel()
	realHost(t, "useradd", "userdel", "mount", "umount", "dpkg-query")
	for name, c := range map[string]struct {
		step  string
		plant func(t *testing.T, h *Host) (mine string)
		says  string
	}{
		"another boot": {StepIdentity, func(_ *testing.T, h *Host) string { h.BootID = "boot-of-another"; return "" }, "the task is for boot boot-of-another"},
		"a container that stays": {StepContainers, func(t *testing.T, h *Host) string {
			h.Run = tools(t, true, map[string]string{"docker": `[ "$1" != ps ] || echo c0ffee`})
			return "c0ffee"
		}, "c0ffee"},
		"a process that comes back": {StepProcesses, func(t *testing.T, h *Host) string {
			p := newTestAccount(t)
			p.respawn(t)
			h.Patience, h.Poll = time.Second, 200*time.Millisecond
			return p.name
		}, "(sleep)"},
		"an account that stays": {StepUsers, func(t *testing.T, h *Host) string {
			h.Run = tools(t, false, map[string]string{"userdel": "echo userdel: cannot lock /etc/passwd >&2; exit 1"})
			return newTestAccount(t).name
		}, "cannot lock /etc/passwd"},
		"keys that cannot be read": {StepKeys, func(t *testing.T, _ *Host) string {
			p := newTestAccount(t)
			require.NoError(t, os.Mkdir("/home/"+p.name+"/.ssh/authorized_keys", 0o700))
			return p.name
		}, "read the keys of swt"},
		"a package system that is broken": {StepAutostart, func(t *testing.T, h *Host) string {
			h.Run = tools(t, false, map[string]string{"dpkg-query": "echo dpkg-query: database is damaged >&2; exit 2"})
			f, err := os.CreateTemp("/etc/cron.d", "swt-off-")
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, os.Remove(f.Name())) })
			require.NoError(t, f.Close())
			return f.Name()
		}, "cannot be told"},
		"a mount that is busy": {StepMounts, func(t *testing.T, h *Host) string {
			dir := tenantMount(t)
			held, err := os.Create(filepath.Join(dir, "held")) // this process holds it
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, held.Close()) })
			other := exec.CommandContext(t.Context(), "sleep", "300")
			other.Dir = dir
			require.NoError(t, other.Start())
			t.Cleanup(func() { _ = other.Process.Kill(); _ = other.Wait() })
			return dir
		}, "(sleep) holds it"},
		"firmware that takes no request": {StepMemoryRequest, func(t *testing.T, _ *Host) string {
			if _, err := os.Stat(overwriteV); err == nil {
				t.Skip("this machine's firmware takes the request, and a test must not make it erase its memory")
			}
			return ""
		}, "MemoryOverwriteRequestControl"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := confined(nil)
			mine := c.plant(t, &h)
			h.only = func(_, what string) bool { return what == mine }
			res := Scrub(t.Context(), h, spec.ScrubArgs{RunID: "job_1", Steps: []string{c.step}}, nil)
			require.False(t, res.OK)
			require.False(t, res.Simulated)
			require.False(t, stepOf(res, c.step).OK)
			require.Contains(t, res.Message, c.step+": ")
			require.Contains(t, res.Message, c.says)
			want := lifecycle.TaskCodeStepFailed
			if c.step == StepIdentity {
				want = lifecycle.TaskCodeRefused
			}
			require.Equal(t, want, res.Code)
		})
	}
}

// tenantMount is a file system below /mnt.
func tenantMount(t *testing.T) string {
	t.Helper()
	mounts, err := (Host{Root: "/"}).mountList()
	require.NoError(t, err)
	if _, err := (Host{Root: "/"}).systemDisks(mounts); err != nil {
		cannotRun(t, fmt.Sprintf("on this machine the scrub would refuse: %v", err))
	}
	dir, err := os.MkdirTemp("/mnt", "swt-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.Remove(dir)) })
	sh(t, "mount", "-t", "tmpfs", "-o", "size=1m,nosuid,nodev", "swt", dir)
	t.Cleanup(func() {
		if raw, err := os.ReadFile("/proc/mounts"); err == nil && strings.Contains(string(raw), " "+dir+" ") {
			sh(t, "umount", "-l", dir)
		}
	})
	return dir
}

// loot leaves this account's files where everybody may write, one of root's too,
// and what else it has under /opt. Only these become the scrub's concern.
func (p testAccount) loot(t *testing.T, canary string, mine map[string]bool) (files []string) {
	t.Helper()
	plant := func(dir string, uid int) string {
		require.NoError(t, os.Mkdir(dir, 0o755))
		t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
		f := filepath.Join(dir, "loot")
		require.NoError(t, os.WriteFile(f, []byte(canary), 0o600))
		require.NoError(t, os.Chown(f, uid, -1))
		mine[dir], mine[f] = true, true
		return f
	}
	for _, dir := range temporary() {
		files = append(files, plant(dir+"/"+p.name+"-loot", p.uid), plant(dir+"/"+p.name+"-root", 0))
	}
	shared := plant("/opt/"+p.name+"-shared", p.uid)
	require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(shared), "tool"), nil, 0o600))
	require.NoError(t, os.Chown(filepath.Dir(shared), p.uid, -1))
	return append(files, shared)
}

// All of a tenant at once: an account with a key, a process that holds a file on
// a mount, a cron job, files in the temporary directories and under /opt, and the
// same words on a disk. After one scrub no canary is found anywhere, and the
// validation that found each of them finds none.
func TestNothingOfATenantIsLeftOnThisHost(t *testing.T) {
	t.Parallel()
	realHost(t, "useradd", "userdel", "mount", "umount", "dpkg-query")
	tenant := newTestAccount(t)
	canary := "TENANT-CANARY-" + tenant.name // of this run: a killed one leaves its files
	home := "/home/" + tenant.name
	tenant.keys(t, "ssh-ed25519 AAAA "+canary+"\n")
	dir := tenantMount(t)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "data"), []byte(canary), 0o644))
	sh(t, "chown", strconv.Itoa(tenant.uid), dir)
	require.NoError(t, os.WriteFile(filepath.Join(home, "data"), []byte(canary), 0o644))
	cron, err := os.CreateTemp("/etc/cron.d", "swt-off-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.Remove(cron.Name()) }) // gone, when all went well
	_, err = cron.WriteString("# " + canary + "\n")
	require.NoError(t, err)
	require.NoError(t, cron.Close())
	pid, ended := tenant.start(t, "tail", "-f", filepath.Join(dir, "data"))
	require.Eventually(t, func() bool {
		held, err := (Host{Root: "/"}).holds(pid, func(p string) bool { return p == filepath.Join(dir, "data") })
		return err == nil && held
	}, runenv.Patience(10*time.Second), 10*time.Millisecond)
	disk := newLoop(t)
	disk.use()()
	require.True(t, disk.holds(tenantData))

	mine := map[string]bool{tenant.name: true, dir: true, cron.Name(): true}
	loot := tenant.loot(t, canary, mine)
	h := confined(mine)
	h.StateDir = t.TempDir()
	steps := []string{StepProcesses, StepUsers, StepKeys, StepAutostart, StepMounts, StepFiles}
	look := func() (bad []string) {
		res := Validate(t.Context(), h, spec.ValidateArgs{RunID: "job_1"}, nil)
		for _, name := range steps {
			if !stepOf(res, name).OK {
				bad = append(bad, name)
			}
		}
		return bad
	}
	require.Equal(t, steps, look(), "before, each look finds something")
	res := Scrub(t.Context(), h, spec.ScrubArgs{RunID: "job_1", Steps: steps}, nil)
	require.True(t, res.OK, res.Message)
	erased, _ := disk.erase()
	require.True(t, erased.OK, erased.Message)

	select {
	case <-ended:
	case <-time.After(runenv.Patience(10 * time.Second)):
		require.Fail(t, runenv.Deadline+"the tenant's process is still there")
	}
	require.Empty(t, look())
	require.NoDirExists(t, home)
	require.NoFileExists(t, cron.Name())
	require.NoFileExists(t, filepath.Join(dir, "data"))
	for _, p := range loot {
		require.NoFileExists(t, p)
	}
	shared, err := os.Stat("/opt/" + tenant.name + "-shared")
	require.NoError(t, err, "others' files are in it")
	require.Zero(t, shared.Sys().(*syscall.Stat_t).Uid, "it is given to root") //nolint:forcetypeassert // on Linux
	passwd, err := os.ReadFile("/etc/passwd")
	require.NoError(t, err)
	require.NotContains(t, string(passwd), tenant.name)
	require.False(t, disk.holds(tenantData))
	require.False(t, disk.holds(canaryMark), "nor the scrub's own canary")
	for _, where := range []string{"/etc/cron.d", "/home", "/mnt"} {
		// The status of grep is 1 when it finds nothing.
		out, _ := exec.CommandContext(t.Context(), "grep", "-rl", "--", tenant.name, where).Output()
		require.Empty(t, string(out), where)
	}
}
