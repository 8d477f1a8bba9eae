package cli_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/cli"
)

// TestProjects takes a customer on as an operator does.
func TestProjects(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run(w.token("admin")+"\n", "login", "--server", w.url, "--token-stdin", "--name", "dev").exits(0)
	id := func(out string) string {
		var got struct{ ID string }
		require.NoError(t, json.Unmarshal([]byte(out), &got), out)
		return got.ID
	}
	w.run("", "billing-account", "create", "acme", "--max-projects", "2").exits(0)
	require.Contains(t, w.run("", "billing-account", "list").exits(0).out, "acme")
	account := id(w.run("", "-o", "json", "billing-account", "show", "acme").exits(0).out)
	project := id(w.run("", "-o", "json", "project", "create", "training", "--billing-account", account, "--owner-email", "ada@example.com").exits(0).out)
	require.Contains(t, w.run("", "project", "list-all").exits(0).out, "training")
	require.Contains(t, w.run("", "project", "show", project).exits(cli.ExitUsage).err, "--reason: must say")
	reason := []string{"--reason", "ticket 4711"}
	run := func(args ...string) string { return w.run("", append(args, reason...)...).exits(0).out }
	require.Contains(t, run("project", "show", project), "training")
	require.Contains(t, run("quota", "set", project, "total", "16"), "16")
	require.Contains(t, run("quota", "list", project), "16")
	w.run("", "quota", "delete", project, "total").exits(cli.ExitUsage)
	run("quota", "delete", project, "total")
	require.NotContains(t, run("quota", "list", project), "16")
	require.Contains(t, run("invitation", "list", project), "ada@example.com")
	require.Contains(t, w.run("", "invitation", "mine").exits(0).out, "EXPIRES AT")
	w.run("", "project", "list").exits(0)
	for range 51 { // one page holds 50 rows where no limit is given
		run("project", "rename", project, "--name", "training")
	}
	require.Contains(t, run("project", "audit-log", project), "create", "the first row is on a later page")
	require.Contains(t, run("project", "audit-log", project), "ticket 4711")
	require.NotContains(t, run("member", "list", project), "oidc:")
	require.Contains(t, run("project", "rename", project, "--name", "next"), "next")
	require.Contains(t, run("project", "billing-account", project), "acme")
	var export struct {
		Complete bool
		Audit    []any
	}
	require.NoError(t, json.Unmarshal([]byte(run("project", "export", project)), &export))
	require.True(t, export.Complete)
	require.Greater(t, len(export.Audit), 50)
	require.Contains(t, w.run("", "billing-account", "delete", "acme").exits(cli.ExitRefused).err, "it is used by projects")
	key := filepath.Join(w.home, "id")
	require.NoError(t, os.WriteFile(key, []byte("-----BEGIN OPENSSH PRIVATE KEY-----\n"), 0o600))
	require.Contains(t, w.run("", "key", "create", project, "laptop", key).exits(cli.ExitUsage).err, "was not sent")
	require.Contains(t, run("project", "close", project), "closed")
	w.run("", "catalogue", "list").exits(0)
	require.Contains(t, w.run("", "project", "show", "prj_00000000-0000-7000-8000-000000000000", "--reason", "ticket").exits(cli.ExitNotFound).err, "Project prj_00000000-0000-7000-8000-000000000000 was not found")
}
