package agentapi_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/agentapi"
	"github.com/slipway-cloud/slipway/api/agentapi/agentapitest"
)

// slowly is a store that answers a query when the test lets it.
type slowly struct {
	*agentapitest.Memory
	mu    sync.Mutex
	asked []int
	go1   chan struct{}
}

func (c *slowly) Standings(ctx context.Context, ids []string) (map[string]agentapi.Standing, error) {
	c.mu.Lock()
	c.asked = append(c.asked, len(ids))
	c.mu.Unlock()
	<-c.go1
	return c.Memory.Standings(ctx, ids)
}

// Requests that arrive during a query share the next query, and none gets an older answer.
func TestStandings_ShareOneQuery(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &slowly{Memory: agentapitest.New(), go1: make(chan struct{})}
		for i := range 50 {
			s.AddNode(fmt.Sprint("n", i))
		}
		of := agentapi.NewStandingReader(s)
		var all sync.WaitGroup
		ask := func(id string) {
			all.Go(func() {
				got, err := of(t.Context(), id)
				if id == "gone" {
					require.ErrorContains(t, err, "removed")
					return
				}
				require.NoError(t, err)
				require.Equal(t, id, got.NodeID)
			})
		}
		ask("n0")
		synctest.Wait()
		for i := 1; i < 50; i++ {
			ask(fmt.Sprint("n", i))
		}
		ask("gone")
		ask("n7") // twice at once
		ctx, cancel := context.WithCancel(t.Context())
		all.Go(func() {
			_, err := of(ctx, "n8")
			require.ErrorIs(t, err, context.Canceled, "a cancelled request does not delay the others")
		})
		synctest.Wait()
		cancel()
		s.go1 <- struct{}{}
		synctest.Wait()
		s.go1 <- struct{}{}
		all.Wait()
		require.Equal(t, []int{1, 52}, s.asked)
		ask("n3")
		s.go1 <- struct{}{}
		all.Wait()
		require.Equal(t, []int{1, 52, 1}, s.asked, "the answer is not cached")
	})
}
