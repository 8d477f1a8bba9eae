package relay_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/assembly/server/relay"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// completer is a Temporal that is away at first.
type completer struct {
	mu   sync.Mutex
	away bool
	gone bool
	told []string // activities, each with the failure
}

func (c *completer) CompleteActivity(_ context.Context, workflow, run, activity string, _ any, failure error) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	what := workflow + "/" + run + "/" + activity
	if failure != nil {
		what += " failed"
	}
	c.told = append(c.told, what)
	if c.away {
		return false, errors.New("Temporal does not answer")
	}
	return c.gone, nil
}

func (c *completer) set(away, gone bool) { c.mu.Lock(); c.away, c.gone = away, gone; c.mu.Unlock() }

func (c *completer) all() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string{}, c.told...)
}

func TestTheEndOfATaskIsToldUntilItIsHeard(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Database(t)
	store := dbtest.Open(t, dsn)
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	node := dbtest.Node(t, store, dbtest.Active())
	c := &completer{away: true}
	r := &relay.Relay{Store: store, Starter: &starter{started: map[string]int{}}, Tasks: c, Name: "r", Log: slog.New(slog.DiscardHandler), Poll: 20 * time.Millisecond}
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() { defer close(over); r.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-over })

	ask := func(key string) db.NodeTask {
		got, done, err := store.AwaitTask(t.Context(), db.NewTask{NodeID: node.ID, Kind: lifecycle.TaskKindDrain, Args: json.RawMessage(`{"grace_seconds": 1}`), Key: key,
			Deadline: time.Now().Add(100 * time.Millisecond), Waiter: db.TaskWaiter{WorkflowID: "w", RunID: "r", ActivityID: key}, Actor: db.Actor{Owner: lifecycle.OwnerJob}})
		require.NoError(t, err)
		require.False(t, done)
		return got
	}
	read := func(id string) db.NodeTask {
		got, err := store.Task(t.Context(), id)
		require.NoError(t, err)
		return got
	}
	first := ask("1") // nobody takes it: the relay notices, too
	require.Eventually(t, func() bool { return len(c.all()) == 1 }, runenv.Patience(10*time.Second), 10*time.Millisecond)
	require.Nil(t, read(first.ID).ToldAt)
	c.set(false, false)
	_, err = conn.Exec(t.Context(), "UPDATE node_tasks SET tell_at = now()") // its claim is over
	require.NoError(t, err)
	require.Eventually(t, func() bool { return read(first.ID).ToldAt != nil }, runenv.Patience(10*time.Second), 10*time.Millisecond)
	require.Equal(t, []string{"w/r/1 failed", "w/r/1 failed"}, c.all())
	require.Equal(t, lifecycle.TaskExpired, read(first.ID).Status)

	c.set(false, true)
	second := ask("2")
	require.Eventually(t, func() bool { return read(second.ID).WaiterActivityID == "" }, runenv.Patience(10*time.Second), 10*time.Millisecond)
	require.Nil(t, read(second.ID).ToldAt, "nobody heard it")
	require.Len(t, c.all(), 3)
}
