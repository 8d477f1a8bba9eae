package lifecycle_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/lifecycle"
)

func TestAlternativesAreNamedInWords(t *testing.T) {
	t.Parallel()
	for want, list := range map[string][]lifecycle.NodeStatus{
		"none": nil, "retired": {lifecycle.NodeRetired}, "active or offline": {lifecycle.NodeActive, lifecycle.NodeOffline},
		"active, offline or quarantined": {lifecycle.NodeActive, lifecycle.NodeOffline, lifecycle.NodeQuarantined},
	} {
		require.Equal(t, want, lifecycle.OneOf(list))
	}
}
