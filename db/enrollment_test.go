package db_test

import (
	"crypto/sha256"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/test/runenv"
)

func hashOf(text string) []byte {
	sum := sha256.Sum256([]byte(text))
	return sum[:]
}

func issue(t testing.TB, s *db.Store, nodeID, token string, expires time.Time) error {
	t.Helper()
	return s.Tx(t.Context(), func(tx *db.Tx) error {
		return tx.IssueEnrollmentToken(t.Context(), nodeID, "", hashOf(token), expires)
	})
}

func redeem(t testing.TB, s *db.Store, token, key string, generation int64) (db.EnrollmentToken, db.TokenOutcome) {
	t.Helper()
	var row db.EnrollmentToken
	var outcome db.TokenOutcome
	in(t, s, func(tx *db.Tx) (err error) {
		row, outcome, err = tx.RedeemEnrollmentToken(t.Context(), hashOf(token), hashOf(key), generation)
		return err
	})
	return row, outcome
}

func TestWhatPresentingATokenMeets(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Database(t)
	s, conn := dbtest.Open(t, dsn), raw(t, dsn)
	n := dbtest.Node(t, s)
	soon := time.Now().Add(time.Hour)

	_, outcome := redeem(t, s, "never issued", "key", 1)
	require.Equal(t, db.TokenUnknown, outcome)

	require.NoError(t, issue(t, s, n.ID, "first", soon))
	require.NoError(t, issue(t, s, n.ID, "first", soon), "a repeated activity issues the same token again")
	row, outcome := redeem(t, s, "first", "key", 1)
	require.Equal(t, db.TokenFirst, outcome)
	require.Equal(t, n.ID, row.NodeID)
	row, outcome = redeem(t, s, "first", "key", 9)
	require.Equal(t, db.TokenReplay, outcome)
	require.EqualValues(t, 1, *row.UsedGeneration, "what it was traded for then")
	_, outcome = redeem(t, s, "first", "another key", 2)
	require.Equal(t, db.TokenUsedByOther, outcome)
	exec(t, conn, "UPDATE enrollment_tokens SET expires_at = now() - interval '1 second'")
	_, outcome = redeem(t, s, "first", "key", 1)
	require.Equal(t, db.TokenReplay, outcome, "a lost answer is given again, also late")

	require.NoError(t, issue(t, s, n.ID, "second", soon))
	_, outcome = redeem(t, s, "first", "key", 1)
	require.Equal(t, db.TokenRevoked, outcome, "a new token ends the old ones")
	var conflict *db.ConflictError
	require.ErrorAs(t, issue(t, s, n.ID, "first", soon), &conflict, "a revoked token does not come back")
	other := dbtest.Node(t, s)
	require.ErrorAs(t, issue(t, s, other.ID, "second", soon), &conflict, "a token is one node's")
	exec(t, conn, "UPDATE enrollment_tokens SET expires_at = now() - interval '1 second'")
	_, outcome = redeem(t, s, "second", "key", 2)
	require.Equal(t, db.TokenExpired, outcome)

	require.NoError(t, issue(t, s, n.ID, "third", soon))
	require.NoError(t, s.RevokeEnrollmentTokens(t.Context(), n.ID))
	require.NoError(t, s.RevokeEnrollmentTokens(t.Context(), n.ID))
	_, outcome = redeem(t, s, "third", "key", 2)
	require.Equal(t, db.TokenRevoked, outcome)
	require.ErrorIs(t, issue(t, s, "node_none", "fourth", soon), db.ErrNotFound)
	require.ErrorIs(t, s.Tx(t.Context(), func(tx *db.Tx) error {
		return tx.IssueEnrollmentToken(t.Context(), n.ID, "", []byte("the token itself"), soon)
	}), db.ErrInvalid, "only a SHA-256 is stored")
}

// The second key comes while the first one's transaction is still open: it
// waits, and then it is refused.
func TestOfTwoKeysAtOnceOneRedeemsAToken(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Database(t)
	s, conn := dbtest.Open(t, dsn), raw(t, dsn)
	n := dbtest.Node(t, s)
	require.NoError(t, issue(t, s, n.ID, "token", time.Now().Add(time.Hour)))
	second := make(chan db.TokenOutcome, 1)
	in(t, s, func(tx *db.Tx) error {
		_, outcome, err := tx.RedeemEnrollmentToken(t.Context(), hashOf("token"), hashOf("one"), 1)
		require.NoError(t, err)
		require.Equal(t, db.TokenFirst, outcome)
		go func() {
			var outcome db.TokenOutcome
			err := s.Tx(t.Context(), func(tx *db.Tx) (err error) {
				_, outcome, err = tx.RedeemEnrollmentToken(t.Context(), hashOf("token"), hashOf("two"), 1)
				return err
			})
			if err != nil {
				t.Error(err)
			}
			second <- outcome
		}()
		requireWaiter(t, conn)
		return nil
	})
	require.Equal(t, db.TokenUsedByOther, <-second)
}

