package agent_test

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/agent"
	"github.com/slipway-cloud/slipway/agent/agentconfig"
	"github.com/slipway-cloud/slipway/agent/protocol"
	"github.com/slipway-cloud/slipway/api/agentapi"
	"github.com/slipway-cloud/slipway/api/agentapi/agentapitest"
	"github.com/slipway-cloud/slipway/internal/nodeca"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// server is the real agent API in front of which answers can be lost.
type server struct {
	*testing.T
	store *agentapitest.Memory
	ca    *nodeca.CA
	http  *httptest.Server

	mu    sync.Mutex
	lose  map[string]int // path -> answers to lose after the work was done
	calls map[string]int
	// front answers some requests itself, or has the real API answer.
	front func(w http.ResponseWriter, r *http.Request, api http.Handler)
}

func serve(t *testing.T, caOptions ...nodeca.Option) *server {
	t.Helper()
	s := &server{T: t, store: agentapitest.New(), lose: map[string]int{}, calls: map[string]int{}}
	var err error
	s.ca, err = nodeca.Create(caOptions...)
	require.NoError(t, err)
	api := agentapi.New(agentapi.Config{Store: s.store, CA: s.ca, HeartbeatInterval: 30 * time.Millisecond, FlushInterval: 5 * time.Millisecond})
	// Started for its heartbeat writer; requests come through the handler below.
	require.NoError(t, api.Start(t.Context()))
	handler := api.Handler()
	s.http = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.calls[r.URL.Path]++
		lost := s.lose[r.URL.Path] > 0
		if lost {
			s.lose[r.URL.Path]--
		}
		s.mu.Unlock()
		switch {
		case !lost && s.front != nil:
			s.front(w, r, handler)
			return
		case !lost:
			handler.ServeHTTP(w, r)
			return
		}
		handler.ServeHTTP(httptest.NewRecorder(), r) // the work is done, the answer never leaves
		panic(http.ErrAbortHandler)
	}))
	cert, err := s.ca.IssueServer([]string{"127.0.0.1"})
	require.NoError(t, err)
	s.http.TLS = &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert},
		ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: s.ca.Pool()}
	s.http.StartTLS()
	t.Cleanup(func() {
		s.http.CloseClientConnections()
		s.http.Close()
		ctx, cancel := context.WithTimeout(context.Background(), runenv.Patience(10*time.Second))
		defer cancel()
		_ = api.Shutdown(ctx)
	})
	return s
}

func (s *server) loseNext(path string, n int) { s.mu.Lock(); defer s.mu.Unlock(); s.lose[path] = n }

func (s *server) count(path string) int { s.mu.Lock(); defer s.mu.Unlock(); return s.calls[path] }

// node is one node's files and configuration.
type node struct {
	s   *server
	cfg agentconfig.Config
}

func (s *server) node(id string) *node {
	s.Helper()
	n := &node{s, configOf(s.T, s, id)}
	n.putToken(s.store.AddToken(id, time.Now().Add(time.Hour)))
	return n
}

// configOf is a simulated machine's configuration.
func configOf(t *testing.T, s *server, id string) agentconfig.Config {
	t.Helper()
	return agentconfig.Config{ServerURL: s.http.URL, CAPEM: string(s.ca.CertPEM()), NodeID: id, Root: machine(t), ToolsPath: tools(t, ""),
		TokenFile: "/etc/slipway/token", StateDir: "/var/lib/slipway-agent", Simulated: true,
		HeartbeatInterval: 30 * time.Millisecond, ReportInterval: time.Hour, ToolTimeout: 5 * time.Second}
}

func (n *node) putToken(text string) {
	n.s.Helper()
	p := filepath.Join(n.cfg.Root, n.cfg.TokenFile)
	require.NoError(n.s, os.MkdirAll(filepath.Dir(p), 0o700))
	require.NoError(n.s, os.WriteFile(p, []byte(text+"\n"), 0o600))
}

