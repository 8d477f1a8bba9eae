package providers

import "github.com/slipway-cloud/slipway/lifecycle/hardware"

// What a BMC tells of parts is a value that others keep and compare.
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
	// Whole names the kinds of parts that were read without a gap; of another kind a part that is not
	// listed may be there.
	Whole   []PartKind
	Partial []string // what could not be read, each with the reason
}

// BMCLogs is what was read of a BMC's logs.
type BMCLogs struct {
	Entries []BMCLogEntry
	Partial []string // logs that were not read to their end, each with the reason
}
