package spec

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A secret that is sent to no address could never be used in a network.
func TestSecretUse_NetworksNeedAnAddress(t *testing.T) {
	t.Parallel()
	for _, kind := range SecretKinds() {
		err := SecretUse{Kind: kind, Sites: []string{"site_1"}, Networks: []string{"10.4.0.0/16"}}.Validate()
		if kind != SecretSSHKey && kind != SecretBootstrap && kind != SecretStripeWebhook {
			require.NoError(t, err, kind)
			continue
		}
		require.ErrorContains(t, err, "name the sites or nodes", kind)
	}
}
