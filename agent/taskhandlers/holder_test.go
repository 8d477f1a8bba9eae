package taskhandlers

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/agent/metadata"
	"github.com/slipway-cloud/slipway/agent/task"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

func (b *bench) holder() string {
	b.t.Helper()
	id, err := metadata.ReadHolder(b.path(metadata.HolderPath))
	require.NoError(b.t, err)
	return id
}

// TestHolder_OneAllocationAtATime: the node keeps the allocation that it is held for, refuses
// another, and forgets it only with its own account.
func TestHolder_OneAllocationAtATime(t *testing.T) {
	t.Parallel()
	b := newTenantBench(t)
	require.Empty(t, b.holder())
	for range 2 {
		res, _ := b.createUser(true)
		require.True(t, res.OK, res.Message)
		require.Equal(t, allocation, b.holder())
	}
	res, _ := b.do(task.Func(b.CreateUser), &spec.CreateUserArgs{AllocationID: "alc_8", User: "t-alc8"})
	require.False(t, res.OK)
	require.Equal(t, task.CodeRefused, res.Code)
	require.Contains(t, res.Message, "held for allocation "+allocation)
	require.NotContains(t, b.get("/etc/passwd"), "t-alc8")

	res, _ = b.do(task.Func(b.RevokeUser), &spec.RevokeUserArgs{AllocationID: "alc_6", User: "t-alc6"})
	require.True(t, res.OK, res.Message)
	require.Equal(t, allocation, b.holder(), "a task for a tenant of the past")
	res, _ = b.do(task.Func(b.RevokeUser), &spec.RevokeUserArgs{AllocationID: allocation, User: renter, RemoveHome: true})
	require.True(t, res.OK, res.Message)
	require.Empty(t, b.holder())

	b.put(metadata.HolderPath, "no id/of an allocation\n")
	_, err := metadata.ReadHolder(b.path(metadata.HolderPath))
	require.Error(t, err, "what cannot be read is not free")
	res, _ = b.createUser(true)
	require.False(t, res.OK)
}

// TestRetireCredentials_NothingIsLeft: every file that the installation was given is gone, and what
// is not a credential stays.
func TestRetireCredentials_NothingIsLeft(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.TokenFile = "/etc/slipway/token"
	const key = "token_secret: MACHINE-SECRET\n"
	secret := []string{
		"/var/lib/cloud/instance/user-data.txt", "/var/lib/cloud/instances/abc/obj.pkl", "/etc/maas/maas-machine-creds.yml", "/root/curtin-install-cfg.yaml",
		"/etc/cloud/cloud.cfg.d/90_dpkg_local_cloud_config.cfg", "/run/cloud-init/instance-data-sensitive.json", "/etc/slipway/token",
	}
	for _, path := range secret {
		b.put(path, key)
	}
	b.put("/etc/cloud/cloud.cfg.d/05_logging.cfg", "output: {all: /dev/null}\n")
	b.put("/etc/elsewhere", key)
	require.NoError(t, os.Symlink(b.path("/etc/elsewhere"), b.path("/var/lib/cloud/instance/link")))
	hard := b.path("/copy-of-the-inode")
	require.NoError(t, os.Link(b.path(secret[0]), hard))
	for range 2 {
		res, _ := b.do(task.Func(b.RetireCredentials), &spec.RetireCredentialsArgs{})
		require.True(t, res.OK, res.Message)
		for _, path := range secret {
			require.NoFileExists(t, b.path(path))
		}
	}
	require.NoFileExists(t, b.path("/var/lib/cloud/instance/link"))
	require.FileExists(t, b.path("/etc/cloud/cloud.cfg.d/05_logging.cfg"))
	require.FileExists(t, b.path("/etc/cloud/cloud-init.disabled"))
	require.Equal(t, key, b.get("/etc/elsewhere"), "no link is followed")
	raw, err := os.ReadFile(hard)
	require.NoError(t, err)
	require.Equal(t, strings.Repeat("\x00", len(key)), string(raw), "the content is overwritten, not only unlinked")
}
