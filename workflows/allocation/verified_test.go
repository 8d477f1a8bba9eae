package allocation

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/workflows/contract"
	"github.com/slipway-cloud/slipway/workflows/decommission"
)

// TestRelease_NamesWhatIsNotVerified: the certificate names each part of the BMC of which nothing was
// compared, and does not call a node verified that has no BMC.
func TestRelease_NamesWhatIsNotVerified(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		bmc      string
		settings contract.SettingsFacts
		want     []string
	}{
		"no BMC":          {"", contract.SettingsFacts{}, []string{"Slipway knows no BMC of the node"}},
		"all compared":    {"bmc_1", contract.SettingsFacts{Done: true, Count: 9}, nil},
		"no part offered": {"bmc_1", contract.SettingsFacts{NotOffered: []string{"Secure Boot"}}, []string{"Secure Boot"}},
		"shows nothing":   {"bmc_1", contract.SettingsFacts{}, []string{"the BMC shows none of its settings"}},
	} {
		s := ReleaseState{Settings: c.settings, Cleaning: decommission.State{Node: contract.DecommissionFacts{BMCID: c.bmc}}}
		require.Equal(t, c.want, s.notVerified(), name)
	}
}
