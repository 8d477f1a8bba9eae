package decommission_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	nodestateact "github.com/slipway-cloud/slipway/activities/nodestate"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/workflows/stage/stagetest"
)

// network is what a PXE node boots from.
type network struct {
	armed    lifecycle.Netboot
	enrolled lifecycle.Netboot // what the agent has enrolled from since it was armed
	boots    int
	diskOnly bool // the firmware does not boot from the network
	planned  *contract.HardwareFacts
	serial   string // as the machine says
}

// restart boots the machine again, as a power cycle does.
func (w *site) restart() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.net.boots++
	w.facts.BootID, w.facts.Agent, w.power = fmt.Sprintf("boot-%d", 10+w.net.boots), contract.AgentAlive, "on"
	if w.net.armed != "" && !w.net.diskOnly {
		w.net.enrolled = w.net.armed
	}
}

func (w *site) ArmNetboot(_ context.Context, in nodestateact.NetbootIn) (contract.NetbootFacts, error) {
	return does(w, "arm:"+string(in.Purpose), func() contract.NetbootFacts {
		if w.net.armed != in.Purpose {
			w.net.armed, w.net.enrolled = in.Purpose, ""
		}
		return contract.NetbootFacts{Purpose: in.Purpose, Workflow: "live", BootID: w.facts.BootID, Armed: true, Installed: true}
	})
}

func (w *site) DisarmNetboot(context.Context, contract.JobRef) (contract.NetbootFacts, error) {
	return does(w, "disarm", func() contract.NetbootFacts { w.net.armed = ""; return contract.NetbootFacts{} })
}

func (w *site) CheckNetboot(context.Context, contract.JobRef) (contract.NetbootFacts, error) {
	return looks(w, func() contract.NetbootFacts { return contract.NetbootFacts{Armed: w.net.armed != "", Note: "armed"} })
}

func (w *site) system(in nodestateact.SystemIn) contract.SystemFacts {
	there := w.net.enrolled == in.Purpose && w.facts.BootID != in.NotBootID
	return contract.SystemFacts{Done: there, BootID: w.facts.BootID, Serial: w.net.serial, Note: "in boot " + w.facts.BootID}
}

func (w *site) WaitForSystem(_ context.Context, in nodestateact.SystemIn) (contract.SystemFacts, error) {
	if in.ObserveOnly {
		return looks(w, func() contract.SystemFacts { return w.system(in) })
	}
	f, err := does(w, "system:"+string(in.Purpose), func() contract.SystemFacts { return w.system(in) })
	if err == nil && !f.Done {
		err = stagetest.Failure(in.Class)
	}
	return f, err
}

func (w *site) ReplaceHardware(_ context.Context, in nodestateact.HardwareIn) (contract.HardwareFacts, error) {
	if in.ObserveOnly {
		return looks(w, func() contract.HardwareFacts { return *w.net.planned })
	}
	return does(w, "hardware", func() contract.HardwareFacts {
		w.net.planned.Done, w.net.planned.BootID, w.net.armed, w.net.enrolled = true, w.facts.BootID, "", ""
		return *w.net.planned
	})
}

// asked changes the request of the job.
func (b *fixture) asked(change func(*contract.DecommissionInput)) *fixture {
	b.T.Helper()
	var in contract.DecommissionInput
	require.NoError(b.T, json.Unmarshal(b.Store.Snapshot().Input, &in))
	change(&in)
	b.SetRequest(in)
	return b
}

// byHand restarts the machine after d, as an operator does.
func (b *fixture) byHand(d time.Duration) {
	b.After(d, func() { b.site.restart() })
}

func pxeModes() []lifecycle.DecommissionMode {
	return []lifecycle.DecommissionMode{lifecycle.ModeDeprovision, lifecycle.ModeMigrate}
}

// netCallOf is the call by which a stage of a PXE node's job is made to fail.
var netCallOf = map[lifecycle.DecommissionMode]map[string]string{
	lifecycle.ModeDeprovision: {
		lifecycle.StageDisableNode: "config", lifecycle.StageForceRelease: "allocation.revoke_user", lifecycle.StageDrainNode: "node.drain",
		lifecycle.StageBootEraser: "system:erase", lifecycle.StageScrubGPU: "gpu.scrub", lifecycle.StageValidateClean: "node.validate",
		lifecycle.StagePowerOff: "bmc:off", lifecycle.StageRetireNode: "identity", lifecycle.StageCleanupSecrets: "secrets",
	},
	lifecycle.ModeMigrate: {
		lifecycle.StageDisableNode: "config", lifecycle.StageForceRelease: "allocation.revoke_user", lifecycle.StageDrainNode: "node.drain",
		lifecycle.StageBootEraser: "arm:erase", lifecycle.StageScrubGPU: "gpu.scrub", lifecycle.StageValidateClean: "certify",
		lifecycle.StagePowerOff: "bmc:off", lifecycle.StageReplaceHardware: "hardware", lifecycle.StageBootHardware: "system:install",
	},
}

func eachNetStage(t *testing.T, do func(t *testing.T, mode lifecycle.DecommissionMode, stage, call string)) {
	t.Helper()
	for mode, calls := range netCallOf {
		for stage, call := range calls {
			t.Run(string(mode)+"/"+stage, func(t *testing.T) {
				t.Parallel()
				do(t, mode, stage, call)
			})
		}
	}
}
