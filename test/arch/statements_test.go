package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// batchByIn matches a changed table whose rows are those of a subquery with IN.
var batchByIn = regexp.MustCompile(`(?s)\b(UPDATE|DELETE FROM)\b.*\bIN\s*\(\s*SELECT\b.*\bLIMIT @`)

// A statement that changes a batch of rows chooses the batch once: "= ANY (ARRAY(SELECT ... LIMIT
// ...))". With IN, PostgreSQL may choose the batch again for each row of the table where its
// statistics are older than the rows: minutes for some thousand rows, and with SKIP LOCKED more
// rows than the limit.
func TestStatements_ChooseABatchOnce(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(root, "db", "queries", "*.sql"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for statement := range strings.SplitSeq(string(text), "-- name: ") {
			require.NotRegexp(t, batchByIn, statement, filepath.Base(file))
		}
	}
	require.Regexp(t, batchByIn, "DELETE FROM jobs WHERE id IN (\n SELECT j.id FROM jobs j LIMIT @max_rows)")
}
