package allocationdb_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	allocationdb "github.com/slipway-cloud/slipway/db/allocation"
	"github.com/slipway-cloud/slipway/db/dbtest"
	tenancydb "github.com/slipway-cloud/slipway/db/tenancy"
)

// TestKeys_EndWithTheirSSHKey: every way in which an SSH key of a project ends withdraws it from
// the project's allocations in that transaction, and from no other project's.
func TestKeys_EndWithTheirSSHKey(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*testing.T, *db.Store, tenancydb.SSHKey) error{
		"the key is deleted": func(t *testing.T, s *db.Store, k tenancydb.SSHKey) error {
			return s.ForProject(t.Context(), k.ProjectID, func(tx *db.ProjectTx) error { return tenancydb.DeleteSSHKey(t.Context(), tx, k.ID) })
		},
		"the member is removed": func(t *testing.T, s *db.Store, k tenancydb.SSHKey) error {
			return s.ForProject(t.Context(), k.ProjectID, func(tx *db.ProjectTx) error {
				return tenancydb.RemoveMember(t.Context(), tx, k.MemberID, 1)
			})
		},
		"the member is deleted with all that is his": func(t *testing.T, s *db.Store, k tenancydb.SSHKey) error {
			return s.ForProject(t.Context(), k.ProjectID, func(tx *db.ProjectTx) error {
				_, err := tx.DBTX().Exec(t.Context(), "DELETE FROM project_members WHERE id = $1 AND project_id = $2", k.MemberID, k.ProjectID)
				return err
			})
		},
		"the role does not allow keys": func(t *testing.T, s *db.Store, k tenancydb.SSHKey) error {
			return s.ForProject(t.Context(), k.ProjectID, func(tx *db.ProjectTx) error {
				return tenancydb.DeleteKeysAbove(t.Context(), tx, k.MemberID, "viewer")
			})
		},
		"the platform deletes it": func(t *testing.T, s *db.Store, k tenancydb.SSHKey) error {
			_, err := s.DBTX().Exec(t.Context(), "DELETE FROM project_ssh_keys WHERE id = $1 AND project_id = $2", k.ID, k.ProjectID)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := dbtest.Store(t)
			mine, other := dbtest.Occupy(t, s, dbtest.Node(t, s, dbtest.Active()).ID), dbtest.Occupy(t, s, dbtest.Node(t, s, dbtest.Active()).ID)
			ended := dbtest.Occupy(t, s, dbtest.Node(t, s, dbtest.Active()).ID)
			dbtest.EndTenancy(t, s, ended.ID)
			keys, err := tenancydb.ListKeysOf(t.Context(), s, mine.ProjectID)
			require.NoError(t, err)
			require.NoError(t, s.Tx(t.Context(), func(tx *db.Tx) error { // an owner stays
				_, err := tenancydb.AddMember(t.Context(), tx, mine.ProjectID, tenancydb.NewMember{Subject: "oidc:second", Role: "owner"})
				return err
			}))
			require.NoError(t, end(t, s, keys[0]))

			got, err := allocationdb.ListKeys(t.Context(), s, mine.ID)
			require.NoError(t, err)
			require.NotNil(t, got[0].WithdrawnAt)
			require.Equal(t, keys[0].MemberID, got[0].WithdrawnMember)
			due, err := allocationdb.KeysDue(t.Context(), s, mine.ID)
			require.NoError(t, err)
			require.True(t, due)
			for _, id := range []string{other.ID, ended.ID} {
				left, err := allocationdb.ListKeys(t.Context(), s, id)
				require.NoError(t, err)
				require.Nil(t, left[0].WithdrawnAt)
			}

			// He is invited again and adds the same key: it is not his key of this allocation any
			// more.
			require.NoError(t, s.Tx(t.Context(), func(tx *db.Tx) error {
				_, err := tx.DBTX().Exec(t.Context(), `INSERT INTO project_ssh_keys (project_id, id, member_id, name, type, public_key, fingerprint)
					SELECT project_id, 'key_again', id, 'again', 'ssh-ed25519', $2, $3 FROM project_members WHERE project_id = $1 AND subject = 'oidc:second'`,
					mine.ProjectID, dbtest.Key, dbtest.KeyFingerprint)
				return err
			}))
			require.NoError(t, allocationdb.RecordKey(t.Context(), s, mine.ID, dbtest.KeyFingerprint, false))
			_, err = allocationdb.WithdrawEndedKeys(t.Context(), s, 50)
			require.NoError(t, err)
			got, err = allocationdb.ListKeys(t.Context(), s, mine.ID)
			require.NoError(t, err)
			require.NotNil(t, got[0].WithdrawnAt)
			due, err = allocationdb.KeysDue(t.Context(), s, mine.ID)
			require.NoError(t, err)
			require.False(t, due)
		})
	}
}

// TestKeys_CustomersOnlyWithdraw: the role of customers puts no key back, and says of none that its
// node refuses it.
func TestKeys_CustomersOnlyWithdraw(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	a := dbtest.Occupy(t, s, dbtest.Node(t, s, dbtest.Active()).ID)
	try := func(sql string) error {
		return s.ForProject(t.Context(), a.ProjectID, func(tx *db.ProjectTx) error {
			_, err := tx.DBTX().Exec(t.Context(), sql)
			return err
		})
	}
	require.ErrorContains(t, try("UPDATE allocation_keys SET withdrawn_at = now(), refused_at = now()"), "changes nothing else")
	require.ErrorContains(t, try("UPDATE allocation_keys SET public_key = 'x'"), "permission denied")
	require.NoError(t, try("DELETE FROM project_ssh_keys"))
	for _, sql := range []string{"UPDATE allocation_keys SET withdrawn_at = NULL", "UPDATE allocation_keys SET refused_at = now()"} {
		require.ErrorContains(t, try(sql), "changes nothing else", sql)
	}
}

// TestWithdrawEndedKeys finds a key that ended while the allocation that names it was being
// written.
func TestWithdrawEndedKeys(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	a, kept := dbtest.Occupy(t, s, dbtest.Node(t, s, dbtest.Active()).ID), dbtest.Occupy(t, s, dbtest.Node(t, s, dbtest.Active()).ID)
	_, err := s.DBTX().Exec(t.Context(), "INSERT INTO allocation_keys (project_id, allocation_id, fingerprint, public_key) VALUES ($1, $2, 'SHA256:gone', 'k')", a.ProjectID, a.ID)
	require.NoError(t, err)
	for want := range 2 {
		n, err := allocationdb.WithdrawEndedKeys(t.Context(), s, 50)
		require.NoError(t, err)
		require.EqualValues(t, 1-want, n)
	}
	got, err := allocationdb.ListKeys(t.Context(), s, a.ID)
	require.NoError(t, err)
	inForce, former := allocationdb.SplitKeys(got)
	require.Equal(t, dbtest.KeyFingerprint, inForce[0].Fingerprint)
	require.Equal(t, "SHA256:gone", former[0].Fingerprint)
	due, err := allocationdb.KeysDue(t.Context(), s, kept.ID)
	require.NoError(t, err)
	require.False(t, due)
}
