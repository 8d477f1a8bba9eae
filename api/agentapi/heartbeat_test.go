package agentapi_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/agent/protocol"
	"github.com/slipway-cloud/slipway/api/agentapi"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/test/runenv"
)

func TestHeartbeat_StoredAndRequestsReport(t *testing.T) {
	t.Parallel()
	b := start(t, func(c *agentapi.Config) { c.HeartbeatInterval = 3 * time.Second })
	a := b.enrolled("n1")
	in := a.heartbeat()
	in.SentAt = b.now().Add(90 * time.Second)
	var out protocol.HeartbeatResponse
	a.ok(protocol.PathHeartbeat, in, &out)
	require.InDelta(t, 3, out.HeartbeatIntervalSeconds, 0)
	require.Equal(t, []protocol.Action{protocol.SendReportNow}, out.Actions)
	stored := func() agentapi.Heartbeat { heartbeat, _ := b.store.Heartbeat("n1"); return heartbeat }
	require.Eventually(t, func() bool { return stored().BootID == "boot-1" }, runenv.Patience(5*time.Second), 5*time.Millisecond)
	require.InDelta(t, 90, stored().ClockSkew.Seconds(), 5)
	require.Equal(t, "127.0.0.1", stored().Address)

	in.Report = &spec.HealthReport{CPUs: 8, Simulated: true}
	a.ok(protocol.PathHeartbeat, in, &out)
	require.Eventually(t, func() bool { return stored().Report != nil }, runenv.Patience(5*time.Second), 5*time.Millisecond)
	require.Equal(t, 8, stored().Report.Health.CPUs)
	require.Equal(t, "boot-1", stored().Report.BootID)

	in.Report = nil
	out = protocol.HeartbeatResponse{}
	a.ok(protocol.PathHeartbeat, in, &out)
	require.Empty(t, out.Actions)
	require.False(t, out.InService)
	b.store.SetStatus("n1", lifecycle.NodeActive)
	a.ok(protocol.PathHeartbeat, in, &out)
	require.True(t, out.InService)
	b.store.SetStatus("n1", lifecycle.NodeDraining)
	out = protocol.HeartbeatResponse{}
	a.ok(protocol.PathHeartbeat, in, &out)
	require.False(t, out.InService)
	in.BootID = "boot-2" // a reboot makes the old report worthless
	a.ok(protocol.PathHeartbeat, in, &out)
	require.Equal(t, []protocol.Action{protocol.SendReportNow}, out.Actions)
}

func TestHeartbeat_Refused(t *testing.T) {
	t.Parallel()
	b := start(t, nil)
	a := b.enrolled("n1")
	for name, change := range map[string]func(*protocol.Heartbeat){
		"no boot id":              func(h *protocol.Heartbeat) { h.BootID = "" },
		"other generation":        func(h *protocol.Heartbeat) { h.Generation = 2 },
		"negative uptime":         func(h *protocol.Heartbeat) { h.UptimeSecs = -1 },
		"nul":                     func(h *protocol.Heartbeat) { h.BootID = "a\x00" },
		"an address that is none": func(h *protocol.Heartbeat) { h.Report = &spec.HealthReport{Address: "gpu-1"} },
		"too many gpus": func(h *protocol.Heartbeat) {
			h.Report = &spec.HealthReport{GPUs: make([]spec.GPUReport, 300)}
		},
	} {
		in := a.heartbeat()
		change(&in)
		t.Log(name)
		a.refused(400, protocol.ProblemInvalid, protocol.PathHeartbeat, in)
	}
	in := a.heartbeat()
	in.Report = &spec.HealthReport{Driver: `a backslash and \u0000 is only text`}
	var out protocol.HeartbeatResponse
	a.ok(protocol.PathHeartbeat, in, &out)
}

func TestHeartbeats_OneStatementPerBatch(t *testing.T) {
	t.Parallel()
	// No tick during the test: only the thousandth heartbeat may start the write.
	b := start(t, func(c *agentapi.Config) { c.FlushInterval = time.Hour })
	a := b.enrolled("n0000")
	for i := range 1000 {
		q := agentapi.Heartbeat{NodeID: fmt.Sprintf("n%04d", i), BootID: "b", At: b.now()}
		require.NoError(t, b.srv.Queue(q))
		if i == 0 { // a second heartbeat of one node takes no second row
			var out protocol.HeartbeatResponse
			a.ok(protocol.PathHeartbeat, a.heartbeat(), &out)
		}
		if i < 999 {
			require.Empty(t, b.store.Writes())
		}
	}
	require.Eventually(t, func() bool { return len(b.store.Writes()) == 1 }, runenv.Patience(5*time.Second), 5*time.Millisecond)
	require.Equal(t, []int{1000}, b.store.Writes())
}

