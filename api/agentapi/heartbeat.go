package agentapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/slipway-cloud/slipway/agent/protocol"
	"github.com/slipway-cloud/slipway/api/ratelimit"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// busyWait is how long a node is asked to wait when the queue is full.
const busyWait = 10 * time.Second

// receiveHeartbeat queues a node's heartbeat and answers before it is written. A process that dies
// loses the heartbeats of at most one flush interval, and the next heartbeats replace them.
func (s *Server) receiveHeartbeat(r *http.Request) (any, error) {
	c, err := s.caller(r)
	if err != nil {
		return nil, err
	}
	var in protocol.Heartbeat
	if err := decode(r, &in); err != nil {
		return nil, err
	}
	if err := checkHeartbeat(in, c.Generation); err != nil {
		return nil, err
	}
	now, err := s.clock.now(r.Context())
	if err != nil {
		return nil, err
	}
	row := Heartbeat{NodeID: c.NodeID, SKUID: c.now.SKUID, Generation: c.Generation, BootID: in.BootID, AgentVersion: in.AgentVersion,
		Address: ratelimit.RemoteAddress(r), At: now, Allocation: in.Allocation, Uptime: time.Duration(in.UptimeSecs * float64(time.Second))}
	if !in.SentAt.IsZero() {
		row.ClockSkew = in.SentAt.Sub(now)
	}
	if in.Report != nil {
		row.Report = &Report{BootID: in.BootID, At: now, Health: *in.Report}
	}
	if err := s.heartbeats.add(row); err != nil {
		return nil, refuse(http.StatusServiceUnavailable, protocol.ProblemBusy, "queue_full",
			"Too many heartbeats wait to be written; send the next one later.").after(max(s.cfg.HeartbeatInterval, busyWait))
	}
	out := protocol.HeartbeatResponse{HeartbeatIntervalSeconds: s.cfg.HeartbeatInterval.Seconds(), ServerTime: now.UTC(), InService: c.now.Status == lifecycle.NodeActive}
	out.TaskKeys = s.unknownKeys(r.Context(), in.TaskKeyIDs)
	if row.Report == nil && c.now.ReportedBoot != row.BootID && !s.heartbeats.hasReport(row.NodeID, row.BootID) {
		out.Actions = append(out.Actions, protocol.SendReportNow)
	}
	return out, nil
}

// The highest numbers of devices in a report; a machine has far fewer of each.
const (
	maxGPUs   = 256
	maxOthers = 4096
)

func checkHeartbeat(in protocol.Heartbeat, generation int64) error {
	switch {
	case in.BootID == "" || len(in.BootID) > 64:
		return invalid("boot_id must be the node's boot id, 1 to 64 characters.")
	case len(in.AgentVersion) > 64:
		return invalid("agent_version must be at most 64 characters.")
	case in.Generation != generation:
		return invalid("generation %d is not the certificate's, %d.", in.Generation, generation)
	case len(in.TaskKeyIDs) > maxTaskKeys:
		return invalid("task_key_ids must name at most %d keys.", maxTaskKeys)
	case in.UptimeSecs < 0 || in.UptimeSecs > 1e9:
		return invalid("uptime_seconds is out of range.")
	case in.Allocation != nil && !isAllocation(*in.Allocation):
		return invalid("allocation must be the id of an allocation, or empty.")
	case strings.ContainsRune(in.BootID+in.AgentVersion, 0):
		return invalid("text must not hold NUL characters.")
	}
	if in.Report == nil {
		return nil
	}
	return checkReport(*in.Report)
}

// isAllocation reports whether a text may name the allocation that a node holds: none, or an id.
func isAllocation(s string) bool {
	return len(s) <= 128 && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' || r == '?' })
}

// checkReport refuses a report that no database column can store.
func checkReport(h spec.HealthReport) error {
	if len(h.GPUs) > maxGPUs || len(h.NICs) > maxOthers || len(h.Disks) > maxOthers || len(h.Mounts) > maxOthers {
		return invalid("report lists more devices than a machine has.")
	}
	if _, err := netip.ParseAddr(h.Address); h.Address != "" && err != nil {
		return invalid("report.address must be an IP address.")
	}
	raw, err := json.Marshal(h)
	if err != nil {
		return fmt.Errorf("encode a health report: %w", err)
	}
	// An escaped backslash before u0000 is plain text.
	if bytes.Contains(bytes.ReplaceAll(raw, []byte(`\\`), nil), []byte(`\u0000`)) {
		return invalid("report must not hold NUL characters.")
	}
	return nil
}
