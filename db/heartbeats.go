package db

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/slipway-cloud/slipway/db/gen"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// LatestHeartbeatRow is the last heartbeat of a node with its last report.
type LatestHeartbeatRow = gen.Heartbeat

// Heartbeat is one heartbeat of a node's agent.
type Heartbeat struct {
	NodeID       string
	BootID       string
	AgentVersion string
	Generation   int64
	Address      string
	ClockSkew    time.Duration // agent's clock minus the server's
	Uptime       time.Duration
	ReceivedAt   time.Time // by the database's clock
	// Report is nil when there is no new report; the stored one then stays.
	Report *spec.HealthReport
	// Unhealthy lists what keeps the report from meeting the node's SKU.
	Unhealthy []string
	// Allocation is the allocation that the agent says its node holds, "" for none. It is nil when
	// the agent does not say.
	Allocation *string
}

// unsaid stands in the statement for the allocation of an agent that does not say one.
const unsaid = "?"

// RecordHeartbeats stores a batch in one statement. It keeps the newest heartbeat of a node, from
// the batch or the database. It skips nodes that are deleted or unknown. It returns ErrInvalid and
// stores nothing when a row cannot be stored. It may be repeated.
func (s statements) RecordHeartbeats(ctx context.Context, heartbeats []Heartbeat) error {
	if len(heartbeats) == 0 {
		return nil
	}
	var p gen.RecordHeartbeatsParams
	for _, b := range newest(heartbeats) {
		report, unhealthy, err := reportText(b)
		if err != nil {
			return fmt.Errorf("heartbeats: %w: %w", ErrInvalid, err)
		}
		p.NodeIds, p.BootIds = append(p.NodeIds, b.NodeID), append(p.BootIds, b.BootID)
		p.AgentVersions, p.Generations = append(p.AgentVersions, b.AgentVersion), append(p.Generations, b.Generation)
		p.Addresses, p.ClockSkewsMs = append(p.Addresses, b.Address), append(p.ClockSkewsMs, b.ClockSkew.Milliseconds())
		p.Uptimes, p.ReceivedAt = append(p.Uptimes, b.Uptime.Seconds()), append(p.ReceivedAt, b.ReceivedAt)
		held := unsaid
		if b.Allocation != nil {
			held = *b.Allocation
		}
		p.Allocations = append(p.Allocations, held)
		p.Reports, p.Unhealthy = append(p.Reports, report), append(p.Unhealthy, unhealthy)
	}
	_, err := s.q.RecordHeartbeats(ctx, p)
	return MapError("heartbeats", err)
}

// newest returns the newest heartbeat of each node.
func newest(heartbeats []Heartbeat) []Heartbeat {
	at := make(map[string]int, len(heartbeats))
	out := make([]Heartbeat, 0, len(heartbeats))
	for _, b := range heartbeats {
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

// reportText returns a heartbeat's report and what is wrong in it as JSON, "" for none.
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

// LatestHeartbeat returns a node's last heartbeat. It returns ErrNotFound when there is none.
func (s statements) LatestHeartbeat(ctx context.Context, nodeID string) (LatestHeartbeatRow, error) {
	row, err := s.q.LatestHeartbeat(ctx, nodeID)
	return row, MapError("heartbeat of node "+nodeID, err)
}
