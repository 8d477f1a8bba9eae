package db

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/slipway-cloud/slipway/db/gen"
	"github.com/slipway-cloud/slipway/internal/poll"
)

// The channels that inserts wake.
const (
	ChannelOutbox = "slipway_outbox" // a row came into the outbox
	ChannelEvents = "slipway_events" // events were relayed
	// ChannelTasks carries the node whose agent may find a task.
	ChannelTasks    = "slipway_tasks"
	ChannelTaskEnds = "slipway_task_ends" // a node task has ended
	// ChannelRunLogs carries the run of which output was stored, or that ended.
	ChannelRunLogs = "slipway_run_logs"
)

// listener is the statement that listens on a channel, nil for an unknown one.
func listener(q *gen.Queries, channel string) func(context.Context) error {
	switch channel {
	case ChannelOutbox:
		return q.ListenOutbox
	case ChannelEvents:
		return q.ListenEvents
	case ChannelTasks:
		return q.ListenTasks
	case ChannelTaskEnds:
		return q.ListenTaskEnds
	case ChannelRunLogs:
		return q.ListenRunLogs
	}
	return nil
}

const (
	listenBackoffMin = 100 * time.Millisecond
	listenBackoffMax = 10 * time.Second
	listenCheckEvery = 30 * time.Second
)

// Listen calls fn at every notification of a channel until ctx ends, and then
// returns ctx.Err(). It uses a connection of its own and connects again when
// it breaks; fn is called after every connect as well, since what was notified
// meanwhile is lost. fn runs on the calling goroutine: a poll behind it is
// still needed only against a bug. An unknown channel is an error at once.
func (s *Store) Listen(ctx context.Context, channel string, fn func()) error {
	return s.ListenFor(ctx, channel, func(string) { fn() })
}

// ListenFor is Listen with what was notified; "" after every connect.
func (s *Store) ListenFor(ctx context.Context, channel string, fn func(payload string)) error {
	if listener(s.q, channel) == nil {
		return fmt.Errorf("there is no channel %q; listen on %s, %s, %s, %s or %s", channel, ChannelOutbox, ChannelEvents, ChannelTasks, ChannelTaskEnds, ChannelRunLogs)
	}
	wait := listenBackoffMin
	for {
		connected := s.listenOnce(ctx, channel, fn)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if connected {
			wait = listenBackoffMin
		}
		if err := poll.Sleep(ctx, wait); err != nil {
			return err
		}
		wait = min(2*wait, listenBackoffMax)
	}
}

// listenOnce serves one connection and says whether it came up.
func (s *Store) listenOnce(ctx context.Context, channel string, fn func(string)) (connected bool) {
	period := s.primary.current() // connecting checks the server
	conn, err := pgx.ConnectConfig(ctx, s.pool.Config().ConnConfig)
	if err != nil {
		return false
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(closing)
	}()
	if err := listener(gen.New(conn), channel)(ctx); err != nil {
		return false
	}
	for payload := ""; ; {
		fn(payload)
		if payload, err = s.waitForNotification(ctx, conn, &period); err != nil {
			return true
		}
	}
}

// waitForNotification also checks the connection after each error that a failover can cause, and
// when it has been silent for listenCheckEvery. period is the one in which it was checked last: an
// error may come while nobody waits here.
func (s *Store) waitForNotification(ctx context.Context, conn *pgx.Conn, period *context.Context) (payload string, err error) {
	for {
		waiting, cancel := context.WithTimeout(ctx, listenCheckEvery)
		stop := context.AfterFunc(*period, cancel)
		n, err := conn.WaitForNotification(waiting)
		quiet := waiting.Err() != nil && ctx.Err() == nil
		stop()
		cancel()
		if err == nil {
			return n.Payload, nil
		}
		if !quiet {
			return "", err
		}
		*period = s.primary.current()
		if err := s.primary.check(ctx, conn); err != nil {
			return "", err
		}
	}
}
