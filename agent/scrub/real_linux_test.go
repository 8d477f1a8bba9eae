package scrub

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/agent/blockdev/sysfs"
	"github.com/slipway-cloud/slipway/agent/toolrunner"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/test/realhost"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// These tests act on the machine that runs them: on loop disks, accounts,
// processes and mounts that they make themselves, and on nothing else.
func realHost(t *testing.T, programs ...string) {
	t.Helper()
	if os.Geteuid() != 0 {
		cannotRun(t, "this test makes accounts, mounts and loop disks on the real machine, for which it must be root")
	}
	if os.Getenv(realhost.Var) != "1" && os.Getenv("CI") != "true" {
		cannotRun(t, "this test makes accounts, mounts and loop disks on the real machine; it runs with SLIPWAY_TEST_REAL_HOST=1 or CI=true only")
	}
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			cannotRun(t, "this test needs "+p+", which is not installed")
		}
	}
}

// cannotRun skips the test, or fails it where SLIPWAY_REQUIRE_PEERS=1 requires it to run.
func cannotRun(t *testing.T, why string) {
	t.Helper()
	if os.Getenv(realhost.RequireVar) == "1" {
		t.Fatalf("%s, and %s=1 requires it", why, realhost.RequireVar)
	}
	t.Skip(why)
}

func sh(t *testing.T, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), runenv.Patience(time.Minute)) // also in Cleanup
	defer cancel()
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	require.NoError(t, err, "%s %s: %s", name, args, out)
	return strings.TrimSpace(string(out))
}

const tenantData = "REAL-TENANT-DATA"

// loop is a loop disk over a file of the test, seen through a root in which it
// is the only disk.
type loop struct {
	*testing.T
	name, file string
	host       Host
}

func newLoop(t *testing.T) *loop {
	t.Helper()
	realHost(t, "losetup", "blkdiscard", "mkfs.ext4", "mount", "umount")
	l := &loop{T: t, file: filepath.Join(t.TempDir(), "disk")}
	require.NoError(t, os.WriteFile(l.file, nil, 0o600))
	require.NoError(t, os.Truncate(l.file, 32<<20))
	ctx, cancel := context.WithTimeout(t.Context(), runenv.Patience(time.Minute))
	defer cancel()
	out, err := exec.CommandContext(ctx, "losetup", "-f", "--show", l.file).Output()
	if err != nil {
		cannotRun(t, fmt.Sprintf("no loop disk can be made: %v", err))
	}
	l.name = filepath.Base(strings.TrimSpace(string(out)))
	l.mine()
	t.Cleanup(func() {
		l.mine()
		sh(t, "losetup", "-d", "/dev/"+l.name)
	})
	root := t.TempDir()
	sysfs.New(t, root).Disk(l.name, "pci0000:00/0000:00:17.0/ata1/host0/target0:0:0/0:0:0:0") // a loop device of its own is no drive
	for path, content := range map[string]string{simulatedMark: "", bootIDFile: "boot-1", "/sys/block/" + l.name + "/size": strconv.Itoa(32 << 11),
		"/sys/block/" + l.name + "/ro": "0", "/sys/block/" + l.name + "/device/serial": "LOOP1", "/sys/block/" + l.name + "/device/model": "loop"} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, path)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(root, path), []byte(content), 0o600))
	}
	require.NoError(t, os.MkdirAll(filepath.Join(root, "dev"), 0o755))
	require.NoError(t, os.MkdirAll(filepath.Join(root, "proc"), 0o755))
	require.NoError(t, os.Symlink("/dev/"+l.name, filepath.Join(root, "dev", l.name)))
	l.host = Host{Root: root, AllowWipe: true, Poll: time.Millisecond}
	l.tool(`exec "$real" "$@"`)
	l.mounts(true)
	return l
}

