package db_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// TestTakingAJobUpShows: a live job's number rises with each run that takes it
// up, and nothing else changes; one that has ended is only read.
func TestTakingAJobUpShows(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	j := dbtest.Job(t, s)
	for run := int64(1); run <= 2; run++ {
		got, err := s.TakeJob(t.Context(), j.ID)
		require.NoError(t, err)
		require.Equal(t, run, got.Seq)
		got.Seq = j.Seq
		require.Equal(t, j, got)
	}
	ended := dbtest.Job(t, s, dbtest.JobStatus(lifecycle.JobCompleted))
	got, err := s.TakeJob(t.Context(), ended.ID)
	require.NoError(t, err)
	require.Equal(t, ended, got)
	_, err = s.TakeJob(t.Context(), "job_none")
	require.ErrorIs(t, err, db.ErrNotFound)
}

// TestOpenTokensAreThoseNotRevoked, used or not.
func TestOpenTokensAreThoseNotRevoked(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	n := dbtest.Node(t, s)
	open := func() int64 {
		count, err := s.OpenEnrollmentTokens(t.Context(), n.ID)
		require.NoError(t, err)
		return count
	}
	require.Zero(t, open())
	hash := make([]byte, 32)
	require.NoError(t, s.Tx(t.Context(), func(tx *db.Tx) error {
		if err := tx.IssueEnrollmentToken(t.Context(), n.ID, "", hash, time.Now().Add(time.Hour)); err != nil {
			return err
		}
		_, _, err := tx.RedeemEnrollmentToken(t.Context(), hash, []byte("key"), 1)
		return err
	}))
	require.EqualValues(t, 1, open())
	require.NoError(t, s.RevokeEnrollmentTokens(t.Context(), n.ID))
	require.Zero(t, open())
}
