package generated

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// root is the checkout, seen from this package's folder.
const root = "../.."

func TestCheck_CommittedCodeIsCurrent(t *testing.T) {
	t.Parallel()
	require.NoError(t, Check(root))
}

// copyTree returns a copy of all that Check reads, with the records of this copy.
func copyTree(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, path := range []string{"sqlc.yaml", "tools/go.mod", "tools/openapi/go.mod", "tools/proto/go.mod", "buf.yaml", "buf.gen.yaml", Path} {
		text, err := os.ReadFile(filepath.Join(root, path))
		require.NoError(t, err)
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, path)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, path), text, 0o600))
	}
	generators, err := Generators(root)
	require.NoError(t, err)
	folders := slices.Concat(generators[0].Inputs[1:], generators[0].Outputs, []string{"proto/slipway", "proto/gen"}) // the first is sqlc.yaml
	for _, path := range folders {
		require.NoError(t, os.CopyFS(filepath.Join(dir, path), os.DirFS(filepath.Join(root, path))))
	}
	for _, path := range slices.Concat(generators[1].Inputs, generators[1].Outputs) {
		text, err := os.ReadFile(filepath.Join(root, path))
		require.NoError(t, err)
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, path)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, path), text, 0o600))
	}
	require.NoError(t, Write(dir))
	return dir
}

func TestCheck_ReportsEachChange(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ path, want string }{
		"nothing":                {"db/README.md", ""},
		"a changed query":        {"db/queries/nodes.sql", "the inputs of sqlc changed"},
		"a new query file":       {"db/queries/unlisted.sql", "the inputs of sqlc changed"},
		"a new migration":        {"db/migrations/99999_new.sql", "the inputs of sqlc changed"},
		"changed settings":       {"sqlc.yaml", "the inputs of sqlc changed"},
		"a query below db":       {"db/drift/queries/unlisted.sql", "the inputs of sqlc changed"},
		"an output below db":     {"db/drift/gen/unlisted.go", "the outputs of sqlc changed"},
		"a changed output":       {"db/gen/nodes.sql.go", "the outputs of sqlc changed"},
		"a new file of outputs":  {"db/gen/unlisted.go", "the outputs of sqlc changed"},
		"a record more":          {Path, "4 records for 3 generators"},
		"a changed API":          {"docs/api/openapi.yaml", "the inputs of oapi-codegen changed"},
		"a changed template":     {"client/client.tmpl", "the inputs of oapi-codegen changed"},
		"a changed client":       {"client/client.gen.go", "the outputs of oapi-codegen changed"},
		"a changed message":      {"proto/slipway/v1/run.proto", "the inputs of buf changed"},
		"a changed plugin":       {"tools/proto/go.mod", "the inputs of buf changed"},
		"another message's code": {"proto/gen/unlisted.pb.go", "the outputs of buf changed"},
		"a changed tool version": {"tools/go.mod", "the version of sqlc changed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := copyTree(t)
			path := filepath.Join(dir, tc.path)
			text, err := os.ReadFile(path)
			if err != nil {
				require.ErrorIs(t, err, os.ErrNotExist)
			}
			changed := string(text) + "another line\n"
			if tc.path == "tools/go.mod" {
				changed = strings.Replace(string(text), "sqlc-dev/sqlc v1.", "sqlc-dev/sqlc v9.", 1)
			}
			require.NoError(t, os.WriteFile(path, []byte(changed), 0o600))
			err = Check(dir)
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.want)
			require.ErrorContains(t, err, "run make generate")
			require.NoError(t, Write(dir))
			require.NoError(t, Check(dir))
		})
	}
	t.Run("a removed query file", func(t *testing.T) {
		t.Parallel()
		dir := copyTree(t)
		require.NoError(t, os.Remove(filepath.Join(dir, "db/queries/nodes.sql")))
		require.ErrorContains(t, Check(dir), "the inputs of sqlc changed")
	})
}
