package portal_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/db"
	simhw "github.com/slipway-cloud/slipway/sim/hw"
	"github.com/slipway-cloud/slipway/test/portal/browser"
	"github.com/slipway-cloud/slipway/test/stack"
)

// The site, the SKU and the profile of the simulated world, as a form offers them.
const (
	siteName    = "portal-site"
	skuName     = "h100x8"
	profileName = "standard"
)

// world is a whole system with a simulated site and a portal, and an operator's token.
type world struct {
	*stack.Stack
	stack.Seeded
	url     string
	token   string
	project string   // that fill has made
	themes  []string // of the portal's style sheet
}

func newWorld(t *testing.T, o stack.Options) *world {
	t.Helper()
	o.TemporalEnv, o.TemporalUI = "SLIPWAY_TEMPORAL_ADDRESS", -1
	return startWorld(t, o)
}

// newWorldWithTemporalUI is newWorld with a Temporal server of its own, which has a Web UI.
func newWorldWithTemporalUI(t *testing.T, o stack.Options) *world {
	t.Helper()
	return startWorld(t, o)
}

func startWorld(t *testing.T, o stack.Options) *world {
	t.Helper()
	o.Site, o.Speed, o.TaskQueue = siteName, 300, db.NewID("portal")
	o.DatabaseEnv, o.WithPayments = "TEST_DATABASE_URL", true
	o.OfflineAfter = time.Hour // a simulated agent is slow on a busy machine
	s, err := stack.Start(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	w := &world{Stack: s, url: s.Config.API.PublicURL}
	style, err := os.ReadFile(filepath.Join("..", "..", "api", "portal", "web", "src", "style.css"))
	require.NoError(t, err)
	w.themes = browser.Themes(string(style))
	require.Len(t, w.themes, 2, "the style sheet has two themes")
	w.Seeded, err = s.Seed(t.Context(), siteName, skuName, s.ProfileSpec())
	require.NoError(t, err)
	w.token, err = op.CreateToken(t.Context(), s.App.Store, "browser", []string{"operator", "admin"}, time.Hour)
	require.NoError(t, err)
	return w
}

func hostOf(m *simhw.Machine) string { return "gpu-" + m.Spec().ID }

// signIn opens a path, signs in with the token, and waits for the page with this heading.
func (w *world) signIn(p *browser.Page, path, heading string) {
	p.Allow(401, "/portal/session")
	p.Go(path)
	p.Fill("API token", w.token)
	p.Click("button", "Sign in")
	p.Find("heading", heading)
	p.AwaitText("Live")
	p.WatchWorkers()
}

// onboardInForm fills in the form for a machine, makes the plan and starts the job.
func (w *world) onboardInForm(t *testing.T, p *browser.Page, m *simhw.Machine) {
	t.Helper()
	p.Click("link", "Onboard a node")
	p.Choose("Site", siteName)
	p.Choose("Profile", profileName)
	p.Choose("SKU", w.SKU.Name)
	p.Fill("Hostname", hostOf(m))
	p.Fill("Address", m.Spec().BMCAddress)
	p.Fill("Login", stack.BMCSecret(m.Spec().ID))
	p.Click("button", "Make the plan")
	p.Find("button", "Start the onboarding")
	p.Click("button", "Start the onboarding")
	p.Find("heading", "Job: onboarding · "+hostOf(m))
}

// jobEnd is how long a job of the simulated site may take.
const jobEnd = 3 * time.Minute

// recommended returns the button that the page of a job puts first.
func recommended(p *browser.Page) string {
	return strings.TrimSpace(p.String(`document.querySelector("section.next button.primary")?.textContent ?? ""`))
}

// activeRows returns how many rows of the page say that their node is active.
func activeRows(p *browser.Page) int {
	var n int
	p.Evaluate(`document.querySelectorAll("tbody [data-status=active]").length`, &n)
	return n
}

// certificateVerdict returns what the newest certificate of the page says of the node's devices.
func certificateVerdict(p *browser.Page) string {
	return p.String(`[...document.querySelectorAll("table")].find((t) => t.caption?.textContent === "Certificates")?.tBodies[0].querySelector(".badge")?.dataset.status ?? ""`)
}

func (w *world) nodeID(t *testing.T, host string) string {
	t.Helper()
	nodes, err := w.App.Store.ListNodes(t.Context(), db.NodeFilter{Hostname: host}, "", 10)
	require.NoError(t, err)
	require.Len(t, nodes, 1)
	return nodes[0].ID
}

// decommissionInForm takes the node of the page out of service for good: it reads the plan, types
// the name, and signs in again as it is asked to.
func (w *world) decommissionInForm(t *testing.T, p *browser.Page, host string) {
	t.Helper()
	p.Allow(403, "/api/v1/admin/decommissions")
	p.Click("link", "Decommission")
	p.Choose("Mode", "full decommission")
	p.Click("button", "Make the plan")
	p.AwaitText("Plan hash")
	p.PictureThemes("decommission-plan", w.themes)
	p.Click("button", "Start the decommission")
	p.Fill("Reason (required)", "end of life")
	p.Fill("Type "+host+" to confirm", host)
	p.Click("button", "Start the decommission")
	p.Fill("API token", w.token) // of the dialog that asks for a second sign-in
	p.Picture("step-up")
	p.Click("button", "Confirm")
	p.Find("heading", "Job: decommission · "+host)
}
