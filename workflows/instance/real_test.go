package instance_test

import (
	"net"
	"net/http/httptest"
	"os/user"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"

	instanceact "github.com/slipway-cloud/slipway/activities/instance"
	"github.com/slipway-cloud/slipway/api/agentapi"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/instance/worker"
	"github.com/slipway-cloud/slipway/providers/ssh"
	cloudsim "github.com/slipway-cloud/slipway/sim/cloud"
	"github.com/slipway-cloud/slipway/test/runenv"
	"github.com/slipway-cloud/slipway/test/sshd"
	"github.com/slipway-cloud/slipway/test/workerhost"
)

// firstBoot is what a server reads of its user data at its first boot.
type firstBoot struct {
	SSHKeys struct {
		Private string `yaml:"ed25519_private"`
	} `yaml:"ssh_keys"`
	Authorized []string `yaml:"ssh_authorized_keys"`
}

// TestInstance_RealServer takes an instance to ready and to its end with a real SSH server, which
// starts with what the user data gives it, the real installation, and heartbeats to the real
// agents' API.
func TestInstance_RealServer(t *testing.T) {
	t.Parallel()
	host := workerhost.New(t, "acme/small")
	me, err := user.Current()
	require.NoError(t, err)
	address, states := sshd.FreeAddress(t), filepath.Join(t.TempDir(), "ops")
	_, port, err := net.SplitHostPort(address)
	require.NoError(t, err)
	sshPort, err := strconv.Atoi(port)
	require.NoError(t, err)
	_, ca := sshd.NewKey(t)
	boots := make(chan string, 1)
	go func() { // the server boots once it is started
		data, ok := <-boots
		var first firstBoot
		if ok && yaml.Unmarshal([]byte(data), &first) == nil && len(first.Authorized) == 1 {
			sshd.StartAt(t, ca, address, []byte(first.SSHKeys.Private), []byte(first.Authorized[0]+"\n"))
		}
	}()
	t.Cleanup(func() { close(boots) })
	runner := ssh.New(ssh.WithStateDir(states))
	r := newSimRigWith(t, cloudsim.Options{Address: "127.0.0.1", Booted: func(_, data string) { boots <- data }}, func(p *instanceact.Provider) {
		p.Worker = worker.Worker{SSH: runner, Env: host.Env}
		p.Rule, p.SSHUser, p.SSHPort, p.VLLMPort, p.AgentPort = providers.SimulatedAddresses(), me.Username, sshPort, host.VLLMPort, host.AgentPort
	})
	agents := httptest.NewServer(agentapi.New(agentapi.Config{Instances: agentapi.NewInstanceStore(r.store), Log: r.acts.Log}).Routes())
	t.Cleanup(agents.Close)
	r.acts.HeartbeatURL, r.acts.CAPEM, r.acts.Now = agents.URL, "no certificate is needed", nil // a real worker takes real time
	loads := time.AfterFunc(time.Second, host.Load)
	t.Cleanup(func() { loads.Stop() })

	i := r.run(r.job)
	require.Equal(t, lifecycle.InstanceReady, i.Status, "%s: %s", i.ErrorCode, i.ErrorMessage)
	require.Equal(t, worker.Info().Checksum, i.AgentChecksum)
	require.NotNil(t, i.AgentVerifiedAt, "asked from our side")
	logged := r.logged()
	for _, step := range lifecycle.InstanceCreateSteps() {
		if step.ActionType != lifecycle.ActHealthCheck {
			require.Equal(t, 1, logged[step.ActionType], step.ActionType)
		}
	}
	require.Eventually(t, func() bool { return r.read().HeartbeatAt != nil }, runenv.Patience(time.Minute), 100*time.Millisecond, "no heartbeat counted")
	i = r.read()
	require.True(t, i.Heartbeat.Ready)
	require.Equal(t, "acme/small", i.Heartbeat.Model)
	require.Equal(t, 3, i.Heartbeat.Active)
	require.Empty(t, i.ErrorCode)

	ended := r.terminate()
	require.Equal(t, lifecycle.InstanceTerminated, r.run(*ended.Job).Status)
	require.Empty(t, r.sim.Billed())
	after := r.read()
	require.Nil(t, after.WorkerHash, "the worker's key ended with the instance")
}
