package hostscan

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func node(t *testing.T, files map[string]string) Root {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		p := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(p), 0o755))
		require.NoError(t, os.WriteFile(p, []byte(content), 0o600))
	}
	return Root(root)
}

func TestIsUserUID(t *testing.T) {
	t.Parallel()
	for uid, want := range map[int]bool{0: false, 999: false, 1000: true, 60001: true, 61184: false, 65519: false, 65520: true, 65534: false, 65536: true, 100000: true} {
		require.Equal(t, want, IsUserUID(uid), uid)
	}
}

func TestAccounts_ReportsUnreadableLines(t *testing.T) {
	t.Parallel()
	r := node(t, map[string]string{"etc/passwd": "root:x:0:0::/root:/bin/sh\n# no one\n\nt:x:1001:1001:A, B:/home/t:/bin/sh\nbroken\nu:x:one:1::/:/bin/sh\nv:x:-1:1::/:/bin/sh\n"})
	all, unreadable, err := r.Accounts()
	require.NoError(t, err)
	require.Equal(t, []Account{{"root", "/root", "/bin/sh", 0}, {"t", "/home/t", "/bin/sh", 1001}}, all)
	require.Len(t, unreadable, 3)
	_, _, err = Root(t.TempDir()).Accounts()
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestProcesses_AreFoundByAnyUID(t *testing.T) {
	t.Parallel()
	r := node(t, map[string]string{
		"proc/1/status": "Name:\tinit\nState:\tS (sleeping)\nUid:\t0\t0\t0\t0\n", "proc/7/status": "Name:\tup\nState:\tS\nUid:\t1001\t0\t0\t0\n",
		"proc/8/status": "Name:\tdead\nState:\tZ (zombie)\nUid:\t1001\t1001\t1001\t1001\n", "proc/9/status": "", "proc/self/status": "Name:\tx\nUid:\t1\n"})
	all, err := r.Processes()
	require.NoError(t, err)
	require.Len(t, all, 2)
	any := func(int) bool { return true }
	require.False(t, all[0].HasUserUID(any), "root is no user")
	require.True(t, all[1].HasUserUID(any), "a process that became root is found by its real uid")
	require.Equal(t, "7 (up)", all[1].String())
	now, ok := r.Process(7)
	require.True(t, ok && all[1].Same(now))
	now.UIDs[0] = 5
	require.False(t, all[1].Same(now))
	_, ok = r.Process(9)
	require.False(t, ok)
	_, err = Root(t.TempDir()).Processes()
	require.Error(t, err)
}

func TestMounts_AreThoseOfProcessOne(t *testing.T) {
	t.Parallel()
	r := node(t, map[string]string{"proc/mounts": "/dev/a / ext4 rw 0 0\n"})
	all, err := r.Mounts()
	require.NoError(t, err)
	require.Equal(t, []Mount{{Source: "/dev/a", Target: "/", FSType: "ext4"}}, all)
	require.NoError(t, os.MkdirAll(filepath.Join(string(r), "proc/1"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(string(r), "proc/1/mounts"), []byte("nas:/t\\040x /mnt/a\\134b\\011c nfs4 rw 0 0\nshort\n"), 0o600))
	all, err = r.Mounts()
	require.NoError(t, err)
	require.Equal(t, []Mount{{Source: "nas:/t x", Target: "/mnt/a\\b\tc", FSType: "nfs4"}}, all)
	require.NoError(t, os.WriteFile(filepath.Join(string(r), "proc/1/mountinfo"), []byte("22 1 8:1 / / rw - ext4 /dev/root rw\n"+
		"40 22 253:0 /sub /mnt/a\\040b rw shared:5 master:1 - ext4 /dev/mapper/x rw\n41 22 0:9 / /mnt/c rw - tmpfs  rw\n"), 0o600))
	all, err = r.Mounts()
	require.NoError(t, err)
	require.Equal(t, []Mount{{"/dev/root", "/", "ext4", "8:1"}, {"/dev/mapper/x", "/mnt/a b", "ext4", "253:0"}, {"", "/mnt/c", "tmpfs", "0:9"}}, all)
	require.NoError(t, os.WriteFile(filepath.Join(string(r), "proc/1/mountinfo"), []byte("22 1 8:1 / /\n"), 0o600))
	_, err = r.Mounts()
	require.ErrorContains(t, err, "cannot be read")
	require.Equal(t, `a\9`, Unescape(`a\9`))
	_, err = Root(t.TempDir()).Mounts()
	require.Error(t, err)
}
