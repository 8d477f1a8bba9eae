package portal_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/test/hostile"
	"github.com/slipway-cloud/slipway/test/portal/browser"
	"github.com/slipway-cloud/slipway/test/runenv"
	"github.com/slipway-cloud/slipway/test/stack"
)

// Names that the database takes are shown as they are, and none is run or taken for markup: the page
// reports a script that runs, a request elsewhere and a violated policy.
func TestPortal_ShowsHostileNames(t *testing.T) {
	runenv.ProofOnly(t, "portal")
	t.Parallel()
	chromium := browser.Start(t)
	w := newWorld(t, stack.Options{Count: 1})
	texts, err := hostile.Texts()
	require.NoError(t, err)
	var stored []string
	for _, text := range texts {
		if _, err := w.App.Store.CreateSKU(t.Context(), text.Text, w.SKUSpec()); err == nil {
			stored = append(stored, text.Text)
		}
	}
	require.Greater(t, len(stored), 5, "the database takes none of the names")
	image := `<img src=x onerror="window.hostileRan=1">`
	require.Contains(t, stored, image)
	w.SKU.Name = image
	p := chromium.Open(t, w.url)
	p.Resize(1280, 900)
	w.signIn(p, "/portal/onboard", "Onboard a node")
	w.onboardInForm(t, p, w.Sims.Fleet.All()[0])
	p.AwaitTextWithin("completed", jobEnd)
	p.Go("/portal/nodes/" + w.nodeID(t, hostOf(w.Sims.Fleet.All()[0])))
	p.AwaitText(image)
	p.Go("/portal/nodes")
	var options []string
	p.Await("the names of the SKUs", time.Minute, func() bool {
		p.Evaluate(`[...(document.querySelector("select[name=sku_id]")?.options ?? [])].map((o) => o.textContent)`, &options)
		return slices.Contains(options, image)
	})
	// The portal writes control characters as their names, so those texts differ.
	require.Len(t, options, len(stored)+2)
	for _, text := range texts {
		if strings.Contains(text.Text, "hostileRan") && slices.Contains(stored, text.Text) {
			require.Contains(t, options, text.Text)
		}
	}
	p.RequireNoFaults()
}
