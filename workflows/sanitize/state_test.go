package sanitize

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// TestReleaseForbidden_UnknownModeEndsNothing: a state without a mode does not say whether the node
// has to be installed again, so that a release goes no further with it.
func TestReleaseForbidden_UnknownModeEndsNothing(t *testing.T) {
	t.Parallel()
	node := contract.DecommissionFacts{SystemID: "abc"}
	for mode, why := range map[lifecycle.DecommissionMode]string{
		"": "nothing says whether", lifecycle.ModeDrain: "nothing says whether", lifecycle.ModeReimage: "", lifecycle.ModeSoftReset: "",
	} {
		s := State{Mode: mode, Node: node}
		if why == "" {
			require.Empty(t, s.ReleaseForbidden(), mode)
		} else {
			require.Contains(t, s.ReleaseForbidden(), why, mode)
		}
	}
	s := State{Mode: lifecycle.ModeReimage}
	require.Contains(t, s.ReleaseForbidden(), "MAAS does not manage it")
}
