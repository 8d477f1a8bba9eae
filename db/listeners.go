package db

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/slipway-cloud/slipway/db/gen"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// ListenerGap is how long a process that listens for heartbeats may be silent
// itself before it counts as gone.
const ListenerGap = 20 * time.Second

// Listening notes that a process listens for heartbeats; call it every few
// seconds.
func (s statements) Listening(ctx context.Context, process string) error {
	return MapError("note a listener", s.q.Listening(ctx, gen.ListeningParams{ID: process, GapSeconds: ListenerGap.Seconds()}))
}

// StopListening notes that it no longer does. Repeatable.
func (s statements) StopListening(ctx context.Context, process string) error {
	return MapError("forget a listener", s.q.StopListening(ctx, process))
}

// ListenedSince is since when heartbeats have been listened for without a gap;
// the zero time when nobody listens.
func (s statements) ListenedSince(ctx context.Context) (time.Time, error) {
	since, err := s.q.ListenedSince(ctx, ListenerGap.Seconds())
	if errors.Is(err, pgx.ErrNoRows) {
		return time.Time{}, nil
	}
	return since, MapError("read the listeners", err)
}

// NodeSilent moves an active node to offline when it has sent no heartbeat since the cutoff. It
// returns whether it moved the node.
func (s *Store) NodeSilent(ctx context.Context, nodeID string, cutoff time.Time, a Actor) (bool, error) {
	return s.moveByHeartbeat(ctx, nodeID, lifecycle.NodeActive, lifecycle.NodeGoOffline, lifecycle.Proof{lifecycle.NeedStateDeadline}, a,
		func(n Node, b *LatestHeartbeatRow) bool {
			if b == nil {
				return n.StateChangedAt.Before(cutoff)
			}
			return b.ReceivedAt.Before(cutoff) && n.StateChangedAt.Before(cutoff)
		})
}

// NodeHeardAgain moves an offline node to active when it has sent a heartbeat since the cutoff, its
// report of this boot is healthy, and no sanitization is required. It returns whether it moved the
// node.
func (s *Store) NodeHeardAgain(ctx context.Context, nodeID string, cutoff time.Time, a Actor) (bool, error) {
	return s.moveByHeartbeat(ctx, nodeID, lifecycle.NodeOffline, lifecycle.NodeComeBack, lifecycle.Proof{lifecycle.NeedHealthy}, a,
		func(n Node, b *LatestHeartbeatRow) bool {
			return SanitizeRequired(n) == "" && b != nil && !b.ReceivedAt.Before(cutoff) && b.Report != nil && b.ReportBootID == b.BootID && len(b.Unhealthy) == 0
		})
}

// moveByHeartbeat reads node and heartbeat again under the node's lock. It moves the node when
// stillApplies returns true.
func (s *Store) moveByHeartbeat(
	ctx context.Context, nodeID string, from lifecycle.NodeStatus, t lifecycle.Transition[lifecycle.NodeStatus], proof lifecycle.Proof, a Actor,
	stillApplies func(Node, *LatestHeartbeatRow) bool,
) (moved bool, err error) {
	err = s.Tx(ctx, func(tx *Tx) error {
		moved = false
		n, err := tx.LockNode(ctx, nodeID)
		if err != nil || n.Status != from {
			return err
		}
		var last *LatestHeartbeatRow
		b, err := tx.LatestHeartbeat(ctx, nodeID)
		switch {
		case err == nil:
			last = &b
		case !errors.Is(err, ErrNotFound):
			return err
		}
		if !stillApplies(n, last) {
			return nil
		}
		moved = true
		_, err = tx.moveNode(ctx, n, t, proof, a)
		return err
	})
	return moved, err
}
