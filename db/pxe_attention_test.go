package db_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// TestAttention_SilentMAASNode: the state offline alone does not say that an agent is silent.
func TestAttention_SilentMAASNode(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Database(t)
	s := dbtest.Open(t, dsn)
	silent := func() (out []string) {
		for _, a := range attention(t, s, db.AttentionFilter{Kind: db.AttentionAgentSilent}) {
			out = append(out, a.NodeID)
		}
		return out
	}
	var ids []string
	for _, status := range []lifecycle.NodeStatus{lifecycle.NodeOffline, lifecycle.NodeActive, lifecycle.NodeOffline, lifecycle.NodeRetired, lifecycle.NodeOffline} {
		n := dbtest.Node(t, s, dbtest.Status(status))
		enrol(t, s, n.ID)
		ids = append(ids, n.ID)
		ago := 20*time.Minute - time.Duration(len(ids))*time.Minute
		if len(ids) == 3 {
			ago = time.Minute // it is heard and offline, since it reports itself unhealthy
		}
		require.NoError(t, s.RecordHeartbeats(t.Context(), []db.Heartbeat{{NodeID: n.ID, BootID: "b", AgentVersion: "1", Generation: 1, ReceivedAt: time.Now().Add(-ago)}}))
	}
	require.Equal(t, []string{ids[0], ids[4]}, silent(), "offline and silent, oldest first; an active one becomes offline first")
	exec(t, raw(t, dsn), "UPDATE agent_identities SET locked_at = now(), locked_reason = 'a copy' WHERE node_id = $1", ids[4])
	require.Equal(t, ids[:1], silent(), "one that is locked out has its own line")
}

// TestASilentAgentOfAnActivePXENodeNeedsAPerson: no state of such a node says so. A node that never
// had an agent, is not in service or was heard requires no operator action.
func TestASilentAgentOfAnActivePXENodeNeedsAPerson(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	silent := func() []db.Attention { return attention(t, s, db.AttentionFilter{Kind: db.AttentionAgentSilent}) }
	heard := func(id string, ago time.Duration) {
		require.NoError(t, s.RecordHeartbeats(t.Context(), []db.Heartbeat{{NodeID: id, BootID: "b", AgentVersion: "1", Generation: 1, ReceivedAt: time.Now().Add(-ago)}}))
	}
	n := dbtest.PXENode(t, s, "52:54:00:00:51:01", lifecycle.NodeActive)
	installed := dbtest.PXENode(t, s, "52:54:00:00:51:02", lifecycle.NodeInstalled)
	for _, id := range []string{n.ID, installed.ID} {
		enrol(t, s, id)
	}
	require.Empty(t, silent(), "nothing was heard of it yet")
	heard(n.ID, 9*time.Minute)
	heard(installed.ID, time.Hour)
	require.Empty(t, silent())

	other := dbtest.PXENode(t, s, "52:54:00:00:51:03", lifecycle.NodeActive)
	enrol(t, s, other.ID)
	heard(other.ID, 11*time.Minute)
	rows := silent()
	require.Len(t, rows, 1)
	require.Equal(t, []string{other.ID, other.Hostname, "active"}, []string{rows[0].NodeID, rows[0].Hostname, rows[0].Status})
	require.Contains(t, rows[0].Message, "its agent was last heard 20")
	heard(other.ID, 0)
	require.Empty(t, silent())
}

// TestWhatAJobBootsAndFailsNeedsAPerson until it is begun again, or the job lets
// go of it.
func TestWhatAJobBootsAndFailsNeedsAPerson(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	failed := func() []db.Attention { return attention(t, s, db.AttentionFilter{Kind: db.AttentionInstallFailed}) }
	n := dbtest.PXENode(t, s, "52:54:00:00:51:04", lifecycle.NodeActive)
	workflow := dbtest.InstallWorkflow(t, s)
	job, err := begin(t, s, n.ID, lifecycle.ModeDeprovision)
	require.NoError(t, err)
	_, err = do(t, s, func(ctx context.Context, tx *db.Tx) (db.PXENode, error) {
		return tx.ArmNetboot(ctx, n.ID, lifecycle.NetbootErase, workflow.ID, job.ID)
	})
	require.NoError(t, err)
	token, _ := dbtest.BootToken(t, s, n.ID)
	report := func(status lifecycle.InstallStatus) {
		_, err := do(t, s, func(ctx context.Context, tx *db.Tx) (lifecycle.ReportEffect, error) {
			_, e, err := tx.ReportInstall(ctx, db.InstallReport{TokenHash: token, MAC: "52:54:00:00:51:04", Status: status, Error: "no disk"})
			return e, err
		})
		require.NoError(t, err)
	}
	report(lifecycle.InstallStarted)
	require.Empty(t, failed())
	report(lifecycle.InstallFailure)
	rows := failed()
	require.Len(t, rows, 1)
	require.Equal(t, []string{n.ID, job.ID, "deprovisioning", "no disk"}, []string{rows[0].NodeID, rows[0].JobID, rows[0].Status, rows[0].Message})
	report(lifecycle.InstallStarted)
	require.Len(t, failed(), 1, "said by the boot that failed")
	token, _ = dbtest.BootToken(t, s, n.ID)
	report(lifecycle.InstallStarted)
	require.Empty(t, failed(), "the machine boots and tries again")
	report(lifecycle.InstallFailure)
	_, err = do(t, s, func(ctx context.Context, tx *db.Tx) (int, error) { return 0, tx.DisarmNetboot(ctx, n.ID, job.ID) })
	require.NoError(t, err)
	require.Empty(t, failed())
}
