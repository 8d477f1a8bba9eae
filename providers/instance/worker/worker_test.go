package worker_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	gossh "golang.org/x/crypto/ssh"

	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/instance/worker"
	"github.com/slipway-cloud/slipway/providers/ssh"
	"github.com/slipway-cloud/slipway/test/runenv"
	"github.com/slipway-cloud/slipway/test/sshd"
	"github.com/slipway-cloud/slipway/test/workerhost"
)

const (
	model  = "acme/small"
	apiKey = "api-key-of-the-test"
	token  = "token-of-the-test"
)

// server is a real sshd with the inside of a server and a place for heartbeats.
type server struct {
	*testing.T
	*workerhost.Host
	states string // the folder of the results of operations
	target providers.WorkerTarget
	worker worker.Worker
	in     providers.WorkerInstall

	mu         sync.Mutex
	key        string // of the worker
	heartbeats []map[string]any
	bodies     []string
}

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{T: t, Host: workerhost.New(t, model)}
	_, ca := sshd.NewKey(t)
	d := sshd.Start(t, ca)
	control := httptest.NewServer(http.HandlerFunc(s.serveControl))
	t.Cleanup(control.Close)
	s.states = d.StateDir
	s.worker = worker.Worker{SSH: ssh.New(ssh.WithStateDir(d.StateDir)), Env: s.Env}
	s.target = providers.WorkerTarget{
		InstanceID: "inst_1", SSH: d.SSHTarget, APIKey: providers.NewSecret(apiKey), AgentPort: s.AgentPort, VLLMPort: s.VLLMPort,
	}
	s.in = providers.WorkerInstall{OpID: "run-1", Model: model, Token: providers.NewSecret(token), HeartbeatURL: control.URL, CAPEM: "no certificate is needed"}
	return s
}

func (s *server) serveControl(w http.ResponseWriter, r *http.Request) {
	var body map[string]any
	_ = json.NewDecoder(r.Body).Decode(&body)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bodies = append(s.bodies, r.URL.Path)
	switch {
	case strings.HasSuffix(r.URL.Path, "/enroll") && body["token"] == token && s.key == "":
		s.key, _ = body["key"].(string)
		panic(http.ErrAbortHandler) // the answer is lost
	case strings.HasSuffix(r.URL.Path, "/enroll") && body["token"] == token && s.key == body["key"]:
		_, _ = w.Write([]byte("{}"))
	case strings.HasSuffix(r.URL.Path, "/heartbeat") && r.Header.Get("Authorization") == "Bearer "+s.key:
		s.heartbeats = append(s.heartbeats, body)
		_, _ = w.Write([]byte("{}"))
	default:
		w.WriteHeader(http.StatusForbidden)
	}
}

func (s *server) until(what string, f func() bool) {
	s.Helper()
	require.Eventually(s, f, runenv.Patience(time.Minute), 100*time.Millisecond, what)
}

// TestInstall_ToReady installs the worker over a real SSH server: the phases in order, the agent
// that was sent and no other, its heartbeats, and the way from a model that loads to one that
// completes.
func TestInstall_ToReady(t *testing.T) {
	t.Parallel()
	s, ctx := newServer(t), t.Context()
	ok, err := s.worker.ReachSSH(ctx, s.target)
	require.NoError(t, err)
	require.True(t, ok)
	_, err = s.worker.Info(ctx, s.target)
	require.Equal(t, providers.KindUnreachable, providers.KindOf(err), "there is no agent yet: %v", err)

	phases, err := s.worker.Install(ctx, s.target, s.in)
	require.NoError(t, err)
	require.Equal(t, lifecycle.WorkerPhases(), phases.Done)
	require.Equal(t, "0", phases.ExitStatus)
	again, err := s.worker.Install(ctx, s.target, s.in)
	require.NoError(t, err)
	require.Equal(t, phases, again, "a repeated call reads the result of the first one")
	docker, err := os.ReadFile(filepath.Join(s.Root, "docker.log"))
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(docker), "run -d"), "the script ran once")
	require.NotContains(t, string(docker), apiKey, "no key is on a command line")

	var info providers.WorkerInfo
	s.until("the agent does not answer", func() bool { info, err = s.worker.Info(ctx, s.target); return err == nil })
	require.Equal(t, worker.Info(), info)
	ready, err := s.worker.Readyz(ctx, s.target)
	require.NoError(t, err)
	require.False(t, ready)
	models, err := s.worker.Models(ctx, s.target)
	require.NoError(t, err)
	require.Empty(t, models)
	require.Equal(t, providers.KindUnavailable, providers.KindOf(s.worker.Complete(ctx, s.target, model)))

	s.Load()
	models, err = s.worker.Models(ctx, s.target)
	require.NoError(t, err)
	require.Equal(t, []string{model}, models)
	require.NoError(t, s.worker.Complete(ctx, s.target, model))
	ready, err = s.worker.Readyz(ctx, s.target)
	require.NoError(t, err)
	require.True(t, ready)

	s.until("no heartbeat came", func() bool { s.mu.Lock(); defer s.mu.Unlock(); return len(s.heartbeats) >= 2 })
	s.mu.Lock()
	defer s.mu.Unlock()
	require.Equal(t, "/agent/v1/instance/enroll", s.bodies[0])
	require.Equal(t, []any{float64(1), float64(2)}, []any{s.heartbeats[0]["sequence"], s.heartbeats[1]["sequence"]})
	last := s.heartbeats[len(s.heartbeats)-1]
	require.Equal(t, worker.Info().Checksum, last["checksum"])
	require.Equal(t, true, last["ready"])
	require.EqualValues(t, 3, last["active"])
}

