package portal_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/evidence"
	maassim "github.com/slipway-cloud/slipway/sim/maas"
	"github.com/slipway-cloud/slipway/test/portal/browser"
	"github.com/slipway-cloud/slipway/test/stack"
)

// An operator's day: two machines come, one of them with a fault, and one goes.
func TestPortal_Journey(t *testing.T) {
	t.Parallel()
	chromium := browser.Start(t)
	w := newWorld(t, stack.Options{Count: 2})
	machines := w.Sims.Fleet.All()
	well, broken := machines[0], machines[1]
	fault, err := w.Sims.MAAS.AddFault(maassim.Fault{Name: "http_403", Op: "set_boot_disk", Count: -1, Machine: broken.Spec().NICs[0].MAC})
	require.NoError(t, err)
	p := chromium.Open(t, w.url)
	p.Resize(1280, 900)

	p.Allow(401, "/portal/session")
	p.Go("/portal/nodes?status=active")
	p.Find("heading", "Sign in to Slipway")
	p.Fill("API token", "slp_wrong")
	p.Click("button", "Sign in")
	p.Find("alert", "...")
	require.True(t, p.Has("heading", "Sign in to Slipway"))
	p.Picture("sign-in")
	w.signIn(p, "/portal/nodes?status=active", "Inventory")
	require.Equal(t, "/portal/nodes?status=active", p.Path(), "the sign-in forgets where the operator wanted to go")
	require.Empty(t, p.String(`document.cookie`), "a script can read the session's cookie")

	w.onboardInForm(t, p, broken)
	p.AwaitTextWithin("maas rejected", jobEnd)
	p.PictureThemes("failed-job", w.themes)
	p.Click("link", "Attention...")
	p.Find("heading", "Attention")
	p.AwaitText(hostOf(broken))
	p.PictureThemes("attention", w.themes)
	p.Evaluate(`history.back()`, nil)
	p.AwaitText("maas rejected")
	action := recommended(p)
	require.NotEmpty(t, action, "no button is marked as the recommended action")
	w.Sims.MAAS.ClearFaults(fault)
	p.Click("button", action)
	p.Fill("Reason", "the fault at MAAS is fixed")
	p.Click("button", action)
	w.onboardInForm(t, p, well)
	p.Picture("running-job")
	p.AwaitTextWithin("completed", jobEnd) // without a reload: the page reads again as events come
	p.PictureThemes("job-completed", w.themes)

	p.Click("link", "Inventory")
	for _, m := range machines {
		p.AwaitTextWithin(hostOf(m), jobEnd)
	}
	p.Await("both nodes active", jobEnd, func() bool { return activeRows(p) == 2 })
	p.PictureThemes("inventory", w.themes)

	p.Click("link", hostOf(well))
	p.Find("heading", hostOf(well))
	p.AwaitText("8 × ")
	p.Picture("node")
	w.decommissionInForm(t, p, hostOf(well))
	p.AwaitTextWithin("completed", jobEnd)
	node := w.nodeID(t, hostOf(well))
	p.Go("/portal/nodes/" + node)
	p.Await("a certificate", jobEnd, func() bool { return certificateVerdict(p) != "" })
	require.Equal(t, string(evidence.VerdictClean), certificateVerdict(p))
	p.Evaluate(`[...document.querySelectorAll("table")].find((t) => t.caption?.textContent === "Certificates").scrollIntoView({ block: "center" })`, nil)
	p.PictureThemes("certificate", w.themes)
	n, err := w.App.Store.Node(t.Context(), node)
	require.NoError(t, err)
	require.Equal(t, lifecycle.NodeDeleted, n.Status)
	w.inventoryShowsCoarseStates(t, p)
	w.jobsShowWhatFailed(t, p)
}

// jobsShowWhatFailed ends a job by a failure, as a run ends whose step failed: it is shown as
// failed, in the tone of what is bad.
func (w *world) jobsShowWhatFailed(t *testing.T, p *browser.Page) {
	t.Helper()
	node := dbtest.Node(t, w.App.Store, dbtest.At(w.Site.ID))
	job := dbtest.Job(t, w.App.Store, dbtest.On(node.ID), dbtest.JobStatus(lifecycle.JobCompensating))
	require.NoError(t, w.App.Store.Tx(t.Context(), func(tx *db.Tx) error {
		_, err := tx.ProjectJob(t.Context(), db.Projection{
			JobID: job.ID, Seq: job.Seq + 1, RunID: "r", Status: lifecycle.JobCancelled, Stage: "work", StageOrdinal: 1,
			FailureClass: lifecycle.FailCommand, FailedStage: "work", Message: "exit 1",
		})
		return err
	}))
	p.Go("/portal/jobs?status=failed")
	p.AwaitText(node.ID)
	require.Equal(t, "badge badge--bad", p.String(`document.querySelector("tbody [data-status=failed]")?.className ?? ""`))
}

// inventoryShowsCoarseStates adds a node in every state: the inventory lists those in the five
// coarse states, and every one where that is asked for.
func (w *world) inventoryShowsCoarseStates(t *testing.T, p *browser.Page) {
	t.Helper()
	for _, s := range lifecycle.NodeMAAS.States {
		dbtest.Node(t, w.App.Store, dbtest.At(w.Site.ID), dbtest.Status(s.State), dbtest.Hostname("in-"+strings.ReplaceAll(string(s.State), "_", "-")))
	}
	shown := func() string {
		return p.String(`[...new Set([...document.querySelectorAll("tbody [data-status]")].map((e) => e.dataset.status))].sort().join(" ")`)
	}
	p.Go("/portal/nodes")
	p.AwaitText("in-removing")
	require.Equal(t, "active offline quarantined removing retired", shown())
	p.Go("/portal/nodes?status=every")
	p.AwaitText("in-draining")
	require.Contains(t, shown(), "bootstrap_issued")
}
