package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// decision and statePage are pages that their index or the code leads to: single decisions, and the
// pages that lifecycle generates.
var (
	decision  = regexp.MustCompile(`^docs/adr/\d{4}-`)
	statePage = regexp.MustCompile(`^docs/states/`)
	runbook   = regexp.MustCompile(`^docs/runbooks/`)
)

// markdownPages returns the text of each page of the checkout by its path.
func markdownPages(t *testing.T) map[string]string {
	t.Helper()
	pages := map[string]string{}
	for path, text := range sources(t, ".md") {
		path, err := filepath.Rel(root, path)
		require.NoError(t, err)
		pages[filepath.ToSlash(path)] = text
	}
	return pages
}

// linkedPages returns the pages to which a page links.
func linkedPages(page, text string) []string {
	var linked []string
	for _, match := range link.FindAllStringSubmatch(code.ReplaceAllString(text, ""), -1) {
		if strings.HasSuffix(match[1], ".md") && !strings.Contains(match[1], "://") {
			linked = append(linked, filepath.ToSlash(filepath.Join(filepath.Dir(page), match[1])))
		}
	}
	return linked
}

// A page that no index names is found by nobody who does not know it already.
func TestPages_AreTwoLinksFromREADME(t *testing.T) {
	t.Parallel()
	pages := markdownPages(t)
	reached := map[string]bool{"README.md": true}
	next := []string{"README.md"}
	for range 2 {
		var found []string
		for _, page := range next {
			for _, linked := range linkedPages(page, pages[page]) {
				if !reached[linked] {
					reached[linked] = true
					found = append(found, linked)
				}
			}
		}
		next = found
	}
	for page := range pages {
		if strings.HasPrefix(page, "docs/") && !decision.MatchString(page) && !statePage.MatchString(page) && !reached[page] {
			t.Errorf("README.md does not lead to %s in two links: link it from docs/README.md, or a runbook from docs/run/incidents.md", page)
		}
	}
}

// The index of decisions names each of them.
func TestPages_DecisionsAreInTheirIndex(t *testing.T) {
	t.Parallel()
	pages := markdownPages(t)
	listed := linkedPages("docs/adr/README.md", pages["docs/adr/README.md"])
	for page := range pages {
		if decision.MatchString(page) {
			require.Contains(t, listed, page, "docs/adr/README.md has no row for it")
		}
	}
}

// A reader decides by the first sentence whether a page is for them. The first line of a runbook is
// fixed by TestEveryFailureClassHasItsRunbook; its reader has a job of that class.
func TestPages_FirstSentenceSaysForWhom(t *testing.T) {
	t.Parallel()
	checked := 0
	for page, text := range markdownPages(t) {
		if !strings.HasPrefix(page, "docs/") || decision.MatchString(page) || statePage.MatchString(page) || runbook.MatchString(page) {
			continue
		}
		checked++
		if err := firstSentence(text); err != "" {
			t.Errorf("%s %s", page, err)
		}
	}
	require.Greater(t, checked, 25, "the walk saw the pages")
}

// firstSentence returns what is wrong with the begin of a page: a title, an empty line, and a
// sentence that begins with "For " and its readers.
func firstSentence(page string) string {
	title, rest, _ := strings.Cut(page, "\n")
	if !strings.HasPrefix(title, "# ") {
		return "does not begin with a title"
	}
	if !strings.HasPrefix(rest, "\nFor ") {
		return `does not say in its first sentence who needs it: begin with "For operators who ..."`
	}
	return ""
}

func TestFirstSentence_FindsPagesWithout(t *testing.T) {
	t.Parallel()
	require.Empty(t, firstSentence("# Billing\n\nFor operators who set prices.\n"))
	require.Contains(t, firstSentence("Billing\n"), "title")
	require.Contains(t, firstSentence("# Billing\n\n## Prices\n"), "who needs it")
	require.Contains(t, firstSentence("# Billing\n\nPrices are set by operators.\n"), "who needs it")
}

// namedPage is a page as a Go file names it, in a comment or as the page to read of an answer.
var namedPage = regexp.MustCompile(`\bdocs/[\w/-]+\.md(#[a-z0-9_-]+)?`)

// Comments and answers must not name a page or a heading that has moved. Tests may invent pages.
func TestPages_NamedByCodeExist(t *testing.T) {
	t.Parallel()
	seen := 0
	for path, text := range sources(t, ".go") {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		for _, match := range namedPage.FindAllStringSubmatch(text, -1) {
			seen++
			page := strings.TrimSuffix(match[0], match[1])
			content, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(page)))
			if err != nil {
				t.Errorf("%s names %s, which is not there", path, page)
				continue
			}
			if match[1] != "" {
				require.Contains(t, anchors(string(content)), match[1], "%s names a heading that %s does not have", path, page)
			}
		}
	}
	require.Greater(t, seen, 30, "the walk saw the names")
}
