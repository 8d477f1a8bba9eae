package allocation

import (
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	bmcact "github.com/slipway-cloud/slipway/activities/bmc"
	maasact "github.com/slipway-cloud/slipway/activities/maas"
	"github.com/slipway-cloud/slipway/contract"
)

// powerLimit bounds each reading: an operator waits for the answer.
const powerLimit = 12 * time.Second

// ReadPower is the workflow that reads the power of a job's node from MAAS and from its BMC, both
// at once and each at most once. A system that does not answer has said nothing.
func ReadPower(ctx workflow.Context, in contract.NodePowerInput) (contract.NodePower, error) {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: powerLimit, ScheduleToCloseTimeout: powerLimit, RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1},
	})
	job := in.Job
	job.ObserveOnly = true
	var byMAAS, byBMC workflow.Future
	if in.SystemID != "" {
		byMAAS = workflow.ExecuteActivity(ctx, maas.PowerOffByMAAS, maasact.MachineIn{JobRef: job, SystemID: in.SystemID})
	}
	if in.BMCID != "" {
		byBMC = workflow.ExecuteActivity(ctx, bmc.PowerOffByBMC, bmcact.PowerIn{JobRef: job, BMCID: in.BMCID, CAPEM: in.BMCCAPEM})
	}
	return contract.NodePower{BMC: powerSaid(ctx, "the BMC", byBMC), MAAS: powerSaid(ctx, "MAAS", byMAAS)}, nil
}

// powerSaid waits for one answer; nil is nobody to ask.
func powerSaid(ctx workflow.Context, who string, answer workflow.Future) string {
	if answer == nil {
		return ""
	}
	var f contract.PowerFacts
	if err := answer.Get(ctx, &f); err != nil {
		workflow.GetLogger(ctx).Warn("the power of a node could not be read", "from", who, "error", err)
		return ""
	}
	return f.State
}
