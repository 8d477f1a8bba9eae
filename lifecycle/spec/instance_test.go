package spec_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// TestInstanceTypes_HasThoseOfScaleway: the three types of GPUs that were asked for.
func TestInstanceTypes_HasThoseOfScaleway(t *testing.T) {
	t.Parallel()
	var names []string
	for _, it := range spec.InstanceTypes() {
		if it.Provider == "scaleway" {
			names = append(names, it.Name)
			require.Equal(t, 30*time.Minute, spec.InstanceStartup(it.Name))
		}
	}
	require.Equal(t, []string{"L4-1-24G", "L40S-1-48G", "H100-1-80G"}, names)
}
