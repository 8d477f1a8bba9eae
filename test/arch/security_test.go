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

// skipCall is a skip that no condition is before: it stands in the test's own block.
var skipCall = regexp.MustCompile(`(?m)^\tt\.Skip(f|Now)?\(`)

// A control without a test is a promise: each row of docs/security.md names a test of the tree,
// which make test runs: it is in the module, no build tag leaves it out, and it does not skip
// itself.
func TestSecurityPage_NamesTests(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(root, "docs", "security.md"))
	require.NoError(t, err)
	known := map[string]bool{}
	for path, source := range sources(t, ".go") {
		if strings.HasSuffix(path, "_test.go") {
			for _, name := range testsThatRun(path, source) {
				known[name] = true
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
			require.True(t, known[m[1]], "there is no %s that make test runs: %s", m[1], line)
		}
	}
	require.Greater(t, rows, 30)
}

// testsThatRun returns the tests of a file that `go test ./...` runs on every machine.
func testsThatRun(path, source string) []string {
	for part := range strings.SplitSeq(filepath.ToSlash(filepath.Dir(path)), "/") {
		if part == "testdata" || part == "vendor" || len(part) > 1 && part != ".." && (part[0] == '.' || part[0] == '_') {
			return nil
		}
	}
	if head, _, _ := strings.Cut(source, "\npackage "); strings.Contains("\n"+head, "\n//go:build ") {
		return nil
	}
	var out []string
	for _, at := range testFunc.FindAllStringSubmatchIndex(source, -1) {
		body, _, _ := strings.Cut(source[at[1]:], "\n}")
		if !skipCall.MatchString(body) {
			out = append(out, source[at[2]:at[3]])
		}
	}
	return out
}

func TestTestsThatRun_LeavesOutWhatIsSkipped(t *testing.T) {
	t.Parallel()
	const test = "package x\n\nfunc TestA(t *testing.T) {\n\tif short() {\n\t\tt.Skip(1)\n\t}\n}\n"
	require.Equal(t, []string{"TestA"}, testsThatRun("a/b_test.go", test))
	require.Empty(t, testsThatRun("a/b_test.go", strings.Replace(test, "\tif", "\tt.Skip(1)\n\tif", 1)))
	require.Empty(t, testsThatRun("a/b_test.go", "//go:build qemu\n\n"+test))
	require.Empty(t, testsThatRun("a/testdata/b_test.go", test))
	require.Empty(t, testsThatRun("_a/b_test.go", test))
}
