package agentapi_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/agent/protocol"
	"github.com/slipway-cloud/slipway/agent/taskkeys"
	"github.com/slipway-cloud/slipway/api/agentapi"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	evidencedb "github.com/slipway-cloud/slipway/db/evidence"
	"github.com/slipway-cloud/slipway/internal/signing"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers/secrets"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// field is an agent API over a database, with an enrolled node, and a store that
// counts what it is asked.
type field struct {
	*bench
	db    *db.Store
	ring  *signing.Ring
	node  string
	agent *agent
	tune  func(*agentapi.Config)
	asked atomic.Int64
}

type counting struct {
	*db.Store
	asked *atomic.Int64
}

func (c counting) HasOpenTasks(ctx context.Context, node string) (bool, error) {
	c.asked.Add(1)
	return c.Store.HasOpenTasks(ctx, node)
}

func (c counting) NodesWithQueuedTasks(ctx context.Context, nodes []string) ([]string, error) {
	c.asked.Add(1)
	return c.Store.NodesWithQueuedTasks(ctx, nodes)
}

func newField(t *testing.T, tune ...func(*agentapi.Config)) *field {
	t.Helper()
	f := &field{db: dbtest.Store(t)}
	sec, err := secrets.Open(t.Context(), f.db, secrets.Keeper{KeyFile: filepath.Join(t.TempDir(), "key")}, secrets.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sec.Close()) })
	f.ring = &signing.Ring{Store: f.db, Secrets: sec}
	k := kindOf(t, f.db, nil)
	f.node = k.node()
	f.tune = func(c *agentapi.Config) {
		c.Store, c.Tasks, c.TaskKeys = k.store, counting{f.db, &f.asked}, f.ring
		for _, g := range tune {
			g(c)
		}
	}
	f.bench = start(t, f.tune)
	f.ageCertificates()
	f.agent = f.enrol(f.node)
	return f
}

// restart stops the server and starts another over the same database.
func (f *field) restart() {
	f.Helper()
	ctx, cancel := context.WithTimeout(f.Context(), runenv.Patience(10*time.Second))
	defer cancel()
	require.NoError(f, f.srv.Shutdown(ctx))
	cfg := agentapi.Config{CA: f.ca, FlushInterval: 10 * time.Millisecond, Now: f.now}
	f.tune(&cfg)
	f.srv = agentapi.New(cfg)
	require.NoError(f, f.srv.Start(f.Context()))
	srv := f.srv
	f.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), runenv.Patience(10*time.Second))
		defer cancel()
		_ = srv.Shutdown(ctx)
	})
}

func (f *field) enrol(node string) *agent {
	f.Helper()
	text := hex.EncodeToString(randomBytes())
	hash := sha256.Sum256([]byte(text))
	require.NoError(f, f.db.Tx(f.Context(), func(tx *db.Tx) error {
		return tx.IssueEnrollmentToken(f.Context(), node, "", hash[:], time.Now().Add(time.Hour))
	}))
	key := newKey(f.T)
	var cert protocol.CertificateResponse
	f.client(nil).ok(protocol.PathEnroll, protocol.EnrollRequest{Token: text, CSRPEM: csr(f.T, key)}, &cert)
	return f.with(key, cert)
}

func (f *field) enqueue(kind lifecycle.TaskKind, key string) db.NodeTask {
	f.Helper()
	args := map[lifecycle.TaskKind]string{lifecycle.TaskKindDrain: `{"grace_seconds": 1}`, lifecycle.TaskKindScrub: `{"run_id": "r"}`}[kind]
	var got db.NodeTask
	require.NoError(f, f.db.Tx(f.Context(), func(tx *db.Tx) error {
		var err error
		got, _, err = tx.EnqueueTask(f.Context(), db.NewTask{NodeID: f.node, Kind: kind, Args: json.RawMessage(args), Key: key, Actor: db.Actor{Owner: lifecycle.OwnerAdmin}})
		return err
	}))
	return got
}

