package db_test

import (
	"os"
	"regexp"
	"strings"
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

// TestTopics_NameListedEvents: the page lists the names that the source documents use, each with
// events that there are.
func TestTopics_NameListedEvents(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/webhooks.md")
	require.NoError(t, err)
	section := regexp.MustCompile(`(?s)\| topic \| type of the event here \|\n\|[-|]+\|\n(.*?)\n\n`).FindSubmatch(page)
	require.Len(t, section, 2)
	var topics []string
	for line := range strings.Lines(string(section[1])) {
		cells := strings.Split(line, "|")
		require.Len(t, cells, 4, line)
		for _, topic := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[1], -1) {
			topics = append(topics, topic[1])
		}
		events := regexp.MustCompile("`([a-z_]+\\.[a-z_.]+)`").FindAllStringSubmatch(cells[2], -1)
		require.NotEmpty(t, events, line)
		for _, event := range events {
			require.Contains(t, lifecycle.ProjectEventTypes(), event[1])
		}
	}
	require.ElementsMatch(t, []string{
		"gpuaas.provisioning.releasing.requested", "gpuaas.provisioning.release_failed", "checkout.session.completed",
		"booting_to_ready", "booting_to_startup_failed", "terminating_to_terminated", "mark_provider_deleted",
	}, topics)
}
