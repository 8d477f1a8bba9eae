package portal_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/test/portal/browser"
	"github.com/slipway-cloud/slipway/test/runenv"
	"github.com/slipway-cloud/slipway/test/stack"
)

const (
	moreSettings = "More settings"
	otherJSON    = "All other settings as JSON"
	maasURL      = "https://maas.example:5240/MAAS"
)

// An administrator without a mouse creates what an onboarding needs and changes it, on a page that
// is as narrow as a telephone. A refusal of the API is shown at the field that it concerns.
func TestPortal_CreatesWhatIsConfigured(t *testing.T) {
	runenv.ProofOnly(t, "portal")
	t.Parallel()
	chromium := browser.Start(t)
	w := newWorld(t, stack.Options{Count: 1})
	p := chromium.Open(t, w.url)
	p.Resize(320, 640)
	w.signIn(p, "/portal/sites", "Sites")
	w.createSite(t, p)
	w.editSite(t, p)
	w.createProfile(t, p)
	w.createSKU(t, p)
	w.createInstallWorkflow(t, p)
	p.RequireNoFaults()
}

// named returns what a list of the API has under a name, with its settings.
func (w *world) named(t *testing.T, list, name string) (id string, spec object) {
	t.Helper()
	rows, _ := w.mustCall(t, http.MethodGet, list+"?name="+name, nil)["data"].([]any)
	require.Len(t, rows, 1, "%s has no %s", list, name)
	row, _ := rows[0].(object)
	id, _ = row["id"].(string)
	spec, _ = row["spec"].(object)
	return id, spec
}

// wrongAt returns what the page says is wrong with the field that has the focus.
func wrongAt(p *browser.Page) string {
	return p.String(`document.getElementById(document.activeElement?.getAttribute("aria-describedby") ?? "")?.querySelector(".wrong")?.textContent ?? ""`)
}

// requireRefusal waits until the focus is at the field that is wrong and says so.
func requireRefusal(t *testing.T, p *browser.Page, field, message string) {
	t.Helper()
	p.Await(fmt.Sprintf("a refusal at %q", field), time.Minute, func() bool { return p.Focused().Name == field && wrongAt(p) != "" })
	require.Contains(t, wrongAt(p), message)
	requireNarrow(t, p)
}

func (w *world) createSite(t *testing.T, p *browser.Page) {
	t.Helper()
	p.Allow(422, "/api/v1/admin/maas-sites")
	p.PressOn("link", "Create a site")
	p.Find("textbox", "Name")
	requireNarrow(t, p)
	require.Equal(t, "100", p.String(`document.querySelector("[name=name]").getAttribute("maxlength")`), "the bound of the API")
	p.Type("Name", "a name with blanks")
	p.Type("URL of MAAS", maasURL)
	p.Type("API key of MAAS", w.SiteSpec().MAASAPIKeyRef)
	p.PressOn("button", "Create")
	requireRefusal(t, p, "Name", "letters, digits")
	p.Type("Name", "second-site")
	p.Type("Networks of the BMCs", "10.0.0.0/33\n10.1.0.0/16")
	p.PressOn("button", "Create")
	requireRefusal(t, p, "Networks of the BMCs", "must be networks")
	p.Picture("site-form")
	p.Type("Networks of the BMCs", "10.0.0.0/16\n10.1.0.0/16")
	p.PressOn("DisclosureTriangle", moreSettings)
	p.Type(otherJSON, `{"simulated": true,`)
	p.PressOn("button", "Create")
	requireRefusal(t, p, otherJSON, "This is not JSON")
	p.Type(otherJSON, `{"simulated": true, "zone": "z"}`)
	p.PressOn("button", "Create")
	requireRefusal(t, p, otherJSON, "Zone of MAAS has a field of its own")
	p.Type(otherJSON, `{"simulated": true, "no_such_setting": 1}`)
	p.PressOn("button", "Create")
	requireRefusal(t, p, otherJSON, "no_such_setting")
	p.Type(otherJSON, `{"simulated": true, "ssh_port": 2222}`)
	p.PressOn("button", "Create")
	p.Find("heading", "second-site")
	_, spec := w.named(t, "/api/v1/admin/maas-sites", "second-site")
	require.Equal(t, object{
		"maas_url": maasURL, "maas_api_key_ref": w.SiteSpec().MAASAPIKeyRef, "simulated": true, "ssh_port": 2222.0, "bmc_networks": []any{"10.0.0.0/16", "10.1.0.0/16"},
	}, spec)
}