// mine makes sure that the loop disk is still the one over this test's file.
func (l *loop) mine() {
	l.Helper()
	raw, err := os.ReadFile("/sys/block/" + l.name + "/loop/backing_file")
	require.NoError(l, err)
	require.Equal(l, l.file, strings.TrimSpace(string(raw)), "the loop disk is another's now: hands off")
}

// tool installs the only program that these tests let near a disk; it refuses
// every disk but this one.
func (l *loop) tool(body string) {
	l.Helper()
	dir := l.TempDir()
	real, err := exec.LookPath("blkdiscard")
	require.NoError(l, err)
	script := fmt.Sprintf("#!/bin/sh\nreal=%s\n[ \"$1\" = --version ] && exec $real --version\nfor dev; do :; done\n"+
		"[ \"$dev\" = /dev/%s ] && [ \"$(cat /sys/block/%s/loop/backing_file)\" = %s ] || { echo not this disk >&2; exit 9; }\n%s\n", real, l.name, l.name, l.file, body)
	require.NoError(l, os.WriteFile(filepath.Join(dir, "blkdiscard"), []byte(script), 0o700))
	l.host.Run = toolrunner.ForTasks(l.host.Root, dir+":/usr/bin:/bin").Run
}

// mounts shows the scrub what is mounted of this disk, or hides it.
func (l *loop) mounts(show bool) {
	l.Helper()
	text := "tmpfs / tmpfs rw 0 0\n"
	raw, err := os.ReadFile("/proc/mounts")
	require.NoError(l, err)
	for line := range strings.Lines(string(raw)) {
		if show && strings.HasPrefix(line, "/dev/"+l.name+" ") {
			text += line
		}
	}
	require.NoError(l, os.WriteFile(filepath.Join(l.host.Root, "proc/mounts"), []byte(text), 0o600))
}

// use makes a file system with a tenant's data and leaves it mounted.
func (l *loop) use() (unmount func()) {
	l.Helper()
	l.mine()
	sh(l.T, "mkfs.ext4", "-q", "-F", "/dev/"+l.name)
	dir := l.TempDir()
	sh(l.T, "mount", "-o", "nosuid,nodev,noexec", "/dev/"+l.name, dir)
	mounted := true
	unmount = func() {
		if mounted {
			mounted = false
			sh(l.T, "umount", dir)
		}
	}
	l.Cleanup(unmount)
	require.NoError(l, os.WriteFile(filepath.Join(dir, "file"), bytes.Repeat([]byte(tenantData+"\n"), 100_000), 0o600))
	sh(l.T, "sync", "-f", dir)
	return unmount
}

func (l *loop) erase() (lifecycle.TaskResult, lifecycle.DeviceResult) {
	l.Helper()
	res := Scrub(l.Context(), l.host, spec.ScrubArgs{RunID: "job_1", Steps: []string{StepDisks}, AllowOverwrite: true}, nil)
	require.Len(l, res.Devices, 1)
	return res, res.Devices[0]
}

func (l *loop) holds(text string) bool {
	l.Helper()
	raw, err := os.ReadFile(l.file)
	require.NoError(l, err)
	return bytes.Contains(raw, []byte(text))
}

func TestARealDiskIsErasedOnlyWhenItIsFree(t *testing.T) {
	t.Parallel()
	l := newLoop(t)
	unmount := l.use()
	l.mounts(true)
	res, dev := l.erase()
	require.False(t, res.OK)
	require.Contains(t, dev.Detail, "is mounted at")
	l.mounts(false)
	res, dev = l.erase()
	require.False(t, res.OK)
	require.Contains(t, dev.Detail, "is in use", "the kernel refuses what the list of mounts did not show")
	require.True(t, l.holds(tenantData))
	require.False(t, l.holds(canaryMark), "nothing was written to a disk in use")

	unmount()
	l.mounts(true)
	l.host.AllowWipe = false
	_, dev = l.erase()
	require.Contains(t, dev.Detail, "not allowed")
	require.True(t, l.holds(tenantData))

	l.host.AllowWipe = true
	res, dev = l.erase()
	require.True(t, res.OK, res.Message)
	require.True(t, dev.Verified)
	require.Equal(t, lifecycle.SanitizeClear, dev.Method)
	require.Regexp(t, `^blkdiscard --zeroout, blkdiscard from util-linux`, dev.Tool)
	require.False(t, l.holds(tenantData))
	require.False(t, l.holds(canaryMark))
}

