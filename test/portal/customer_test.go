package portal_test

import (
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/test/portal/browser"
)

// A customer's first day, from the invitation to the release. The release is done with the keyboard
// alone, and so is the order. Another customer sees nothing of it.
func TestPortal_CustomersFirstDay(t *testing.T) {
	t.Parallel()
	chromium := browser.Start(t)
	w, ada, bob := newCustomersWorld(t)
	p := chromium.Open(t, w.url, w.Identity.Issuer, w.Config.Payment.StripeURL)
	p.Resize(1280, 900)
	key := newKeyPair(t)

	w.signInAs(p, ada, "/portal/")
	p.Find("heading", "Projects and invitations")
	require.Equal(t, "/portal/my/", p.Path(), "the first page is the customers'")
	p.AwaitText("training")
	p.Picture("invitation")
	p.Click("button", "Accept: training")
	p.Find("heading", "Overview")
	p.AwaitText("50.00 USD")
	p.Picture("overview")
	p.Go("/portal/nodes")
	p.Find("heading", "This page is not for customers")
	p.Click("link", "Go to your own portal")
	p.Click("link", "training")
	w.addKey(p, key)

	path := w.orderByKeyboard(t, p)
	p.Await("the allocation active", jobEnd, func() bool { return shownStatus(p) == string(lifecycle.AllocationActive) })
	p.Find("heading", "Connection")
	p.AwaitText("19.93 USD")
	p.Picture("allocation-active")
	line, known := copyable(p, "the command"), copyable(p, "the line for known_hosts")
	require.Equal(t, "in", logIn(t, line, known, key, "echo in"))

	w.seesNothing(t, chromium, ada, bob, path)
	w.topUpAndReturn(t, p, ada)
	p.Go(path)
	p.Find("heading", "Allocation: first")
	w.releaseByKeyboard(p, ada)
	p.Await("the allocation released", jobEnd, func() bool { return shownStatus(p) == string(lifecycle.AllocationReleased) })
	p.AwaitText("nothing more is charged")
	p.AwaitText("cert_")
	p.Picture("allocation-released")
	readStatement(t, p, ada)
}

// addKey pastes a key. A private one is refused before it leaves the page.
func (w *world) addKey(p *browser.Page, key keyPair) {
	p.Click("link", "SSH keys")
	p.Find("heading", "SSH keys")
	p.Fill("Name", "laptop")
	p.Fill("Public key", "-----BEGIN OPENSSH PRIVATE KEY-----")
	p.Click("button", "Add the key")
	p.AwaitText("This is a private key.")
	p.Fill("Public key", key.line)
	p.Click("button", "Add the key")
	p.AwaitText("The key laptop is added.")
	p.AwaitText("SHA256:")
}

// orderByKeyboard orders a node without the mouse. It returns the path of the allocation's page.
func (w *world) orderByKeyboard(t *testing.T, p *browser.Page) string {
	t.Helper()
	p.PressOn("link", "Order a node")
	p.Find("heading", "Order a node")
	p.PressOn("link", "Eight H100")
	p.Find("heading", "Order: Eight H100")
	p.Find("checkbox", "laptop")
	p.AwaitText("19.93 USD") // the price, before the order
	p.Type("Name", "first")
	p.TabTo("spinbutton", "Release it after (hours)")
	p.Press("2")
	p.Picture("order")
	p.PressOn("button", "Allocate the node")
	p.Find("heading", "Allocation: first")
	p.AwaitText("stages are done")
	p.Picture("allocation-progress")
	return p.Path()
}

// topUpAndReturn pays 25.00 USD on the payment page, which leads back to the balance that shows it.
func (w *world) topUpAndReturn(t *testing.T, p *browser.Page, c *customer) {
	t.Helper()
	p.Allow(404, "/budget") // none is set
	p.Click("link", "Balance and top-up")
	p.Find("heading", "Balance and top-up")
	p.Fill("Amount in USD", "25.001")
	p.Click("button", "Top up")
	p.AwaitText("at most 2 digits after the point")
	p.Fill("Amount in USD", "25.00")
	p.Click("button", "Top up")
	p.AwaitText("25.00 USD to pay")
	p.Picture("top-up")
	p.Click("link", "Go to the payment page")
	p.Find("heading", "Simulated payment")
	p.Click("button", "Pay")
	p.Find("heading", "Balance and top-up")
	require.Regexp(t, "^/portal/my/projects/"+c.project+`/balance\?page=cs_`, p.Path(), "the payment page leads back")
	p.AwaitText("25.00 USD are credited to the balance.")
	p.Await("the credited payment", time.Minute, func() bool {
		return p.String(`document.querySelector("tbody [data-status=credited]")?.textContent ?? ""`) != ""
	})
	p.Picture("credited")
}

