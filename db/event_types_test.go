package db_test

import (
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// TestProjectEvents_HaveListedTypes: what the database writes by itself is listed, the page lists
// what a webhook can ask for and no more, and an event of another type is refused.
func TestProjectEvents_HaveListedTypes(t *testing.T) {
	t.Parallel()
	var source string
	dsn := dbtest.Database(t)
	require.NoError(t, dbtest.Owner(t, dsn).QueryRow(t.Context(), `SELECT prosrc FROM pg_proc WHERE proname = 'audit_project_event'`).Scan(&source))
	written := regexp.MustCompile(`THEN '([a-z_]+\.[a-z_]+)'`).FindAllStringSubmatch(source, -1)
	require.NotEmpty(t, written)
	for _, match := range written {
		require.Contains(t, lifecycle.ProjectEventTypes(), match[1])
	}

	page, err := os.ReadFile("../docs/webhooks.md")
	require.NoError(t, err)
	section := regexp.MustCompile(`(?s)\| kind \| types \|\n(.*?)\n\n`).FindSubmatch(page)
	require.Len(t, section, 2)
	var listed []string
	for _, match := range regexp.MustCompile("`([^`]+)`").FindAllSubmatch(section[1], -1) {
		listed = append(listed, string(match[1]))
	}
	require.ElementsMatch(t, lifecycle.ProjectEventTypes(), listed)

	project := "prj_1"
	err = dbtest.Open(t, dsn).AppendEvent(t.Context(), db.Event{ResourceKind: "project", ResourceID: project, ProjectID: &project, Type: "member.invented"})
	require.ErrorContains(t, err, "member.invented")
}
