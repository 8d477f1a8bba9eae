package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var testFunc = regexp.MustCompile(`(?m)^func (Test\w+)\(`)

// A control without a test is a promise: each row of docs/security.md names a test of the tree.
func TestSecurityPage_NamesTests(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(root, "docs", "security.md"))
	require.NoError(t, err)
	known := map[string]bool{}
	for path, source := range sources(t, ".go") {
		if strings.HasSuffix(path, "_test.go") {
			for _, m := range testFunc.FindAllStringSubmatch(source, -1) {
				known[m[1]] = true
			}
		}
	}
	_, threats, found := strings.Cut(string(page), "## Threats\n")
	require.True(t, found)
	rows := 0
	for line := range strings.Lines(threats) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "|---") || strings.TrimSpace(cells[0]) == "threat" {
			continue
		}
		rows++
		require.Len(t, cells, 4, line)
		named := regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(cells[3], -1)
		require.NotEmpty(t, named, "no test: %s", line)
		for _, m := range named {
			require.True(t, known[m[1]], "there is no %s: %s", m[1], line)
		}
	}
	require.Greater(t, rows, 30)
}
