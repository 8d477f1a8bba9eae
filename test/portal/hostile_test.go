package portal_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/test/hostile"
	"github.com/slipway-cloud/slipway/test/portal/browser"
	"github.com/slipway-cloud/slipway/test/runenv"
	"github.com/slipway-cloud/slipway/test/stack"
)

// numbersAlone are the parts of a project that hold ids, kinds, times and amounts and no text of
// others.
var numbersAlone = []string{"balance", "payments", "usage", "statement"}

// image is the hostile text that pages are searched for.
const image = `<img src=x onerror="window.hostileRan=1">`

// Texts that the API and the database take are shown as they are on every page, and none is run or
// taken for markup: the page reports a script that runs, a dialog, a request elsewhere and a
// violated policy.
func TestPortal_ShowsHostileTexts(t *testing.T) {
	runenv.ProofOnly(t, "portal")
	t.Parallel()
	chromium := browser.Start(t)
	w := newWorld(t, stack.Options{Count: 3})
	further := w.fill(t)
	texts, err := hostile.Texts()
	require.NoError(t, err)
	w.sendHostileTexts(t, texts)
	w.plantHostileTexts(t, texts)
	p := chromium.Open(t, w.url)
	p.Resize(1280, 900)
	w.signIn(p, "/portal/nodes", "Inventory")
	shown := map[string]bool{}
	visitPages(t, p, further, func(pattern string) {
		for _, width := range []int64{1280, 320} {
			p.Resize(width, 900)
			var page struct {
				Width, Markup int
				Text          string
			}
			p.Evaluate(`({
				Width: document.documentElement.scrollWidth,
				Markup: document.querySelectorAll("main :is(img, iframe, script, style, object, [onload], [onerror], [srcdoc], a[href^='javascript:' i])").length,
				Text: document.body.textContent,
			})`, &page)
			assert.LessOrEqual(t, page.Width, int(width), "a text makes %s wider than the window", pattern)
			assert.Zero(t, page.Markup, "%s takes a text for markup", pattern)
			shown[pattern] = shown[pattern] || strings.Contains(page.Text, image)
		}
		if faults := p.Faults(); len(faults) > 0 {
			assert.Fail(t, pattern+": "+strings.Join(faults, "\n"))
		}
	})
	must := []string{
		"/nodes", "/nodes/:id", "/jobs/:id", "/attention", "/batches", "/batches/:id", "/drift", "/drift/:id", "/onboard", "/bmcs", "/bmcs/:id", "/sites", "/sites/:id",
		"/sites/:id/profiles/:profile", "/skus", "/skus/:id", "/install-workflows", "/install-workflows/:id", "/billing-accounts", "/billing-accounts/:id", "/projects", "/projects/:id",
		"/projects/:id/webhooks/:hook", "/projects/:id/allocations/:allocation", "/allocations/:id", "/catalogue", "/prices", "/audit", "/api-tokens", "/machines", "/machines/:id", "/runs/:id", "/plans", "/plans/:id", "/instances", "/instances/:id",
	}
	for _, part := range projectParts(t) {
		if slices.Contains(numbersAlone, part) {
			continue
		}
		must = append(must, strings.Replace(partRow, ":part", part, 1))
	}
	for _, path := range further {
		if strings.HasPrefix(path, "/nodes/") {
			must = append(must, path)
		}
	}
	for _, pattern := range must {
		assert.True(t, shown[pattern], "%s does not show the hostile text, so that it proves nothing", pattern)
	}
}

// sendHostileTexts sends each text in each field that takes text. Names refuse markup; reasons and
// labels take it.
func (w *world) sendHostileTexts(t *testing.T, texts []hostile.Text) {
	t.Helper()
	account := w.mustCall(t, http.MethodPost, "/api/v1/admin/billing-accounts", object{"name": "hostile", "max_projects": 100})["id"]
	project, ok := w.mustCall(t, http.MethodPost, "/api/v1/admin/projects", object{"name": "hostile", "billing_account_id": account, "owner_subject": "oidc:o"})["id"].(string)
	require.True(t, ok)
	node := "/api/v1/nodes/" + w.nodeID(t, hostOf(w.Sims.Fleet.All()[0]))
	fields := []struct {
		method, path string
		body         func(text string) object
	}{
		{http.MethodPost, "/api/v1/admin/skus", func(s string) object { return object{"name": s, "spec": w.SKUSpec()} }},
		{http.MethodPost, "/api/v1/admin/maas-sites", func(s string) object { return object{"name": s, "spec": w.SiteSpec()} }},
		{http.MethodPost, "/api/v1/admin/maas-sites/" + w.Site.ID + "/profiles", func(s string) object { return object{"name": s, "spec": w.ProfileSpec()} }},
		{http.MethodPost, "/api/v1/admin/billing-accounts", func(s string) object { return object{"name": s} }},
		{http.MethodPost, "/api/v1/admin/projects", func(s string) object {
			return object{"name": s, "billing_account_id": account, "owner_subject": "oidc:o"}
		}},
		{http.MethodPatch, "/api/v1/projects/" + project, func(s string) object { return object{"tags": object{"tag": s}} }},
		{http.MethodPost, "/api/v1/projects/" + project + "/invitations", func(s string) object { return object{"subject": "oidc:" + s, "role": "viewer"} }},
		{http.MethodPost, "/api/v1/projects/" + project + "/webhooks", func(s string) object { return object{"name": s, "url": "https://hooks.example.com/x"} }},
		{http.MethodPost, "/api/v1/admin/api-tokens", func(s string) object { return object{"name": s, "roles": []string{"viewer"}} }},
		{http.MethodPost, node + "/actions/quarantine", func(s string) object { return object{"reason": s} }},
		{http.MethodPost, node + "/actions/unquarantine", func(s string) object { return object{"reason": s} }},
		{http.MethodPatch, node, func(s string) object { return object{"labels": object{"label": s}} }},
	}
	for _, f := range fields {
		free := strings.HasPrefix(f.path, node) || strings.HasSuffix(f.path, "/invitations")
		var taken []string
		for _, text := range texts {
			if strings.Contains(f.path, "/actions/") && text.Text != image {
				continue // each action begins a change of the node
			}
			status, answer := w.call(t, f.method, f.path, f.body(text.Text))
			require.Less(t, status, 500, "%s %s with %s: %v", f.method, f.path, text.Name, answer)
			if status < 300 {
				taken = append(taken, text.Name)
			}
		}
		t.Logf("%s %s takes %v", f.method, f.path, taken)
		if free {
			assert.Contains(t, taken, "html_image", "%s %s takes no free text", f.method, f.path)
		} else {
			assert.NotContains(t, taken, "html_image", "%s %s takes markup for a name", f.method, f.path)
		}
	}
	w.mustCall(t, http.MethodPatch, node, object{"labels": object{"label": image}})
}

