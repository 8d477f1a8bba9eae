package db

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/slipway-cloud/slipway/db/gen"
	"github.com/slipway-cloud/slipway/lifecycle"
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
	Report *lifecycle.HealthReport
	// Unhealthy lists what keeps the report from meeting the node's SKU.
	Unhealthy []string
}

type beatRow struct {
	NodeID       string                  `json:"node_id"`
	BootID       string                  `json:"boot_id"`
	AgentVersion string                  `json:"agent_version"`
	Generation   int64                   `json:"generation"`
	Address      string                  `json:"address"`
	ClockSkewMS  int64                   `json:"clock_skew_ms"`
	Uptime       float64                 `json:"uptime_s"`
	ReceivedAt   time.Time               `json:"received_at"`
	Report       *lifecycle.HealthReport `json:"report,omitempty"`
	ReportBootID string                  `json:"report_boot_id"`
	ReportedAt   *time.Time              `json:"reported_at,omitempty"`
	Unhealthy    []string                `json:"unhealthy"`
}

// RecordHeartbeats stores a batch in one statement. The newest beat of a node
// wins, in the batch and against what is stored; nodes that are deleted or
// unknown are passed over. ErrInvalid when a row holds what cannot be stored;
// then none of the batch is. Repeatable.
func (s statements) RecordHeartbeats(ctx context.Context, beats []Heartbeat) error {
	if len(beats) == 0 {
		return nil
	}
	rows := make([]beatRow, 0, len(beats))
	for _, b := range beats {
		r := beatRow{
			NodeID: b.NodeID, BootID: b.BootID, AgentVersion: b.AgentVersion, Generation: b.Generation, Address: b.Address,
			ClockSkewMS: b.ClockSkew.Milliseconds(), Uptime: b.Uptime.Seconds(), ReceivedAt: b.ReceivedAt, Report: b.Report,
			Unhealthy: orEmpty(b.Unhealthy),
		}
		if b.Report != nil {
			r.ReportBootID, r.ReportedAt = b.BootID, &b.ReceivedAt
		}
		rows = append(rows, r)
	}
	doc, err := json.Marshal(rows)
	if err != nil {
		return fmt.Errorf("heartbeats: %w: %w", ErrInvalid, err)
	}
	_, err = s.q.RecordHeartbeats(ctx, doc)
	return translate("heartbeats", err)
}

// LatestHeartbeat reads a node's last heartbeat, or ErrNotFound before the
// first.
func (s statements) LatestHeartbeat(ctx context.Context, nodeID string) (LatestBeat, error) {
	row, err := s.q.LatestHeartbeat(ctx, nodeID)
	return row, translate("heartbeat of node "+nodeID, err)
}
