package taskhandlers

import (
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"github.com/slipway-cloud/slipway/agent/metadata"
	"github.com/slipway-cloud/slipway/agent/task"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

const (
	allocation = "alc_7"
	renter     = "t-alc7"
)

func newPublicKey(t *testing.T) string {
	t.Helper()
	public, _, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	key, err := ssh.NewPublicKey(public)
	require.NoError(t, err)
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))
}

// newTenantBench is a node with a useradd that copies /etc/skel, and with sudo.
func newTenantBench(t *testing.T) *bench {
	t.Helper()
	b := newBench(t)
	require.Equal(t, renter, lifecycle.TenantAccount(allocation))
	require.NoError(t, os.MkdirAll(b.path("/home"), 0o755))
	b.tools["sudo"] = func([]string) (string, error) { return "", nil }
	b.tools["useradd"] = func(args []string) (string, error) {
		name := args[len(args)-1]
		b.put("/etc/passwd", b.get("/etc/passwd")+fmt.Sprintf("%s:x:2100:2100::/home/%s:/bin/bash\n", name, name))
		return "", os.MkdirAll(b.path("/home/"+name), 0o755)
	}
	return b
}

func (b *bench) createUser(root bool) (lifecycle.TaskResult, map[string]lifecycle.StepResult) {
	return b.do(task.Func(b.CreateUser), &spec.CreateUserArgs{AllocationID: allocation, User: renter, Root: root})
}

func (b *bench) setKeys(keys ...string) (lifecycle.TaskResult, map[string]lifecycle.StepResult) {
	return b.do(task.Func(b.SetKeys), &spec.SetKeysArgs{AllocationID: allocation, User: renter, Keys: keys})
}

func (b *bench) mode(p string) os.FileMode {
	b.t.Helper()
	st, err := os.Lstat(b.path(p))
	require.NoError(b.t, err)
	return st.Mode()
}

const keyFile = "/home/" + renter + "/.ssh/authorized_keys"

func TestTenantAccount_CreateSetRevoke(t *testing.T) {
	t.Parallel()
	b := newTenantBench(t)
	first, second := newPublicKey(t), newPublicKey(t)
	for range 2 { // a second execution changes nothing
		res, _ := b.createUser(true)
		require.True(t, res.OK, res.Message)
		require.Equal(t, 1, strings.Count(b.get("/etc/passwd"), "\n"+renter+":"))
		require.Equal(t, renter+" ALL=(ALL:ALL) NOPASSWD: ALL\n", b.get("/etc/sudoers.d/"+renter))
		require.Equal(t, os.FileMode(0o440), b.mode("/etc/sudoers.d/"+renter))
	}
	require.NoFileExists(t, b.path(keyFile), "the account has no keys")
	require.Contains(t, strings.Join(b.calls, "\n"), "--password *")

	b.put("/etc/ssh/authorized_keys.d/"+renter, "planted")
	for range 2 {
		res, _ := b.setKeys(first, second)
		require.True(t, res.OK, res.Message)
		require.Equal(t, first+"\n"+second+"\n", b.get(keyFile))
		require.Equal(t, os.FileMode(0o600), b.mode(keyFile))
		require.Equal(t, os.FileMode(0o700), b.mode(filepath.Dir(keyFile)).Perm())
		require.NoFileExists(t, b.path("/etc/ssh/authorized_keys.d/"+renter))
	}
	b.put(keyFile+"2", "planted")
	res, _ := b.createUser(true)
	require.True(t, res.OK, res.Message)
	require.Contains(t, b.get(keyFile), first, "a late second delivery of create_user leaves the keys")
	res, _ = b.createUser(false)
	require.True(t, res.OK, res.Message)
	require.NoFileExists(t, b.path("/etc/sudoers.d/"+renter))
	res, _ = b.setKeys()
	require.True(t, res.OK, res.Message)
	require.Empty(t, b.get(keyFile))
	require.NoFileExists(t, b.path(keyFile+"2"))
	entries, err := os.ReadDir(b.path(filepath.Dir(keyFile)))
	require.NoError(t, err)
	require.Len(t, entries, 1, "no temporary file stays")

	res, _ = b.do(task.Func(b.SetMetadata), &spec.SetMetadataArgs{AllocationID: allocation, Document: &spec.InstanceMetadata{InstanceID: allocation}})
	require.True(t, res.OK, res.Message)
	res, _ = b.createUser(true)
	require.True(t, res.OK, res.Message)
	for range 2 {
		res, _ = b.do(task.Func(b.RevokeUser), &spec.RevokeUserArgs{AllocationID: allocation, User: renter, RemoveHome: true})
		require.True(t, res.OK, res.Message)
		for _, gone := range []string{"/home/" + renter, "/etc/sudoers.d/" + renter, metadata.Path} {
			require.NoFileExists(t, b.path(gone))
			require.NoDirExists(t, b.path(gone))
		}
		require.Equal(t, passwd, b.get("/etc/passwd"))
	}
	res, _ = b.setKeys(first)
	require.Equal(t, lifecycle.TaskCodeRefused, res.Code, "keys that come after the end")
	res, steps := b.setKeys()
	require.True(t, res.OK)
	require.NotEmpty(t, steps["keys"].Skipped)
	require.NoDirExists(t, b.path("/home/"+renter))
}