// editSite changes one field. Everything else stays as it was.
func (w *world) editSite(t *testing.T, p *browser.Page) {
	t.Helper()
	id, before := w.named(t, "/api/v1/admin/maas-sites", "second-site")
	p.Allow(403, "/api/v1/admin/maas-sites/"+id)
	p.PressOn("link", "Edit")
	p.Find("heading", "Edit: second-site")
	requireNarrow(t, p)
	p.Type("Region", "north")
	p.TabTo("checkbox", "Trust the certificate that a BMC shows first")
	p.Press(" ")
	p.PressOn("button", "Save")
	p.Find("textbox", "API token") // a site says where secrets go
	p.Press(w.token)
	p.PressOn("button", "Confirm")
	p.Find("heading", "second-site")
	before["region"], before["trust_first_bmc_pin"] = "north", true
	_, after := w.named(t, "/api/v1/admin/maas-sites", "second-site")
	require.Equal(t, before, after)
}

func (w *world) createProfile(t *testing.T, p *browser.Page) {
	t.Helper()
	id, _ := w.named(t, "/api/v1/admin/maas-sites", "second-site")
	p.PressOn("link", "Create a profile")
	p.Find("textbox", "Name")
	requireNarrow(t, p)
	p.Type("Name", "wide")
	p.Type("Boot disk", "BOSS")
	p.Pick("Power control", "ipmi")
	p.Type("Protected drives", "SERIAL1\nSERIAL2")
	p.TabTo("spinbutton", "Onboardings of a batch at a time")
	p.Press("501")
	p.PressOn("button", "Create")
	require.Equal(t, "true", p.String(`String(document.querySelector("[name='spec.batch_max_parallel']").validity.rangeOverflow)`), "the bound of the API")
	require.Equal(t, "Onboardings of a batch at a time", p.Focused().Name)
	p.Press(kb.Backspace)
	p.PressOn("button", "Create")
	p.Find("heading", "Profile: wide")
	_, spec := w.named(t, "/api/v1/admin/maas-sites/"+id+"/profiles", "wide")
	require.Equal(t, object{"model_contains": "BOSS"}, spec["boot_disk"])
	require.Equal(t, []any{"ipmi", []any{"SERIAL1", "SERIAL2"}, 50.0, "jammy"}, []any{spec["power_type"], spec["protect_serials"], spec["batch_max_parallel"], spec["distro_series"]})
	p.PressOn("link", "Edit")
	p.Find("heading", "Edit: wide")
	p.PressOn("button", "Save")
	p.Find("heading", "Profile: wide")
	_, again := w.named(t, "/api/v1/admin/maas-sites/"+id+"/profiles", "wide")
	require.Equal(t, spec, again, "nothing was changed")
}

func (w *world) createSKU(t *testing.T, p *browser.Page) {
	t.Helper()
	p.Go("/portal/skus")
	p.PressOn("link", "Create a SKU")
	p.Find("textbox", "Name")
	requireNarrow(t, p)
	p.Type("Name", skuName) // there is one of this name
	p.TabTo("spinbutton", "GPUs")
	p.Press("8")
	p.Type("GPU model", "H100")
	p.Allow(409, "/api/v1/admin/skus")
	p.PressOn("button", "Create")
	p.Find("alert", "...")
	p.Type("Name", "h100x8-wide")
	p.PressOn("button", "Create")
	p.Find("heading", "SKU: h100x8-wide")
	_, spec := w.named(t, "/api/v1/admin/skus", "h100x8-wide")
	require.Equal(t, object{"gpus": 8.0, "gpu_model_contains": "H100"}, spec)
}

func (w *world) createInstallWorkflow(t *testing.T, p *browser.Page) {
	t.Helper()
	const userData = "#cloud-config\nhostname: {{ .Hostname }}\n"
	p.Go("/portal/install-workflows")
	p.PressOn("link", "Create an install workflow")
	p.Find("textbox", "Name")
	requireNarrow(t, p)
	p.Allow(422, "/api/v1/admin/install-workflows")
	p.Type("Name", "noble")
	p.Type("Kernel", "http://images.example/vmlinuz")
	p.Type("Initial RAM disk", "no address")
	p.Type("User data", userData)
	p.PressOn("button", "Create")
	requireRefusal(t, p, "Initial RAM disk", "http or https URL")
	p.Type("Initial RAM disk", "http://images.example/initrd")
	p.PressOn("DisclosureTriangle", moreSettings)
	p.Type(otherJSON, `{"initrds": [{}, {"url": "http://images.example/more"}], "agent": {}}`)
	p.PressOn("button", "Create")
	p.Find("heading", "Install workflow: noble")
	_, spec := w.named(t, "/api/v1/admin/install-workflows", "noble")
	require.Equal(t, []any{object{"url": "http://images.example/initrd"}, object{"url": "http://images.example/more"}}, spec["initrds"])
	require.Equal(t, []any{object{}, userData}, []any{spec["agent"], spec["user_data"]})
	p.PressOn("link", "Edit")
	p.Find("heading", "Edit: noble")
	p.PressOn("button", "Save")
	p.Find("heading", "Install workflow: noble")
	_, again := w.named(t, "/api/v1/admin/install-workflows", "noble")
	require.Equal(t, spec, again, "nothing was changed")
}
