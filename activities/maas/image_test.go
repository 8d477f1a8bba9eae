package maas_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/lifecycle"
)

// TestReadInstalledImage reads what is deployed, with the time of MAAS's own event, and nothing of
// a machine on which nothing is.
func TestReadInstalledImage(t *testing.T) {
	t.Parallel()
	w := newWorld(t).deployed()
	clock := w.hw.Clock() // MAAS's, which is faster here
	image := must(w, w.acts.ReadInstalledImage, w.machine())
	require.NotEmpty(t, image.Version)
	require.Equal(t, image.Name+"/"+image.Version, image.ID)
	require.False(t, image.InstalledAt.After(clock.Now()))
	require.Less(t, clock.Now().Sub(image.InstalledAt), 24*time.Hour)
	require.Empty(t, image.SHA256, "MAAS keeps none")
	must(w, w.acts.EraseAndRelease, w.eraseIn())
	fails(w, lifecycle.FailStateDisagreement, w.acts.ReadInstalledImage, w.machine())
}
