package replay_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	machineact "github.com/slipway-cloud/slipway/activities/machine"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/intent/machines"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/runplan"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/workflows/contract"
)

// machineJobs is the job of a run: it ends by a step that fails, and parks for none.
func machineJobs() []scriptedJob {
	return []scriptedJob{{
		kind: contract.KindMachineRun, last: "RunCommand", start: startRun, givesUp: true,
		answers: answers{"ReadBootID": machineact.StepFacts{BootID: "boot-1"}, "Reboot": machineact.StepFacts{BootID: "boot-2"}},
		asks:    [3]counts{{Activities: 4, Local: 7, Timers: 3, Upserts: 4}, {}, {Activities: 5, Local: 9, Timers: 3, Upserts: 5}},
	}}
}

// startRun starts a run of the steps that this release carries out.
func startRun(t *testing.T, p *play, _ answers) {
	t.Helper()
	require.NoError(t, p.rig.Store.Tx(t.Context(), func(tx *db.Tx) error {
		m, err := machines.Register(t.Context(), tx, machines.Registration{Spec: spec.MachineSpec{Provider: "any"}}, admin)
		if err != nil {
			return err
		}
		plan, err := machines.CreatePlan(t.Context(), tx, runplan.Plan{Steps: []runplan.Step{
			{Name: "net-boot", Netboot: &runplan.SetNetboot{Mode: runplan.NetbootPXE}},
			{Name: "restart", Reboot: &runplan.Reboot{Mode: runplan.RebootBMC}},
			{Name: "check", SSH: &runplan.SSHCommand{Command: "true"}},
		}}, false, admin)
		if err != nil {
			return err
		}
		run, err := machines.StartRun(t.Context(), tx, machines.Start{
			RequestID: "r", MachineID: m.ID, Type: lifecycle.RunTypeUpgrade, PlanID: plan.ID, Offers: func(string) []runplan.Capability { return runplan.Capabilities() },
		}, admin)
		p.job = run.JobID
		return err
	}))
	p.started(t, contract.JobWorkflowID(contract.KindMachineRun, p.job))
}
