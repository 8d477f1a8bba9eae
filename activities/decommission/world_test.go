package decommission_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"github.com/slipway-cloud/slipway/activities/decommission"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/internal/signing"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/evidence"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/secrets"
	"github.com/slipway-cloud/slipway/workflows/contract"
)

// world is a node that leaves service, in a database of the test's own.
type world struct {
	*testing.T
	env   *testsuite.TestActivityEnvironment
	dsn   string
	store *db.Store
	vault *secrets.Secrets
	acts  *decommission.Activities
	ref   contract.JobRef
}

func newWorld(t *testing.T) *world {
	t.Helper()
	dsn := dbtest.Database(t)
	w := &world{T: t, dsn: dsn, store: dbtest.Open(t, dsn)}
	var err error
	w.vault, err = secrets.Open(t.Context(), w.store, secrets.Keeper{KeyFile: filepath.Join(t.TempDir(), "key")}, secrets.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.vault.Close()) })
	node := dbtest.Node(t, w.store, dbtest.Active())
	job := dbtest.Job(t, w.store, dbtest.On(node.ID), dbtest.Kind(string(contract.KindDecommission)))
	w.ref = contract.JobRef{JobID: job.ID, NodeID: node.ID, SiteID: node.SiteID, Stage: "test"}
	w.acts = &decommission.Activities{Store: w.store, Secrets: w.vault, Ring: &signing.Ring{Store: w.store, Secrets: w.vault}}
	var suite testsuite.WorkflowTestSuite
	w.env = suite.NewTestActivityEnvironment()
	w.env.SetTestTimeout(time.Minute)
	w.env.RegisterActivity(w.acts)
	return w
}

func run[I, O any](w *world, act func(context.Context, I) (O, error), in I) (O, error) {
	w.Helper()
	var out O
	v, err := w.env.ExecuteActivity(act, in)
	if err == nil {
		err = v.Get(&out)
	}
	return out, err
}

func must[I, O any](w *world, act func(context.Context, I) (O, error), in I) O {
	w.Helper()
	out, err := run(w, act, in)
	require.NoError(w, err)
	return out
}

func fails[I, O any](w *world, want lifecycle.FailureClass, act func(context.Context, I) (O, error), in I) string {
	w.Helper()
	_, err := run(w, act, in)
	var app *temporal.ApplicationError
	require.True(w, errors.As(err, &app), "%v", err)
	require.Equal(w, string(want), app.Type(), app.Message())
	return app.Message()
}

func (w *world) tx(do func(*db.Tx) error) {
	w.Helper()
	require.NoError(w, w.store.Tx(w.Context(), do))
}

func (w *world) put(name string) {
	w.Helper()
	_, err := w.vault.Put(w.Context(), name, providers.NewSecret(`{"username": "a", "password": "b"}`))
	require.NoError(w, err)
}

func (w *world) stored(name string) bool {
	w.Helper()
	_, err := w.vault.Resolve(w.Context(), providers.SecretRef(name))
	if !providers.IsKind(err, providers.KindNotFound) {
		require.NoError(w, err)
	}
	return err == nil
}

// enrol gives the node an agent.
func (w *world) enrol() {
	w.Helper()
	hash := sha256.Sum256([]byte("token"))
	w.tx(func(tx *db.Tx) error {
		return errors.Join(
			tx.IssueEnrollmentToken(w.Context(), w.ref.NodeID, "", hash[:], time.Now().Add(time.Hour)),
			tx.SaveAgentIdentity(w.Context(), db.AgentCertificate{
				NodeID: w.ref.NodeID, Generation: 1, Serial: "1", KeyHash: hash[:], CertPEM: "pem", NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour),
			}))
	})
}

func (w *world) beat(boot string, ago time.Duration, report *spec.HealthReport) {
	w.Helper()
	require.NoError(w, w.store.RecordHeartbeats(w.Context(), []db.Heartbeat{{
		NodeID: w.ref.NodeID, BootID: boot, Generation: 1, ReceivedAt: time.Now().Add(-ago), Report: report,
	}}))
}

// task leaves a task of the job with the result that an agent reported.
func (w *world) task(kind lifecycle.TaskKind, key string, args any, result lifecycle.TaskResult) {
	w.Helper()
	raw, err := json.Marshal(args)
	require.NoError(w, err)
	var t db.NodeTask
	w.tx(func(tx *db.Tx) error {
		t, _, err = tx.EnqueueTask(w.Context(), db.NewTask{
			NodeID: w.ref.NodeID, JobID: w.ref.JobID, Kind: kind, Args: raw, Key: key, Actor: db.Actor{Owner: lifecycle.OwnerJob, ID: "test"},
		})
		return err
	})
	claimed, err := w.store.ClaimTask(w.Context(), db.TaskClaim{NodeID: w.ref.NodeID, BootID: result.BootID, Generation: 1, Lease: time.Minute})
	require.NoError(w, err)
	require.NotNil(w, claimed.Task)
	require.Equal(w, t.ID, claimed.Task.ID)
	lease := claimed.Task.LeaseID
	_, err = w.store.FinishTask(w.Context(), db.TaskFence{NodeID: w.ref.NodeID, TaskID: t.ID, LeaseID: lease, Attempt: claimed.Task.Attempt}, result)
	require.NoError(w, err)
}

// last is the node's newest certificate, and how many there are.
func (w *world) last() (evidence.Certificate, int) {
	w.Helper()
	rows, err := w.store.CertificatesOfNode(w.Context(), w.ref.NodeID)
	require.NoError(w, err)
	require.NotEmpty(w, rows)
	var c evidence.Certificate
	require.NoError(w, json.Unmarshal(rows[len(rows)-1].Payload, &c))
	return c, len(rows)
}
