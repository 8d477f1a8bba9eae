package db_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
)

func give(t testing.TB, s *db.Store, nodeID, address, ref string, newMachine bool) (db.BMC, error) {
	t.Helper()
	return do(t, s, func(ctx context.Context, tx *db.Tx) (db.BMC, error) {
		return tx.GiveBMC(ctx, nodeID, db.BMCSpec{NewBMC: db.NewBMC{Address: address, Protocol: "redfish", CredentialRef: ref}, NewMachine: newMachine}, pxeAdmin)
	})
}

// rotate takes a BMC's login as far as a state; RotationNone is to the end. It
// returns the reference of the password that was made.
func rotate(t testing.TB, s *db.Store, bmcID string, to lifecycle.RotationState) string {
	t.Helper()
	job := dbtest.Job(t, s)
	row, err := s.BeginBMCRotation(t.Context(), bmcID, job.ID)
	require.NoError(t, err)
	ref := "bmc/rotated/" + bmcID + "/" + row.ID + "@1"
	require.NoError(t, s.SetBMCCandidate(t.Context(), bmcID, ref, ""))
	from := lifecycle.RotationPrepared
	for _, move := range []lifecycle.Transition[lifecycle.RotationState]{lifecycle.RotationSend, lifecycle.RotationAccept, lifecycle.RotationVerify} {
		require.NoError(t, s.MoveBMCRotation(t.Context(), bmcID, ref, from, move))
		if from = move.To; from == to {
			return ref
		}
	}
	require.NoError(t, s.CommitBMCRotation(t.Context(), bmcID, ref, "done"))
	return ref
}

// migrated puts a node on other hardware, with its BMC.
func migrated(t testing.TB, s *db.Store, n db.Node, mac string, b db.PlannedBMC) {
	t.Helper()
	j, err := begin(t, s, n.ID, lifecycle.ModeMigrate)
	require.NoError(t, err)
	_, err = do(t, s, func(ctx context.Context, tx *db.Tx) (db.Node, error) {
		now, err := tx.Node(ctx, n.ID)
		require.NoError(t, err)
		return tx.PlanHardware(ctx, n.ID, now.Version, db.PlannedHardware{MACs: []string{mac}, Disks: db.DisksNew, BMC: &b}, pxeAdmin)
	})
	require.NoError(t, err)
	for range 2 { // repeated, it changes nothing
		_, err = do(t, s, func(ctx context.Context, tx *db.Tx) (db.PlannedHardware, error) {
			return tx.ApplyHardware(ctx, n.ID, j.ID, db.Actor{Owner: lifecycle.OwnerDecommission, ID: j.ID})
		})
		require.NoError(t, err)
	}
}

// TestThePasswordOfABMCThatWasReplacedIsKept: nobody but its record names it,
// and rotations of the new BMC do not make it superfluous.
func TestThePasswordOfABMCThatWasReplacedIsKept(t *testing.T) {
	t.Parallel()
	for name, same := range map[string]bool{"another address": false, "the address passed on": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := dbtest.Store(t)
			n := dbtest.PXENode(t, s, mac(971), lifecycle.NodeActive)
			a, err := give(t, s, n.ID, "https://192.0.2.71", "bmc/a", false)
			require.NoError(t, err)
			rotate(t, s, a.ID, lifecycle.RotationNone)
			kept := rotate(t, s, a.ID, lifecycle.RotationNone)
			to := "https://192.0.2.72"
			if same {
				to = "192.0.2.71:443"
			}
			migrated(t, s, n, mac(972), db.PlannedBMC{Address: to, Protocol: "redfish", CredentialRef: "bmc/b"})

			b, err := s.BMCOfNode(t.Context(), n.ID)
			require.NoError(t, err)
			require.NotEqual(t, a.ID, b.ID)
			require.Equal(t, []string{to, "bmc/b", "", "", ""}, []string{b.Address, b.CredentialRef, b.CandidateRef, b.PreviousRef, string(b.RotationState)})
			for range 3 {
				rotate(t, s, b.ID, lifecycle.RotationNone)
			}
			left, err := s.BMC(t.Context(), a.ID)
			require.NoError(t, err)
			require.Nil(t, left.NodeID)
			require.Equal(t, []string{"https://192.0.2.71", kept}, []string{left.Address, left.CredentialRef})
			spent, err := s.SpentBMCRotations(t.Context(), a.ID)
			require.NoError(t, err)
			for _, r := range spent {
				require.NotEqual(t, kept, r.ToRef)
			}
			for _, id := range []string{a.ID, b.ID} {
				rows, err := s.ResourceTimeline(t.Context(), "bmc", id, 0, 10)
				require.NoError(t, err)
				said := map[string]string{}
				require.NoError(t, json.Unmarshal(rows[0].Metadata, &said))
				require.Equal(t, []string{"https://192.0.2.71", to}, []string{said["old_address"], said["address"]}, "%s %s", rows[0].Name, rows[0].Metadata)
			}
		})
	}
}

// TestARotationThatWasLeftOpenStaysWithItsBMC: the new one is asked with its own
// login, and is never sent the other's password.
func TestARotationThatWasLeftOpenStaysWithItsBMC(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	for i, state := range []lifecycle.RotationState{lifecycle.RotationApplying, lifecycle.RotationApplied} {
		n := dbtest.PXENode(t, s, mac(973+i), lifecycle.NodeActive)
		a, err := give(t, s, n.ID, "https://192.0.2."+[]string{"73", "74"}[i], "bmc/a", false)
		require.NoError(t, err)
		candidate := rotate(t, s, a.ID, state)
		require.NoError(t, s.SetBMCPin(t.Context(), a.ID, "abcd"))
		require.NoError(t, s.BlockBMCLogin(t.Context(), a.ID, "rejected"))
		if state == lifecycle.RotationApplied {
			_, err = give(t, s, n.ID, a.Address, "bmc/other", false)
			conflict(t, err, "rotation", a.ID)
		}
		b, err := give(t, s, n.ID, "https://192.0.2."+[]string{"83", "84"}[i], "bmc/b", false)
		require.NoError(t, err)
		require.Equal(t, []string{"bmc/b", "", "", ""}, []string{b.CredentialRef, b.CandidateRef, string(b.RotationState), b.PinSHA256})
		require.Nil(t, b.AuthBlockedAt, "the other BMC's block")
		left, err := s.BMC(t.Context(), a.ID)
		require.NoError(t, err)
		require.Nil(t, left.NodeID)
		require.Equal(t, []string{"bmc/a", candidate, string(state), "abcd"}, []string{left.CredentialRef, left.CandidateRef, string(left.RotationState), left.PinSHA256})
		require.NotNil(t, left.AuthBlockedAt)
	}
}

// TestTheSameBMCKeepsItsRecord, however its address is written.
func TestTheSameBMCKeepsItsRecord(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	n := dbtest.PXENode(t, s, mac(977), lifecycle.NodeActive)
	a, err := give(t, s, n.ID, "192.0.2.75", "bmc/a", false)
	require.NoError(t, err)
	again, err := give(t, s, n.ID, "192.0.2.75", "bmc/a", true)
	require.NoError(t, err)
	require.Equal(t, a, again)
	written, err := give(t, s, n.ID, "https://192.0.2.75:443/", "bmc/b", false)
	require.NoError(t, err)
	require.Equal(t, []string{a.ID, "https://192.0.2.75:443/", "bmc/b"}, []string{written.ID, written.Address, written.CredentialRef})
}
