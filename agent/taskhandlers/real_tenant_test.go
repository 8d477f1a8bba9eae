package taskhandlers

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"github.com/slipway-cloud/slipway/agent/task"
	"github.com/slipway-cloud/slipway/agent/toolrunner"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
	sshrunner "github.com/slipway-cloud/slipway/providers/ssh"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// startSSHD runs OpenSSH's server as an image has it: it reads the keys below the homes of
// accounts, and is strict about who owns them.
func startSSHD(t *testing.T) providers.SSHTarget {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll("/run/sshd", 0o755))
	_, host, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	block, err := ssh.MarshalPrivateKey(host, "")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "host"), pem.EncodeToMemory(block), 0o600))
	signer, err := ssh.NewSignerFromKey(host)
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := l.Addr().String()
	require.NoError(t, l.Close())
	_, port, err := net.SplitHostPort(address)
	require.NoError(t, err)
	conf := filepath.Join(dir, "sshd_config")
	require.NoError(t, os.WriteFile(conf, []byte("Port "+port+"\nListenAddress 127.0.0.1\nHostKey "+filepath.Join(dir, "host")+"\nPidFile none\nUsePAM no\nStrictModes yes\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n"), 0o600))
	cmd := exec.Command("/usr/sbin/sshd", "-D", "-e", "-f", conf)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	require.Eventually(t, func() bool {
		c, err := net.Dial("tcp", address)
		return err == nil && c.Close() == nil
	}, runenv.Patience(10*time.Second), 20*time.Millisecond)
	return providers.SSHTarget{Address: address, Rule: providers.SimulatedAddresses(), HostKey: strings.TrimSpace(string(ssh.MarshalAuthorizedKey(signer.PublicKey())))}
}

// TestTenantAccount_RealHost makes a throw-away account of this machine with its own useradd. A
// real sshd accepts and refuses keys as the tasks say.
func TestTenantAccount_RealHost(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("this needs root: it makes and removes an account of this machine")
	}
	for _, program := range []string{"useradd", "userdel", "usermod", "/usr/sbin/sshd"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(program + " is not installed")
		}
	}
	id := fmt.Sprintf("alc_test%d", os.Getpid())
	name := lifecycle.TenantAccount(id)
	t.Cleanup(func() { _ = exec.CommandContext(context.Background(), "userdel", "--remove", "--force", name).Run() })
	tools := toolrunner.ForTasks("/", "/usr/sbin:/usr/bin:/sbin:/bin")
	// Metadata is of the machine's own loopback device, so that this test must not touch it.
	h := Host{Root: "/", Poll: 20 * time.Millisecond, Tool: tools.Run, HasTool: func(tool string) bool { return tool != "loginctl" && tool != "sudo" && tools.Has(tool) }}
	do := func(f task.Func, args any) lifecycle.TaskResult {
		t.Helper()
		rec := task.NewRecorder(nil, nil, nil)
		res := f(t.Context(), task.Request{Args: args}, rec)
		if !res.OK {
			t.Logf("%s %+v", res.Message, rec.Steps())
		}
		return res
	}
	to := startSSHD(t)
	to.User = name
	_, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	block, err := ssh.MarshalPrivateKey(private, "")
	require.NoError(t, err)
	to.PrivateKeyPEM = providers.NewSecret(string(pem.EncodeToMemory(block)))
	signer, err := ssh.NewSignerFromKey(private)
	require.NoError(t, err)
	key, other := strings.TrimSpace(string(ssh.MarshalAuthorizedKey(signer.PublicKey()))), newPublicKey(t)
	accepts := func(key string) bool {
		t.Helper()
		ok, err := sshrunner.New().OfferKey(t.Context(), to, key)
		require.NoError(t, err)
		return ok
	}
	create := &spec.CreateUserArgs{AllocationID: id, User: name}
	require.False(t, do(h.CreateUser, &spec.CreateUserArgs{AllocationID: id, User: name, Root: true}).OK, "there is no sudo, as far as the handler sees")
	for range 2 {
		require.True(t, do(h.CreateUser, create).OK)
	}
	require.False(t, accepts(key), "the account has no key")
	require.True(t, do(h.SetKeys, &spec.SetKeysArgs{AllocationID: id, User: name, Keys: []string{key, other}}).OK)
	require.True(t, accepts(key))
	require.True(t, accepts(other))
	uid, err := sshrunner.New().Login(t.Context(), to)
	require.NoError(t, err)
	account, err := user.Lookup(name)
	require.NoError(t, err)
	require.Equal(t, account.Uid, fmt.Sprint(uid))
	require.True(t, do(h.SetKeys, &spec.SetKeysArgs{AllocationID: id, User: name, Keys: []string{other}}).OK)
	require.False(t, accepts(key), "exactly the keys of the last task")
	require.True(t, accepts(other))

	// Root of a tenant gives the directory to another account: what would be written there is not
	// theirs.
	ssh := "/home/" + name + "/.ssh"
	require.NoError(t, os.Chown(ssh, 0, 0))
	res := do(h.SetKeys, &spec.SetKeysArgs{AllocationID: id, User: name})
	require.Equal(t, lifecycle.TaskCodeRefused, res.Code)
	require.Contains(t, res.Message, "belongs to uid 0")
	require.NoError(t, os.Chown(ssh, uid, uid))
	require.True(t, do(h.SetKeys, &spec.SetKeysArgs{AllocationID: id, User: name}).OK)
	require.False(t, accepts(other))
	require.True(t, do(h.SetKeys, &spec.SetKeysArgs{AllocationID: id, User: name, Keys: []string{key}}).OK)
	require.True(t, accepts(key))
	for range 2 {
		require.True(t, do(h.RevokeUser, &spec.RevokeUserArgs{AllocationID: id, User: name, RemoveHome: true}).OK)
	}
	require.False(t, accepts(key))
	require.NoDirExists(t, "/home/"+name)
	_, err = user.Lookup(name)
	require.Error(t, err)
	require.Equal(t, lifecycle.TaskCodeRefused, do(h.SetKeys, &spec.SetKeysArgs{AllocationID: id, User: name, Keys: []string{key}}).Code)
}
