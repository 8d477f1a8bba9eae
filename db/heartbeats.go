package db

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/slipway-cloud/slipway/db/gen"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// LatestBeat is the last heartbeat of a node and its last report.
type LatestBeat = gen.Heartbeat

// Heartbeat is one sign of life of a node's agent.
type Heartbeat struct {
	NodeID       string
	BootID       string
	AgentVersion string
	Generation   int64
	Address      string
	ClockSkew    time.Duration // agent's clock minus the server's
	Uptime       time.Duration
	ReceivedAt   time.Time // by the database's clock, which silence is judged by
	// Report is nil when there is nothing new; the last one then stays.
	Report *spec.HealthReport
	// Unhealthy lists what keeps the report from meeting the node's SKU.
	Unhealthy []string
}

// RecordHeartbeats stores a batch in one statement. The newest beat of a node
// wins, in the batch and against what is stored; nodes that are deleted or
// unknown are passed over. ErrInvalid when a row holds what cannot be stored;
// then none of the batch is. Repeatable.
func (s statements) RecordHeartbeats(ctx context.Context, beats []Heartbeat) error {
	if len(beats) == 0 {
		return nil
	}
	var p gen.RecordHeartbeatsParams
	for _, b := range newest(beats) {
		report, unhealthy, err := reportText(b)
		if err != nil {
			return fmt.Errorf("heartbeats: %w: %w", ErrInvalid, err)
		}
		p.NodeIds, p.BootIds = append(p.NodeIds, b.NodeID), append(p.BootIds, b.BootID)
		p.AgentVersions, p.Generations = append(p.AgentVersions, b.AgentVersion), append(p.Generations, b.Generation)
		p.Addresses, p.ClockSkewsMs = append(p.Addresses, b.Address), append(p.ClockSkewsMs, b.ClockSkew.Milliseconds())
		p.Uptimes, p.ReceivedAt = append(p.Uptimes, b.Uptime.Seconds()), append(p.ReceivedAt, b.ReceivedAt)
		p.Reports, p.Unhealthy = append(p.Reports, report), append(p.Unhealthy, unhealthy)
	}
	_, err := s.q.RecordHeartbeats(ctx, p)
	return MapError("heartbeats", err)
}

// newest keeps the newest beat of each node.
func newest(beats []Heartbeat) []Heartbeat {
	at := make(map[string]int, len(beats))
	out := make([]Heartbeat, 0, len(beats))
	for _, b := range beats {
		i, have := at[b.NodeID]
		switch {
		case !have:
			at[b.NodeID] = len(out)
			out = append(out, b)
		case b.ReceivedAt.After(out[i].ReceivedAt):
			out[i] = b
		}
	}
	return out
}

// reportText is a beat's report and what is wrong in it, as JSON; "" for none.
func reportText(b Heartbeat) (report, unhealthy string, err error) {
	if b.Report == nil {
		return "", "", nil
	}
	raw, err := json.Marshal(b.Report)
	if err != nil || len(b.Unhealthy) == 0 {
		return string(raw), "", err
	}
	wrong, err := json.Marshal(b.Unhealthy)
	return string(raw), string(wrong), err
}

// LatestHeartbeat reads a node's last heartbeat, or ErrNotFound before the
// first.
func (s statements) LatestHeartbeat(ctx context.Context, nodeID string) (LatestBeat, error) {
	row, err := s.q.LatestHeartbeat(ctx, nodeID)
	return row, MapError("heartbeat of node "+nodeID, err)
}
