package portal_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/test/portal/browser"
)

// pageRow is a row of the portal's table of pages.
var pageRow = regexp.MustCompile(`\{ path: "(/[^"]*)"`)

// parameter is a part of a path that stands for an id.
var parameter = regexp.MustCompile(`:[A-Za-z_]+`)

var pagesFolder = filepath.Join("..", "..", "api", "portal", "web", "src", "pages")

// mostVisits bounds a walk over the pages.
const mostVisits = 150

// partNames is the list of a project's parts, which share a row of the table of pages.
var partNames = regexp.MustCompile(`projectParts = \[([^\]]+)\]`)

const partRow = "/projects/:id/:part"

// projectParts returns the names of the lists of a project.
func projectParts(t *testing.T) []string {
	t.Helper()
	source, err := os.ReadFile(filepath.Join(pagesFolder, "projectNav.tsx"))
	require.NoError(t, err)
	list := partNames.FindSubmatch(source)
	require.NotNil(t, list, "the parts of a project are not read")
	var out []string
	for _, name := range strings.Split(string(list[1]), ",") {
		out = append(out, strings.Trim(name, ` "`))
	}
	return out
}

// pagePatterns returns the paths of all pages of the portal, as its table of pages states them.
func pagePatterns(t *testing.T) []string {
	t.Helper()
	table, err := os.ReadFile(filepath.Join(pagesFolder, "index.ts"))
	require.NoError(t, err)
	var out []string
	for _, row := range pageRow.FindAllStringSubmatch(string(table), -1) {
		out = append(out, row[1])
	}
	require.Greater(t, len(out), 10, "the table of pages is not read")
	require.Equal(t, strings.Count(string(table), "path: \""), len(out), "some rows of the table of pages are not read")
	row := slices.Index(out, partRow)
	require.GreaterOrEqual(t, row, 0, "no page shows the parts of a project")
	out = slices.Delete(out, row, row+1)
	for _, part := range projectParts(t) {
		out = append(out, strings.Replace(partRow, ":part", part, 1))
	}
	return out
}

// visitPages opens each page of the portal once and calls look on it, and on the paths of further.
// Of pages with an id in their path it opens the first one that a link on another page leads to, as
// an operator would find it. It fails where no link leads to a page: the data of the test must have
// one of each.
func visitPages(t *testing.T, p *browser.Page, further []string, look func(pattern string)) {
	t.Helper()
	missing := pagePatterns(t)
	var open []string
	for _, pattern := range missing {
		if !strings.Contains(pattern, ":") {
			open = append(open, "/portal"+pattern)
		}
	}
	seen := map[string]bool{}
	for len(open) > 0 && len(missing) > 0 && len(seen) < mostVisits {
		// Another node, say, is opened for its links alone, when nothing else is left: it may offer
		// what the first did not.
		next := max(0, slices.IndexFunc(open, func(path string) bool { return matchPage(missing, path) != "" }))
		path := open[next]
		open = slices.Delete(open, next, next+1)
		if seen[path] {
			continue
		}
		seen[path] = true
		openPage(p, path)
		if pattern := matchPage(missing, path); pattern != "" {
			missing = slices.DeleteFunc(missing, func(m string) bool { return m == pattern })
			look(pattern)
		}
		var links []string
		p.Evaluate(`[...document.querySelectorAll("main a[href]")].filter((a) => a.origin === location.origin && a.pathname.startsWith("/portal/")).map((a) => a.pathname)`, &links)
		open = append(open, links...)
	}
	require.Empty(t, missing, "no link leads to these pages: give the test data that has one of each")
	for _, path := range further {
		openPage(p, "/portal"+path)
		look(path)
	}
}

// matchPage returns the first pattern that the path fits, or "".
func matchPage(patterns []string, path string) string {
	for _, pattern := range patterns {
		fits := regexp.MustCompile("^/portal" + parameter.ReplaceAllString(pattern, "[^/]+") + "$")
		if fits.MatchString(path) {
			return pattern
		}
	}
	return ""
}

// openPage opens a path and waits until the page has read what it shows. It gives the reason that
// the pages of customers ask for.
func openPage(p *browser.Page, path string) {
	p.Go(path)
	p.Find("heading", "...")
	awaitRead(p)
	if p.String(`document.querySelector("h1")?.textContent ?? ""`) == reasonTitle {
		p.Fill("Reason (required)", "ticket 17")
		p.Click("button", "Open the project")
		p.Await("the project", time.Minute, func() bool {
			return p.String(`document.querySelector("h1")?.textContent ?? ""`) != reasonTitle
		})
		awaitRead(p)
	}
}

const reasonTitle = "Why do you open this project?"

func awaitRead(p *browser.Page) {
	p.Await("all that it reads", time.Minute, func() bool {
		return p.String(`document.querySelector("main")?.innerText.match(/(^|\n)Loading(\n|$)/) || document.querySelector("main [aria-busy=true]") ? "busy" : ""`) == ""
	})
}
