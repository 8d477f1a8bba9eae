package rotation_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/intent/rotation"
	"github.com/slipway-cloud/slipway/lifecycle"
)

func newBMC(t *testing.T, store *db.Store, address string, nodeID *string) db.BMC {
	t.Helper()
	b, err := store.CreateBMC(t.Context(), db.NewBMC{NodeID: nodeID, Address: address, Protocol: intent.ProtocolRedfish, CredentialRef: "bmc/a"})
	require.NoError(t, err)
	return b
}

func accept(t *testing.T, store *db.Store, bmcID string) (job db.Job, hostname string, err error) {
	t.Helper()
	err = store.Tx(t.Context(), func(tx *db.Tx) (err error) {
		job, hostname, err = rotation.Accept(t.Context(), tx, bmcID, "yearly", db.Actor{Owner: lifecycle.OwnerAdmin, ID: "alice"})
		return err
	})
	return job, hostname, err
}

// TestAccept_OneJobAtATime rotates a BMC of a node, one without a node, one of a node that a job
// holds, and one whose logins are stopped.
func TestAccept_OneJobAtATime(t *testing.T) {
	t.Parallel()
	store := dbtest.Store(t)
	n := dbtest.Node(t, store, dbtest.Active())
	of, bare := newBMC(t, store, "127.0.0.1", &n.ID), newBMC(t, store, "127.0.0.2", nil)
	for b, host := range map[string]string{of.ID: n.Hostname, bare.ID: ""} {
		job, hostname, err := accept(t, store, b)
		require.NoError(t, err)
		require.Equal(t, host, hostname)
		var in contract.BMCRotationInput
		require.NoError(t, json.Unmarshal(job.Input, &in))
		require.Equal(t, contract.BMCRotationInput{BMCID: b, Hostname: host, Reason: "yearly"}, in)
		require.Equal(t, host == "", job.SiteID == nil)
		_, _, err = accept(t, store, b)
		require.Equal(t, []any{intent.LiveJob, job.ID}, []any{intent.AsRefusal(err).Kind, intent.AsRefusal(err).Existing})
	}
	held := dbtest.Job(t, store)
	_, _, err := accept(t, store, newBMC(t, store, "127.0.0.3", held.NodeID).ID)
	require.Equal(t, held.ID, intent.AsRefusal(err).Existing)
	stopped := newBMC(t, store, "127.0.0.4", nil)
	require.NoError(t, store.BlockBMCLogin(t.Context(), stopped.ID, "401 from the BMC"))
	_, _, err = accept(t, store, stopped.ID)
	refusal := intent.AsRefusal(err)
	require.Equal(t, []any{intent.Conflict, intent.ReasonLoginsBlocked, stopped.ID}, []any{refusal.Kind, refusal.Reason, refusal.BMCID})
	require.Contains(t, refusal.Detail, "401 from the BMC")
}

// TestSetCredential_WaitsForTheJob names another login while a job is parked, runs, and has set a
// password of its own.
func TestSetCredential_WaitsForTheJob(t *testing.T) {
	t.Parallel()
	store := dbtest.Store(t)
	for name, c := range map[string]struct {
		address  string
		status   lifecycle.JobStatus
		rotation lifecycle.RotationState
		kind     intent.Kind // "" is accepted
	}{
		"parked":                        {"127.1.0.1", lifecycle.JobFailedRetryable, "", ""},
		"runs":                          {"127.1.0.2", lifecycle.JobRunning, "", intent.LiveJob},
		"parked with its own password":  {"127.1.0.3", lifecycle.JobFailedRetryable, lifecycle.RotationApplied, intent.Conflict},
		"parked with a proven password": {"127.1.0.4", lifecycle.JobFailedRetryable, lifecycle.RotationVerified, intent.Conflict},
		"parked before anything is set": {"127.1.0.5", lifecycle.JobFailedRetryable, lifecycle.RotationPrepared, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			job := dbtest.Job(t, store, dbtest.JobStatus(c.status))
			b := newBMC(t, store, c.address, job.NodeID)
			b.RotationState = c.rotation
			var live *db.Job
			err := store.Tx(t.Context(), func(tx *db.Tx) (err error) {
				live, err = rotation.SetCredential(t.Context(), tx, b, b.Version, "bmc/b")
				return err
			})
			after, rerr := store.BMC(t.Context(), b.ID)
			require.NoError(t, rerr)
			if c.kind != "" {
				require.Equal(t, []any{c.kind, job.ID}, []any{intent.AsRefusal(err).Kind, intent.AsRefusal(err).Existing})
				require.Equal(t, "bmc/a", after.CredentialRef)
				return
			}
			require.NoError(t, err)
			require.Equal(t, job.ID, live.ID)
			require.Equal(t, "bmc/b", after.CredentialRef)
		})
	}
}
