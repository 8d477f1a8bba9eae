package relay_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/assembly/server/relay"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	allocationdb "github.com/slipway-cloud/slipway/db/allocation"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// waker keeps which jobs it was to tell.
type waker chan string

func (w waker) WakeClaim(_ context.Context, jobID string) error {
	w <- jobID
	return nil
}

// TestAFreeNodeWakesOneRequest: at once, by one of the relays, and only one request.
func TestAFreeNodeWakesOneRequest(t *testing.T) {
	t.Parallel()
	store := dbtest.Store(t)
	sku, project := dbtest.SKU(t, store), dbtest.Project(t, store)
	by := db.Actor{Owner: lifecycle.OwnerAdmin, ID: "test"}
	deadline := time.Now().Add(time.Hour)
	var waiting []string
	for range 3 {
		require.NoError(t, store.Tx(t.Context(), func(tx *db.Tx) error {
			a, err := allocationdb.Create(t.Context(), tx, allocationdb.New{
				ProjectID: project.ID, SKUID: sku.ID, RequestedBy: "test", QueueDeadline: &deadline, Actor: by,
			})
			if err != nil {
				return err
			}
			job, err := tx.CreateJob(t.Context(), db.NewJob{
				Kind: string(contract.KindAllocationProvision), ResourceKind: allocationdb.Resource, ResourceID: a.ID, Actor: by,
			})
			waiting = append(waiting, job.ID)
			return err
		}))
	}
	ctx, cancel := context.WithCancel(t.Context())
	told, s := make(waker, 10), &starter{started: map[string]int{}}
	var relays sync.WaitGroup
	for range 3 {
		r := &relay.Relay{Store: store, Starter: s, Claims: told, Name: "r", Log: slog.New(slog.DiscardHandler), Poll: time.Hour}
		relays.Go(func() { r.Run(ctx) })
	}
	require.Eventually(t, func() bool { return s.count() == 3 }, runenv.Patience(10*time.Second), 10*time.Millisecond, "the relays run")
	dbtest.FreeNode(t, store, dbtest.Of(sku.ID))
	select {
	case id := <-told:
		require.Equal(t, waiting[0], id)
	case <-time.After(runenv.Patience(10 * time.Second)):
		require.Fail(t, "nobody was told")
	}
	cancel()
	relays.Wait()
	require.Empty(t, told, "the others go on waiting")
}
