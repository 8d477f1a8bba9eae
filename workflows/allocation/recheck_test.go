package allocation_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// TestRelease_SwitchedOnWhileParked: somebody switches the machine on while the release waits for
// an operator. The job reads that before it goes on, and switches the machine off again.
func TestRelease_SwitchedOnWhileParked(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		again string // what the BMC reads after the power was cut once more
		maas  string // what MAAS says of the machine meanwhile
		cuts  int
		stays bool
	}{
		"switched off again": {again: "off", maas: "Deployed", cuts: 4},
		"a failed erasure":   {again: "off", maas: "Failed disk erasing", cuts: 4},
		"it stays on":        {again: "on", maas: "Deployed", stays: true},
		"MAAS erases it":     {again: "on", maas: "Disk erasing", cuts: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := release(t, true)
			f.says("ObserveMachine", contract.MachineFacts{SystemID: "abc", Status: c.maas, IPs: []string{"127.0.0.9"}})
			f.fails("EraseAndRelease", lifecycle.FailScrubUnverified, 1, contract.ReleaseFacts{
				MachineFacts: contract.MachineFacts{SystemID: "abc", Status: "Ready"}, Erased: true,
			})
			asked, read := 0, 3 // after the access was ended, and after the erasure failed
			if c.maas == "Disk erasing" {
				read = 2
			}
			f.Answer("PowerOffByBMC", func() (any, error) {
				state := "off"
				switch asked++; {
				case asked == read:
					state = "on" // read again
				case asked > read:
					state = c.again
				}
				return contract.PowerFacts{State: state, ReportedBy: "BMC", Done: state == "off"}, nil
			})
			f.says("PowerOffByMAAS", contract.PowerFacts{State: c.again, ReportedBy: "MAAS", Done: true})
			parked := f.LastAt(time.Hour)
			f.at(2*time.Hour, lifecycle.ActionRetryStage)
			again := f.LastAt(3 * time.Hour)
			if c.stays {
				f.endedAt(4 * time.Hour)
				f.at(5*time.Hour, lifecycle.ActionCancel)
			}
			f.Run()
			require.Equal(t, lifecycle.FailScrubUnverified, parked.Failure.Class)
			require.Contains(t, parked.Failure.Message, "keep the machine off")
			if c.stays {
				require.Equal(t, lifecycle.FailAccessUnconfirmed, again.Failure.Class)
				require.Contains(t, again.Failure.Message, "nothing reads it off now")
				require.Equal(t, 1, f.count("EraseAndRelease"), "nothing goes on while the tenant may be in")
				return
			}
			require.Equal(t, c.cuts, f.count("PowerOffByBMC"))
			require.Equal(t, 2, f.count("EraseAndRelease"))
			ended := 1
			if c.cuts > 1 {
				ended = 2
			}
			require.Equal(t, ended, f.count("EndAccess"), "the node's timeline says that it was on")
		})
	}
}
