package agent_test

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/json"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/agent"
	"github.com/slipway-cloud/slipway/agent/privileged"
	"github.com/slipway-cloud/slipway/api/agentapi"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/internal/nodeca"
	"github.com/slipway-cloud/slipway/internal/signing"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers/secrets"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// realPlane is the real agent API over a database, with a node that may enrol.
type realPlane struct {
	*testing.T
	store *db.Store
	ring  *signing.Ring
	ca    *nodeca.CA
	node  *node
	id    string
	moves int // of the node until now
	lease time.Duration
	api   atomic.Pointer[agentapi.Server]
	cut   atomic.Bool // every connection breaks
}

func newRealPlane(t *testing.T, lease time.Duration) *realPlane {
	t.Helper()
	p := &realPlane{T: t, store: dbtest.Store(t), lease: lease}
	sec, err := secrets.Open(t.Context(), p.store, secrets.Keeper{KeyFile: filepath.Join(t.TempDir(), "key")}, secrets.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sec.Close()) })
	p.ca, err = nodeca.Create()
	require.NoError(t, err)
	p.ring = &signing.Ring{Store: p.store, Secrets: sec}
	p.serve()
	s := &server{T: t, ca: p.ca, http: httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p.cut.Load() {
			panic(http.ErrAbortHandler)
		}
		p.api.Load().Handler().ServeHTTP(w, r)
	}))}
	cert, err := p.ca.IssueServer([]string{"127.0.0.1"})
	require.NoError(t, err)
	s.http.TLS = &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert}, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: p.ca.Pool()}
	s.http.Config.ErrorLog = log.New(io.Discard, "", 0) // of the connections that are broken on purpose
	s.http.StartTLS()
	t.Cleanup(func() {
		p.shut()
		s.http.CloseClientConnections()
		s.http.Close()
	})
	p.id = dbtest.Node(t, p.store, dbtest.Active()).ID
	p.moves = p.transitions()
	p.node = p.machine(s)
	return p
}

// serve starts a server process, as it were.
func (p *realPlane) serve() {
	p.Helper()
	api := agentapi.New(agentapi.Config{Store: agentapi.NewStore(p.store), CA: p.ca, HeartbeatInterval: 30 * time.Millisecond, FlushInterval: 5 * time.Millisecond,
		Tasks: p.store, TaskKeys: &signing.Ring{Store: p.store, Secrets: p.ring.Secrets}, TaskLease: p.lease})
	require.NoError(p, api.Start(p.Context()))
	p.api.Store(api)
}

func (p *realPlane) shut() {
	ctx, cancel := context.WithTimeout(context.Background(), runenv.Patience(10*time.Second))
	defer cancel()
	_ = p.api.Load().Shutdown(ctx)
}

// machine is an installation of the node, with a token of its own.
func (p *realPlane) machine(s *server) *node {
	p.Helper()
	token := rand.Text()
	hash := sha256.Sum256([]byte(token))
	require.NoError(p, p.store.Tx(p.Context(), func(tx *db.Tx) error {
		return tx.IssueEnrollmentToken(p.Context(), p.id, "", hash[:], time.Now().Add(time.Hour))
	}))
	n := &node{s, configOf(p.T, s, p.id)}
	n.taskWait().putToken(token)
	return n
}

// ask has a task done and waits until it has ended.
func (p *realPlane) ask(kind lifecycle.TaskKind, key, args string) db.NodeTask {
	p.Helper()
	id := p.put(kind, key, args)
	p.ends(id)
	return p.task(id)
}

func (p *realPlane) put(kind lifecycle.TaskKind, key, args string) string {
	p.Helper()
	var got db.NodeTask
	require.NoError(p, p.store.Tx(p.Context(), func(tx *db.Tx) error {
		var err error
		got, _, err = tx.EnqueueTask(p.Context(), db.NewTask{NodeID: p.id, Kind: kind, Args: json.RawMessage(args), Key: key, Actor: db.Actor{Owner: lifecycle.OwnerAdmin}})
		return err
	}))
	return got.ID
}

func (p *realPlane) task(id string) db.NodeTask {
	p.Helper()
	got, err := p.store.Task(p.Context(), id)
	require.NoError(p, err)
	return got
}

func (p *realPlane) ends(id string) {
	p.Helper()
	require.Eventually(p, func() bool { return lifecycle.NodeTask.Terminal(p.task(id).Status) }, runenv.Patience(30*time.Second), 10*time.Millisecond)
}

// The agent against the real agent API and its database: a drain, a kind's
// failure and the last word, an uninstall.
func TestTasksOfTheRealControlPlane(t *testing.T) {
	t.Parallel()
	p := newRealPlane(t, time.Minute)
	ended := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), runenv.Patience(time.Minute))
	defer cancel()
	a := p.node.agent()
	go func() { ended <- a.Run(ctx) }()
	drained := p.ask(lifecycle.TaskKindDrain, "a", `{"grace_seconds":0}`)
	require.Equal(t, lifecycle.TaskSucceeded, drained.Status)
	require.Len(t, drained.Result.Steps, 6)
	require.True(t, drained.Result.Simulated)
	refused := p.ask(lifecycle.TaskKindScrub, "b", `{"run_id":"r1"}`)
	require.Equal(t, lifecycle.TaskFailed, refused.Status)
	require.Equal(t, lifecycle.TaskCodeUnsupported, refused.Result.Code, "this agent was made without a scrub")
	require.Equal(t, lifecycle.TaskSucceeded, p.ask(lifecycle.TaskKindUninstall, "c", `{}`).Status)
	require.ErrorContains(t, <-ended, "was removed")
}

// Both ends of a rotation: the control plane changes its key, first with an
// overlap and then at once, and the privileged half goes on doing its tasks,
// also when it is restarted in between.
func TestARotatedKeyReachesThePrivilegedHalf(t *testing.T) {
	t.Parallel()
	p := newRealPlane(t, time.Minute)
	n := p.node
	n.cfg.HelperSocket = "/s"
	logger := slog.New(slog.NewTextHandler(testWriter{t}, nil))
	helper := func() (stop func()) {
		l, err := privileged.Listen(filepath.Join(n.cfg.Root, "s"), -1)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- agent.Helper(ctx, n.cfg, "test", logger, l, []int{os.Getuid()}) }()
		return func() { cancel(); require.NoError(t, <-ended) }
	}
	done := func(key string) {
		t.Helper()
		got := p.ask(lifecycle.TaskKindDrain, key, `{"grace_seconds":0}`)
		require.Equal(t, lifecycle.TaskSucceeded, got.Status, "%+v", got.Result)
	}
	file := &privileged.KeyFile{Path: filepath.Join(n.cfg.Root, "etc/slipway/task-keys.json")}
	generation := func() int64 {
		keys, err := file.Load()
		require.NoError(t, err)
		return keys[len(keys)-1].Generation
	}
	stop := helper()
	end := n.run()
	done("first")
	require.EqualValues(t, 1, generation())
	_, err := p.ring.Rotate(t.Context(), signing.Tasks, time.Hour)
	require.NoError(t, err)
	done("within the overlap")
	stop() // what it believes outlives the process
	stop = helper()
	_, err = p.ring.Rotate(t.Context(), signing.Tasks, 0)
	require.NoError(t, err)
	done("after the old key was ended at once")
	require.EqualValues(t, 3, generation())
	keys, err := file.Load()
	require.NoError(t, err)
	require.Len(t, keys, 1, "what has ended is not kept")
	end()
	stop()
}