// The file below /dev must be the device that the kernel's number says.
func TestRealDisk_IsKnownByItsNumber(t *testing.T) {
	t.Parallel()
	l := newLoop(t)
	l.use()()
	raw, err := os.ReadFile("/sys/block/" + l.name + "/dev")
	require.NoError(t, err)
	number := filepath.Join(l.host.Root, "sys/block", l.name, "dev")
	require.NoError(t, os.WriteFile(number, []byte("8:0\n"), 0o600))
	res, dev := l.erase()
	require.False(t, res.OK)
	require.Contains(t, dev.Detail, "is not "+l.name+": the kernel gives that drive the number \"8:0\", and the file has \""+strings.TrimSpace(string(raw))+"\"")
	require.True(t, l.holds(tenantData))
	require.NoError(t, os.WriteFile(number, raw, 0o600))
	res, _ = l.erase()
	require.True(t, res.OK, res.Message)
	require.False(t, l.holds(tenantData))
}

// The real disk stands for a LUN of another machine: its sysfs shows the bus.
func TestRealForeignDisk_IsNotTouched(t *testing.T) {
	t.Parallel()
	l := newLoop(t)
	l.use()()
	require.NoError(t, os.Remove(filepath.Join(l.host.Root, "sys/block", l.name)))
	for parent, reason := range map[string]string{fcLUN: "Fibre Channel", iscsiLUN: "iSCSI session 2"} {
		sysfs.New(t, l.host.Root).Disk(l.name, parent)
		before, err := os.ReadFile(l.file)
		require.NoError(t, err)
		res, dev := l.erase()
		require.False(t, res.OK)
		require.Contains(t, dev.Detail, reason)
		after, err := os.ReadFile(l.file)
		require.NoError(t, err)
		require.True(t, bytes.Equal(before, after), "not a byte is written")
		require.NoError(t, os.Remove(filepath.Join(l.host.Root, "sys/block", l.name)))
	}
}

func TestARealDiskThatWasNotErasedIsFoundOut(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ body, says string }{
		"it lies":         {"exit 0", "still holds"},
		"it fails":        {"echo broken >&2; exit 1", "broken"},
		"half of it":      {`exec "$real" -f --zeroout --length 16777216 "$dev"`, "still holds"},
		"all but the end": {`exec "$real" -f --zeroout --length 33550336 "$dev"`, "still holds 1 of the blocks"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLoop(t)
			l.use()()
			l.tool(c.body)
			res, dev := l.erase()
			require.False(t, res.OK)
			require.Contains(t, res.Message, StepDisks+": ")
			require.Contains(t, dev.Detail, c.says)
			require.False(t, dev.Verified)
		})
	}
}

// testAccount is an account of the test, with a number that nobody uses.
type testAccount struct {
	name string
	uid  int
}

func newTestAccount(t *testing.T) testAccount {
	t.Helper()
	p := testAccount{fmt.Sprintf("swt%06d", rand.IntN(1_000_000)), 1_500_000_000 + rand.IntN(100_000_000)}
	all, err := (Host{Root: "/"}).scan().Processes()
	require.NoError(t, err)
	for _, other := range all {
		require.NotContains(t, other.UIDs, p.uid, "the number is taken")
	}
	sh(t, "useradd", "-M", "-N", "-l", "-u", strconv.Itoa(p.uid), "-d", "/home/"+p.name, "-s", "/bin/false", p.name)
	t.Cleanup(func() {
		accounts, err := (Host{Root: "/"}).accounts()
		require.NoError(t, err)
		for _, a := range accounts {
			if a.Name == p.name && a.UID == p.uid {
				sh(t, "userdel", "-f", p.name)
			}
		}
		require.NoError(t, os.RemoveAll("/home/"+p.name))
	})
	require.NoError(t, os.MkdirAll("/home/"+p.name+"/.ssh", 0o700))
	return p
}

