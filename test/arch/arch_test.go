package arch

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// root is the checkout, seen from this package's folder.
const root = "../.."

func TestWhoMayImportWhom(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-e", "-json=ImportPath,Imports,Deps", "./...")
	cmd.Dir = root
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	require.NoError(t, err, errs.String())
	var packages []pkg
	decoder := json.NewDecoder(bytes.NewReader(out))
	for {
		var p pkg
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		packages = append(packages, p)
	}
	require.True(t, slices.ContainsFunc(packages, func(p pkg) bool { return p.ImportPath == module+"/lifecycle" }), "go list saw the tree")
	require.Empty(t, violations(packages), "see the table in rules.go")
}

// The table is only worth something if it refuses; each line here plants one import.
func TestTheTableRefuses(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		from, imported string
		indirect       bool
		refused        bool
	}{
		"lifecycle, a library":                 {"lifecycle", "github.com/google/uuid", false, true},
		"lifecycle, the standard library":      {"lifecycle", "time", false, false},
		"providers, lifecycle":                 {"providers", "/lifecycle", false, false},
		"providers, Temporal far away":         {"providers", "go.temporal.io/sdk/temporal", true, true},
		"maas, its vendor client":              {"providers/maas", "github.com/canonical/gomaasclient/client", false, false},
		"maas, db":                             {"providers/maas", "/db", false, true},
		"maas, redfish":                        {"providers/maas", "/providers/bmc/redfish", false, true},
		"redfish, its own family":              {"providers/bmc/redfish", "/providers/bmc", false, false},
		"maas, secrets":                        {"providers/maas", "/providers/secrets", false, false},
		"a simulator, its client":              {"sim/maas", "/providers/maas", false, true},
		"a simulator, its client far away":     {"sim/maas/admin", "/providers/maas", true, true},
		"a simulator, another simulator":       {"sim/maas", "/sim/hw", false, false},
		"the server, a simulator":              {"cmd/slipwayd", "/sim/hw", true, true},
		"db, Temporal":                         {"db", "go.temporal.io/sdk/client", true, true},
		"db, pgx":                              {"db/query", "github.com/jackc/pgx/v5", false, false},
		"contract, db":                         {"contract", "/db", true, true},
		"a workflow, an activity":              {"workflows/onboarding", "/activities/maas", false, false},
		"a workflow, db behind an activity":    {"workflows/onboarding", "/db", true, false},
		"a workflow, db":                       {"workflows/onboarding", "/db", false, true},
		"a workflow, os":                       {"workflows/stage", "os", false, true},
		"a workflow, os/exec":                  {"workflows/stage", "os/exec", false, true},
		"a workflow, a folder called osprey":   {"workflows/stage", "/internal/osprey", false, false},
		"a workflow, net/url":                  {"workflows/stage", "net/url", false, false},
		"a workflow, the SDK's client":         {"workflows/stage", "go.temporal.io/sdk/client", false, true},
		"a workflow, the SDK's workflow":       {"workflows/stage", "go.temporal.io/sdk/workflow", false, false},
		"an activity, the contract":            {"activities/maas", "/contract", false, false},
		"an activity, a workflow":              {"activities/maas", "/workflows/onboarding", true, true},
		"api, an activity far away":            {"api/rest", "/activities/projection", true, true},
		"api, the contract":                    {"api/rest", "/contract", false, false},
		"api, stripe's signature":              {"api/webhook", "/providers/stripe", false, false},
		"api, maas":                            {"api/rest", "/providers/maas", false, true},
		"the CLI, db":                          {"cmd/slipway", "/db", true, true},
		"the server, everything":               {"cmd/slipwayd", "/db", false, false},
		"the agent, Temporal":                  {"agent", "go.temporal.io/sdk/client", true, true},
		"the server, the agent far away":       {"cmd/slipwayd", "/agent/taskhandlers", true, true},
		"the agent's API, its wire types":      {"api/agentapi", "/agent/protocol", false, false},
		"cloud-init, the agent":                {"internal/cloudinit", "/agent", false, true},
		"cloud-init, its configuration":        {"internal/cloudinit", "/agent/agentconfig", false, false},
		"the program on a node, its handlers":  {"cmd/slipway-agent", "/agent/scrub", false, false},
		"a leaf of the agent, another":         {"agent/taskkeys", "/agent/protocol", false, false},
		"a leaf of the agent, lifecycle":       {"agent/protocol", "/lifecycle", false, false},
		"a leaf of the agent, its files":       {"agent/agentconfig", "/agent/atomicfile", true, true},
		"a leaf of the agent, the server":      {"agent/taskkeys", "/internal/nodeca", true, true},
		"a leaf of the agent, a library":       {"agent/agentconfig", "gopkg.in/yaml.v3", false, false},
		"the agent, a program of its own":      {"agent/scrub", "os/exec", false, true},
		"the agent's runner, a program":        {"agent/toolrunner", "os/exec", false, false},
		"the product, test support far away":   {"assembly/server", "/test/runenv", true, true},
		"the demo, test support":               {"cmd/slipway-dev", "/test/runenv", false, true},
		"an end-to-end program, test support":  {"test/chaos", "/test/runenv", false, false},
		"test support, itself":                 {"test/generated", "/test/runenv", false, false},
		"a workflow, the harness of its tests": {"workflows/onboarding", "/workflows/stage/stagetest", false, true},
		"the harness, the SDK's worker":        {"workflows/stage/stagetest", "go.temporal.io/sdk/worker", false, false},
		"the harness, db":                      {"workflows/stage/stagetest", "/db", false, true},
		"a workflow, the SDK's worker":         {"workflows/stage", "go.temporal.io/sdk/worker", false, true},
		"an intent, an API":                    {"intent/batch", "/api/problem", false, true},
		"an intent, configuration":             {"intent/batch", "/internal/config", false, true},
		"an intent, db":                        {"intent/batch", "/db", false, false},
		"an intent, another intent":            {"intent/batch", "/intent/onboarding", false, false},
		"rest, its peer boot":                  {"api/rest", "/api/boot", false, true},
		"an area, its peer rest":               {"api/rest/tenancy", "/api/rest", false, true},
		"an area, the kernel":                  {"api/rest/tenancy", "/api/op", false, false},
		"boot, problem documents":              {"api/boot", "/api/problem", false, false},
		"the kernel, an area":                  {"api/op", "/api/rest", false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			imported := tc.imported
			if strings.HasPrefix(imported, "/") {
				imported = module + imported
			}
			p := pkg{ImportPath: module + "/" + tc.from, Deps: []string{imported}}
			if !tc.indirect {
				p.Imports = p.Deps
			}
			found := violations([]pkg{p})
			if !tc.refused {
				require.Empty(t, found)
				return
			}
			require.NotEmpty(t, found)
			require.Contains(t, found[0], tc.from+" imports "+short(imported)+": ")
		})
	}
}

