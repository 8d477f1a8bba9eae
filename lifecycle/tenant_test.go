package lifecycle_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// Every node has to accept the name.
func TestTenantAccount_IsValidAndUnique(t *testing.T) {
	t.Parallel()
	name := lifecycle.TenantAccount("alloc_0199AB12-3456-7890-abcd-ef0123456789")
	raw, err := json.Marshal(spec.RevokeUserArgs{User: name})
	require.NoError(t, err)
	_, err = lifecycle.TaskKindRevokeUser.CheckArgs(1, raw)
	require.NoError(t, err)
	require.NotEqual(t, name, lifecycle.TenantAccount("alloc_0199AB12-3456-7890-abcd-ef0123456780"))
}
