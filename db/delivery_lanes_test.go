package db_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db/dbtest"
)

// The epoch of events is the same in every session, and another one after the operator renewed it.
func TestEventCursor_EpochIsRenewed(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	before, err := s.ReadEventCursor(t.Context())
	require.NoError(t, err)
	require.Regexp(t, "^[0-9a-f]{8}$", before.Epoch)
	again, err := s.ReadEventCursor(t.Context())
	require.NoError(t, err)
	require.Equal(t, before.Epoch, again.Epoch)
	_, err = s.DBTX().Exec(t.Context(), "UPDATE event_cursor SET epoch = gen_random_uuid()::text")
	require.NoError(t, err)
	after, err := s.ReadEventCursor(t.Context())
	require.NoError(t, err)
	require.NotEqual(t, before.Epoch, after.Epoch)
	other, err := dbtest.Open(t, dbtest.FreshDatabase(t)).ReadEventCursor(t.Context())
	require.NoError(t, err)
	require.NotEqual(t, after.Epoch, other.Epoch, "of another database")
}
