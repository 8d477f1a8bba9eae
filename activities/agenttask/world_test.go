package agenttask_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/slipway-cloud/slipway/activities/agenttask"
	"github.com/slipway-cloud/slipway/agent/protocol"
	"github.com/slipway-cloud/slipway/api/agentapi"
	devtemporal "github.com/slipway-cloud/slipway/assembly/devserver/temporal"
	"github.com/slipway-cloud/slipway/assembly/server/relay"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/internal/nodeca"
	"github.com/slipway-cloud/slipway/internal/signing"
	"github.com/slipway-cloud/slipway/internal/temporalx"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers/secrets"
	"github.com/slipway-cloud/slipway/test/runenv"
)

const engineLimit = 10 * time.Minute // the first run on a machine builds the server

var engineUsed atomic.Bool

// engine is the Temporal server of this test process, or the one of the run.
var engine = sync.OnceValues(func() (*devtemporal.Server, error) {
	engineUsed.Store(true)
	ctx, cancel := context.WithTimeout(context.Background(), engineLimit)
	defer cancel()
	return devtemporal.Acquire(ctx, "SLIPWAY_TEMPORAL_ADDRESS", devtemporal.Options{})
})

func TestMain(m *testing.M) {
	code := m.Run()
	if engineUsed.Load() {
		if srv, err := engine(); err == nil {
			if err := srv.Stop(); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		}
	}
	os.Exit(code)
}

// world is a database, an agent API with an enrolled agent, a relay, and a task
// queue on a real Temporal.
type world struct {
	*testing.T
	store  *db.Store
	client client.Client
	queue  string
	node   db.Node
	job    db.Job
	api    *agentapi.Server
	agent  *http.Client
	keys   []protocol.TaskKey
	wf     any
	stop   func()
}

type noStarter struct{}

func (noStarter) StartJob(context.Context, contract.JobInput, string) (string, error) {
	return "run", nil
}

func newWorld(t *testing.T, lease time.Duration, wf any) *world {
	t.Helper()
	w := &world{T: t, store: dbtest.Store(t), queue: "tasks of " + db.NewID("q"), wf: wf}
	w.node = dbtest.Node(t, w.store, dbtest.Active())
	w.job = dbtest.Job(t, w.store, dbtest.On(w.node.ID), dbtest.JobStatus(lifecycle.JobRunning))
	srv, err := engine()
	require.NoError(t, err, "a Temporal server for the tests")
	w.client, err = client.DialContext(t.Context(), client.Options{
		HostPort: srv.Address(), Namespace: devtemporal.Namespace, Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler)),
	})
	require.NoError(t, err)
	t.Cleanup(w.client.Close)
	w.enrol(lease)
	w.work()
	r := &relay.Relay{Store: w.store, Starter: noStarter{}, Tasks: temporalx.Completions{Client: w.client, Namespace: devtemporal.Namespace},
		Name: "r", Log: slog.New(slog.DiscardHandler), Poll: 50 * time.Millisecond}
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() { defer close(over); r.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-over })
	return w
}

// work runs a worker until the test ends or w.stop is called.
func (w *world) work() {
	w.Helper()
	wk := worker.New(w.client, w.queue, worker.Options{})
	wk.RegisterWorkflowWithOptions(w.wf, workflow.RegisterOptions{Name: "Waits"})
	wk.RegisterActivity(&agenttask.Activities{Store: w.store})
	require.NoError(w, wk.Start())
	w.stop = sync.OnceFunc(wk.Stop)
	w.Cleanup(w.stop)
}

