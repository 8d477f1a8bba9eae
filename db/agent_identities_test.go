package db_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// identified makes an active node whose agent has enrolled, as generation 1 of enrolment 1.
func identified(t testing.TB, s *db.Store) db.Node {
	t.Helper()
	n := dbtest.Node(t, s, dbtest.Active())
	in(t, s, func(tx *db.Tx) error { return tx.SaveAgentIdentity(t.Context(), certificate(n.ID, 1)) })
	return n
}

// adopt has a certificate adopted that was issued so long after now.
func adopt(t testing.TB, s *db.Store, id string, generation, enrolment int64, after time.Duration) error {
	t.Helper()
	c := certificate(id, generation)
	c.Enrolment, c.NotBefore = enrolment, c.NotBefore.Add(after)
	c.IssuedAt = c.NotBefore
	c.KeyHash = hashOf("adopted")
	return s.Tx(t.Context(), func(tx *db.Tx) error { _, err := tx.AdoptAgentCertificate(t.Context(), c); return err })
}

func TestAdoptAgentCertificate(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		generation, enrolment int64
		after                 time.Duration
		locked                bool
		want                  error
	}{
		"newer":                               {7, 1, time.Minute, false, nil},
		"as new":                              {1, 1, time.Minute, false, db.ErrStale},
		"issued before the enrolment":         {7, 1, -time.Minute, false, db.ErrStale},
		"of a number that was given again":    {7, 2, -time.Minute, false, db.ErrStale},
		"of an enrolment before":              {7, 0, time.Minute, false, db.ErrStale},
		"later enrolment, older generation":   {1, 2, time.Minute, false, nil},
		"too far ahead":                       {db.MaxGenerationsAhead + 2, 1, time.Minute, false, db.ErrInvalid},
		"newer, locked":                       {7, 1, time.Minute, true, db.ErrStale},
		"later enrolment, after the lock":     {7, 2, time.Minute, true, nil},
		"later enrolment, before the lock":    {7, 2, 0, true, db.ErrStale},
		"later enrolment, too far in numbers": {7, db.MaxGenerationsAhead + 2, time.Minute, false, db.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := dbtest.Database(t)
			s, conn := dbtest.Open(t, dsn), raw(t, dsn)
			id := identified(t, s).ID
			if c.locked {
				exec(t, conn, "UPDATE agent_identities SET locked_at = now() + interval '30 seconds', locked_reason = 'copied'")
			}
			before, err := s.AgentIdentity(t.Context(), id)
			require.NoError(t, err)
			err = adopt(t, s, id, c.generation, c.enrolment, c.after)
			after, rerr := s.AgentIdentity(t.Context(), id)
			require.NoError(t, rerr)
			if c.want != nil {
				require.ErrorIs(t, err, c.want)
				require.Equal(t, before, after)
				return
			}
			require.NoError(t, err)
			require.Equal(t, [2]int64{c.generation, c.enrolment}, [2]int64{after.Generation, after.Enrolment})
			require.Nil(t, after.LockedAt)
			require.Equal(t, hashOf("adopted"), after.KeyHash)
			require.Equal(t, c.enrolment > 1, standing(t, s, id, "key1").Denied, "what a later enrolment replaces is denied")
			require.False(t, standing(t, s, id, "adopted").Denied)
		})
	}
}

func standing(t testing.TB, s *db.Store, id, key string) db.AgentStanding {
	t.Helper()
	shown := db.AgentKey{NodeID: id, Hash: [32]byte(hashOf(key))}
	all, err := s.AgentStandings(t.Context(), []db.AgentKey{shown, {NodeID: id, Hash: [32]byte(hashOf("another"))}})
	require.NoError(t, err)
	require.Len(t, all, 2, "each key has its own answer")
	return all[shown]
}

// TestIdentityEnds_WithItsNode moves nodes past any job: the transition itself ends the identity.
func TestIdentityEnds_WithItsNode(t *testing.T) {
	t.Parallel()
	maas, pxe := lifecycle.NodeMAAS.Lifecycle, lifecycle.NodePXE.Lifecycle
	for name, c := range map[string]struct {
		lifecycle string
		from, to  lifecycle.NodeStatus
	}{
		"deleted":         {maas, lifecycle.NodeRemoving, lifecycle.NodeDeleted},
		"retired":         {pxe, lifecycle.NodeActive, lifecycle.NodeRetired},
		"installed again": {pxe, lifecycle.NodeReprovision, lifecycle.NodePending},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := dbtest.Database(t)
			s, conn := dbtest.Open(t, dsn), raw(t, dsn)
			n := dbtest.Node(t, s, dbtest.Status(lifecycle.NodeRemoving))
			if c.lifecycle == pxe {
				n = dbtest.PXENode(t, s, mac(1), c.from)
			}
			var move lifecycle.Transition[lifecycle.NodeStatus]
			for _, owner := range []lifecycle.Owner{lifecycle.OwnerDecommission, lifecycle.OwnerAdmin, lifecycle.OwnerSystem} {
				if e, ok := lifecycle.NodeEdge(c.lifecycle, c.from, c.to, owner); ok {
					move = e
				}
			}
			in(t, s, func(tx *db.Tx) error { return tx.SaveAgentIdentity(t.Context(), certificate(n.ID, 1)) })
			require.NoError(t, issue(t, s, n.ID, "unused", time.Now().Add(time.Hour)))
			in(t, s, func(tx *db.Tx) error {
				_, err := tx.TransitionNode(t.Context(), n.ID, move, move.Needs, db.Actor{Owner: move.Owners[0], ID: "test"})
				return err
			})
			require.NotNil(t, standing(t, s, n.ID, "key1").LockedAt)
			require.True(t, standing(t, s, n.ID, "key1").Denied)
			require.False(t, standing(t, s, n.ID, "key2").Denied, "a key of no certificate is not denied")
			open, err := s.OpenEnrollmentTokens(t.Context(), n.ID)
			require.NoError(t, err)
			require.Zero(t, open)
			st, err := s.AgentIdentityStanding(t.Context(), n.ID)
			require.NoError(t, err)
			require.False(t, st.Works)
			require.NotEmpty(t, st.Why)

			_, err = s.PruneAgentIdentities(t.Context())
			require.NoError(t, err)
			require.True(t, standing(t, s, n.ID, "key1").Denied)
			exec(t, conn, "UPDATE denied_agent_keys SET denied_until = now() - interval '1 second'")
			_, err = s.PruneAgentIdentities(t.Context())
			require.NoError(t, err)
			require.False(t, standing(t, s, n.ID, "key1").Denied)
		})
	}
}
