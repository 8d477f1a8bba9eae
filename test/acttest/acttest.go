// Package acttest runs activities as a worker runs them, on a node in a database of the test's own.
package acttest

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers/secrets"
)

// Fixture is a node with a job.
type Fixture struct {
	*testing.T
	DSN     string
	Store   *db.Store
	Secrets *secrets.Secrets
	Ref     contract.JobRef // the node and its job; a test may set others
	env     *testsuite.TestActivityEnvironment
}

// New makes a fixture of an active node with a decommission job.
func New(t *testing.T) *Fixture {
	t.Helper()
	dsn := dbtest.Database(t)
	f := &Fixture{T: t, DSN: dsn, Store: dbtest.Open(t, dsn)}
	var err error
	f.Secrets, err = secrets.Open(t.Context(), f.Store, secrets.Keeper{KeyFile: filepath.Join(t.TempDir(), "key")}, secrets.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Secrets.Close()) })
	node := dbtest.Node(t, f.Store, dbtest.Active())
	job := dbtest.Job(t, f.Store, dbtest.On(node.ID), dbtest.Kind(string(contract.KindDecommission)))
	f.Ref = contract.JobRef{JobID: job.ID, NodeID: node.ID, SiteID: node.SiteID, Stage: "test"}
	var suite testsuite.WorkflowTestSuite
	f.env = suite.NewTestActivityEnvironment()
	f.env.SetTestTimeout(time.Minute)
	return f
}

// UsePXENode replaces the fixture's node by a PXE node with a job of a mode. Its erase and install
// workflows install an agent.
func (f *Fixture) UsePXENode(mac string, mode lifecycle.DecommissionMode) {
	f.Helper()
	n := dbtest.PXENode(f.T, f.Store, mac, lifecycle.NodeActive)
	agent := spec.InstallWorkflowSpec{Kernel: spec.BootImage{URL: "http://127.0.0.1/vmlinuz"}, Agent: &spec.InstallAgent{}}
	live, err := f.Store.CreateInstallWorkflow(f.Context(), "live", agent)
	require.NoError(f, err)
	system, err := f.Store.CreateInstallWorkflow(f.Context(), "system", agent)
	require.NoError(f, err)
	f.Tx(func(tx *db.Tx) error {
		n, err := tx.AssignEraseWorkflow(f.Context(), n.ID, n.Version, live.ID)
		if err != nil {
			return err
		}
		if n, err = tx.AssignInstallWorkflow(f.Context(), n.ID, n.Version, system.ID); err != nil {
			return err
		}
		j, _, err := tx.StartNodeJob(f.Context(), db.NodeJob{Mode: mode, Node: n, Job: db.NewJob{
			Kind: string(contract.KindNodeOperation), Input: fmt.Appendf(nil, `{"mode": %q}`, mode), Actor: db.Actor{Owner: lifecycle.OwnerAdmin, ID: "alice"},
		}})
		f.Ref = contract.JobRef{JobID: j.ID, NodeID: n.ID, Stage: "test"}
		return err
	})
}

// Register registers activities, as a worker does.
func (f *Fixture) Register(activities any) { f.env.RegisterActivity(activities) }

// ExecuteActivity runs an activity.
func (f *Fixture) ExecuteActivity(activity any, in any) (converter.EncodedValue, error) {
	return f.env.ExecuteActivity(activity, in)
}

// Runner is a Fixture, or a type that embeds one.
type Runner interface {
	require.TestingT
	Helper()
	ExecuteActivity(activity any, in any) (converter.EncodedValue, error)
}

// Must runs an activity that has to succeed.
func Must[I, O any](r Runner, activity func(context.Context, I) (O, error), in I) O {
	r.Helper()
	v, err := r.ExecuteActivity(activity, in)
	require.NoError(r, err)
	var out O
	require.NoError(r, v.Get(&out))
	return out
}

