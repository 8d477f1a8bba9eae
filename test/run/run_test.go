package main

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/assembly/devserver/toolcache"
)

func TestCount(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ events, want, err string }{
		"all pass": {
			`{"Action":"run","Package":"p","Test":"A"}
{"Action":"output","Package":"p","Test":"A","Output":"--- PASS: A"}
{"Action":"pass","Package":"p","Test":"A"}
{"Action":"skip","Package":"p","Test":"B"}
{"Action":"pass","Package":"p"}`, "1 passed, 0 failed, 1 skipped\n", "",
		},
		"a failed test is named, its package not counted again": {
			`{"Action":"pass","Package":"p","Test":"A"}
{"Action":"fail","Package":"p","Test":"B"}
{"Action":"fail","Package":"p"}`, "FAILED p B\n1 passed, 1 failed, 0 skipped\n", "tests failed",
		},
		"a package that does not compile counts": {
			`{"ImportPath":"p","Action":"build-fail"}
{"Action":"pass","Package":"q","Test":"A"}
{"Action":"fail","Package":"p","FailedBuild":"p"}`, "FAILED p (the package itself: see above)\n1 passed, 1 failed, 0 skipped\n", "tests failed",
		},
		"the last run of a test counts": {
			`{"Action":"fail","Package":"p","Test":"A"}
{"Action":"fail","Package":"p"}
{"Action":"pass","Package":"p","Test":"A"}
{"Action":"pass","Package":"p"}`, "1 passed, 0 failed, 0 skipped\n", "",
		},
		"no later run takes a data race back": {
			`{"Action":"fail","Package":"p","Test":"A"}
{"Action":"output","Package":"p","Output":"WARNING: DATA RACE\n"}
{"Action":"fail","Package":"p"}
{"Action":"pass","Package":"p","Test":"A"}
{"Action":"pass","Package":"p"}`, "FAILED p (the package itself: see above)\n1 passed, 1 failed, 0 skipped\n", "tests failed",
		},
		"nothing ran": {`{"Action":"pass","Package":"p"}`, "0 passed, 0 failed, 0 skipped\n", "no test ran"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "results.jsonl")
			require.NoError(t, os.WriteFile(path, []byte(tc.events), 0o600))
			var out bytes.Buffer
			err := run(t.Context(), []string{"count", path}, &out, &out)
			require.Equal(t, tc.want, out.String())
			if tc.err == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, tc.err)
			}
		})
	}
}

func TestRun_HandsOverServersAndStatus(t *testing.T) {
	t.Parallel()
	var out, log bytes.Buffer
	script := `echo "$TEST_DATABASE_URL $SLIPWAY_TEMPORAL_ADDRESS"; exit 7`
	err := run(t.Context(), []string{"run", "--", "/bin/sh", "-c", script}, &out, &log)
	require.Equal(t, 7, exitCode(err), "%v", err)
	require.Regexp(t, `^postgres(ql)?://\S+ \S+:\d+\n$`, out.String())
}

func TestRun_Usage(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, {"run"}, {"run", "ls"}, {"run", "--"}, {"count"}, {"exec"}, {"test", "x"}, {"dance"}} {
		require.ErrorContains(t, run(t.Context(), args, nil, nil), "usage:")
	}
	require.ErrorContains(t, run(t.Context(), []string{"count", "/does/not/exist"}, nil, nil), "read the test results")
}

func TestExec_RecordsTheCost(t *testing.T) {
	file := filepath.Join(t.TempDir(), "usage.jsonl")
	t.Setenv(usageVar, file)
	t.Setenv(stepVar, "a step")
	err := run(t.Context(), []string{"exec", "/bin/sh", "-c", "exit 3"}, nil, nil)
	require.Equal(t, 3, exitCode(err), "the status of the test binary is passed on")
	root, err := toolcache.Root()
	require.NoError(t, err)
	used, err := readUsage(file, root)
	require.NoError(t, err)
	require.Len(t, used, 1)
	require.Equal(t, "test/run", used[0].Package)
	require.Equal(t, "a step", used[0].Step)
	require.Positive(t, used[0].Wall)
	require.Positive(t, used[0].RSS)
	used, err = readUsage(filepath.Join(t.TempDir(), "none"), root)
	require.NoError(t, err)
	require.Empty(t, used)
}

// TestRaced_ListsConcurrentPackages compares the list of raced packages with the sources: a package
// whose own code starts goroutines or uses package sync is raced, says why not, or links a client
// of a server. A raced one links none.
func TestRaced_ListsConcurrentPackages(t *testing.T) {
	t.Parallel()
	root, err := toolcache.Root()
	require.NoError(t, err)
	all, err := folders(t.Context(), root, "./...")
	require.NoError(t, err)
	clients := linkClients(t, root)
	require.True(t, clients["db"] && clients["workflows/stage"] && clients["providers/kube"])
	for _, folder := range raced() {
		require.Contains(t, all, folder, "raced() names a package that is not there")
		require.Empty(t, notRaced()[folder], "%s is in both lists", folder)
		require.False(t, clients[folder], "%s links the client of a server; proof race races it", folder)
	}
	for folder := range notRaced() {
		require.Contains(t, all, folder, "notRaced() names a package that is not there")
		require.False(t, clients[folder], "%s links the client of a server and needs no reason", folder)
	}
	for _, folder := range all {
		if !isRaced(folder) && !clients[folder] && isConcurrent(t, filepath.Join(root, folder)) {
			require.NotEmpty(t, notRaced()[folder], "%s is concurrent: add it to raced(), or to notRaced() with the reason", folder)
		}
	}
}

// linkClients returns the folders that link, with their tests, the client of PostgreSQL, Temporal's
// SDK or the client of Kubernetes.
func linkClients(t *testing.T, root string) map[string]bool {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-test", "-f", `{{.ImportPath}} {{join .Deps " "}}`, "./...")
	cmd.Dir = root
	out, err := cmd.Output()
	require.NoError(t, err)
	found := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		name, deps, _ := strings.Cut(line, " ")
		name = strings.TrimSuffix(strings.TrimSuffix(name, ".test"), "_test")
		if folder, ours := strings.CutPrefix(name, module); ours && hasClient(deps) {
			found[strings.TrimPrefix(folder, "/")] = true
		}
	}
	return found
}

func hasClient(deps string) bool {
	clients := []string{"github.com/jackc/pgx/v5/pgconn", "go.temporal.io/sdk/internal", "k8s.io/client-go/rest"}
	return slices.ContainsFunc(strings.Fields(deps), func(dep string) bool { return slices.Contains(clients, dep) })
}

// isConcurrent reports whether a package has a go statement, a call of a Go method such as that of
// sync.WaitGroup and errgroup.Group, or an import of sync or sync/atomic, outside its tests.
func isConcurrent(t *testing.T, folder string) bool {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(folder, "*.go"))
	require.NoError(t, err)
	found := false
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ImportSpec:
				found = found || n.Path.Value == `"sync"` || n.Path.Value == `"sync/atomic"`
			case *ast.GoStmt:
				found = true
			case *ast.CallExpr:
				if method, ok := n.Fun.(*ast.SelectorExpr); ok && method.Sel.Name == "Go" {
					// workflow.Go and others with a context start coroutines of a workflow, which
					// run in turns.
					found = found || len(n.Args) == 1
				}
			}
			return !found
		})
	}
	return found
}