// readStatement reads the statement of the month, on the page and as CSV. The file is not written:
// the page's click on the link that would do so is kept.
func readStatement(t *testing.T, p *browser.Page, c *customer) {
	t.Helper()
	month := time.Now().UTC().Format("2006-01")
	p.Click("link", "Statement")
	p.Find("heading", "Statement of "+month)
	p.AwaitText("50.00 USD")
	p.Await("what the node cost", jobEnd, func() bool {
		return p.String(`document.querySelector("main tbody")?.innerText.includes("usage") ? "yes" : ""`) != ""
	})
	p.Picture("statement")
	var ignored bool
	p.Evaluate(`(() => {
		window.saved = "";
		const make = URL.createObjectURL;
		URL.createObjectURL = (blob) => { blob.text().then((rows) => { window.saved += rows; }); return make.call(URL, blob); };
		HTMLAnchorElement.prototype.click = function () { window.saved += this.download; };
		return true;
	})()`, &ignored)
	p.Click("button", "Download as CSV")
	p.AwaitText("is saved.")
	p.Await("the rows", time.Minute, func() bool { return p.String(`window.saved.includes(",total,") ? "yes" : ""`) != "" })
	saved := p.String("window.saved")
	require.Contains(t, saved, "statement-"+c.project+"-"+month+".csv")
	require.Regexp(t, `(?m)^,adjustment,.*,1,50\.00,USD,$`, saved)
	require.Regexp(t, `(?m)^alc_[^,]*,usage,.*,-\d+\.\d\d,USD,`, saved)
}

// releaseByKeyboard releases the node of the page without the mouse, after a second sign-in. The
// question is left once: the focus has to be where it was.
func (w *world) releaseByKeyboard(p *browser.Page, c *customer) {
	p.PressOn("button", "Release")
	p.Find("dialog", "Release first")
	p.AwaitFocus("link", "Sign in again to continue")
	p.Press(kb.Enter)
	p.Type("User name", c.Name)
	p.Type("Password", c.Password)
	p.PressOn("button", "Sign in")
	p.Find("heading", "Allocation: first")
	p.PressOn("button", "Release")
	p.Find("dialog", "Release first")
	p.AwaitFocus("textbox", "Reason")
	p.Press(kb.Escape)
	p.Await("no dialog", time.Minute, func() bool { return !p.Has("dialog", "Release first") })
	p.AwaitFocus("button", "Release")
	p.Press(kb.Enter)
	p.AwaitFocus("textbox", "Reason")
	p.Press("trained")
	p.Picture("release")
	p.PressOn("button", "Release the node")
	p.Await("a release", time.Minute, func() bool {
		s := shownStatus(p)
		return s == string(lifecycle.AllocationReleasing) || s == string(lifecycle.AllocationReleased)
	})
}

// seesNothing has another customer sign in and open what is the first one's.
func (w *world) seesNothing(t *testing.T, chromium *browser.Browser, owner, other *customer, path string) {
	t.Helper()
	p := chromium.Open(t, w.url, w.Identity.Issuer)
	p.Resize(1280, 900)
	w.signInAs(p, other, "/portal/my/")
	p.Click("button", "Accept: serving")
	p.Find("heading", "Overview")
	p.AwaitText("The project has no node now.")
	for _, theirs := range []string{path, "/portal/my/projects/" + owner.project + "/keys"} {
		p.Allow(404, "/api/v1/projects/"+owner.project)
		p.Go(theirs)
		p.Find("alert", "...")
		text := p.Text()
		require.NotContains(t, text, "laptop")
		require.NotContains(t, text, "first")
		require.NotContains(t, text, "training")
	}
	p.RequireNoFaults()
}

// shownStatus returns the state that the page of an allocation says.
func shownStatus(p *browser.Page) string {
	return p.String(`document.querySelector("main h1")?.parentElement?.querySelector("[data-status]")?.dataset.status ?? ""`)
}

// copyable returns the text that a button with this label copies.
func copyable(p *browser.Page, label string) string {
	return p.String(`document.querySelector('button[aria-label="Copy: ` + label + `"]')?.parentElement?.querySelector("code")?.textContent ?? ""`)
}
