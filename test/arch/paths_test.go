package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// namedPath is a path of the checkout as a script or page writes it: a top-level folder and what
// follows. A path that goes on from another one ("/srv/db/x", "api.db/x") is none of the
// checkout's.
var namedPath = regexp.MustCompile(`(^|[^\w/.$}@-])(?:\./)?((?:\.ci|activities|agent|api|assembly|cli|client|cmd|contract|db|deploy|dev|docs|internal|intent|lifecycle|loops|providers|scripts|sim|test|tools|workflows)/[\w.-]+(?:/[\w.-]+)*)([/*{<$]?)`)

// missingPaths returns the paths that the text names and that exists does not know. A path that
// ends in a pattern or a placeholder counts up to the folder before it.
func missingPaths(text string, exists func(string) bool) []string {
	var missing []string
	for _, match := range namedPath.FindAllStringSubmatch(text, -1) {
		path := match[2]
		if match[3] != "" && match[3] != "/" {
			path = filepath.Dir(path)
		}
		path = strings.TrimRight(path, "./-")
		if !exists(path) && !slices.Contains(missing, path) {
			missing = append(missing, path)
		}
	}
	return missing
}

// madeByRuns are paths that are named and not committed: a program, an operator or a package
// manager makes them.
var madeByRuns = []string{
	"deploy/secrets", "scripts/hydrate-symlinks.js", "test/run/flakes.json", "tools/pg/node_modules", "api/portal/web/node_modules",
}

// A package that moved must not leave scripts, images and pages that name its old path.
func TestPaths_NamedOnesExist(t *testing.T) {
	t.Parallel()
	exists := func(path string) bool {
		_, err := os.Stat(filepath.Join(root, path))
		return err == nil || slices.ContainsFunc(madeByRuns, func(made string) bool { return path == made || strings.HasPrefix(path, made+"/") })
	}
	files := sources(t, ".md", ".sh", ".yaml", ".yml", ".json", ".mk")
	for _, name := range []string{"Makefile", ".ci/run", "deploy/Containerfile", ".golangci.yml"} {
		text, err := os.ReadFile(filepath.Join(root, name))
		require.NoError(t, err)
		files[filepath.Join(root, name)] = string(text)
	}
	require.Greater(t, len(files), 50, "the walk saw the tree")
	delete(files, filepath.Join(root, "docs", "adr", "0015-a-tree-for-growth.md")) // lists old paths
	for path, text := range files {
		if missing := missingPaths(text, exists); len(missing) > 0 {
			t.Errorf("%s names paths that do not exist: %s", path, strings.Join(missing, ", "))
		}
	}
}

func TestPaths_MissingOnesAreFound(t *testing.T) {
	t.Parallel()
	exists := func(path string) bool { return path == "db" || path == "db/tx.go" || path == "test/run" }
	for text, want := range map[string]string{
		"see `db/tx.go`, and ./test/run.":       "",
		"go test ./test/run/... ":               "",
		"docs in `db/*.go`":                     "",
		"run ./internal/e2e twice internal/e2e": "internal/e2e",
		"go build -o /usr/bin/x ./cmd/gone":     "cmd/gone",
		"/var/lib/db/x and https://x/api/v1":    "",
		"`db/gone.go`, `api/*/x`":               "db/gone.go",
	} {
		require.Equal(t, want, strings.Join(missingPaths(text, exists), " "), text)
	}
}
