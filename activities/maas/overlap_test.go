package maas_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTwoExecutionsOfOneDeployment: one was taken for lost and still ran. The
// machine is deployed once, and neither sees somebody else in the other. Found
// by the chaos run.
func TestTwoExecutionsOfOneDeployment(t *testing.T) {
	t.Parallel()
	for range 4 {
		w := newWorld(t).prepared()
		w.seal()
		errs := make([]error, 2)
		var both sync.WaitGroup
		for i := range errs {
			both.Go(func() { _, errs[i] = w.acts.DeployMachine(t.Context(), w.deployIn(1)) })
		}
		both.Wait()
		require.NoError(t, errs[0])
		require.NoError(t, errs[1])
		require.Equal(t, 1, w.counts("deploys"))
	}
}
