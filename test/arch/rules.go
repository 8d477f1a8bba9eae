// Package arch tests what the compiler does not: which package may import which
// (docs/architecture.md), how long a file may be, and which names a package must
// not have. Its tests check the whole tree. It exports nothing.
package arch

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// module is the path that every package of the product starts with.
const module = "github.com/slipway-cloud/slipway"

// pkg is a package as `go list -json` prints it.
type pkg struct {
	ImportPath string
	Imports    []string // direct
	Deps       []string // direct and indirect
}

// rule is one line of the import table. Patterns are relative to the module, or whole import paths
// when their first element has a dot: "db/..." is db and all below it, "..." is every package of
// the module, "*" stands for one path element or a part of one, and "std" for the standard library.
type rule struct {
	of     []string // the packages it holds for
	not    []string // but not for these
	only   []string // what they may import, everything else is refused; nil for no such limit
	never  []string // what they must not import
	except []string // though this may be
	deep   bool     // indirect imports count too
	why    string
}

// agentLeaves returns the packages of the agent that the control plane may import.
func agentLeaves() []string {
	return []string{"agent/protocol", "agent/taskkeys", "agent/agentconfig"}
}

// rules is the import table. Where a rule is not deep, the way round through an allowed package is
// intended: workflows name activity methods through nil pointers, and activities import db.
func rules() []rule {
	return []rule{
		{of: []string{"lifecycle/..."}, only: []string{"std", "lifecycle/..."}, deep: true, why: "lifecycle decides on values alone"},
		{of: []string{"providers"}, only: []string{"std", "lifecycle/..."}, deep: true, why: "capability interfaces know no vendor, no table and no engine"},
		{
			of: []string{"providers/..."}, not: []string{"providers"}, deep: true,
			never: []string{"db/...", "activities/...", "workflows/...", "api/...", "go.temporal.io/..."},
			why:   "a provider knows the outside world only",
		},
		{
			of: []string{"internal/..."}, deep: true, never: []string{"api/...", "activities/...", "workflows/...", "intent/...", "loops/...", "assembly/...", "cli/..."},
			why: "internal is the ground: whoever needs it may import it",
		},
		{
			of: []string{"loops/..."}, deep: true, never: []string{"api/...", "activities/...", "workflows/...", "assembly/..."},
			why: "a loop claims rows and works on them; the assembly runs it",
		},
		{
			of: []string{"..."}, not: []string{"assembly/...", "cmd/...", "test/...", "db/dbtest"}, never: []string{"assembly/..."},
			why: "the assembly is the roof: it knows everything, and only programs and tests know it",
		},
		{of: []string{"sim/..."}, deep: true, never: []string{"providers/...", "db/...", "workflows/...", "activities/..."}, why: "a simulator must not share the client's mistakes"},
		{of: []string{"db/..."}, deep: true, never: []string{"go.temporal.io/...", "providers/...", "api/..."}, why: "db enforces; no transaction is open across a network call"},
		{of: []string{"contract/..."}, deep: true, never: []string{"activities/...", "db/...", "providers/..."}, why: "the contract is values only"},
		{
			of: []string{"workflows/..."}, never: []string{
				"db/...", "providers/...", "api/...", "internal/config/...", "os/...", "net/...", "math/rand/...", "crypto/rand", "go.temporal.io/sdk/client",
			},
			except: []string{"net/url", "net/netip"},
			why:    "a workflow sequences; it has no client, config, clock or chance of its own",
		},
		{of: []string{"workflows/..."}, not: []string{"workflows/stage/stagetest"}, never: []string{"go.temporal.io/sdk/worker"}, why: "assembly/server runs the workers"},
		{of: []string{"..."}, deep: true, never: []string{"workflows/stage/stagetest"}, why: "the harness of job tests is for tests"},
		{
			of: []string{"activities/..."}, deep: true, never: []string{"workflows/...", "api/..."}, except: []string{"contract/..."},
			why: "activities do; workflows sequence them",
		},
		{
			of: []string{"api/..."}, deep: true, never: []string{"activities/...", "workflows/...", "providers/..."},
			except: []string{"contract/...", "providers", "providers/secrets/...", "providers/stripe/..."},
			why:    "api asks: it writes intent and calls nobody",
		},
		{
			of: []string{"intent/..."}, never: []string{"..."}, except: []string{"intent/...", "db/...", "lifecycle/...", "contract/..."},
			why: "an intent decides and writes; every API uses it, so it knows none",
		},
		{
			of: []string{"api/..."}, not: []string{"api/*/*test"}, never: []string{"api/..."}, except: []string{"api/op", "api/problem", "api/ratelimit"},
			why: "APIs are peers; assembly/server mounts them all",
		},
		{
			of: []string{"client"}, only: []string{"std", "internal/poll", "github.com/google/uuid"},
			why: "other programs use the client too",
		},
		{
			of: []string{"proto/gen/..."}, only: []string{"std", "proto/gen/...", "google.golang.org/protobuf/...", "connectrpc.com/connect"},
			why: "other programs use the messages too",
		},
		{of: []string{"cmd/slipway"}, deep: true, never: []string{"db/...", "workflows/...", "activities/...", "providers/..."}, why: "the CLI is a client of the HTTP API"},
		{
			of: []string{"..."}, deep: true, never: []string{"test/..."}, not: []string{"test/...", "db/dbtest/...", "cmd/slipway-dev"},
			why: "test/ is for tests: what ships must not depend on how a test run is configured",
		},
		{
			of: []string{"cmd/slipway-dev"}, deep: true, never: []string{"test/..."}, except: []string{"test/secretscan", "test/stack"},
			why: "the demo runs the stack and searches its run for secrets; nothing else of test/ is for it",
		},
		{
			of: []string{"..."}, deep: true, never: []string{"sim/..."}, not: []string{"sim/...", "test/...", "cmd/bmcsim", "cmd/stripesim", "cmd/slipway-dev"},
			why: "simulators are for tests and the dev stack",
		},
		{of: []string{"agent/...", "cmd/slipway-agent"}, deep: true, never: []string{"db/...", "go.temporal.io/..."}, why: "a node knows the HTTP API and nothing behind it"},
		{
			of: []string{"..."}, not: []string{"agent/...", "cmd/slipway-agent", "cmd/slipway-gpu-pattern", "test/..."}, deep: true,
			never: []string{"agent/..."}, except: agentLeaves(),
			why: "what runs on a node is the agent's alone; the control plane shares only these packages with it: " + strings.Join(agentLeaves(), ", "),
		},
		{
			of: agentLeaves(), deep: true, never: []string{"..."}, except: append([]string{"lifecycle/..."}, agentLeaves()...),
			why: "the control plane links it, so it imports only lifecycle and the packages of its kind",
		},
		{
			of: []string{"..."}, deep: true, never: []string{"assembly/devserver/identity", "github.com/zitadel/..."},
			not: []string{"assembly/devserver/identity", "test/...", "cmd/slipway-dev"}, why: "the dev stack's identity provider has users with printed passwords",
		},
		{
			of: []string{"agent/...", "cmd/slipway-agent"}, not: []string{"agent/toolrunner"}, never: []string{"os/exec"},
			why: "agent/toolrunner starts programs: with a deadline, bounded output and a small environment",
		},
	}
}

