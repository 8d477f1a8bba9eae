package db_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// TestASilentAgentOfAnActivePXENodeNeedsAPerson: no state of such a node says so.
// One that never had an agent, is not in service or was heard does not.
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