func (f *field) status(id string) lifecycle.TaskStatus {
	f.Helper()
	got, err := f.db.Task(f.Context(), id)
	require.NoError(f, err)
	return got.Status
}

// open checks a delivery as an agent does.
func open(t *testing.T, keys []protocol.TaskKey, s *protocol.SignedTask) protocol.Task {
	t.Helper()
	require.NotNil(t, s)
	for _, k := range keys {
		if k.KeyID == s.KeyID {
			require.True(t, ed25519.Verify(k.Public, append([]byte(protocol.TaskContext), s.Payload...), s.Signature))
			var got protocol.Task
			require.NoError(t, json.Unmarshal(s.Payload, &got))
			return got
		}
	}
	require.Fail(t, "the task is signed by a key that the agent does not know")
	return protocol.Task{}
}

func (f *field) claim(in protocol.ClaimRequest) protocol.ClaimResponse {
	f.Helper()
	if in.BootID == "" {
		in.BootID = "boot-1"
	}
	var out protocol.ClaimResponse
	f.agent.ok(protocol.PathTaskClaim, in, &out)
	return out
}

func result(t protocol.Task) protocol.ResultRequest {
	return protocol.ResultRequest{TaskID: t.ID, LeaseID: t.LeaseID, Attempt: t.Attempt, Result: lifecycle.TaskResult{OK: true, Message: "done"}}
}

func TestTask_FromQueueToResult(t *testing.T) {
	t.Parallel()
	f := newField(t)
	require.Len(t, f.agent.cert.TaskKeys, 1)
	require.Nil(t, f.claim(protocol.ClaimRequest{}).Task)
	made := f.enqueue(lifecycle.TaskKindDrain, "k")
	got := open(t, f.agent.cert.TaskKeys, f.claim(protocol.ClaimRequest{}).Task)
	require.Equal(t, made.ID, got.ID)
	require.Equal(t, f.node, got.NodeID)
	require.Equal(t, "boot-1", got.BootID)
	require.EqualValues(t, 1, got.Generation)
	require.Equal(t, 60.0, got.LeaseSeconds)
	require.JSONEq(t, `{"grace_seconds": 1}`, string(got.Args))
	require.WithinDuration(t, time.Now().Add(30*time.Minute), got.Deadline, time.Minute)
	var renewed protocol.RenewTaskResponse
	f.agent.ok(protocol.PathTaskRenew, protocol.RenewTaskRequest{TaskID: got.ID, LeaseID: got.LeaseID, Attempt: 1, Progress: "units"}, &renewed)
	require.Equal(t, 60.0, renewed.LeaseSeconds)
	f.agent.refused(409, protocol.ProblemLeaseLost, protocol.PathTaskRenew, protocol.RenewTaskRequest{TaskID: got.ID, LeaseID: "lease_x", Attempt: 1})
	f.agent.refused(400, protocol.ProblemInvalid, protocol.PathTaskRenew, protocol.RenewTaskRequest{TaskID: got.ID})
	for range 2 {
		var out protocol.ResultResponse
		f.agent.ok(protocol.PathTaskResult, result(got), &out)
		require.Equal(t, lifecycle.TaskSucceeded, out.Status)
	}
	f.agent.refused(409, protocol.ProblemTaskEnded, protocol.PathTaskRenew, protocol.RenewTaskRequest{TaskID: got.ID, LeaseID: got.LeaseID, Attempt: 1})
	require.Equal(t, []string{got.ID}, f.claim(protocol.ClaimRequest{Unfinished: []string{got.ID}, WaitSeconds: 20}).Dropped, "and it does not wait")
}

