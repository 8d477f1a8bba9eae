package db

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/slipway-cloud/slipway/db/gen"
)

// The channels that inserts wake.
const (
	ChannelOutbox = "slipway_outbox" // a row came into the outbox
	ChannelEvents = "slipway_events" // events were relayed
)

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
	if channel != ChannelOutbox && channel != ChannelEvents {
		return fmt.Errorf("there is no channel %q; listen on %s or %s", channel, ChannelOutbox, ChannelEvents)
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
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
		wait = min(2*wait, listenBackoffMax)
	}
}

// listenOnce serves one connection and says whether it came up.
func (s *Store) listenOnce(ctx context.Context, channel string, fn func()) (connected bool) {
	conn, err := pgx.ConnectConfig(ctx, s.pool.Config().ConnConfig)
	if err != nil {
		return false
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(closing)
	}()
	q := gen.New(conn)
	listen := q.ListenOutbox
	if channel == ChannelEvents {
		listen = q.ListenEvents
	}
	if err := listen(ctx); err != nil {
		return false
	}
	for {
		fn()
		if err := waitForNotification(ctx, conn); err != nil {
			return true
		}
	}
}

// waitForNotification also asks now and then whether a silent connection is
// still there.
func waitForNotification(ctx context.Context, conn *pgx.Conn) error {
	for {
		waiting, cancel := context.WithTimeout(ctx, listenCheckEvery)
		_, err := conn.WaitForNotification(waiting)
		quiet := waiting.Err() != nil && ctx.Err() == nil
		cancel()
		if err == nil || !quiet {
			return err
		}
		checking, cancel := context.WithTimeout(ctx, connectTimeout)
		err = conn.Ping(checking)
		cancel()
		if err != nil {
			return err
		}
	}
}