func (n *node) tokenLeft() bool {
	_, err := os.Stat(filepath.Join(n.cfg.Root, n.cfg.TokenFile))
	return err == nil
}

func (n *node) agent() *agent.Agent {
	n.s.Helper()
	a, err := agent.New(n.cfg, "test", slog.New(slog.NewTextHandler(testWriter{n.s.T}, nil)))
	require.NoError(n.s, err)
	return a
}

// run starts an agent and returns what stops it.
func (n *node) run() (stop func()) {
	n.s.Helper()
	return n.start(n.agent())
}

func (n *node) start(a *agent.Agent) (stop func()) {
	n.s.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			select {
			case err := <-done:
				require.NoError(n.s, err)
			case <-time.After(runenv.Patience(10 * time.Second)):
				n.s.Error(runenv.Deadline + "the agent did not stop")
			}
		})
	}
	n.s.Cleanup(stop)
	return stop
}

func (n *node) waitForHeartbeats(want int) {
	n.s.Helper()
	require.Eventually(n.s, func() bool { _, got := n.s.store.Heartbeat(n.cfg.NodeID); return got >= want }, runenv.Patience(10*time.Second), 5*time.Millisecond)
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

func TestEnrolmentSurvivesLostAnswersAndARestart(t *testing.T) {
	t.Parallel()
	s := serve(t)
	n := s.node("n1")
	s.loseNext(protocol.PathEnroll, 2)
	require.Error(t, n.agent().Enroll(t.Context()))
	require.True(t, n.tokenLeft())
	require.Error(t, n.agent().Enroll(t.Context())) // a new process: the key is in the journal
	require.NoError(t, n.agent().Enroll(t.Context()))
	require.False(t, n.tokenLeft(), "a used token is removed")
	require.Empty(t, s.store.Alarms(), "every try showed the same key")
	id, err := s.store.Identity(t.Context(), "n1")
	require.NoError(t, err)
	require.EqualValues(t, 1, id.Current.Generation)

	calls := s.count(protocol.PathEnroll)
	require.NoError(t, n.agent().Enroll(t.Context()))
	require.Equal(t, calls, s.count(protocol.PathEnroll), "who has an identity does not enrol again")
	left, err := os.ReadDir(filepath.Join(n.cfg.Root, n.cfg.StateDir))
	require.NoError(t, err)
	require.Len(t, left, 1, "the journal is gone")
	info, err := left[0].Info()
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
}

func TestHeartbeatsCarryBootAndReport(t *testing.T) {
	t.Parallel()
	s := serve(t)
	n := s.node("n1")
	n.run()
	require.Eventually(t, func() bool { b, _ := s.store.Heartbeat("n1"); return b.Report != nil }, runenv.Patience(10*time.Second), 5*time.Millisecond)
	b, _ := s.store.Heartbeat("n1")
	require.Equal(t, "2f1b0c9e-0000-4000-8000-000000000001", b.BootID)
	require.Equal(t, "test", b.AgentVersion)
	require.EqualValues(t, 1, b.Generation)
	require.True(t, b.Report.Health.Simulated)
	require.Equal(t, 128, b.Report.Health.CPUs)
	require.Less(t, b.ClockSkew.Abs(), 5*time.Second)

	// Another boot: the server has no report of it and asks for one at once,
	// though the agent's own interval is an hour.
	boot := filepath.Join(n.cfg.Root, "proc/sys/kernel/random/boot_id")
	require.NoError(t, os.WriteFile(boot, []byte("another-boot\n"), 0o600))
	require.Eventually(t, func() bool {
		b, _ := s.store.Heartbeat("n1")
		return b.Report != nil && b.Report.BootID == "another-boot"
	}, runenv.Patience(10*time.Second), 5*time.Millisecond)
}

func TestRenewalWithALostAnswerGoesOn(t *testing.T) {
	t.Parallel()
	// Certificates are issued as if four of their seven days ago, so that renewal is due at once.
	var mu sync.Mutex
	behind := 4 * 24 * time.Hour
	s := serve(t, nodeca.WithClock(func() time.Time { mu.Lock(); defer mu.Unlock(); return time.Now().Add(-behind) }))
	n := s.node("n1")
	require.NoError(t, n.agent().Enroll(t.Context()))
	mu.Lock()
	behind = 0
	mu.Unlock()
	s.loseNext(protocol.PathRenew, 2)
	n.run()
	require.Eventually(t, func() bool {
		b, _ := s.store.Heartbeat("n1")
		return b.Generation == 2
	}, runenv.Patience(10*time.Second), 5*time.Millisecond)
	require.Equal(t, 3, s.count(protocol.PathRenew))
	require.Empty(t, s.store.Alarms(), "the same new key each time")
}

func TestToken_ReplacesLockedIdentity(t *testing.T) {
	t.Parallel()
	s := serve(t)
	n := s.node("n1")
	require.NoError(t, n.agent().Enroll(t.Context()))
	require.NoError(t, s.store.Lock(t.Context(), "n1", "test", time.Now()))
	stop := n.run()
	require.Eventually(t, func() bool { return s.count(protocol.PathHeartbeat) >= 2 }, runenv.Patience(10*time.Second), 5*time.Millisecond)
	_, count := s.store.Heartbeat("n1")
	require.Zero(t, count, "a locked identity is refused")
	n.putToken(s.store.AddToken("n1", time.Now().Add(time.Hour)))
	n.waitForHeartbeats(1)
	require.False(t, n.tokenLeft())
	stop()

	n.putToken("not a token of this server")
	_, before := s.store.Heartbeat("n1")
	n.run()
	n.waitForHeartbeats(before + 2)
	b, _ := s.store.Heartbeat("n1")
	require.EqualValues(t, 2, b.Generation)
}

func TestATokenOfAnotherNodeIsNotTaken(t *testing.T) {
	t.Parallel()
	s := serve(t)
	n := s.node("n1")
	n.cfg.NodeID = "n2"
	require.ErrorContains(t, n.agent().Enroll(t.Context()), `belongs to node "n1"`)
	entries, err := os.ReadDir(filepath.Join(n.cfg.Root, n.cfg.StateDir))
	require.NoError(t, err)
	for _, e := range entries {
		require.NotEqual(t, "identity.json", e.Name())
	}
}

func TestToken_GoesToTheConfiguredServerOnly(t *testing.T) {
	t.Parallel()
	real, other := serve(t), serve(t)
	n := real.node("n1")
	n.cfg.ServerURL = other.http.URL
	require.Error(t, n.agent().Enroll(t.Context()))
	require.Zero(t, other.count(protocol.PathEnroll), "the handshake ends before anything is sent")

	// A redirect is not followed.
	var reached bool
	target := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }))
	defer target.Close()
	redirect := httptest.NewUnstartedServer(http.RedirectHandler(target.URL, http.StatusTemporaryRedirect))
	cert, err := real.ca.IssueServer([]string{"127.0.0.1"})
	require.NoError(t, err)
	redirect.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS13}
	redirect.StartTLS()
	defer redirect.Close()
	n.cfg.ServerURL = redirect.URL
	require.Error(t, n.agent().Enroll(t.Context()))
	require.False(t, reached)
}

func TestWithoutTokenOrIdentityTheAgentSaysSo(t *testing.T) {
	t.Parallel()
	s := serve(t)
	n := s.node("n1")
	require.NoError(t, os.Remove(filepath.Join(n.cfg.Root, n.cfg.TokenFile)))
	require.ErrorIs(t, n.agent().Enroll(t.Context()), agent.ErrNotEnrolled)
	n.run()
	n.putToken(s.store.AddToken("n1", time.Now().Add(time.Hour))) // it may come later
	n.waitForHeartbeats(1)
}