// Fails runs an activity that has to fail with a class. It returns the message.
func Fails[I, O any](r Runner, want lifecycle.FailureClass, activity func(context.Context, I) (O, error), in I) string {
	r.Helper()
	_, err := r.ExecuteActivity(activity, in)
	var app *temporal.ApplicationError
	require.True(r, errors.As(err, &app), "%v", err)
	require.Equal(r, string(want), app.Type(), app.Message())
	return app.Message()
}

// Tx runs a transaction that has to succeed.
func (f *Fixture) Tx(do func(*db.Tx) error) {
	f.Helper()
	require.NoError(f, f.Store.Tx(f.Context(), do))
}

// Token returns the hash of the enrolment token by which a generation of the agent enrols.
func (f *Fixture) Token(generation int64) []byte {
	hash := sha256.Sum256(fmt.Append(nil, f.Ref.NodeID, generation))
	return hash[:]
}

// Enrol enrols the node's agent with a token of its own.
func (f *Fixture) Enrol(generation int64) {
	f.Helper()
	hash := f.Token(generation)
	f.Tx(func(tx *db.Tx) error {
		if err := tx.IssueEnrollmentToken(f.Context(), f.Ref.NodeID, "", hash, time.Now().Add(time.Hour)); err != nil {
			return err
		}
		if _, _, err := tx.RedeemEnrollmentToken(f.Context(), hash, hash, generation); err != nil {
			return err
		}
		return tx.SaveAgentIdentity(f.Context(), db.AgentCertificate{
			NodeID: f.Ref.NodeID, Generation: generation, Serial: fmt.Sprint(generation), KeyHash: hash, CertPEM: "pem", NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour),
		})
	})
}

// Heartbeat records a heartbeat of the node's agent, received some time ago.
func (f *Fixture) Heartbeat(bootID string, generation int64, ago time.Duration, report *spec.HealthReport) {
	f.Helper()
	require.NoError(f, f.Store.RecordHeartbeats(f.Context(), []db.Heartbeat{{
		NodeID: f.Ref.NodeID, BootID: bootID, Generation: generation, ReceivedAt: time.Now().Add(-ago), Report: report,
	}}))
}

// StartAllocation gives the node to a tenant, and returns the id of the allocation.
func (f *Fixture) StartAllocation() string {
	f.Helper()
	return dbtest.Occupy(f.T, f.Store, f.Ref.NodeID).ID
}

// Enqueue queues a task of the job.
func (f *Fixture) Enqueue(kind lifecycle.TaskKind, key string, args any) {
	f.Helper()
	raw, err := json.Marshal(args)
	require.NoError(f, err)
	f.Tx(func(tx *db.Tx) error {
		_, _, err := tx.EnqueueTask(f.Context(), db.NewTask{
			NodeID: f.Ref.NodeID, JobID: f.Ref.JobID, Kind: kind, Args: raw, Key: key, Actor: db.Actor{Owner: lifecycle.OwnerJob, ID: "test"},
		})
		return err
	})
}

// Claim gives the next task to the agent of generation 1.
func (f *Fixture) Claim(bootID string) *db.NodeTask {
	f.Helper()
	claimed, err := f.Store.ClaimTask(f.Context(), db.TaskClaim{NodeID: f.Ref.NodeID, BootID: bootID, Generation: 1, Lease: time.Minute})
	require.NoError(f, err)
	require.NotNil(f, claimed.Task)
	return claimed.Task
}

// RunTask queues a task of the job and ends it with the result that an agent reports.
func (f *Fixture) RunTask(kind lifecycle.TaskKind, key string, args any, result lifecycle.TaskResult) {
	f.Helper()
	f.Enqueue(kind, key, args)
	t := f.Claim(result.BootID)
	_, err := f.Store.FinishTask(f.Context(), db.TaskFence{NodeID: f.Ref.NodeID, TaskID: t.ID, LeaseID: t.LeaseID, Attempt: t.Attempt}, result)
	require.NoError(f, err)
}
