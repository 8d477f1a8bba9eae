package allocation

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/workflows/sanitize"
)

// TestRelease_NamesWhatIsNotVerified: the certificate names each part of the BMC of which nothing
// was compared, and does not call a node verified that has no BMC.
func TestRelease_NamesWhatIsNotVerified(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		bmc      string
		root     bool
		settings contract.SettingsFacts
		want     []string
	}{
		"no BMC":          {"", true, contract.SettingsFacts{}, []string{"Slipway knows no BMC of the node"}},
		"all compared":    {"bmc_1", true, contract.SettingsFacts{Done: true, Count: 9}, nil},
		"no part offered": {"bmc_1", true, contract.SettingsFacts{NotOffered: []string{"Secure Boot"}}, []string{"Secure Boot"}},
		"shows nothing":   {"bmc_1", true, contract.SettingsFacts{}, []string{"the BMC shows none of its settings"}},
		"another account": {"bmc_1", true, contract.SettingsFacts{Done: true, Count: 9, OtherAccounts: []string{"ADMIN", "oem"}},
			[]string{"the passwords of the other enabled accounts of the BMC: ADMIN, oem"}},
		"another account, tenant not root": {"bmc_1", false, contract.SettingsFacts{Done: true, Count: 9, OtherAccounts: []string{"ADMIN"}}, nil},
	} {
		s := ReleaseState{Settings: c.settings, Cleaning: sanitize.State{Node: contract.DecommissionFacts{BMCID: c.bmc}}}
		s.Facts.TenantRoot = c.root
		require.Equal(t, c.want, s.notVerified(), name)
	}
}