func TestClaim_RefusesBadInput(t *testing.T) {
	t.Parallel()
	f := newField(t)
	for _, in := range []protocol.ClaimRequest{
		{}, {BootID: "b", WaitSeconds: 31}, {BootID: "b", WaitSeconds: -1}, {BootID: strings.Repeat("b", 65)}, {BootID: "b\x00"},
		{BootID: "b", ClaimID: strings.Repeat("c", 65)}, {BootID: "b", Unfinished: make([]string, 65)}, {BootID: "b", Unfinished: []string{""}},
	} {
		f.agent.refused(400, protocol.ProblemInvalid, protocol.PathTaskClaim, in)
	}
	big := result(protocol.Task{ID: "task_x", LeaseID: "lease_x", Attempt: 1})
	big.Result.Message = strings.Repeat("x", 600<<10)
	f.agent.refused(413, protocol.ProblemTooLarge, protocol.PathTaskResult, big)
	f.agent.refused(409, protocol.ProblemTaskEnded, protocol.PathTaskResult, result(protocol.Task{ID: "task_x", LeaseID: "lease_x", Attempt: 1}))
	for _, path := range []string{protocol.PathTaskClaim, protocol.PathTaskRenew, protocol.PathTaskResult} {
		f.client(nil).refused(401, protocol.ProblemCertificate, path, protocol.ClaimRequest{BootID: "b"})
	}
	without := start(t, nil)
	without.enrolled("node_1").refused(404, protocol.ProblemNotFound, protocol.PathTaskClaim, protocol.ClaimRequest{BootID: "b"})
	require.ErrorContains(t, agentapi.New(agentapi.Config{Store: without.store, CA: without.ca, Tasks: f.db}).Start(t.Context()), "or neither")
}

func TestClaim_WokenWithoutPolling(t *testing.T) {
	t.Parallel()
	f := newField(t)
	began := time.Now()
	answers := make(chan protocol.ClaimResponse, 1)
	go func() { answers <- f.claim(protocol.ClaimRequest{WaitSeconds: 30}) }()
	require.Eventually(t, func() bool { return f.asked.Load() >= 1 }, runenv.Patience(10*time.Second), 5*time.Millisecond)
	require.Empty(t, answers)
	made := f.enqueue(lifecycle.TaskKindScrub, "k")
	got := open(t, f.agent.cert.TaskKeys, (<-answers).Task)
	require.Equal(t, made.ID, got.ID)
	require.LessOrEqual(t, f.asked.Load(), int64(4+time.Since(began)/(5*time.Second)), "one look, one when it was woken, and the poll of the process")
	require.Nil(t, f.claim(protocol.ClaimRequest{WaitSeconds: 0.05}).Task, "it ends with its wait")
}

// TestClaim_OutlivesRequestTimeout waits for longer than the server gives any
// other request.
func TestClaim_OutlivesRequestTimeout(t *testing.T) {
	t.Parallel()
	timeout := runenv.Patience(time.Second)
	f := newField(t, func(c *agentapi.Config) { c.RequestTimeout = timeout })
	for _, h2 := range []bool{true, false} {
		t.Run(map[bool]string{true: "h2", false: "http/1.1"}[h2], func(t *testing.T) {
			t.Parallel()
			node := kindOf(t, f.db, nil).node()
			a := f.enrol(node)
			blk, _ := pem.Decode([]byte(a.cert.CertificatePEM))
			tr := &http.Transport{ForceAttemptHTTP2: h2, TLSClientConfig: &tls.Config{RootCAs: f.ca.Pool(), MinVersion: tls.VersionTLS13,
				Certificates: []tls.Certificate{{Certificate: [][]byte{blk.Bytes}, PrivateKey: a.key}}}}
			t.Cleanup(tr.CloseIdleConnections)
			body, err := json.Marshal(protocol.ClaimRequest{BootID: "b", WaitSeconds: 2.5 * timeout.Seconds()})
			require.NoError(t, err)
			began := time.Now()
			resp, err := (&http.Client{Transport: tr, Timeout: runenv.Patience(time.Minute)}).Post(f.srv.URL()+protocol.PathTaskClaim, "application/json", bytes.NewReader(body))
			require.NoError(t, err)
			defer func() { _ = resp.Body.Close() }()
			require.Equal(t, http.StatusOK, resp.StatusCode)
			require.Equal(t, map[bool]int{true: 2, false: 1}[h2], resp.ProtoMajor)
			require.Greater(t, time.Since(began), 2*timeout)
		})
	}
}

