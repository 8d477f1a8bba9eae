package providers

import (
	"context"

	"github.com/slipway-cloud/slipway/lifecycle/hardware"
)

// The facts that a BMC tells of parts are values that others keep and compare.
type (
	BMCPart       = hardware.Part
	PartKind      = hardware.Kind
	BMCProbe      = hardware.PartHealth
	ProbeCategory = hardware.Category
	BMCLogEntry   = hardware.LogEntry
)

// Survey is what a BMC tells of a machine's parts in one reading.
type Survey struct {
	Health BMCHealth
	// Probes are the parts with their health, the worst first. LeftOut is how many were not kept.
	Probes  []BMCProbe
	LeftOut int
	Parts   []BMCPart
	// Whole names the kinds of parts that were read without a gap; of another kind a part that is
	// not listed may be there.
	Whole   []PartKind
	Partial []string // what could not be read, each with the reason
}

// BMCLogs is what was read of a BMC's logs.
type BMCLogs struct {
	Entries []BMCLogEntry
	Partial []string // logs that were not read to their end, each with the reason
	// Cursors is where a log is read on, by its service, of BMCs that can. It holds no secret.
	Cursors map[string]string
}

// BMCLogResumer is a BMC that reads its logs on from where the reading before has ended. A cursor
// that the log does not know any more, since it was cleared, begins it again.
type BMCLogResumer interface {
	LogsFrom(ctx context.Context, cursors map[string]string, known func(BMCLogEntry) bool) (BMCLogs, error)
}