// plantHostileTexts writes the texts where MAAS, a BMC, an agent or an older release could have
// brought them.
func (w *world) plantHostileTexts(t *testing.T, texts []hostile.Text) {
	t.Helper()
	var all []string
	for _, text := range texts {
		all = append(all, printable(text.Text))
	}
	whole := strings.Join(all, "\n")
	short := string([]rune(whole)[:3500])
	require.Contains(t, short, image)
	facts, err := json.Marshal(object{image: all})
	require.NoError(t, err)
	tags, err := json.Marshal(object{image: image})
	require.NoError(t, err)
	seen, err := json.Marshal(db.PXEFacts{Hostname: image, Vendor: image, Model: image, SerialNumber: image})
	require.NoError(t, err)
	w.plantProjectParts(t)
	w.plantHostileAutomation(t, whole, short)
	conn := w.owner(t)
	_, err = conn.Exec(t.Context(), "SET session_replication_role = replica")
	require.NoError(t, err)
	for _, text := range texts {
		// Releases before this one took names that the API refuses now.
		_, _ = w.App.Store.CreateSKU(t.Context(), text.Text, w.SKUSpec())
	}
	for _, column := range []struct {
		table, name string
		value       any
	}{
		{"jobs", "message", whole}, {"jobs", "next_step", whole}, {"jobs", "created_by", short}, {"job_stages", "message", whole},
		{"action_logs", "error_message", short}, {"action_logs", "metadata", string(facts)}, {"batches", "name", short}, {"batches", "created_by", image},
		{"drift_findings", "message", whole}, {"drift_findings", "acted_by", image}, {"drift_findings", "acted_reason", whole}, {"drift_findings", "evidence", string(facts)},
		{"nodes", "serial", image}, {"nodes", "hardware_uuid", image}, {"nodes", "last_install_error", whole}, {"bmcs", "vendor", short},
		{"bmcs", "system_id", image}, {"bmcs", "auth_blocked_at = now(), auth_blocked_reason", whole}, {"events", "payload", string(facts)},
		{"pxe_nodes", "facts", string(seen)}, {"catalogue_items", "title", image}, {"catalogue_items", "description", image}, {"prices", "set_by", image},
		{"project_members", "name", image}, {"project_ssh_keys", "name", image}, {"project_tokens", "name", image}, {"notices", "message", image},
		{"allocations", "name", image}, {"allocations", "failure_message", short}, {"allocations", "condition_reason", image}, {"allocations", "tags", string(tags)},
		{"notice_emails", "reason", whole}, {"webhook_deliveries", "reason", whole}, {"webhook_deliveries", "subject", image},
	} {
		done, err := conn.Exec(t.Context(), "UPDATE "+column.table+" SET "+column.name+" = $1", column.value)
		require.NoError(t, err, "%s.%s", column.table, column.name)
		require.Positive(t, done.RowsAffected(), "%s has no row", column.table)
	}
	// Names are unique where these stand, and a specification keeps its form.
	for _, sql := range []string{
		"UPDATE sites SET name = id || ' ' || $1", "UPDATE profiles SET name = id || ' ' || $1", "UPDATE billing_accounts SET name = id || ' ' || $1", "UPDATE projects SET name = $1",
		"UPDATE install_workflows SET name = id || ' ' || $1, spec = jsonb_set(spec, '{command_line}', to_jsonb($1::text))", "UPDATE api_tokens SET name = $1",
	} {
		done, err := conn.Exec(t.Context(), sql, image)
		require.NoError(t, err, sql)
		require.Positive(t, done.RowsAffected(), sql)
	}
}