// TestTenantAccount_Refused: what somebody has put in the way stays as it is, and nothing is
// written where it leads.
func TestTenantAccount_Refused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*bench)
		says   string
	}{
		"a home without an account": {func(b *bench) { b.put("/home/"+renter+"/.bashrc", "planted") }, "exists, and there is no account"},
		"a link as home":            {func(b *bench) { b.link("/home/"+renter, "/precious") }, "exists, and there is no account"},
		"/home is a link": {func(b *bench) {
			require.NoError(b.t, os.Remove(b.path("/home")))
			b.link("/home", "/precious")
		}, "/home is a link"},
		"/home on NFS":      {func(b *bench) { b.put("/proc/1/mounts", rootMount+"nas:/h /home nfs4 rw 0 0\n") }, "would not lie on the node's own disk"},
		"keys in skel":      {func(b *bench) { b.put("/etc/skel/.ssh/authorized_keys", "planted") }, "every new account would get its keys"},
		"another home":      {func(b *bench) { b.put("/etc/passwd", passwd+renter+":x:2100:2100::/srv/x:/bin/bash\n") }, "was not made by Slipway"},
		"uid of the system": {func(b *bench) { b.put("/etc/passwd", passwd+renter+":x:0:0::/home/"+renter+":/bin/bash\n") }, "uid 0, which is not that of a tenant"},
		"a shared uid":      {func(b *bench) { b.put("/etc/passwd", passwd+renter+":x:2002:2002::/home/"+renter+":/bin/bash\n") }, "share uid"},
		"no sudo":           {func(b *bench) { delete(b.tools, "sudo") }, "sudo is not installed"},
		"useradd fails": {func(b *bench) {
			b.tools["useradd"] = func([]string) (string, error) { return "", fmt.Errorf("useradd: cannot lock /etc/passwd") }
		}, "cannot lock"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newTenantBench(t)
			b.put("/precious/data", "x")
			c.change(b)
			res, _ := b.createUser(true)
			require.False(t, res.OK)
			require.Contains(t, res.Message, c.says)
			entries, err := os.ReadDir(b.path("/precious"))
			require.NoError(t, err)
			require.Len(t, entries, 1, "nothing was written where the link leads")
		})
	}
	for _, user := range []string{"ubuntu", "slipway-agent", "nobody", "daemon"} {
		b := newTenantBench(t)
		for _, h := range []struct {
			do   task.Func
			args any
		}{{b.CreateUser, &spec.CreateUserArgs{AllocationID: allocation, User: user, Root: true}}, {b.SetKeys, &spec.SetKeysArgs{AllocationID: allocation, User: user}}} {
			res, _ := b.do(h.do, h.args)
			require.Equal(t, lifecycle.TaskCodeRefused, res.Code, user)
		}
		require.NoFileExists(t, b.path("/etc/sudoers.d/"+user))
	}
}

func (b *bench) link(path, target string) {
	b.t.Helper()
	rel, err := filepath.Rel(filepath.Dir(path), target)
	require.NoError(b.t, err)
	require.NoError(b.t, os.MkdirAll(b.path(target), 0o755))
	require.NoError(b.t, os.Symlink(rel, b.path(path)))
}

