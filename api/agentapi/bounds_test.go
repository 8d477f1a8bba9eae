package agentapi_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/agent/protocol"
	"github.com/slipway-cloud/slipway/internal/bounds"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// Every field that an agent may send has bounds.
func TestRequests_HaveBounds(t *testing.T) {
	t.Parallel()
	for _, in := range []reflect.Type{
		reflect.TypeFor[protocol.EnrollRequest](), reflect.TypeFor[protocol.RenewRequest](), reflect.TypeFor[protocol.Heartbeat](),
		reflect.TypeFor[protocol.ClaimRequest](), reflect.TypeFor[protocol.RenewTaskRequest](), reflect.TypeFor[protocol.ResultRequest](),
		reflect.TypeFor[protocol.InstanceEnroll](), reflect.TypeFor[protocol.InstanceHeartbeat](),
	} {
		for _, missing := range bounds.Missing(in) {
			t.Error(missing)
		}
	}
}

// A report of a lying agent is refused where its numbers are out of bounds. Its texts are made
// harmless, since a text alone must not silence a node.
func TestHeartbeat_ReportOutOfBounds(t *testing.T) {
	t.Parallel()
	b := start(t, nil)
	a := b.enrolled("n1")
	var hb protocol.HeartbeatResponse
	with := func(h spec.HealthReport) protocol.Heartbeat { in := a.heartbeat(); in.Report = &h; return in }
	negative := int64(-8)
	for _, lie := range []spec.HealthReport{
		{CPUs: -1}, {MemoryMiB: &negative}, {GPUs: []spec.GPUReport{{Processes: -3}}}, {NICs: []spec.NICReport{{MTU: 1 << 40}}},
		{Disks: make([]spec.DiskReport, 5000)},
	} {
		a.refused(400, protocol.ProblemInvalid, protocol.PathHeartbeat, with(lie))
	}
	a.ok(protocol.PathHeartbeat, with(spec.HealthReport{Driver: "550\u202e\x1b[2J\x00", GPUError: strings.Repeat("x", 100_000)}), &hb)
	require.Eventually(t, func() bool {
		stored, _ := b.store.Heartbeat("n1")
		return stored.Report != nil && stored.Report.Health.Driver == "550??[2J?" && len(stored.Report.Health.GPUError) == 2000
	}, runenv.Patience(5*time.Second), 5*time.Millisecond)
}