// providerSeparation refuses one provider implementation importing another: providers/X may use X's
// own packages, and the secrets it is given a reference to.
func providerSeparation(p pkg) []string {
	own := implementation(p.ImportPath)
	if own == "" {
		return nil
	}
	var found []string
	for _, imported := range p.Imports {
		other := implementation(imported)
		if other != "" && other != own && other != "secrets" {
			found = append(found, fmt.Sprintf("%s imports %s: providers do not know each other", short(p.ImportPath), short(imported)))
		}
	}
	return found
}

// implementation returns "maas" for providers/maas and all below it; empty for everything else.
func implementation(importPath string) string {
	rest, ok := strings.CutPrefix(importPath, module+"/providers/")
	if !ok {
		return ""
	}
	name, _, _ := strings.Cut(rest, "/")
	return name
}

// violations returns one sentence for each import that the table refuses, sorted.
func violations(packages []pkg) []string {
	var found []string
	for _, p := range packages {
		for _, r := range rules() {
			found = append(found, r.check(p)...)
		}
		found = append(found, providerSeparation(p)...)
	}
	slices.Sort(found)
	return found
}

func (r rule) check(p pkg) []string {
	if !matchesAny(r.of, p.ImportPath) || matchesAny(r.not, p.ImportPath) {
		return nil
	}
	imports := p.Imports
	if r.deep {
		imports = p.Deps
	}
	var found []string
	for _, imported := range imports {
		// A package's own subtree is its own affair.
		if strings.HasPrefix(imported+"/", p.ImportPath+"/") {
			continue
		}
		allowed := matchesAny(r.except, imported) || r.only != nil && (matchesAny(r.only, imported) || isStandard(imported) && slices.Contains(r.only, "std"))
		refused := r.only != nil || matchesAny(r.never, imported)
		if refused && !allowed {
			found = append(found, fmt.Sprintf("%s imports %s: %s", short(p.ImportPath), short(imported), r.why))
		}
	}
	return found
}

func matchesAny(patterns []string, importPath string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool { return matches(pattern, importPath) })
}

func matches(pattern, importPath string) bool {
	target, ours := strings.CutPrefix(importPath, module+"/")
	first, _, _ := strings.Cut(pattern, "/")
	standardOrForeign := strings.Contains(first, ".") || isStandardName(first)
	if pattern == "..." {
		return ours
	}
	if ours == standardOrForeign {
		return false
	}
	prefix, subtree := strings.CutSuffix(pattern, "/...")
	if !subtree {
		ok, err := path.Match(pattern, target)
		return err == nil && ok
	}
	elements := strings.Split(target, "/")
	want := strings.Count(prefix, "/") + 1
	if len(elements) < want {
		return false
	}
	ok, err := path.Match(prefix, path.Join(elements[:want]...))
	return err == nil && ok
}

// isStandardName tells the standard library's roots that the table names from our own folders.
func isStandardName(first string) bool {
	return slices.Contains([]string{"os", "net", "math", "crypto"}, first)
}

// isStandard reports whether the package is one of the standard library: no domain comes first.
func isStandard(importPath string) bool {
	first, _, _ := strings.Cut(importPath, "/")
	return !strings.Contains(first, ".")
}

func short(importPath string) string { return strings.TrimPrefix(importPath, module+"/") }
