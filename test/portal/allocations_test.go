package portal_test

import (
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/intent/allocation"
	"github.com/slipway-cloud/slipway/lifecycle"
	simhw "github.com/slipway-cloud/slipway/sim/hw"
	"github.com/slipway-cloud/slipway/test/portal/browser"
	"github.com/slipway-cloud/slipway/test/runenv"
	"github.com/slipway-cloud/slipway/test/stack"
)

// An operator follows an allocation from its request to its end on one page that is never reloaded:
// the node's agent is held up, and its BMC is dead when the tenant gives the node back. The release
// that failed is in the list of these, and is tried again from there.
func TestPortal_FollowsAnAllocation(t *testing.T) {
	runenv.ProofOnly(t, "portal")
	t.Parallel()
	chromium := browser.Start(t)
	w := newWorld(t, stack.Options{Count: 1})
	m := w.Sims.Fleet.All()[0]
	p := chromium.Open(t, w.url)
	p.Resize(1280, 900)
	w.signIn(p, "/portal/nodes", "Inventory")
	w.onboardInForm(t, p, m)
	p.AwaitTextWithin("completed", jobEnd)

	tenant, err := stack.NewTenant(t.Context(), w.App.Store, w.SKU.ID, w.Profile.ID)
	require.NoError(t, err)
	agent := w.holdAgent(t, m)
	var asked allocation.Accepted
	require.NoError(t, w.App.Store.Tx(t.Context(), func(tx *db.Tx) (err error) {
		asked, err = tenant.Allocate(t.Context(), tx, w.Site.ID)
		return err
	}))
	id := asked.Allocation.ID
	p.Click("link", "Allocations") // a second load of the page starts a worker, which the watch prevents
	p.AwaitText(id)
	p.AwaitTextWithin("retire credentials", jobEnd) // the first stage that asks the agent
	p.Picture("allocations")
	p.Click("link", id)
	p.Find("heading", "Allocation: "+id)
	p.AwaitText("stages are done")
	p.Picture("allocation-progress")
	require.NoError(t, syscall.Kill(agent, syscall.SIGCONT))
	p.Await("the allocation active", jobEnd, func() bool { return w.shows(p, lifecycle.AllocationActive) })
	p.AwaitText("No job is under way.")

	m.SetBMCDown(true)
	require.NoError(t, w.App.Store.Tx(t.Context(), func(tx *db.Tx) error {
		_, err := allocation.Release(t.Context(), tx, id, "trained", db.Actor{Owner: lifecycle.OwnerCustomer, ID: "oidc:anna"})
		return err
	}))
	listFailed(p)
	p.Await("the failed release in the list", 2*jobEnd, func() bool {
		p.Click("button", "Reload") // a list only says that it has new rows
		text := p.Text()            // the list of before may still be there, with the allocation in it
		return strings.Contains(text, id) && strings.Contains(text, "unconfirmed")
	})
	p.Picture("releases-failed")
	p.Click("link", id)
	p.Find("heading", "Allocation: "+id)
	m.SetBMCDown(false)
	p.Click("button", "force release")
	p.Fill("Reason (required)", "the BMC answers again")
	p.Click("button", "force release")
	p.Await("the allocation released", 2*jobEnd, func() bool { return w.shows(p, lifecycle.AllocationReleased) })
	p.AwaitText("cert_")
	listFailed(p)
	p.Await("an empty list", jobEnd, func() bool {
		return p.String(`document.querySelector("main tbody [data-status=release_failed]") ? "" : "yes"`) != ""
	})
	p.RequireNoFaults()
}

// listFailed opens the list of the allocations whose release has failed.
func listFailed(p *browser.Page) {
	p.Click("link", "Allocations")
	p.Choose("State", "release failed")
	p.Click("button", "Apply filters")
}

// holdAgent holds up the agent of a node and returns its process group, with the sign of kill.
func (w *world) holdAgent(t *testing.T, m *simhw.Machine) int {
	t.Helper()
	n := w.Sims.Nodes[m.Spec().ID]
	pid := n.AgentPID()
	require.NoError(t, n.StopAgent())
	return -pid
}

// shows reports whether the page of an allocation says that it has a status.
func (w *world) shows(p *browser.Page, status lifecycle.AllocationStatus) bool {
	return p.String(`document.querySelector("main h1")?.parentElement?.querySelector("[data-status]")?.dataset.status ?? ""`) == string(status)
}