func TestHeartbeats_FullQueueAndShutdown(t *testing.T) {
	t.Parallel()
	b := start(t, func(c *agentapi.Config) { c.FlushInterval, c.QueueSize = time.Hour, 2 })
	n1, n2, n3 := b.enrolled("n1"), b.enrolled("n2"), b.enrolled("n3")
	var out protocol.HeartbeatResponse
	n1.ok(protocol.PathHeartbeat, n1.heartbeat(), &out)
	n2.ok(protocol.PathHeartbeat, n2.heartbeat(), &out)
	h := n3.refused(503, protocol.ProblemBusy, protocol.PathHeartbeat, n3.heartbeat())
	require.Equal(t, "10", h.Get("Retry-After"))
	n1.ok(protocol.PathHeartbeat, n1.heartbeat(), &out) // it waits already, so it takes no room
	ctx, cancel := context.WithTimeout(t.Context(), runenv.Patience(10*time.Second))
	defer cancel()
	require.NoError(t, b.srv.Shutdown(ctx))
	require.Equal(t, []int{2}, b.store.Writes())
}

func TestHeartbeats_FailedWriteKeepsNewest(t *testing.T) {
	t.Parallel()
	b := start(t, nil)
	var tries atomic.Int64
	b.store.FailWrites(func([]agentapi.Heartbeat) error { tries.Add(1); return errors.New("connection refused") })
	old := agentapi.Heartbeat{NodeID: "n1", BootID: "boot", AgentVersion: "old", At: b.now(), Report: &agentapi.Report{BootID: "boot"}}
	require.NoError(t, b.srv.Queue(old))
	require.Eventually(t, func() bool { return tries.Load() >= 2 }, runenv.Patience(5*time.Second), 5*time.Millisecond)
	require.NoError(t, b.srv.Queue(agentapi.Heartbeat{NodeID: "n1", BootID: "boot", AgentVersion: "new", At: b.now()}))
	b.store.FailWrites(nil)
	require.Eventually(t, func() bool { _, n := b.store.Heartbeat("n1"); return n > 0 }, runenv.Patience(5*time.Second), 5*time.Millisecond)
	got, _ := b.store.Heartbeat("n1")
	require.Equal(t, "new", got.AgentVersion)
	require.NotNil(t, got.Report, "the report of the older heartbeat is not lost")
}

func TestHeartbeats_BadRowIsDroppedAlone(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	b := start(t, func(c *agentapi.Config) { c.FlushInterval, c.Metrics = 50*time.Millisecond, reg })
	b.store.FailWrites(func(heartbeats []agentapi.Heartbeat) error {
		for _, x := range heartbeats {
			if x.BootID == "poison" {
				return fmt.Errorf("%w: value out of range", agentapi.ErrRejected)
			}
		}
		return nil
	})
	for i := range 20 {
		boot := "fine"
		if i == 13 {
			boot = "poison"
		}
		require.NoError(t, b.srv.Queue(agentapi.Heartbeat{NodeID: fmt.Sprintf("n%02d", i), BootID: boot, At: b.now()}))
	}
	require.Eventually(t, func() bool {
		total := 0
		for _, n := range b.store.Writes() {
			total += n
		}
		return total == 19
	}, runenv.Patience(5*time.Second), 5*time.Millisecond)
	_, n := b.store.Heartbeat("n13")
	require.Zero(t, n)
	families, err := reg.Gather()
	require.NoError(t, err)
	values := map[string]float64{}
	for _, f := range families {
		if c := f.GetMetric()[0].GetCounter(); c != nil {
			values[f.GetName()] = c.GetValue()
		}
	}
	require.InDelta(t, 19, values["slipway_agentapi_heartbeats_written_total"], 0)
	require.InDelta(t, 1, values["slipway_agentapi_heartbeats_dropped_total"], 0)
}