// TestSetKeys_PlantedLinks: a tenant with root leads .ssh, its file, or the home elsewhere.
func TestSetKeys_PlantedLinks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*bench)
		ok     bool
	}{
		".ssh to another account": {func(b *bench) { b.link("/home/"+renter+"/.ssh", "/home/tenant2/.ssh") }, false},
		".ssh out of the node":    {func(b *bench) { require.NoError(b.t, os.Symlink("/root/.ssh", b.path("/home/"+renter+"/.ssh"))) }, false},
		".ssh within the home":    {func(b *bench) { b.link("/home/"+renter+"/.ssh", "/home/"+renter+"/dotfiles") }, false},
		".ssh is a file":          {func(b *bench) { b.put("/home/"+renter+"/.ssh", "x") }, false},
		"the home to another's": {func(b *bench) {
			require.NoError(b.t, os.Rename(b.path("/home/"+renter), b.path("/home/moved")))
			b.link("/home/"+renter, "/home/tenant2")
		}, false},
		"the file to another's": {func(b *bench) {
			require.NoError(b.t, os.MkdirAll(b.path("/home/"+renter+"/.ssh"), 0o700))
			require.NoError(b.t, os.Symlink("../../tenant2/.ssh/authorized_keys", b.path(keyFile)))
		}, true}, // the link itself is replaced
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newTenantBench(t)
			b.put("/home/tenant2/.ssh/authorized_keys", "theirs")
			res, _ := b.createUser(false)
			require.True(t, res.OK, res.Message)
			c.change(b)
			res, steps := b.setKeys(newPublicKey(t))
			require.Equal(t, c.ok, res.OK, "%+v", steps)
			require.Equal(t, "theirs", b.get("/home/tenant2/.ssh/authorized_keys"))
			if c.ok {
				require.True(t, b.mode(keyFile).IsRegular())
			}
		})
	}
}

// TestSetKeys_FullDisk: the keys of before stay whole.
func TestSetKeys_FullDisk(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("this needs root: it mounts a small file system")
	}
	b := newTenantBench(t)
	require.NoError(t, syscall.Mount("tmpfs", b.path("/home"), "tmpfs", 0, "size=64k,mode=755"))
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(b.path("/home"), 0)) })
	res, _ := b.createUser(false)
	require.True(t, res.OK, res.Message)
	old := newPublicKey(t)
	res, _ = b.setKeys(old)
	require.True(t, res.OK, res.Message)
	full, err := os.Create(b.path("/home/full"))
	require.NoError(t, err)
	for err == nil {
		_, err = full.Write(make([]byte, 4096))
	}
	require.ErrorIs(t, err, syscall.ENOSPC)
	_ = full.Close()
	res, steps := b.setKeys(newPublicKey(t))
	require.Equal(t, lifecycle.TaskCodeStepFailed, res.Code)
	require.Contains(t, steps["keys"].Detail, "no space left")
	require.Equal(t, old+"\n", b.get(keyFile))
	entries, err := os.ReadDir(b.path(filepath.Dir(keyFile)))
	require.NoError(t, err)
	require.Len(t, entries, 1, "no temporary file stays")
	require.NoError(t, os.Remove(b.path("/home/full")))
	res, _ = b.setKeys()
	require.True(t, res.OK, res.Message)
	require.Empty(t, b.get(keyFile))
}

func TestSetMetadata_WritesAndEnds(t *testing.T) {
	t.Parallel()
	b := newTenantBench(t)
	set := func(id string, d *spec.InstanceMetadata) map[string]lifecycle.StepResult {
		res, steps := b.do(task.Func(b.SetMetadata), &spec.SetMetadataArgs{AllocationID: id, Document: d})
		require.True(t, res.OK, res.Message)
		return steps
	}
	set("alc_1", nil) // there is none
	for range 2 {
		steps := set("alc_1", &spec.InstanceMetadata{InstanceID: "alc_1", Hostname: "h"})
		require.Contains(t, steps["address"].Skipped, "simulated")
	}
	require.Equal(t, os.FileMode(0o644), b.mode(metadata.Path), "the half without rights reads it")
	require.NotEmpty(t, set("alc_0", nil)["metadata"].Skipped, "a task of a former allocation comes late")
	d, err := metadata.Read(b.path(metadata.Path))
	require.NoError(t, err)
	require.Equal(t, "h", d.Hostname)
	set("alc_1", nil)
	require.NoFileExists(t, b.path(metadata.Path))
	b.put(metadata.Path, "damaged")
	set("alc_1", nil)
	require.NoFileExists(t, b.path(metadata.Path))
	require.False(t, slices.ContainsFunc(b.calls, func(c string) bool { return strings.HasPrefix(c, "ip ") }), "nothing of the machine is changed")
}
