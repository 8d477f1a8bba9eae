package agent_test

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/json"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/agentapi"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/internal/agent"
	"github.com/slipway-cloud/slipway/internal/agent/privileged"
	"github.com/slipway-cloud/slipway/internal/nodeca"
	"github.com/slipway-cloud/slipway/internal/signing"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers/secrets"
)

// realPlane is the real agent API over a database, with a node that may enrol.
type realPlane struct {
	*testing.T
	store *db.Store
	ring  *signing.Ring
	node  *node
	id    string
}

func newRealPlane(t *testing.T) *realPlane {
	t.Helper()
	store := dbtest.Store(t)
	sec, err := secrets.Open(t.Context(), store, secrets.Keeper{KeyFile: filepath.Join(t.TempDir(), "key")}, secrets.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sec.Close()) })
	ca, err := nodeca.Create()
	require.NoError(t, err)
	ring := &signing.Ring{Store: store, Secrets: sec}
	api := agentapi.New(agentapi.Config{Store: agentapi.NewStore(store), CA: ca, HeartbeatInterval: 30 * time.Millisecond, FlushInterval: 5 * time.Millisecond,
		Tasks: store, TaskKeys: ring})
	require.NoError(t, api.Start(t.Context()))
	s := &server{T: t, ca: ca, http: httptest.NewUnstartedServer(api.Handler())}
	cert, err := ca.IssueServer([]string{"127.0.0.1"})
	require.NoError(t, err)
	s.http.TLS = &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert}, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: ca.Pool()}
	s.http.StartTLS()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = api.Shutdown(ctx)
		s.http.CloseClientConnections()
		s.http.Close()
	})
	id := dbtest.Node(t, store).ID
	token := rand.Text()
	hash := sha256.Sum256([]byte(token))
	require.NoError(t, store.Tx(t.Context(), func(tx *db.Tx) error {
		return tx.IssueEnrollmentToken(t.Context(), id, "", hash[:], time.Now().Add(time.Hour))
	}))
	n := &node{s, configOf(t, s, id)}
	n.taskWait().putToken(token)
	return &realPlane{t, store, ring, n, id}
}

// ask has a task done and waits until it has ended.
func (p *realPlane) ask(kind lifecycle.TaskKind, key, args string) db.NodeTask {
	p.Helper()
	var got db.NodeTask
	require.NoError(p, p.store.Tx(p.Context(), func(tx *db.Tx) error {
		var err error
		got, _, err = tx.EnqueueTask(p.Context(), db.NewTask{NodeID: p.id, Kind: kind, Args: json.RawMessage(args), Key: key, Actor: db.Actor{Owner: lifecycle.OwnerAdmin}})
		return err
	}))
	require.Eventually(p, func() bool {
		var err error
		got, err = p.store.Task(p.Context(), got.ID)
		return err == nil && lifecycle.NodeTask.Terminal(got.Status)
	}, 30*time.Second, 10*time.Millisecond)
	return got
}

// The agent against the real agent API and its database: a drain, a kind's
// failure and the last word, an uninstall.
func TestTasksOfTheRealControlPlane(t *testing.T) {
	t.Parallel()
	p := newRealPlane(t)
	ended := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
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
// also when it is started anew in between.
func TestARotatedKeyReachesThePrivilegedHalf(t *testing.T) {
	t.Parallel()
	p := newRealPlane(t)
	n := p.node
	n.cfg.HelperSocket = "/s"
	log := slog.New(slog.NewTextHandler(testWriter{t}, nil))
	helper := func() (stop func()) {
		l, err := privileged.Listen(filepath.Join(n.cfg.Root, "s"), -1)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- agent.Helper(ctx, n.cfg, "test", log, l, []int{os.Getuid()}) }()
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
