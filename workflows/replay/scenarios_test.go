package replay_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/test/bench/noop"
)

// scenario is one way that an onboarding may go.
type scenario struct {
	name   string
	manual bool
	// early scenarios end before user-data is made.
	early  bool
	region func() *noop.Region
	// drive does what an operator does; nil when nobody is needed.
	drive func(t *testing.T, p *play)
	ends  lifecycle.JobStatus
}

func smooth() *noop.Region { return &noop.Region{} }

// refusingOnce answers the first such operation with an error.
func refusingOnce(op string, kind providers.Kind) func() *noop.Region {
	return func() *noop.Region {
		var refused atomic.Bool
		return &noop.Region{Refuse: func(what, _ string) error {
			if what == op && refused.CompareAndSwap(false, true) {
				return &providers.Error{Kind: kind, Op: "noop." + op, Status: 409, Message: "not now"}
			}
			return nil
		}}
	}
}

// landing sends the first so many operations into a status; later ones end well.
func landing(op string, status providers.MAASStatus, times int32) func() *noop.Region {
	return func() *noop.Region {
		var done atomic.Int32
		return &noop.Region{Land: func(what, _ string) providers.MAASStatus {
			switch {
			case what == op && done.Add(1) <= times:
				return status
			case what == noop.OpDeploy:
				return providers.MAASDeployed
			}
			return providers.MAASReady
		}}
	}
}

func scenarios() []scenario {
	return []scenario{
		{name: "completed", region: smooth, ends: lifecycle.JobCompleted},
		{
			name: "failed_retry_stage", region: refusingOnce(noop.OpLayout, providers.KindInvalid), ends: lifecycle.JobCompleted,
			drive: func(t *testing.T, p *play) {
				p.parks(t, lifecycle.FailStorageLayoutRejected)
				p.update(t, lifecycle.ActionRetryStage)
			},
		},
		{
			name: "failed_rerun", region: landing(noop.OpCommission, providers.MAASCommissioning, 1), ends: lifecycle.JobCompleted,
			drive: func(t *testing.T, p *play) {
				p.at(t, lifecycle.StageWaitReady, "WaitForReady")
				p.rig.Region.Lose(p.node.Hostname)
				p.parks(t, lifecycle.FailMAASMachineDeleted)
				p.update(t, lifecycle.ActionRerun)
			},
		},
		{
			name: "adopted", region: refusingOnce(noop.OpDeploy, providers.KindStateConflict), ends: lifecycle.JobReconciled,
			drive: func(t *testing.T, p *play) {
				p.parks(t, lifecycle.FailStateDisagreement)
				require.NoError(t, p.rig.Region.Move(t.Context(), p.node.Hostname, providers.MAASDeploying))
				p.update(t, lifecycle.ActionAdopt)
				p.at(t, lifecycle.StageWaitDeployed, "WaitForDeployed")
				require.NoError(t, p.rig.Region.Move(t.Context(), p.node.Hostname, providers.MAASDeployed))
			},
		},
		{
			name: "cancelled", region: landing(noop.OpDeploy, providers.MAASDeploying, 1), ends: lifecycle.JobCancelled,
			drive: func(t *testing.T, p *play) {
				p.at(t, lifecycle.StageWaitDeployed, "WaitForDeployed")
				p.update(t, lifecycle.ActionCancel)
			},
		},
		{
			name: "cancelled_in_temporal", early: true, region: landing(noop.OpCommission, providers.MAASCommissioning, 1), ends: lifecycle.JobCancelled,
			drive: func(t *testing.T, p *play) {
				p.at(t, lifecycle.StageWaitReady, "WaitForReady")
				require.NoError(t, p.rig.Temporal.CancelWorkflow(t.Context(), p.run.GetID(), p.run.GetRunID()))
			},
		},
		{
			name: "restart_clean", region: landing(noop.OpDeploy, providers.MAASBroken, 1), ends: lifecycle.JobCompleted,
			drive: func(t *testing.T, p *play) {
				p.parks(t, lifecycle.FailStateDisagreement)
				p.update(t, lifecycle.ActionRestartClean)
			},
		},
		{name: "datasource_recovered", region: landing(noop.OpDeploy, providers.MAASFailedDeployment, 1), ends: lifecycle.JobCompleted},
		{
			name: "frozen_resumed", region: landing(noop.OpCommission, providers.MAASCommissioning, 1), ends: lifecycle.JobCompleted,
			drive: func(t *testing.T, p *play) {
				p.at(t, lifecycle.StageWaitReady, "WaitForReady")
				p.update(t, lifecycle.ActionMarkManual)
				p.parks(t, lifecycle.FailFrozen)
				require.NoError(t, p.rig.Region.Move(t.Context(), p.node.Hostname, providers.MAASReady))
				p.signal(t, lifecycle.ActionResume)
			},
		},
		{name: "manual_bootstrap", manual: true, region: smooth, ends: lifecycle.JobCompleted},
	}
}

const patience = 60 * time.Second