// TestAgent_ActiveIsUnknown: while vLLM does not say how many requests it works on, the agent says
// the last number. A drain would end at a 0.
func TestAgent_ActiveIsUnknown(t *testing.T) {
	t.Parallel()
	workerhost.New(t, model) // it skips the test where Python is not installed
	var asked atomic.Int32
	vllm := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		switch asked.Add(1) {
		case 1:
			_, _ = w.Write([]byte("vllm:num_requests_running{engine=\"0\"} 2.0\nvllm:num_requests_waiting{engine=\"0\"} 1.0\n"))
		case 2:
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			panic(http.ErrAbortHandler) // vLLM has ended
		}
	}))
	t.Cleanup(vllm.Close)
	const script = `import importlib.util, sys
spec = importlib.util.spec_from_file_location("agent", sys.argv[1])
agent = importlib.util.module_from_spec(spec)
spec.loader.exec_module(agent)
w = agent.Worker({"vllm": sys.argv[2], "api_key": "key"})
print(w.active(), w.active(), w.active())
`
	out, err := exec.CommandContext(t.Context(), "python3", "-B", "-c", script, "agent.py", vllm.URL).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Equal(t, "3 3 0\n", string(out))
}

// TestInstall_Fails says after which phase the script ended, and what it wrote, without the
// secrets.
func TestInstall_Fails(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.Program("docker", "[ \"$1\" = info ] && exit 0\necho 'no space left for "+apiKey+"' >&2\nexit 7\n")
	_, err := s.worker.Install(t.Context(), s.target, s.in)
	require.Equal(t, providers.KindExit, providers.KindOf(err))
	require.ErrorContains(t, err, "after phase docker_install")
	require.ErrorContains(t, err, "no space left")
	require.NotContains(t, err.Error(), apiKey)
	s.in.OpID = "run-2"
	s.Program("docker", "exit 0\n")
	_, err = s.worker.Install(t.Context(), s.target, s.in)
	require.NoError(t, err, "another try goes on where the first one failed")
}

// losing is a runner whose connection is lost when a script has written a text.
type losing struct {
	*ssh.Runner
	after string
}

func (l losing) Exec(ctx context.Context, t providers.MachineTarget, c providers.RemoteCommand, sink providers.OutputSink) (providers.RemoteResult, error) {
	ctx, lose := context.WithCancel(ctx)
	defer lose()
	return l.Runner.Exec(ctx, t, c, func(ctx context.Context, chunk providers.OutputChunk) error {
		err := sink(ctx, chunk)
		if strings.Contains(string(chunk.Data), l.after) {
			lose()
		}
		return err
	})
}

// TestInstall_ConnectionLost: an installation whose connection is lost returns the phases that were
// read before, and the next call those of the whole script, which has run once.
func TestInstall_ConnectionLost(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	goes := filepath.Join(s.Root, "goes")
	s.Program("docker", "echo \"$*\" >>"+s.Root+"/docker.log\n[ \"$1\" = run ] || exit 0\nuntil [ -e "+goes+" ]; do sleep 0.05; done\n")
	runner := ssh.New(ssh.WithStateDir(s.states))
	s.worker.SSH = losing{runner, "slipway-phase docker_install"}
	phases, err := s.worker.Install(t.Context(), s.target, s.in)
	require.Error(t, err)
	require.Equal(t, providers.WorkerPhases{Done: []string{"start", "docker_install"}}, phases)
	require.NoError(t, os.WriteFile(goes, nil, 0o600))
	s.worker.SSH = runner
	phases, err = s.worker.Install(t.Context(), s.target, s.in)
	require.NoError(t, err)
	require.Equal(t, lifecycle.WorkerPhases(), phases.Done)
	require.Equal(t, "0", phases.ExitStatus)
	docker, err := os.ReadFile(filepath.Join(s.Root, "docker.log"))
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(docker), "run -d"), "the script ran once")
}

// TestAsk_PinnedHost asks nothing of a server with another host key.
func TestAsk_PinnedHost(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	_, other := sshd.NewKey(t)
	s.target.SSH.HostKey = strings.TrimSpace(string(marshal(other)))
	_, err := s.worker.Readyz(t.Context(), s.target)
	require.Equal(t, providers.KindPinMismatch, providers.KindOf(err))
}

func marshal(s gossh.Signer) []byte { return gossh.MarshalAuthorizedKey(s.PublicKey()) }
