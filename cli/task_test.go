package cli_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/cli"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
)

func TestTasksOfANode(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.env["SLIPWAY_SERVER"], w.env["SLIPWAY_TOKEN"] = w.url, w.token("operator")
	node := dbtest.Node(t, w.store, dbtest.Active())
	require.NoError(t, w.store.Tx(t.Context(), func(tx *db.Tx) error {
		return tx.SaveAgentIdentity(t.Context(), db.AgentCertificate{NodeID: node.ID, Generation: 1, Serial: "1", KeyHash: make([]byte, 32),
			CertPEM: "PEM", NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour)})
	}))
	claim := func(key string, lease time.Duration) db.NodeTask {
		require.NoError(t, w.store.Tx(t.Context(), func(tx *db.Tx) error {
			_, _, err := tx.EnqueueTask(t.Context(), db.NewTask{NodeID: node.ID, Kind: lifecycle.TaskKindScrub, Args: json.RawMessage(`{"run_id": "run-7"}`), Key: key,
				Actor: db.Actor{Owner: lifecycle.OwnerJob, ID: "decommission/job_1"}})
			return err
		}))
		got, err := w.store.ClaimTask(t.Context(), db.TaskClaim{NodeID: node.ID, BootID: "boot-1", Generation: 1, Lease: lease})
		require.NoError(t, err)
		require.NotNil(t, got.Task)
		return *got.Task
	}
	failed := claim("a", time.Minute)
	_, err := w.store.FinishTask(t.Context(), db.TaskFence{NodeID: node.ID, TaskID: failed.ID, LeaseID: failed.LeaseID, Attempt: 1}, lifecycle.TaskResult{
		Code: lifecycle.TaskCodeStepFailed, Message: "one disk could not be erased", Simulated: true,
		Steps:   []lifecycle.StepResult{{Name: "users", OK: true}, {Name: "tpm", Skipped: "there is none"}, {Name: "disks", Detail: "nvme1 is frozen"}},
		Devices: []lifecycle.DeviceResult{{Kind: "disk", Name: "nvme0", Serial: "S1", Method: lifecycle.SanitizePurge, Verified: true}, {Kind: "disk", Name: "nvme1", Method: lifecycle.SanitizeNone}},
	})
	require.NoError(t, err)
	lost := claim("b", time.Nanosecond)
	_, err = w.store.SettleTasks(t.Context(), 10)
	require.NoError(t, err)

	list := w.run("", "node", "tasks", node.Hostname).exits(cli.ExitOK)
	require.Contains(t, list.out, failed.ID)
	require.Contains(t, list.out, "(simulated) one disk could not be erased")
	require.Contains(t, list.out, "uncertain")
	require.NotContains(t, w.run("", "node", "tasks", node.Hostname, "--status", "failed").exits(cli.ExitOK).out, lost.ID)
	show := w.run("", "task", "show", failed.ID).exits(cli.ExitOK)
	for _, want := range []string{"nvme1 is frozen", "skipped: there is none", "purge", "NO", "run-7", "decommission/job_1", "simulated: recorded tools"} {
		require.Contains(t, show.out, want)
	}
	w.run("", "task", "show", "task_none").exits(cli.ExitNotFound)

	w.run("", "task", "requeue", lost.ID).exits(cli.ExitUsage)
	again := w.run("", "task", "requeue", lost.ID, "--reason", "nothing was begun").exits(cli.ExitOK)
	require.Contains(t, again.out, "queued, ")
	w.run("", "task", "requeue", lost.ID, "--reason", "nothing was begun").exits(cli.ExitRefused)
	require.Equal(t, lost.ID, w.run("", "task", "show", lost.ID, "-o", "json").exits(cli.ExitOK).id())
	w.env["SLIPWAY_TOKEN"] = w.token("viewer")
	w.run("", "task", "requeue", lost.ID, "--reason", "x").exits(cli.ExitUnauthorised)
}