const maxLines = 500

var generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

func TestAFileIsOneResponsibilityAndAPackageHasAName(t *testing.T) {
	t.Parallel()
	vague := []string{"util", "utils", "common", "helper", "helpers", "manager", "base"}
	files := sources(t, ".go")
	require.Greater(t, len(files), 20, "the walk saw the tree")
	for path, source := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, source, parser.PackageClauseOnly)
		require.NoError(t, err)
		if slices.Contains(vague, strings.TrimSuffix(file.Name.Name, "_test")) {
			t.Errorf("%s: package %s says nothing; name it after what it is for", path, file.Name.Name)
		}
		if lines := strings.Count(source, "\n"); lines > maxLines && !generated.MatchString(source) {
			t.Errorf("%s has %d lines; at %d a file is two things", path, lines, maxLines)
		}
	}
}

// sources returns the text of each file of the checkout that has one of the suffixes, by its path.
func sources(t *testing.T, suffixes ...string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || slices.Contains([]string{"node_modules", "bin", "testdata"}, d.Name())):
			return filepath.SkipDir
		case !d.Type().IsRegular() || !slices.Contains(suffixes, filepath.Ext(path)):
			return nil
		}
		text, err := os.ReadFile(path)
		files[path] = string(text)
		return err
	})
	require.NoError(t, err)
	return files
}