// requireWaiter returns once a session of this database waits for a lock.
func requireWaiter(t testing.TB, conn *pgx.Conn) {
	t.Helper()
	require.Eventually(t, func() bool {
		var waiting bool
		err := conn.QueryRow(t.Context(), "SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')").Scan(&waiting)
		return err == nil && waiting
	}, runenv.Patience(10*time.Second), time.Millisecond)
}

func certificate(nodeID string, generation int64) db.AgentCertificate {
	now := time.Now().UTC().Truncate(time.Millisecond)
	return db.AgentCertificate{
		NodeID: nodeID, Generation: generation, Serial: fmt.Sprint("serial-", generation), KeyHash: hashOf(fmt.Sprint("key", generation)),
		CertPEM: "-----BEGIN CERTIFICATE-----", NotBefore: now, NotAfter: now.Add(time.Hour),
	}
}

func TestAnIdentityGoesGenerationByGeneration(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	n := dbtest.Node(t, s)
	save := func(generation int64) error {
		return s.Tx(t.Context(), func(tx *db.Tx) error { return tx.SaveAgentIdentity(t.Context(), certificate(n.ID, generation)) })
	}
	advance := func(from, to int64) error {
		return s.Tx(t.Context(), func(tx *db.Tx) error { return tx.AdvanceGeneration(t.Context(), n.ID, from, certificate(n.ID, to)) })
	}
	generation := func() int64 {
		id, err := s.AgentIdentity(t.Context(), n.ID)
		require.NoError(t, err)
		return id.Generation
	}
	_, err := s.AgentIdentity(t.Context(), n.ID)
	require.ErrorIs(t, err, db.ErrNotFound)
	require.ErrorIs(t, s.LockAgentIdentity(t.Context(), n.ID, "x"), db.ErrNotFound)
	require.ErrorIs(t, save(db.MaxGenerationsAhead+1), db.ErrStale, "too far ahead")
	require.NoError(t, save(1))
	require.ErrorIs(t, save(1), db.ErrStale)
	require.NoError(t, advance(1, 2))
	require.ErrorIs(t, advance(1, 2), db.ErrStale)
	require.ErrorIs(t, advance(1, 3), db.ErrInvalid)
	require.EqualValues(t, 2, generation())

	require.NoError(t, s.LockAgentIdentity(t.Context(), n.ID, "generation 1 was shown again"))
	require.NoError(t, s.LockAgentIdentity(t.Context(), n.ID, "once more"))
	id, err := s.AgentIdentity(t.Context(), n.ID)
	require.NoError(t, err)
	require.NotNil(t, id.LockedAt)
	require.Equal(t, "generation 1 was shown again", id.LockedReason, "the first reason stays")
	require.ErrorIs(t, advance(2, 3), db.ErrStale, "locked")
	require.NoError(t, save(3), "a new token unlocks")
	id, err = s.AgentIdentity(t.Context(), n.ID)
	require.NoError(t, err)
	require.Nil(t, id.LockedAt)
	require.Equal(t, hashOf("key3"), id.KeyHash)
	old, err := s.AgentCertificate(t.Context(), n.ID, 1)
	require.NoError(t, err)
	require.Equal(t, "serial-1", old.Serial)
}

func TestHeartbeatsAreWrittenInBatches(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	site := dbtest.Site(t, s)
	a, b := dbtest.Node(t, s, dbtest.At(site.ID), dbtest.Active()), dbtest.Node(t, s, dbtest.At(site.ID))
	gone := dbtest.Node(t, s, dbtest.At(site.ID), dbtest.Status(lifecycle.NodeDeleted))
	now := time.Now().UTC().Truncate(time.Millisecond)
	heartbeat := func(id string, at time.Time, report bool) db.Heartbeat {
		h := db.Heartbeat{NodeID: id, BootID: "boot " + at.Format(time.TimeOnly), AgentVersion: "1", Generation: 1, ReceivedAt: at,
			ClockSkew: -1500 * time.Millisecond, Uptime: 90 * time.Second, Address: "127.0.0.1"}
		if report {
			h.Report, h.Unhealthy = &spec.HealthReport{CPUs: 8, GPUError: "no driver"}, []string{"GPUs could not be read", `a "quoted", {odd} one`}
		}
		return h
	}
	require.NoError(t, s.RecordHeartbeats(t.Context(), nil))
	require.NoError(t, s.RecordHeartbeats(t.Context(), []db.Heartbeat{
		heartbeat(b.ID, now, false), heartbeat(a.ID, now.Add(-time.Second), false), heartbeat(a.ID, now, true), heartbeat(gone.ID, now, false), heartbeat("node_none", now, false),
	}))
	got, err := s.LatestHeartbeat(t.Context(), a.ID)
	require.NoError(t, err)
	require.True(t, now.Equal(got.ReceivedAt), "of two in a batch the newer")
	require.Equal(t, 8, got.Report.CPUs)
	require.Equal(t, []string{"GPUs could not be read", `a "quoted", {odd} one`}, got.Unhealthy)
	require.EqualValues(t, -1500, got.ClockSkewMS)
	require.InDelta(t, 90, got.UptimeSeconds, 0)
	plain, err := s.LatestHeartbeat(t.Context(), b.ID)
	require.NoError(t, err)
	require.Nil(t, plain.Report)
	require.Nil(t, plain.ReportedAt)
	for _, id := range []string{gone.ID, "node_none"} {
		_, err = s.LatestHeartbeat(t.Context(), id)
		require.ErrorIs(t, err, db.ErrNotFound)
	}

	require.NoError(t, s.RecordHeartbeats(t.Context(), []db.Heartbeat{heartbeat(a.ID, now.Add(-time.Minute), true)}))
	late, err := s.LatestHeartbeat(t.Context(), a.ID)
	require.NoError(t, err)
	require.Equal(t, got, late, "a late heartbeat changes nothing")
	require.NoError(t, s.RecordHeartbeats(t.Context(), []db.Heartbeat{heartbeat(a.ID, now.Add(time.Minute), false)}))
	next, err := s.LatestHeartbeat(t.Context(), a.ID)
	require.NoError(t, err)
	require.Equal(t, got.Report, next.Report, "a heartbeat without a report keeps the last")
	require.Equal(t, got.BootID, next.ReportBootID)
	require.NotEqual(t, got.BootID, next.BootID)

	bad := heartbeat(a.ID, now.Add(2*time.Minute), false)
	bad.BootID = "zero \x00 byte"
	require.ErrorIs(t, s.RecordHeartbeats(t.Context(), []db.Heartbeat{bad, heartbeat(b.ID, now.Add(time.Hour), false)}), db.ErrInvalid)
	plain, err = s.LatestHeartbeat(t.Context(), b.ID)
	require.NoError(t, err)
	require.True(t, now.Equal(plain.ReceivedAt), "nothing of a refused batch is stored")
}

