package allocation_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/testsuite"

	bmcact "github.com/slipway-cloud/slipway/activities/bmc"
	maasact "github.com/slipway-cloud/slipway/activities/maas"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/workflows/allocation"
)

// TestReadPower_OnlyReads asks both for what they see and for nothing else; who fails says nothing.
func TestReadPower_OnlyReads(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		in      contract.NodePowerInput
		maasErr error
		want    contract.NodePower
	}{
		"both":          {contract.NodePowerInput{SystemID: "abc", BMCID: "bmc_1"}, nil, contract.NodePower{BMC: "off", MAAS: "on"}},
		"MAAS fails":    {contract.NodePowerInput{SystemID: "abc", BMCID: "bmc_1"}, errors.New("away"), contract.NodePower{BMC: "off"}},
		"no BMC":        {contract.NodePowerInput{SystemID: "abc"}, nil, contract.NodePower{MAAS: "on"}},
		"nobody to ask": {contract.NodePowerInput{}, nil, contract.NodePower{}},
	} {
		var suite testsuite.WorkflowTestSuite
		env := suite.NewTestWorkflowEnvironment()
		env.RegisterActivityWithOptions(func(_ context.Context, in maasact.MachineIn) (contract.PowerFacts, error) {
			require.True(t, in.ObserveOnly, name)
			return contract.PowerFacts{State: "on"}, c.maasErr
		}, activity.RegisterOptions{Name: "PowerOffByMAAS"})
		env.RegisterActivityWithOptions(func(_ context.Context, in bmcact.PowerIn) (contract.PowerFacts, error) {
			require.True(t, in.ObserveOnly, name)
			return contract.PowerFacts{State: "off"}, nil
		}, activity.RegisterOptions{Name: "PowerOffByBMC"})
		env.ExecuteWorkflow(allocation.ReadPower, c.in)
		var got contract.NodePower
		require.NoError(t, env.GetWorkflowResult(&got), name)
		require.Equal(t, c.want, got, name)
	}
}
