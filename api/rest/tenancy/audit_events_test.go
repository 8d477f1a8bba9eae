package tenancy_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// withoutEvent are the audit names of projects that are no events, with the reason.
func withoutEvent() map[string]string {
	const queue = "it is in the list of deliveries, and its event would be sent to the webhook too"
	const own = "the allocation has events of its own"
	const instance = "the instance has events of its own"
	const run = "runs have a stream of their own, WatchRuns"
	return map[string]string{
		"operator_access":   "a read changes nothing; owners find it in the audit log",
		"create_allocation": own, "release_allocation": own, "set_allocation_keys": own, "force_release": own, "remove_assignment": own,
		"create_instance": instance, "terminate_instance": instance,
		"start_run": run, "cancel_run": run, "create_campaign": run, "pause_campaign": run, "resume_campaign": run, "cancel_campaign": run, "retry_campaign": run,
		"update_allocation": "name and tags change nothing that happens",
		"put_budget":        "a budget stops nothing, and its notices are sent", "delete_budget": "as put_budget",
		"test_webhook": queue, "redeliver_webhook_event": queue, "replay_webhook": queue,
	}
}

// auditArgument is which argument of a function names the audit row of a project.
func auditArgument() map[string]int {
	return map[string]int{"AuditProject": 2, "changeQuota": 2, "queueOnce": 5, "auditAllocation": 3, "auditInstance": 3, "changeAllocation": 2, "auditCampaign": 2, "moveCampaign": 2}
}

// TestAuditNames_AreEvents finds every name that an audit row of a project can have, in the source
// and in the lifecycle, and appends a row with it. A name without an event needs its reason above.
func TestAuditNames_AreEvents(t *testing.T) {
	t.Parallel()
	names := map[string]string{"create": "lifecycle"}
	for _, tr := range lifecycle.Project.Transitions {
		names[tr.Name] = "lifecycle"
	}
	const root = "../../.."
	for _, dir := range []string{"api", "intent", "db", "activities", "workflows", "contract", "loops", "assembly", "internal"} {
		require.NoError(t, filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			if err == nil && strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
				addAuditNames(t, path, names)
			}
			return err
		}))
	}
	require.Greater(t, len(names), 25, "the walk finds what there is")
	dsn := dbtest.Database(t)
	store, owner := dbtest.Open(t, dsn), dbtest.Owner(t, dsn)
	for name, path := range names {
		project := db.NewID("prj")
		require.NoError(t, store.AppendAudit(t.Context(), db.Entry{
			ResourceKind: lifecycle.Project.Resource, ResourceID: project, Kind: db.EntryAction, Name: name, Actor: db.Actor{Owner: lifecycle.OwnerCustomer, ID: "x"},
		}))
		var events int
		require.NoError(t, owner.QueryRow(t.Context(), "SELECT count(*) FROM outbox WHERE kind = 'event' AND event_project = $1", project).Scan(&events))
		if reason, excepted := withoutEvent()[name]; excepted {
			require.Zero(t, events, "%s has an event: %s", name, reason)
			continue
		}
		require.Equal(t, 1, events, "%s of %s has no event: add it to the function audit_project_event in a migration, or its reason to withoutEvent", name, path)
	}
	for name := range withoutEvent() {
		require.Contains(t, names, name, "nothing writes this name")
	}
	var source string
	require.NoError(t, owner.QueryRow(t.Context(), "SELECT pg_get_functiondef('audit_project_event'::regproc)").Scan(&source))
	found := regexp.MustCompile(`WHEN '([a-z_]+)' THEN '`).FindAllStringSubmatch(source, -1)
	require.Greater(t, len(found), 20)
	for _, f := range found {
		require.Contains(t, names, f[1], "the trigger has an event for a name that nothing writes")
	}
}

// addAuditNames adds the audit names of projects that a file writes.
func addAuditNames(t *testing.T, path string, names map[string]string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	for _, decl := range file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok {
			continue
		}
		add := func(e ast.Expr) {
			lit, ok := e.(*ast.BasicLit)
			if _, passes := auditArgument()[f.Name.Name]; !ok && passes {
				return // its callers name it
			}
			require.True(t, ok, "%s: %s computes the name of an audit row; write it as a text, or add the function to auditArgument", path, f.Name.Name)
			name, err := strconv.Unquote(lit.Value)
			require.NoError(t, err)
			names[name] = path
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				if i, ok := auditArgument()[calledName(n.Fun)]; ok {
					add(n.Args[i])
				}
			case *ast.CompositeLit:
				if name := entryOfProject(n); name != nil {
					add(name)
				}
			}
			return true
		})
	}
}

func calledName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}

// entryOfProject returns the name in a literal db.Entry of a project, nil for any other literal.
func entryOfProject(lit *ast.CompositeLit) (name ast.Expr) {
	ofProject := false
	for _, e := range lit.Elts {
		kv, ok := e.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		switch key, _ := kv.Key.(*ast.Ident); {
		case key == nil:
		case key.Name == "Name":
			name = kv.Value
		case key.Name == "ResourceKind":
			if kind, ok := kv.Value.(*ast.SelectorExpr); ok && kind.Sel.Name == "Resource" && calledName(kind.X) == "Project" {
				ofProject = true
			}
		}
	}
	if !ofProject {
		return nil
	}
	return name
}