func TestTheHeartbeatSweepFindsWhoIsOverdueAndWhoIsBack(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	now := time.Now()
	silent := dbtest.Node(t, s, dbtest.Active())
	beating := dbtest.Node(t, s, dbtest.Active())
	back := dbtest.Node(t, s, dbtest.Status(lifecycle.NodeOffline))
	sick := dbtest.Node(t, s, dbtest.Status(lifecycle.NodeOffline))
	dbtest.Node(t, s, dbtest.Status(lifecycle.NodeOffline))
	require.NoError(t, s.RecordHeartbeats(t.Context(), []db.Heartbeat{
		{NodeID: beating.ID, ReceivedAt: now.Add(time.Hour)}, {NodeID: back.ID, ReceivedAt: now, Report: &spec.HealthReport{}},
		{NodeID: sick.ID, ReceivedAt: now, Report: &spec.HealthReport{}, Unhealthy: []string{"8 GPUs expected, 0 found"}},
	}))
	ids, err := s.NodesOverdue(t.Context(), now.Add(time.Minute), 0)
	require.NoError(t, err)
	require.Equal(t, []string{silent.ID}, ids)
	ids, err = s.NodesOverdue(t.Context(), now.Add(-time.Minute), 0)
	require.NoError(t, err)
	require.Empty(t, ids, "a node that just became active has time for its first heartbeat")
	ids, err = s.NodesBack(t.Context(), now.Add(-time.Minute), 0)
	require.NoError(t, err)
	require.Equal(t, []string{back.ID}, ids)
}

// Batches of the same nodes in opposite order must not wait on each other in a
// circle.
func TestHeartbeatBatchesAtOnce(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	site := dbtest.Site(t, s)
	var ids []string
	for range 12 {
		ids = append(ids, dbtest.Node(t, s, dbtest.At(site.ID)).ID)
	}
	var wg sync.WaitGroup
	for w := range 6 {
		wg.Go(func() {
			for round := range 20 {
				var batch []db.Heartbeat
				for i := range ids {
					at := i
					if w%2 == 1 {
						at = len(ids) - 1 - i
					}
					batch = append(batch, db.Heartbeat{NodeID: ids[at], ReceivedAt: time.Now(), Generation: int64(round)})
				}
				if err := s.RecordHeartbeats(t.Context(), batch); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

func TestAPITokensAreStoredByHash(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	later := time.Now().Add(time.Hour)
	tok, err := s.CreateAPIToken(t.Context(), "ci", hashOf("slp_secret"), []string{"operator", "viewer"}, later)
	require.NoError(t, err)
	got, err := s.APITokenByHash(t.Context(), hashOf("slp_secret"))
	require.NoError(t, err)
	require.Equal(t, tok, got)
	require.Equal(t, []string{"operator", "viewer"}, got.Roles)
	_, err = s.APITokenByHash(t.Context(), hashOf("other"))
	require.ErrorIs(t, err, db.ErrNotFound)
	var conflict *db.ConflictError
	_, err = s.CreateAPIToken(t.Context(), "ci", hashOf("slp_secret"), nil, later)
	require.ErrorAs(t, err, &conflict)
	require.NoError(t, s.RevokeAPIToken(t.Context(), tok.ID))
	require.NoError(t, s.RevokeAPIToken(t.Context(), tok.ID))
	require.ErrorIs(t, s.RevokeAPIToken(t.Context(), "tok_none"), db.ErrNotFound)
	list, err := s.ListAPITokens(t.Context(), "", 0)
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.NotNil(t, list[0].RevokedAt)
}
