package db_test

import (
	"crypto/sha256"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// arm makes a job of that name boot the node.
func arm(t testing.TB, s *db.Store, nodeID string, purpose lifecycle.Netboot, workflowID string) error {
	t.Helper()
	return s.Tx(t.Context(), func(tx *db.Tx) error {
		_, err := tx.ArmNetboot(t.Context(), nodeID, purpose, workflowID, "job_property")
		return err
	})
}

// withAgent gives a node's workflow an agent and returns its id.
func withAgent(t testing.TB, s *db.Store, nodeID string) string {
	t.Helper()
	p, err := s.PXENode(t.Context(), nodeID)
	require.NoError(t, err)
	w, err := s.InstallWorkflow(t.Context(), *p.InstallWorkflowID)
	require.NoError(t, err)
	w.Spec.Agent = &spec.InstallAgent{}
	_, err = s.UpdateInstallWorkflow(t.Context(), w.ID, w.Version, w.Name, w.Spec)
	require.NoError(t, err)
	return w.ID
}

// grant asks for an agent and returns the hash of the enrolment token.
func grant(t testing.TB, s *db.Store, boot []byte) ([]byte, error) {
	t.Helper()
	hash := sha256.Sum256([]byte(db.NewID("secret")))
	err := s.Tx(t.Context(), func(tx *db.Tx) error {
		_, err := tx.GrantAgent(t.Context(), boot, hash[:], time.Hour)
		return err
	})
	return hash[:], err
}

func trade(t testing.TB, s *db.Store, hash []byte) db.TokenOutcome {
	t.Helper()
	var out db.TokenOutcome
	require.NoError(t, s.Tx(t.Context(), func(tx *db.Tx) error {
		var err error
		_, out, err = tx.RedeemEnrollmentToken(t.Context(), hash, []byte("key of the agent"), 1)
		return err
	}))
	return out
}

func heard(t testing.TB, s *db.Store, mac string, token []byte, status lifecycle.InstallStatus, want lifecycle.ReportEffect) {
	t.Helper()
	_, e, err := report(t.Context(), s, mac, token, status, 0)
	require.NoError(t, err)
	require.Equal(t, want, e)
}

func TestWhoIsGivenTheAgentOfANode(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	n := dbtest.PXENode(t, s, mac(1), lifecycle.NodePending)
	workflow := withAgent(t, s, n.ID)
	never := func(boot []byte) {
		t.Helper()
		_, err := grant(t, s, boot)
		require.ErrorIs(t, err, db.ErrNotFound)
	}
	never(make([]byte, 32))

	first, _ := dbtest.BootToken(t, s, n.ID)
	var early *db.ConflictError
	_, err := grant(t, s, first)
	require.ErrorAs(t, err, &early, "no agent enrols in pending")
	heard(t, s, mac(1), first, lifecycle.InstallStarted, lifecycle.ReportStarts)
	lost, err := grant(t, s, first)
	require.NoError(t, err)
	again, err := grant(t, s, first)
	require.NoError(t, err)
	require.Equal(t, db.TokenRevoked, trade(t, s, lost), "one token of a node is good at a time")
	heard(t, s, mac(1), first, lifecycle.InstallFailure, lifecycle.ReportFails)
	require.Equal(t, db.TokenRevoked, trade(t, s, again), "the attempt has failed")
	never(first)

	second, _ := dbtest.BootToken(t, s, n.ID)
	heard(t, s, mac(1), second, lifecycle.InstallStarted, lifecycle.ReportRestarts)
	heard(t, s, mac(1), second, lifecycle.InstallComplete, lifecycle.ReportFinishes)
	never(first)
	_, err = grant(t, s, second)
	require.NoError(t, err, "the installed system fetches it at its first boot")
	_, err = setState(t, s, n.ID, lifecycle.NodeActive, false)
	require.NoError(t, err)
	token, err := grant(t, s, second)
	require.NoError(t, err)
	require.Equal(t, db.TokenFirst, trade(t, s, token))
	never(second)

	// A job boots it from the network.
	_, err = setState(t, s, n.ID, lifecycle.NodeMigrating, false)
	require.NoError(t, err)
	never(second)
	require.NoError(t, arm(t, s, n.ID, lifecycle.NetbootErase, workflow))
	live, ticket := dbtest.BootToken(t, s, n.ID)
	require.Equal(t, lifecycle.InstallAttempt{Round: 2, Attempt: 1}, ticket)
	for range 2 { // a live system keeps nothing over a restart
		token, err = grant(t, s, live)
		require.NoError(t, err)
		require.Equal(t, db.TokenFirst, trade(t, s, token))
	}
	unused, err := grant(t, s, live)
	require.NoError(t, err)
	require.NoError(t, arm(t, s, n.ID, lifecycle.NetbootInstall, workflow))
	require.Equal(t, db.TokenRevoked, trade(t, s, unused), "a new round")
	never(live)
	inst, _ := dbtest.BootToken(t, s, n.ID)
	heard(t, s, mac(1), inst, lifecycle.InstallComplete, lifecycle.ReportLeaves)
	heard(t, s, mac(1), inst, lifecycle.InstallComplete, lifecycle.ReportIgnored)
	token, err = grant(t, s, inst)
	require.NoError(t, err, "at the first boot of what the job installed")
	require.Equal(t, db.TokenFirst, trade(t, s, token))
	never(inst)

	require.NoError(t, s.Tx(t.Context(), func(tx *db.Tx) error { return tx.DisarmNetboot(t.Context(), n.ID, "job_property") }))
	require.NoError(t, arm(t, s, n.ID, lifecycle.NetbootErase, workflow))
	live, _ = dbtest.BootToken(t, s, n.ID)
	unused, err = grant(t, s, live)
	require.NoError(t, err)
	_, err = setState(t, s, n.ID, lifecycle.NodeRetired, true)
	require.NoError(t, err)
	never(live)
	require.Equal(t, db.TokenRevoked, trade(t, s, unused))
}

func TestHardwareThatWasReplacedGetsNothingMore(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	n := dbtest.PXENode(t, s, mac(1), lifecycle.NodeMigrating)
	workflow := withAgent(t, s, n.ID)
	require.NoError(t, arm(t, s, n.ID, lifecycle.NetbootErase, workflow))
	boot, _ := dbtest.BootToken(t, s, n.ID)
	token, err := grant(t, s, boot)
	require.NoError(t, err)
	n, err = s.Node(t.Context(), n.ID)
	require.NoError(t, err)
	require.NoError(t, s.Tx(t.Context(), func(tx *db.Tx) error {
		_, err := tx.ReplaceHardware(t.Context(), n.ID, n.Version, db.Hardware{MACs: []string{mac(2)}, Serial: "S2"}, pxeAdmin)
		return err
	}))
	_, err = grant(t, s, boot)
	require.ErrorIs(t, err, db.ErrNotFound)
	_, _, err = report(t.Context(), s, mac(1), boot, lifecycle.InstallStarted, 0)
	require.ErrorIs(t, err, db.ErrNotFound)
	_, _, err = report(t.Context(), s, mac(2), boot, lifecycle.InstallStarted, 0)
	require.ErrorIs(t, err, db.ErrNotFound)
	require.Equal(t, db.TokenRevoked, trade(t, s, token))
	require.NotEqual(t, n.ID, discover(t, s, mac(1)).ID, "the old machine is another node")
}

func TestANodeThatAsksForItsAgentOverAndOverFillsNothing(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Database(t)
	s, conn := dbtest.Open(t, dsn), raw(t, dsn)
	n := dbtest.PXENode(t, s, mac(1), lifecycle.NodeInstalling)
	withAgent(t, s, n.ID)
	boot, _ := dbtest.BootToken(t, s, n.ID)
	used, err := grant(t, s, boot)
	require.NoError(t, err)
	require.Equal(t, db.TokenFirst, trade(t, s, used))
	var last []byte
	for range 40 {
		last, err = grant(t, s, boot)
		require.NoError(t, err)
	}
	var rows, mine int
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT count(*), count(*) FILTER (WHERE used_at IS NOT NULL OR token_hash = $2) FROM enrollment_tokens WHERE node_id = $1", n.ID, last).Scan(&rows, &mine))
	require.Equal(t, []int{17, 2}, []int{rows, mine}, "the used one, the good one, and fifteen that are over")
	require.Equal(t, db.TokenFirst, trade(t, s, last))
}

func TestAWorkflowWithoutAnAgentMakesNoToken(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	n := dbtest.PXENode(t, s, mac(1), lifecycle.NodeInstalling)
	boot, _ := dbtest.BootToken(t, s, n.ID)
	hash, err := grant(t, s, boot)
	require.NoError(t, err)
	_, err = s.EnrollmentToken(t.Context(), hash)
	require.ErrorIs(t, err, db.ErrNotFound)
}

// Silence and speech of its agent say nothing of a PXE node's state, and what it
// said last is shown.
func TestHeartbeatsMoveNoPXENode(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	now, err := s.Clock(t.Context())
	require.NoError(t, err)
	for i, state := range lifecycle.NodePXE.States {
		n := dbtest.PXENode(t, s, mac(i+1), state.State)
		require.NoError(t, s.RecordHeartbeats(t.Context(), []db.Heartbeat{{
			NodeID: n.ID, BootID: "boot", AgentVersion: "v1", Generation: 1, Address: "10.0.0.9", ReceivedAt: now, Report: &spec.HealthReport{CPUs: 4},
		}}))
		o, err := s.NodeOverview(t.Context(), n.ID)
		require.NoError(t, err)
		require.Equal(t, []any{true, "boot", "10.0.0.9", 4, state.State, n.Version}, []any{o.Heard, o.BootID, o.Address, o.Report.CPUs, o.Node.Status, o.Node.Version})
	}
	overdue, err := s.NodesOverdue(t.Context(), now.Add(time.Hour), 100)
	require.NoError(t, err)
	require.Empty(t, overdue)
	back, err := s.NodesBack(t.Context(), now.Add(-time.Hour), 100)
	require.NoError(t, err)
	require.Empty(t, back)
}
