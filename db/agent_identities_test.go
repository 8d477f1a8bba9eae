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
			if c.enrolment > 1 {
				require.Equal(t, [2]int64{1, 1}, ended(t, s, id), "the enrolment that a later one replaces has ended")
			} else {
				require.Zero(t, ended(t, s, id))
			}
		})
	}
}

func standing(t testing.TB, s *db.Store, id string) db.AgentStanding {
	t.Helper()
	all, err := s.AgentStandings(t.Context(), []string{id, id, "node_unknown"})
	require.NoError(t, err)
	require.Len(t, all, 1)
	return all[id]
}

// ended returns the last enrolment and the last generation of a node's agent that have ended.
func ended(t testing.TB, s *db.Store, id string) [2]int64 {
	t.Helper()
	st := standing(t, s, id)
	return [2]int64{st.EndedEnrolment, st.EndedGeneration}
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
			s := dbtest.Store(t)
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
			require.NotNil(t, standing(t, s, n.ID).LockedAt)
			require.Equal(t, [2]int64{1, 1}, ended(t, s, n.ID))
			open, err := s.OpenEnrollmentTokens(t.Context(), n.ID)
			require.NoError(t, err)
			require.Zero(t, open)
			st, err := s.AgentIdentityStanding(t.Context(), n.ID)
			require.NoError(t, err)
			require.False(t, st.Works)
			require.NotEmpty(t, st.Why)
		})
	}
}

// Whoever has the key of an agent may have had thousands of certificates. The end of its identity
// costs no more for them, and all of them but the newest go when their time is over. That takes
// milliseconds, also where the statistics of the table are from before the certificates.
func TestIdentityEnds_WhateverCameBefore(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Database(t)
	s, conn := dbtest.Open(t, dsn), raw(t, dsn)
	n := dbtest.Node(t, s)
	in(t, s, func(tx *db.Tx) error { return tx.SaveAgentIdentity(t.Context(), certificate(n.ID, 1)) })
	exec(t, conn, "BEGIN")
	exec(t, conn, `INSERT INTO agent_certificates (node_id, generation, serial, key_hash, cert_pem, not_before, not_after, enrolment)
		SELECT node_id, g, g::text, sha256(g::text::bytea), '', now() - interval '8 days', now() - interval '1 day', enrolment
		FROM agent_certificates, generate_series(2, 5000) g WHERE node_id = $1 AND generation = 1`, n.ID)
	exec(t, dbtest.Owner(t, dsn), "ANALYZE agent_certificates, agent_identities")
	exec(t, conn, "COMMIT")
	exec(t, conn, "UPDATE agent_identities SET generation = 5000 WHERE node_id = $1", n.ID)
	rows := func() (count int) {
		t.Helper()
		require.NoError(t, conn.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM agent_identities) + (SELECT count(*) FROM agent_certificates)
			+ (SELECT count(*) FROM agent_refusals)`).Scan(&count))
		return count
	}
	before := rows()
	in(t, s, func(tx *db.Tx) error { return tx.EndAgentIdentity(t.Context(), n.ID, "another system is installed") })
	require.Equal(t, before, rows())
	require.Equal(t, [2]int64{1, 5000}, ended(t, s, n.ID))
	hasty := dbtest.Open(t, dsn+"&statement_timeout=10s")
	for {
		deleted, err := hasty.PruneAgentIdentities(t.Context())
		require.NoError(t, err)
		if deleted == 0 {
			break
		}
	}
	require.Equal(t, 3, rows(), "the identity, the newest certificate, and the first one, which has not ended")
}
