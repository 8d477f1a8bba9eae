package dbtest

import (
	"crypto/sha256"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// InstallWorkflow makes one whose attempts may be silent for half an hour.
func InstallWorkflow(t testing.TB, s *db.Store) db.InstallWorkflow {
	t.Helper()
	w, err := s.CreateInstallWorkflow(t.Context(), params(nil).Name, spec.InstallWorkflowSpec{
		Kernel: spec.BootImage{URL: "http://127.0.0.1/vmlinuz"}, DeadlineMinutes: 30,
	})
	require.NoError(t, err)
	return w
}

// PXENode makes a node of lifecycle pxe with that MAC address and an install
// workflow, and leads it to a state by legal transitions.
func PXENode(t testing.TB, s *db.Store, mac string, want lifecycle.NodeStatus) db.Node {
	t.Helper()
	workflow := InstallWorkflow(t, s)
	var n db.Node
	require.NoError(t, s.Tx(t.Context(), func(tx *db.Tx) error {
		var err error
		if n, _, err = tx.Discover(t.Context(), db.Discovery{MAC: mac, Source: "10.0.0.9", Facts: db.PXEFacts{Vendor: "Dell", SerialNumber: "S1"}}); err != nil {
			return err
		}
		if n, err = tx.AssignInstallWorkflow(t.Context(), n.ID, n.Version, workflow.ID); err != nil {
			return err
		}
		for _, m := range path(lifecycle.NodePXE, n.Status, want) {
			if n, err = tx.TransitionNode(t.Context(), n.ID, m, m.Needs, db.Actor{Owner: m.Owners[0], ID: "dbtest"}); err != nil {
				return err
			}
		}
		return nil
	}))
	require.Equal(t, want, n.Status, "no way leads there")
	return n
}

// BootToken gives a PXE node a boot token, as its script does, and returns the
// token's hash.
func BootToken(t testing.TB, s *db.Store, nodeID string) (hash []byte, ticket lifecycle.InstallAttempt) {
	t.Helper()
	sum := sha256.Sum256([]byte(db.NewID("secret")))
	require.NoError(t, s.Tx(t.Context(), func(tx *db.Tx) error {
		n, err := tx.LockNode(t.Context(), nodeID)
		if err != nil {
			return err
		}
		ticket, err = tx.AddPXEToken(t.Context(), n, sum[:], "")
		return err
	}))
	return sum[:], ticket
}