func (w *world) enrol(lease time.Duration) {
	w.Helper()
	sec, err := secrets.Open(w.Context(), w.store, secrets.Keeper{KeyFile: filepath.Join(w.TempDir(), "key")}, secrets.Options{})
	require.NoError(w, err)
	w.Cleanup(func() { require.NoError(w, sec.Close()) })
	ca, err := nodeca.Create()
	require.NoError(w, err)
	w.api = agentapi.New(agentapi.Config{Store: agentapi.NewStore(w.store), CA: ca, Tasks: w.store,
		TaskKeys: &signing.Ring{Store: w.store, Secrets: sec}, TaskLease: lease, FlushInterval: 10 * time.Millisecond})
	require.NoError(w, w.api.Start(w.Context()))
	w.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), runenv.Patience(10*time.Second))
		defer cancel()
		_ = w.api.Shutdown(ctx)
	})
	hash := sha256.Sum256([]byte("token"))
	require.NoError(w, w.store.Tx(w.Context(), func(tx *db.Tx) error {
		return tx.IssueEnrollmentToken(w.Context(), w.node.ID, "", hash[:], time.Now().Add(time.Hour))
	}))
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(w, err)
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	require.NoError(w, err)
	tc := &tls.Config{RootCAs: ca.Pool(), MinVersion: tls.VersionTLS13}
	w.agent = &http.Client{Transport: &http.Transport{TLSClientConfig: tc}}
	var cert protocol.CertificateResponse
	require.Equal(w, 200, w.post(protocol.PathEnroll,
		protocol.EnrollRequest{Token: "token", CSRPEM: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))}, &cert))
	blk, _ := pem.Decode([]byte(cert.CertificatePEM))
	w.keys = cert.TaskKeys
	tr := &http.Transport{TLSClientConfig: tc.Clone(), ForceAttemptHTTP2: true}
	tr.TLSClientConfig.Certificates = []tls.Certificate{{Certificate: [][]byte{blk.Bytes}, PrivateKey: key}}
	w.Cleanup(tr.CloseIdleConnections)
	w.agent = &http.Client{Transport: tr}
}

func (w *world) post(path string, body, into any) int {
	w.Helper()
	raw, err := json.Marshal(body)
	require.NoError(w, err)
	resp, err := w.agent.Post(w.api.URL()+path, "application/json", bytes.NewReader(raw))
	require.NoError(w, err)
	defer func() { _ = resp.Body.Close() }()
	require.NoError(w, json.NewDecoder(resp.Body).Decode(into))
	return resp.StatusCode
}

// claim waits for a task as an agent does.
func (w *world) claim() protocol.Task {
	w.Helper()
	var out protocol.ClaimResponse
	require.Equal(w, 200, w.post(protocol.PathTaskClaim, protocol.ClaimRequest{BootID: "boot", WaitSeconds: 30}, &out))
	require.NotNil(w, out.Task)
	var t protocol.Task
	require.NoError(w, json.Unmarshal(out.Task.Payload, &t))
	return t
}

func (w *world) finish(t protocol.Task, r lifecycle.TaskResult) {
	w.Helper()
	var out protocol.ResultResponse
	require.Equal(w, 200, w.post(protocol.PathTaskResult, protocol.ResultRequest{TaskID: t.ID, LeaseID: t.LeaseID, Attempt: t.Attempt, Result: r}, &out))
}

func (w *world) in(kind lifecycle.TaskKind, args string) agenttask.RunTaskIn {
	return agenttask.RunTaskIn{JobRef: contract.JobRef{JobID: w.job.ID, NodeID: w.node.ID, Stage: "the_stage"}, Kind: kind, Args: json.RawMessage(args)}
}

func (w *world) start(in agenttask.RunTaskIn) client.WorkflowRun {
	w.Helper()
	run, err := w.client.ExecuteWorkflow(w.Context(), client.StartWorkflowOptions{ID: "waits/" + db.NewID("w"), TaskQueue: w.queue}, "Waits", in)
	require.NoError(w, err)
	w.Cleanup(func() {
		_ = w.client.TerminateWorkflow(context.WithoutCancel(w.Context()), run.GetID(), "", "the test is over")
	})
	return run
}

func (w *world) tasks() []db.NodeTask {
	w.Helper()
	rows, err := w.store.ListTasks(w.Context(), db.TaskFilter{NodeID: w.node.ID}, "", 100)
	require.NoError(w, err)
	return rows
}

func (w *world) until(what string, ok func() bool) {
	w.Helper()
	require.Eventually(w, ok, runenv.Patience(30*time.Second), 20*time.Millisecond, what)
}
