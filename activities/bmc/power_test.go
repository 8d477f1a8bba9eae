package bmc_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	bmcact "github.com/slipway-cloud/slipway/activities/bmc"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
	simhw "github.com/slipway-cloud/slipway/sim/hw"
	redfishsim "github.com/slipway-cloud/slipway/sim/redfish"
	"github.com/slipway-cloud/slipway/test/runenv"
)

func (l *lab) power(nodeID string) bmcact.PowerIn {
	return bmcact.PowerIn{JobRef: contract.JobRef{JobID: "job_power", NodeID: nodeID}, BMCID: l.bmcID}
}

// TestPowerAtTheBMC of two personalities: off and on are read, not assumed.
func TestPowerAtTheBMC(t *testing.T) {
	t.Parallel()
	for _, vendor := range []string{"Dell", "HPE"} {
		t.Run(vendor, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, vendor, 1, nil)
			node := dbtest.Node(t, l.truth)
			in := l.power(node.ID)
			in.NotBootID = "boot-1"
			f, err := l.acts.PowerCycleByBMC(t.Context(), in)
			require.NoError(t, err)
			require.True(t, f.Done)
			require.Equal(t, simhw.On, l.hw.Power())
			boots := l.hw.Counters().Boots

			require.NoError(t, l.truth.RecordHeartbeats(t.Context(), []db.Heartbeat{{NodeID: node.ID, BootID: "boot-2", ReceivedAt: time.Now()}}))
			f, err = l.acts.PowerCycleByBMC(t.Context(), in)
			require.NoError(t, err)
			require.True(t, f.Done)
			require.Equal(t, boots, l.hw.Counters().Boots, "a machine that has booted again is not cycled again")

			look := l.power(node.ID)
			look.ObserveOnly = true
			f, err = l.acts.PowerOffByBMC(t.Context(), look)
			require.NoError(t, err)
			require.Equal(t, contract.PowerFacts{State: "on", ReportedBy: "BMC"}, f)
			for range 2 {
				f, err = l.acts.PowerOffByBMC(t.Context(), l.power(node.ID))
				require.NoError(t, err)
				require.True(t, f.Done)
				require.Equal(t, simhw.Off, l.hw.Power())
			}
		})
	}
}

// TestPowerCycle_IsNotCutInHalf: a cancel while the machine is off does not leave it off.
func TestPowerCycle_IsNotCutInHalf(t *testing.T) {
	t.Parallel()
	l := newLab(t, "Dell", 1, nil)
	_, err := l.acts.PowerCycleByBMC(t.Context(), l.power("node_none")) // it is on now
	require.NoError(t, err)
	offs := l.hw.Counters().PowerOffs
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := l.acts.PowerCycleByBMC(ctx, l.power("node_none"))
		ended <- err
	}()
	require.Eventually(t, func() bool { return l.hw.Counters().PowerOffs > offs }, runenv.Patience(20*time.Second), time.Millisecond)
	cancel()
	require.NoError(t, <-ended)
	require.Equal(t, simhw.On, l.hw.Power())
}

// TestPowerGoesThroughTheGate: a rejected login stops the next one.
func TestPowerGoesThroughTheGate(t *testing.T) {
	t.Parallel()
	l := newLab(t, "Dell", 1, nil)
	plan, err := l.acts.PlanPowerOffByBMC(t.Context(), bmcact.PowerOffPlanIn{BMCID: l.bmcID})
	require.NoError(t, err)
	require.Nil(t, plan.Failure)
	l.changedByHand()
	for range 2 {
		_, err = l.acts.PowerOffByBMC(t.Context(), l.power("node_none"))
		requireClass(t, err, lifecycle.FailBMCAuthRejected)
	}
	require.Equal(t, 1, l.sim.Counters().FailedLogins)
	plan, err = l.acts.PlanPowerOffByBMC(t.Context(), bmcact.PowerOffPlanIn{BMCID: l.bmcID})
	require.NoError(t, err)
	require.Equal(t, lifecycle.FailBMCAuthRejected, plan.Failure.Class, "a plan says so")
}

// TestABMCThatIgnoresTheRequest: an answer of 204 switches nothing off.
func TestABMCThatIgnoresTheRequest(t *testing.T) {
	t.Parallel()
	l := newLab(t, "Dell", 1, nil)
	_, err := l.acts.PowerCycleByBMC(t.Context(), l.power("node_none"))
	require.NoError(t, err)
	l.fault(redfishsim.Fault{Name: redfishsim.FaultIgnoredPower, Count: 100})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	f, err := l.acts.PowerOffByBMC(ctx, l.power("node_none"))
	require.Error(t, err)
	require.False(t, f.Done)
	require.Equal(t, simhw.On, l.hw.Power())
}