func (p testAccount) keys(t *testing.T, lines string) string {
	t.Helper()
	path := "/home/" + p.name + "/.ssh/authorized_keys"
	require.NoError(t, os.WriteFile(path, []byte(lines), 0o600))
	return path
}

// start runs a program as this account.
func (p testAccount) start(t *testing.T, argv ...string) (pid int, ended <-chan struct{}) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Dir = "/"
	uid := uint32(p.uid) //nolint:gosec // below 2^31
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid, NoSetGroups: false}}
	require.NoError(t, cmd.Start())
	done := make(chan struct{})
	go func() {
		_ = cmd.Wait() // it is killed
		close(done)
	}()
	return cmd.Process.Pid, done
}

// confined is the real machine, of which only these accounts, mounts and files
// concern the scrub.
func confined(mine map[string]bool) Host {
	return Host{Root: "/", Run: toolrunner.ForTasks("/", "/usr/sbin:/usr/bin:/sbin:/bin").Run, Poll: 10 * time.Millisecond, Patience: 10 * time.Second,
		only: func(_, name string) bool { return mine[name] }}
}

func TestRealAccountsKeysAndProcessesAreRemoved(t *testing.T) {
	t.Parallel()
	realHost(t, "useradd", "userdel")
	tenant, platform := newTestAccount(t), newTestAccount(t)
	tenant.keys(t, "ssh-ed25519 AAAA tenant\n")
	kept := platform.keys(t, "ssh-ed25519 OURS ops\nssh-ed25519 THEIRS backdoor\n")
	_, plain := tenant.start(t, "sleep", "300")
	_, stubborn := tenant.start(t, "/bin/sh", "-c", `trap "" TERM; while :; do sleep 1; done`)
	_, ours := platform.start(t, "sleep", "300")

	h := confined(map[string]bool{tenant.name: true, platform.name: true})
	keys := []string{"ssh-ed25519 OURS"}
	args := spec.ValidateArgs{RunID: "job_1", KeepUsers: []string{platform.name}, KeepKeys: keys}
	before := Validate(t.Context(), h, args, nil)
	for _, name := range []string{StepProcesses, StepUsers, StepKeys} {
		require.False(t, stepOf(before, name).OK, name)
	}
	res := Scrub(t.Context(), h, spec.ScrubArgs{RunID: "job_1", KeepUsers: []string{platform.name}, KeepKeys: keys, Steps: []string{StepProcesses, StepUsers, StepKeys}}, nil)
	require.True(t, res.OK, res.Message)
	require.False(t, res.Simulated)
	for _, done := range []<-chan struct{}{plain, stubborn} {
		select {
		case <-done:
		case <-time.After(runenv.Patience(10 * time.Second)):
			require.Fail(t, runenv.Deadline+"a tenant's process is still there")
		}
	}
	select {
	case <-ours:
		require.Fail(t, "the platform's process was ended")
	default:
	}
	require.NoDirExists(t, "/home/"+tenant.name)
	raw, err := os.ReadFile(kept)
	require.NoError(t, err)
	require.Equal(t, "ssh-ed25519 OURS ops\n", string(raw))
	after := Validate(t.Context(), h, args, nil)
	for _, name := range []string{StepProcesses, StepUsers, StepKeys} {
		require.True(t, stepOf(after, name).OK, stepOf(after, name).Detail)
	}
}

