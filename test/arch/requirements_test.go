package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// unheld is the number of requirements without a test or a decision. All belong to capabilities
// that are not built yet: groups of allocations, terminals and storage. The number only falls.
const unheld = 51

var (
	requirement = regexp.MustCompile(`^\| (\d[\da-z.]*) \| [^|]+ \| ([^|]+) \|$`)
	heldBy      = regexp.MustCompile("`([a-z][\\w/]*) (Test\\w+)`")
)

// TestRequirements_NameWhatIsThere: each row of docs/requirements.md names tests that exist, or a
// decision, or says that nothing holds it.
func TestRequirements_NameWhatIsThere(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(root, "docs", "requirements.md"))
	require.NoError(t, err)
	tests := map[string]string{} // the text of all tests of a folder
	rows, open := 0, 0
	for line := range strings.Lines(string(page)) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| # |") {
			continue
		}
		rows++
		row := requirement.FindStringSubmatch(line)
		require.NotNil(t, row, "no row of three cells: %s", line)
		named := heldBy.FindAllStringSubmatch(row[2], -1)
		switch {
		case strings.HasPrefix(row[2], "none: "):
			open++
		case len(named) == 0:
			require.Contains(t, row[2], "](adr/", "the row names no test and no decision: %s", line)
		}
		for _, m := range named {
			if _, read := tests[m[1]]; !read {
				tests[m[1]] = testsOf(t, m[1])
			}
			require.Contains(t, tests[m[1]], "\nfunc "+m[2]+"(", "there is no test %s in %s", m[2], m[1])
		}
	}
	require.Greater(t, rows, 800)
	require.Equal(t, unheld, open, "the requirements that nothing holds: write the smaller number here, and never a larger one")
}

func testsOf(t *testing.T, folder string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(folder), "*_test.go"))
	require.NoError(t, err)
	var all strings.Builder
	for _, path := range files {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		all.Write(text)
	}
	return all.String()
}
