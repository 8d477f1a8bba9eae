package chaos

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"

	"github.com/slipway-cloud/slipway/assembly/server"
	"github.com/slipway-cloud/slipway/internal/nodeca"
)

// unlistedActivities are called by these workflows and given a fault on no path, each
// with the reason.
var unlistedActivities = map[string]string{
	"PowerOnByMAAS":      "cycles a node whose BMC is not on record, and every target here has one; activities/maas repeats it, and the workflow tests of decommission run it",
	"UndoRotation":       "comes only where a job ends while it changes a BMC's login; activities/bmc repeats it with crashes, and TestRelease_EndsItsRotation and TestReimage_EndsItsRotation run it",
	"CheckRotationEnded": "as UndoRotation; TestFormerTenant_RotationIsEnded runs it",
	"SetNetboot":         "the machines of these runs are reached by SSH and their BMC, which set no device; activities/machine repeats it, and the workflow tests of machinerun run it",
	"ClearNetboot":       "as SetNetboot",
	"ReadNetboot":        "as SetNetboot",
	"CheckMachine":       "the machines of these runs are not installed again; the workflow tests of machinerun and TestMachineRun_Repave run it",
	"RepaveMachine":      "as CheckMachine; activities/machine repeats it",
	"ReturnMachine":      "as CheckMachine; activities/machine repeats it",
	"TryNetwork":         "the network of these machines is that of the test; activities/machine kills its worker in each window",
	"RevertNetwork":      "as TryNetwork",
	"JoinCluster":        "no cluster is beside these machines; activities/machine loses its worker in the join and repeats it",
	"ReadJoin":           "as JoinCluster",
	"UndoJoin":           "as JoinCluster",
	"VerifyInCluster":    "as JoinCluster",
	"CommissionAgain":    "comes only after an operator's retry of configure_storage; activities/maas repeats and overlaps it, and the row boot_disk_not_found of TestClasses runs it",
}

// TestEveryActivityOfTheseJobsIsListed: what the workflows of onboarding, decommission,
// node_operation, of agents, of allocations and of instances call is a point of some scenario set,
// so that no activity is forgotten that a new stage brings; unlisted(), in a run, sees only what
// happened to be met.
func TestEveryActivityOfTheseJobsIsListed(t *testing.T) {
	t.Parallel()
	known := registered(t)
	listed := map[string]bool{}
	for _, p := range allSets() {
		for _, path := range append(p.Paths, Path{Points: p.Also}) {
			for _, at := range path.Points {
				require.Contains(t, known, at.Activity, "%s: no worker registers it", at)
				listed[at.Activity] = true
			}
		}
	}
	called := map[string]bool{}
	for _, dir := range []string{"onboarding", "decommission", "sanitize", "agentjob", "allocation", "machinerun", "instance"} {
		for name := range calls(t, filepath.Join("..", "..", "workflows", dir), known) {
			called[name] = true
		}
	}
	require.Greater(t, len(called), 40, "the calls are found: %v", called)
	var missing []string
	for name := range called {
		if !listed[name] && unlistedActivities[name] == "" {
			missing = append(missing, name)
		}
	}
	slices.Sort(missing)
	require.Empty(t, missing, "add them to the points of a scenario set, or to unlistedActivities with the reason")
	for name := range unlistedActivities {
		require.True(t, called[name] && !listed[name], "%s is no exception any more", name)
	}
}

// registry notes what a worker would register.
type registry struct{ names map[string]bool }

func (r *registry) RegisterActivity(a any) {
	r.RegisterActivityWithOptions(a, activity.RegisterOptions{})
}

func (r *registry) RegisterActivityWithOptions(a any, o activity.RegisterOptions) {
	typ := reflect.TypeOf(a)
	if typ.Kind() == reflect.Func {
		r.names[o.Name] = true
		return
	}
	for m := range typ.Methods() {
		if m.IsExported() {
			r.names[m.Name] = true
		}
	}
}

func (r *registry) RegisterDynamicActivity(any, activity.DynamicRegisterOptions) {}

// registered are the names of all activities of a worker.
func registered(t *testing.T) map[string]bool {
	t.Helper()
	r := &registry{names: map[string]bool{}}
	(&server.App{CA: &nodeca.CA{}}).RegisterActivities(r)
	require.Greater(t, len(r.names), 40)
	return r.names
}

// calls are the registered activities that a package's files name, tests and plans
// aside: a plan only looks, in workflows of its own.
func calls(t *testing.T, dir string, known map[string]bool) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		base := filepath.Base(path)
		if err != nil || d.IsDir() || !strings.HasSuffix(base, ".go") || strings.HasSuffix(base, "_test.go") || strings.HasPrefix(base, "plan") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok && known[s.Sel.Name] {
				if of, ok := s.X.(*ast.Ident); ok && slices.Contains([]string{"maas", "bmc", "node", "nodestate", "evidence", "agent", "allocs", "access", "machine", "acts"}, of.Name) {
					out[s.Sel.Name] = true
				}
			}
			return true
		})
		return nil
	}))
	require.NotEmpty(t, out, dir)
	return out
}