func TestClaim_AnsweredAtShutdown(t *testing.T) {
	t.Parallel()
	f := newField(t)
	answers := make(chan protocol.ClaimResponse, 1)
	go func() { answers <- f.claim(protocol.ClaimRequest{WaitSeconds: 30}) }()
	require.Eventually(t, func() bool { return f.asked.Load() >= 1 }, runenv.Patience(10*time.Second), 5*time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), runenv.Patience(5*time.Second))
	defer cancel()
	require.NoError(t, f.srv.Shutdown(ctx))
	require.Nil(t, (<-answers).Task)
}

func TestClaim_WaitersAreBounded(t *testing.T) {
	t.Parallel()
	f := newField(t, func(c *agentapi.Config) { c.TaskWaiters = 3 })
	other := f.enrol(kindOf(t, f.db, nil).node())
	third := f.enrol(kindOf(t, f.db, nil).node())
	var all sync.WaitGroup
	hold := func(a *agent, n int64) {
		all.Go(func() {
			var out protocol.ClaimResponse
			a.ok(protocol.PathTaskClaim, protocol.ClaimRequest{BootID: "b", WaitSeconds: 30}, &out)
		})
		require.Eventually(t, func() bool { return f.asked.Load() >= n }, runenv.Patience(10*time.Second), 5*time.Millisecond)
	}
	hold(f.agent, 1)
	hold(f.agent, 2)
	header := f.agent.refused(429, protocol.ProblemTooMany, protocol.PathTaskClaim, protocol.ClaimRequest{BootID: "b"})
	require.NotEmpty(t, header.Get("Retry-After"))
	hold(other, 3)
	header = third.refused(503, protocol.ProblemBusy, protocol.PathTaskClaim, protocol.ClaimRequest{BootID: "b"})
	require.NotEmpty(t, header.Get("Retry-After"))
	ctx, cancel := context.WithTimeout(t.Context(), runenv.Patience(5*time.Second))
	defer cancel()
	require.NoError(t, f.srv.Shutdown(ctx))
	all.Wait()
}

func TestHeartbeat_SendsNewTaskKeys(t *testing.T) {
	t.Parallel()
	f := newField(t)
	keys := f.agent.cert.TaskKeys
	in := f.agent.heartbeat()
	in.TaskKeyIDs = []string{keys[0].KeyID}
	var out protocol.HeartbeatResponse
	f.agent.ok(protocol.PathHeartbeat, in, &out)
	require.Empty(t, out.TaskKeys, "it knows them")
	in.TaskKeyIDs = []string{"key_old"}
	f.agent.ok(protocol.PathHeartbeat, in, &out)
	require.Equal(t, keys, out.TaskKeys)
	in.TaskKeyIDs = make([]string, 100)
	f.agent.refused(400, protocol.ProblemInvalid, protocol.PathHeartbeat, in)

	require.NoError(t, evidencedb.RetireSigningKey(t.Context(), f.db, keys[0].KeyID))
	f.restart()
	in.TaskKeyIDs = []string{keys[0].KeyID}
	f.agent.ok(protocol.PathHeartbeat, in, &out)
	require.Len(t, out.TaskKeys, 2)
	require.False(t, out.TaskKeys[0].Until.After(time.Now()), "what was retired is not to be trusted")
	believed, err := taskkeys.Extend(keys, out.TaskKeys)
	require.NoError(t, err, "the new one is signed by it")
	require.Equal(t, out.TaskKeys[1].KeyID, believed[1].KeyID)
	f.enqueue(lifecycle.TaskKindDrain, "k")
	open(t, out.TaskKeys, f.claim(protocol.ClaimRequest{}).Task)
	next := newKey(t)
	var cert protocol.CertificateResponse
	f.agent.ok(protocol.PathRenew, protocol.RenewRequest{CSRPEM: csr(t, next)}, &cert)
	require.Equal(t, out.TaskKeys, cert.TaskKeys)
}
