package agent_test

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/json"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/agentapi"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/internal/nodeca"
	"github.com/slipway-cloud/slipway/internal/signing"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers/secrets"
)

// The agent against the real agent API and its database: a drain, a kind's
// failure and the last word, an uninstall.
func TestTasksOfTheRealControlPlane(t *testing.T) {
	t.Parallel()
	store := dbtest.Store(t)
	sec, err := secrets.Open(t.Context(), store, secrets.Keeper{KeyFile: filepath.Join(t.TempDir(), "key")}, secrets.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sec.Close()) })
	ca, err := nodeca.Create()
	require.NoError(t, err)
	api := agentapi.New(agentapi.Config{Store: agentapi.NewStore(store), CA: ca, HeartbeatInterval: 30 * time.Millisecond, FlushInterval: 5 * time.Millisecond,
		Tasks: store, TaskKeys: &signing.Ring{Store: store, Secrets: sec}})
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
	ended := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	a := n.agent()
	go func() { ended <- a.Run(ctx) }()

	ask := func(kind lifecycle.TaskKind, args string) db.NodeTask {
		var got db.NodeTask
		require.NoError(t, store.Tx(t.Context(), func(tx *db.Tx) error {
			var err error
			got, _, err = tx.EnqueueTask(t.Context(), db.NewTask{NodeID: id, Kind: kind, Args: json.RawMessage(args), Key: string(kind), Actor: db.Actor{Owner: lifecycle.OwnerAdmin}})
			return err
		}))
		require.Eventually(t, func() bool {
			got, err = store.Task(t.Context(), got.ID)
			return err == nil && lifecycle.NodeTask.Terminal(got.Status)
		}, 30*time.Second, 10*time.Millisecond)
		return got
	}
	drained := ask(lifecycle.TaskKindDrain, `{"grace_seconds":0}`)
	require.Equal(t, lifecycle.TaskSucceeded, drained.Status)
	require.Len(t, drained.Result.Steps, 6)
	require.True(t, drained.Result.Simulated)
	refused := ask(lifecycle.TaskKindScrub, `{"run_id":"r1"}`)
	require.Equal(t, lifecycle.TaskFailed, refused.Status)
	require.Equal(t, lifecycle.TaskCodeUnsupported, refused.Result.Code, "this agent was made without a scrub")
	require.Equal(t, lifecycle.TaskSucceeded, ask(lifecycle.TaskKindUninstall, `{}`).Status)
	require.ErrorContains(t, <-ended, "was removed")
}
