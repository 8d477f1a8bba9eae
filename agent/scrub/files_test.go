package scrub

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/agent/metadata"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

func (b *bench) there(path string) bool {
	_, err := os.Lstat(filepath.Join(b.host.Root, path))
	return err == nil
}

func (b *bench) steps(names ...string) lifecycle.TaskResult {
	b.Helper()
	return Scrub(b.Context(), b.host, spec.ScrubArgs{RunID: "job_1", KeepUsers: []string{"ops"}, Steps: names}, nil)
}

func (b *bench) look(names ...string) lifecycle.TaskResult {
	b.Helper()
	return Validate(b.Context(), b.host, spec.ValidateArgs{RunID: "job_1", KeepUsers: []string{"ops"}, Steps: names}, nil)
}

// people are two accounts; userdel removes them, and files below these paths
// belong to the first.
func (b *bench) people(tenants ...string) {
	b.Helper()
	b.put("/etc/passwd", "root:x:0:0::/root:/bin/sh\nops:x:1000:1000::/home/ops:/bin/sh\ntenant:x:1001:1001::/home/tenant:/bin/sh\n")
	b.answer["userdel"] = func([]string) (string, error) {
		b.put("/etc/passwd", "root:x:0:0::/root:/bin/sh\nops:x:1000:1000::/home/ops:/bin/sh\n")
		return "", nil
	}
	b.host.owner = func(p string) (int, bool) {
		for _, t := range tenants {
			if p == t || strings.HasPrefix(p, t+"/") {
				return 1001, true
			}
		}
		return 1000, strings.HasPrefix(p, "/home/ops")
	}
}

func TestTheTemporaryDirectoriesAreEmptied(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.people()
	for _, p := range []string{"/tmp/loot", "/tmp/.hidden/deep/loot", "/var/tmp/loot.tar", "/dev/shm/sem.miner", "/tmp/systemd-private-0ldb00t-a.service-x/tmp/loot",
		"/tmp/systemd-private-boot1-a.service-x/tmp/of-a-service"} {
		b.put(p, "x")
	}
	require.NoError(t, os.Symlink("/etc", filepath.Join(b.host.Root, "tmp/etc")))
	require.NoError(t, os.Symlink("../etc/passwd", filepath.Join(b.host.Root, "tmp/passwd")))
	res := b.steps(StepFiles)
	require.True(t, res.OK, res.Message)
	for _, p := range []string{"/tmp/loot", "/tmp/.hidden", "/var/tmp/loot.tar", "/dev/shm/sem.miner", "/tmp/systemd-private-0ldb00t-a.service-x", "/tmp/etc", "/tmp/passwd"} {
		require.False(t, b.there(p), p)
	}
	require.True(t, b.there("/tmp/systemd-private-boot1-a.service-x/tmp/of-a-service"), "a service of this boot runs on")
	require.True(t, b.there("/etc/passwd"), "links are not followed")
	require.True(t, b.there("/dev/nvme0n1"))
	res = b.steps(StepFiles)
	require.True(t, res.OK, "again: %s", res.Message)
}

// TestFiles_EndTheTenancy: once the accounts of tenants are gone the node is held for none of them,
// although nobody revoked his account.
func TestFiles_EndTheTenancy(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.people()
	for _, p := range []string{metadata.Path, metadata.HolderPath, "/etc/slipway/agent.yaml"} {
		b.put(p, "x")
	}
	res := b.steps(StepFiles)
	require.True(t, res.OK, res.Message)
	require.True(t, b.there(metadata.HolderPath), "his account is still there")
	for range 2 {
		res = b.steps(StepUsers, StepFiles)
		require.True(t, res.OK, res.Message)
		require.False(t, b.there(metadata.Path))
		require.False(t, b.there(metadata.HolderPath))
	}
	require.True(t, b.there("/etc/slipway/agent.yaml"))
}

func TestWhatCannotBeEmptiedIsToldAndNotEntered(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.people()
	b.put("/tmp/held/in/data", "x")
	b.put("/tmp/loot", "x")
	b.put("/proc/mounts", "/dev/sda1 / ext4 rw 0 0\nsomething /tmp/held/in tmpfs rw 0 0\n")
	res := b.steps(StepFiles)
	require.False(t, res.OK)
	require.Contains(t, res.Message, "/tmp/held cannot be removed: something is mounted at /tmp/held/in")
	require.True(t, b.there("/tmp/held/in/data"))
	require.False(t, b.there("/tmp/loot"), "one does not keep the others")

	b.answer["umount"] = func([]string) (string, error) {
		b.put("/proc/mounts", "/dev/sda1 / ext4 rw 0 0\n")
		return "", nil
	}
	res = b.steps(StepMounts, StepFiles)
	require.True(t, res.OK, "a mount below a temporary directory is a tenant's: %s", res.Message)
	require.False(t, b.there("/tmp/held"))

	b.put("/home/tenant/x", "x")
	require.NoError(t, os.MkdirAll(filepath.Join(b.host.Root, "var"), 0o755))
	require.NoError(t, os.Symlink("../home/tenant", filepath.Join(b.host.Root, "var/tmp")))
	for _, res := range []lifecycle.TaskResult{b.steps(StepFiles), b.look(StepFiles)} {
		require.False(t, stepOf(res, StepFiles).OK)
		require.Contains(t, stepOf(res, StepFiles).Detail, "/var/tmp is no directory but a link")
	}
	require.True(t, b.there("/home/tenant/x"))
}

func TestWhatRemovedAccountsLeftGoesWithThem(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.people("/opt/miner", "/srv/ours/his", "/home/ops/his", "/var/tmp/his", "/usr/local/bin/miner")
	mine := []string{"/opt/miner/bin/run", "/srv/ours/his", "/home/ops/his", "/usr/local/bin/miner"}
	others := []string{"/srv/ours/ours", "/opt/tool/tool", "/home/ops/data", "/usr/local/bin/tool"}
	for _, p := range append(mine, others...) {
		b.put(p, "x")
	}
	b.put("/var/tmp/his", "x")
	res := b.look(StepFiles)
	require.Contains(t, stepOf(res, StepFiles).Detail, "1 files of accounts that are not the platform's: /var/tmp/his")

	res = b.steps(StepFiles)
	require.True(t, res.OK, res.Message)
	require.False(t, b.there("/var/tmp/his"))
	require.True(t, b.there("/opt/miner/bin/run"), "the account is still there, so its files are its own")

	// The agent dies between the two: what the account left is known from the notes.
	require.True(t, b.steps(StepUsers).OK)
	res = b.look(StepFiles)
	require.Contains(t, stepOf(res, StepFiles).Detail, "6 files of accounts", "with the directories: %s", res.Message)
	res = b.steps(StepFiles)
	require.True(t, res.OK, res.Message)
	require.Contains(t, stepOf(res, StepFiles).Detail, "6 files of removed accounts elsewhere")
	for _, p := range mine {
		require.False(t, b.there(p), p)
	}
	require.False(t, b.there("/opt/miner"))
	for _, p := range others {
		require.True(t, b.there(p), p)
	}
	require.True(t, stepOf(b.look(StepFiles), StepFiles).OK)
}
