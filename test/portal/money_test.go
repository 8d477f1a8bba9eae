package portal_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/test/portal/browser"
	"github.com/slipway-cloud/slipway/test/runenv"
	"github.com/slipway-cloud/slipway/test/stack"
)

// An administrator sets a price after its dry run and books on a balance, and reads what a project
// was charged. A project has cost 39.86 USD of 50.00.
func TestPortal_ShowsMoney(t *testing.T) {
	runenv.ProofOnly(t, "portal")
	t.Parallel()
	chromium := browser.Start(t)
	w := newWorld(t, stack.Options{Count: 1})
	project := "/portal/projects/" + w.fillProject(t)
	p := chromium.Open(t, w.url)
	p.Resize(1280, 900)
	w.signIn(p, "/portal/prices", "Prices")
	w.setPrice(t, p)
	w.adjust(t, p)
	openPage(p, project+"/balance")
	for _, want := range []string{"low balance", "5.14 USD", "10.00 USD"} {
		p.AwaitText(want)
	}
	openPage(p, project+"/usage")
	p.AwaitText("39.86 USD in all")
	require.Equal(t, "1", p.String(`String(document.querySelectorAll("svg.chart rect").length)`), "a bar for the day")
	p.Picture("usage")
	openPage(p, project+"/usage?from=2026-01-01&to=2026-01-02")
	p.AwaitText("Nothing was charged in these days.")
	openPage(p, project+"/ledger")
	p.AwaitText("-39.86 USD")
	w.saveStatement(t, p, project)
	p.RequireNoFaults()
}

// setPrice sets a price that is far from the one before, and needs a confirmation and a second
// sign-in.
func (w *world) setPrice(t *testing.T, p *browser.Page) {
	t.Helper()
	p.AwaitText("19.93 USD")
	p.Click("link", "Set a price")
	p.Choose("SKU", skuName)
	p.Focus("spinbutton", "Minor units for each hour of one node")
	p.Press("5000")
	p.Click("button", "Make the dry run")
	p.AwaitText("50.00 USD")
	p.AwaitText("2.509 times the one before")
	p.Picture("price-plan")
	p.Click("button", "Set a price")
	p.Fill("Type "+skuName+" to confirm", skuName)
	p.Click("checkbox", "This price is meant")
	p.Allow(403, "/api/v1/admin/prices")
	p.Click("button", "Set a price")
	p.Fill("API token", w.token)
	p.Click("button", "Confirm")
	p.AwaitText("The price is set.")
	p.Find("heading", "Prices")
	p.AwaitText("50.00 USD")
	prices, _ := w.mustCall(t, http.MethodGet, "/api/v1/admin/prices?sku_id="+w.SKU.ID, nil)["data"].([]any)
	require.Len(t, prices, 2)
}

// adjust books an adjustment on the account of the project. An amount with too many digits is
// refused in the form.
func (w *world) adjust(t *testing.T, p *browser.Page) {
	t.Helper()
	account, _ := w.mustCall(t, http.MethodGet, "/api/v1/projects/"+w.project, nil)["billing_account_id"].(string)
	openPage(p, "/portal/billing-accounts/"+account)
	p.AwaitText("10.14 USD")
	p.Click("button", "Book an adjustment")
	p.Fill("Amount in USD", "-5.001")
	p.Fill("Reason (required)", "a fee")
	p.Click("button", "Book an adjustment")
	p.AwaitText("at most 2 digits after the point")
	p.Fill("Amount in USD", "-5.00")
	p.Click("button", "Book an adjustment")
	p.AwaitText("-5.00 USD is booked.")
	p.AwaitText("5.14 USD")
	p.Picture("billing-account")
	balance := w.mustCall(t, http.MethodGet, "/api/v1/admin/billing-accounts/"+account+"/balance", nil)
	require.EqualValues(t, 514, balance["balance_minor"])
	p.Click("button", "Set the thresholds")
	p.Fill("Low at and below (USD)", "13.00")
	p.Fill("Reason (required)", "as agreed")
	p.Allow(422, "/api/v1/admin/billing-accounts/"+account+"/thresholds")
	p.Click("button", "Set the thresholds")
	p.AwaitText("must be at least depleted_minor")
}

// saveStatement saves the statement of the month as CSV. The file is not written: the page's click
// on the link that would do so is kept.
func (w *world) saveStatement(t *testing.T, p *browser.Page, project string) {
	t.Helper()
	openPage(p, project+"/statement")
	p.AwaitText("10.14 USD")
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
	require.Contains(t, saved, "statement-"+w.project+"-"+time.Now().UTC().Format("2006-01")+".csv")
	require.Regexp(t, `(?m)^,adjustment,.*,1,50\.00,USD,$`, saved)
	require.Regexp(t, `(?m)^,total,.*,2,10\.14,USD,\s*$`, saved)
}