func TestARealMountThatIsHeldNamesItsHolder(t *testing.T) {
	t.Parallel()
	realHost(t, "mount", "umount")
	mounts, err := (Host{Root: "/"}).mountList()
	require.NoError(t, err)
	if _, err := (Host{Root: "/"}).systemDisks(mounts); err != nil {
		cannotRun(t, fmt.Sprintf("on this machine the scrub would refuse: %v", err))
	}
	dir, err := os.MkdirTemp("/mnt", "swt-")
	if err != nil {
		cannotRun(t, fmt.Sprintf("/mnt cannot be used here: %v", err))
	}
	t.Cleanup(func() { require.NoError(t, os.Remove(dir)) })
	sh(t, "mount", "-t", "tmpfs", "-o", "size=1m,nosuid,nodev", "swt", dir)
	mounted := func() bool {
		raw, err := os.ReadFile("/proc/mounts")
		return err == nil && strings.Contains(string(raw), " "+dir+" ")
	}
	t.Cleanup(func() {
		if mounted() {
			sh(t, "umount", "-l", dir)
		}
	})
	holder := exec.CommandContext(t.Context(), "sleep", "300")
	holder.Dir = dir
	require.NoError(t, holder.Start())
	h := confined(map[string]bool{dir: true})
	unmount := func() lifecycle.TaskResult {
		return Scrub(t.Context(), h, spec.ScrubArgs{RunID: "job_1", Steps: []string{StepMounts}}, nil)
	}
	res := unmount()
	require.False(t, res.OK)
	require.Contains(t, res.Message, fmt.Sprintf("%s is busy: process %d (sleep) holds it", dir, holder.Process.Pid))
	require.True(t, mounted())
	require.NoError(t, holder.Process.Kill())
	_ = holder.Wait() // it was killed
	res = unmount()
	require.True(t, res.OK, res.Message)
	require.False(t, mounted())
}

func TestAVariableThatTheKernelMadeImmutableIsWritten(t *testing.T) {
	t.Parallel()
	realHost(t, "chattr")
	b := newBench(t)
	b.put(overwriteV, "\x07\x00\x00\x00\x10")
	path := filepath.Join(b.host.Root, overwriteV)
	ctx, cancel := context.WithTimeout(t.Context(), runenv.Patience(time.Minute))
	defer cancel()
	if out, err := exec.CommandContext(ctx, "chattr", "+i", path).CombinedOutput(); err != nil {
		cannotRun(t, fmt.Sprintf("this file system has no immutable files: %s", out))
	}
	t.Cleanup(func() { sh(t, "chattr", "-i", path) })
	require.Error(t, os.WriteFile(path, []byte("x"), 0o600))
	res := Scrub(t.Context(), b.host, spec.ScrubArgs{RunID: "job_1", Steps: []string{StepMemoryRequest}}, nil)
	require.True(t, res.OK, res.Message)
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, []byte{7, 0, 0, 0, 0x11}, raw, "the other bits stay")
}

func TestARealCronJobOfNoPackageIsRemoved(t *testing.T) {
	t.Parallel()
	realHost(t, "dpkg-query")
	f, err := os.CreateTemp("/etc/cron.d", "swt-off-")
	if err != nil {
		cannotRun(t, fmt.Sprintf("/etc/cron.d cannot be used here: %v", err))
	}
	t.Cleanup(func() { _ = os.Remove(f.Name()) }) // gone, when all went well
	_, err = f.WriteString("# nothing runs from here\n")
	require.NoError(t, err)
	require.NoError(t, f.Close())
	owned := ""
	entries, err := os.ReadDir("/etc/cron.daily")
	if err == nil && len(entries) > 0 {
		owned = filepath.Join("/etc/cron.daily", entries[0].Name())
	}
	h := confined(map[string]bool{f.Name(): true})
	res := Scrub(t.Context(), h, spec.ScrubArgs{RunID: "job_1", Steps: []string{StepAutostart}}, nil)
	require.True(t, res.OK, res.Message)
	require.NoFileExists(t, f.Name())
	if owned != "" {
		found, err := newRun(confined(nil), "job_1", nil, nil, nil).ownedByPackages(t.Context(), []string{owned, f.Name()})
		require.NoError(t, err)
		require.False(t, found[f.Name()])
	}
}
