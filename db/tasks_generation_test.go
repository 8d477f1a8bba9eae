package db_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// A node that was installed again is another machine as far as anybody knows: the
// older installation may run on until its lease is over.
func TestAnOlderGenerationKeepsItsDeliveryUntilItsLeaseIsOver(t *testing.T) {
	t.Parallel()
	w := newTasks(t)
	w.enqueue(lifecycle.TaskKindDrain, "k")
	first := w.claim()
	exec(t, w.conn, "INSERT INTO agent_certificates (node_id, generation, serial, key_hash, cert_pem, not_before, not_after) "+
		"VALUES ($1, 2, '2', sha256('l'), 'PEM', now(), now())", w.node.ID)
	exec(t, w.conn, "UPDATE agent_identities SET generation = 2 WHERE node_id = $1", w.node.ID)
	require.NoError(t, w.RecordHeartbeats(t.Context(), []db.Heartbeat{{NodeID: w.node.ID, BootID: "boot-2", Generation: 2, ReceivedAt: time.Now().Add(time.Minute)}}))
	newer := db.TaskClaim{BootID: "boot-2", Generation: 2}
	require.Nil(t, w.try(newer).Task, "not while the older one may begin a step")
	require.Zero(t, w.settle())
	w.is(first.ID, lifecycle.TaskDispatched)
	w.leaseEnds()
	second := w.try(newer).Task
	require.NotNil(t, second)
	require.Equal(t, first.ID, second.ID)
	require.EqualValues(t, 2, second.Generation)
	_, err := w.FinishTask(t.Context(), fence(first), done)
	require.ErrorIs(t, err, db.ErrLeaseLost)
	_, err = w.FinishTask(t.Context(), fence(*second), done)
	require.NoError(t, err)
	w.untouched()
}
