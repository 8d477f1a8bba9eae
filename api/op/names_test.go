package op_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/op"
)

// TestCheckName_RefusesIDs gives names that a command would take for an id, or for the beginning of
// one.
func TestCheckName_RefusesIDs(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"prj_01a20864", "prj_01a20864-29ce", "node_01a20864-29ce-7cf7-9705-0c944c76f300", "", "a b", "-x"} {
		require.Error(t, op.CheckName(name), name)
	}
	for _, name := range []string{"training", "prj_1", "rack_7", "key_metrics-2026", "a.b-c_d"} {
		require.NoError(t, op.CheckName(name), name)
	}
}
