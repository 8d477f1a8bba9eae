package portal_test

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/assembly/devserver/identity"
	"github.com/slipway-cloud/slipway/test/portal/browser"
	"github.com/slipway-cloud/slipway/test/runenv"
	"github.com/slipway-cloud/slipway/test/stack"
)

// telephone is the width in pixels that the customers' pages have to be readable at.
const telephone = 390

// Each page of customers in each theme, as wide as a telephone, with data of every kind, the
// sign-in and the question before a release.
func TestPortal_CustomersPagesAreAccessible(t *testing.T) {
	runenv.ProofOnly(t, "portal")
	t.Parallel()
	axe := browser.ReadAxe(t)
	chromium := browser.Start(t)
	w := newWorld(t, stack.Options{Count: 1, WithIdentity: true})
	ada := w.newCustomer(t, identity.Ada, "training")
	paths := w.fillCustomersProject(t, ada)
	p := chromium.Open(t, w.url, w.Identity.Issuer)
	p.Resize(telephone, 844)
	p.Allow(404, "/budget")
	check := func(what string) {
		for _, theme := range w.themes {
			p.UseTheme(theme)
			assert.Empty(t, p.Violations(axe), "%s, %s", what, theme)
		}
		var width int
		p.Evaluate(`document.documentElement.scrollWidth`, &width)
		assert.LessOrEqual(t, width, telephone, "%s is wider than the window", what)
	}
	p.Allow(401, "/portal/session")
	p.Go("/portal/")
	p.Find("link", "Sign in with your organisation")
	check("the sign-in")
	w.signInAs(p, ada, "/portal/my/")
	p.Find("button", "Accept: training")
	check("an invitation")
	p.Click("button", "Accept: training")
	p.Find("heading", "Overview")
	for _, path := range paths {
		p.Go("/portal/my" + path)
		p.Find("heading", "...")
		awaitRead(p)
		check(path)
	}
	p.Click("button", "Menu")
	p.Find("link", "Overview")
	check("the menu")
	p.Go("/portal/nodes")
	p.Find("heading", "This page is not for customers")
	check("the address of an operator")
	p.Go("/portal/my/projects/" + ada.project + "/keys")
	p.Click("button", "Delete: laptop")
	p.Find("dialog", "Delete the key laptop")
	check("the question before a key is deleted")
	p.RequireNoFaults()
}

// fillCustomersProject gives a project one of each thing that the customers' pages show. It returns
// the paths of all those pages, as their table states them.
func (w *world) fillCustomersProject(t *testing.T, c *customer) []string {
	t.Helper()
	path := "/api/v1/projects/" + c.project
	w.mustCall(t, http.MethodPut, "/api/v1/admin/catalogue/"+w.SKU.ID, object{"profile_id": w.Profile.ID, "title": "Eight H100", "isolation": "dedicated_network"})
	w.mustCall(t, http.MethodPost, path+"/invitations", object{"email": "member@example.com", "role": "viewer"})
	hook := w.mustCall(t, http.MethodPost, path+"/webhooks", object{"name": "hook", "url": "https://hooks.example.com/slipway"})["id"]
	w.plantProjectParts(t)
	w.fillAllocations(t, c.project)
	w.fillUsage(t, c.project)
	w.project = c.project
	w.topUp(t, 1000)
	allocations, _ := w.mustCall(t, http.MethodGet, path+"/allocations", nil)["data"].([]any)
	require.NotEmpty(t, allocations)
	newest, _ := allocations[0].(map[string]any)
	ids := map[string]any{"catalogue": w.SKU.ID, "allocations": newest["id"], "webhooks": hook}

	table, err := os.ReadFile(filepath.Join(pagesFolder, "..", "customer", "pages.ts"))
	require.NoError(t, err)
	rows := pageRow.FindAllStringSubmatch(string(table), -1)
	require.Equal(t, strings.Count(string(table), `path: "`), len(rows), "some rows of the table of pages are not read")
	var paths []string
	for _, row := range rows {
		page := strings.Replace(row[1], ":project", c.project, 1)
		if kind := regexp.MustCompile(`/(\w+)/:id$`).FindStringSubmatch(page); kind != nil {
			id, ok := ids[kind[1]].(string)
			require.True(t, ok, "give the test an id for %s", row[1])
			page = strings.Replace(page, ":id", id, 1)
		}
		paths = append(paths, page)
	}
	require.Greater(t, len(paths), 10)
	return paths
}
