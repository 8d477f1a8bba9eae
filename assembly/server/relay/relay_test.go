package relay_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/assembly/server/relay"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// starter hangs for one job as Temporal does when it is away, and starts the
// others.
type starter struct {
	mu      sync.Mutex
	hangs   string
	hanging chan struct{}
	started map[string]int
}

func (s *starter) StartJob(ctx context.Context, in contract.JobInput, _ string) (string, error) {
	s.mu.Lock()
	hangs := in.JobID == s.hangs
	if !hangs {
		s.started[in.JobID]++
	}
	s.mu.Unlock()
	if !hangs {
		return "run", nil
	}
	select {
	case s.hanging <- struct{}{}:
	default:
	}
	<-ctx.Done()
	return "", errors.New("Temporal does not answer")
}

func (s *starter) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.started)
}

// TestAStartThatHangsHoldsUpNoOther: and when the relay ends, the row that hung
// is given back with its cause.
func TestAStartThatHangsHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	store := dbtest.Store(t)
	var jobs []db.Job
	for range 12 {
		jobs = append(jobs, dbtest.Job(t, store))
	}
	s := &starter{hangs: jobs[0].ID, hanging: make(chan struct{}, 1), started: map[string]int{}}
	r := &relay.Relay{Store: store, Starter: s, Name: "r1", Log: slog.New(slog.DiscardHandler), Poll: 20 * time.Millisecond}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Run(ctx)
	}()
	<-s.hanging
	require.Eventually(t, func() bool { return s.count() == len(jobs)-1 }, runenv.Patience(5*time.Second), 10*time.Millisecond)
	cancel()
	<-done
	require.Eventually(t, func() bool {
		b, err := store.OutboxBacklog(t.Context(), "start_workflow")
		return err == nil && b.Open == 1
	}, runenv.Patience(5*time.Second), 10*time.Millisecond, "what was started is noted, though the relay was ending")
	for id, n := range s.started {
		require.Equal(t, 1, n, id)
	}
	rows, err := store.ClaimOutbox(t.Context(), "r2", 10, time.Minute)
	require.NoError(t, err)
	if len(rows) == 0 { // it is due in a moment
		require.Eventually(t, func() bool {
			rows, err = store.ClaimOutbox(t.Context(), "r2", 10, time.Minute)
			return err == nil && len(rows) == 1
		}, runenv.Patience(10*time.Second), 50*time.Millisecond)
	}
	require.Equal(t, jobs[0].ID, rows[0].JobID)
}

// TestRelay_ClaimsForItsLease claims a start for longer than the default lease, and not for longer
// than the lease that is set.
func TestRelay_ClaimsForItsLease(t *testing.T) {
	t.Parallel()
	store := dbtest.Store(t)
	s := &starter{hangs: dbtest.Job(t, store).ID, hanging: make(chan struct{}, 1), started: map[string]int{}}
	r := &relay.Relay{Store: store, Starter: s, Name: "r1", Log: slog.New(slog.DiscardHandler), Lease: 5 * time.Minute}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Run(ctx)
	}()
	<-s.hanging
	tooLong, err := store.ReleaseClaims(t.Context(), 5*time.Minute)
	require.NoError(t, err)
	require.Zero(t, tooLong)
	longer, err := store.ReleaseClaims(t.Context(), 30*time.Second)
	require.NoError(t, err)
	require.EqualValues(t, 1, longer)
	cancel()
	<-done
}
