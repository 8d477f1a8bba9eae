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

// mostVisits bounds a walk over the pages.
const mostVisits = 150

// pagePatterns returns the paths of all pages of the portal, as its table of pages states them.
func pagePatterns(t *testing.T) []string {
	t.Helper()
	table, err := os.ReadFile(filepath.Join("..", "..", "api", "portal", "web", "src", "pages", "index.ts"))
	require.NoError(t, err)
	var out []string
	for _, row := range pageRow.FindAllStringSubmatch(string(table), -1) {
		out = append(out, row[1])
	}
	require.Greater(t, len(out), 10, "the table of pages is not read")
	require.Equal(t, strings.Count(string(table), "path: \""), len(out), "some rows of the table of pages are not read")
	return out
}

// visitPages opens each page of the portal once and calls look on it. Of pages with an id in their
// path it opens the first one that a link on another page leads to, as an operator would find it. It
// fails where no link leads to a page: the data of the test must have one of each.
func visitPages(t *testing.T, p *browser.Page, look func(pattern string)) {
	t.Helper()
	missing := pagePatterns(t)
	var open []string
	for _, pattern := range missing {
		if !strings.Contains(pattern, ":") {
			open = append(open, "/portal"+pattern)
		}
	}
	seen := map[string]bool{}
	for ; len(open) > 0 && len(missing) > 0 && len(seen) < mostVisits; open = open[1:] {
		if seen[open[0]] {
			continue
		}
		seen[open[0]] = true
		openPage(p, open[0])
		// Another node, say, is opened for its links alone: it may offer what the first did not.
		if pattern := matchPage(missing, open[0]); pattern != "" {
			missing = slices.DeleteFunc(missing, func(m string) bool { return m == pattern })
			look(pattern)
		}
		var links []string
		p.Evaluate(`[...document.querySelectorAll("main a[href]")].filter((a) => a.origin === location.origin && a.pathname.startsWith("/portal/")).map((a) => a.pathname)`, &links)
		open = append(open, links...)
	}
	require.Empty(t, missing, "no link leads to these pages: give the test data that has one of each")
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

// openPage opens a path and waits until the page has read what it shows.
func openPage(p *browser.Page, path string) {
	p.Go(path)
	p.Find("heading", "...")
	p.Await("all that it reads", time.Minute, func() bool {
		return p.String(`document.querySelector("main")?.innerText.match(/(^|\n)Loading(\n|$)/) || document.querySelector("main [aria-busy=true]") ? "busy" : ""`) == ""
	})
}
