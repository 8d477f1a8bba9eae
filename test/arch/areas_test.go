package arch

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	proofOnly = regexp.MustCompile(`runenv\.ProofOnly\(`)
	// literalArea is a call with the area as a literal, which this test can read.
	literalArea = regexp.MustCompile(`runenv\.ProofOnly\(\w+, "([^"]*)"\)`)
	// longTest is a test of an area, with its name and the area.
	longTest = regexp.MustCompile(`func (Test\w+)\([^\n]*\n\s*runenv\.ProofOnly\(\w+, "([^"]*)"\)`)
	// makeProof is the command as a text shows it to a reader. A text may have a format verb there.
	makeProof = regexp.MustCompile(`make proof AREA=([a-z0-9-]+)`)
)

// proofArea is the part of an area of `make proof` that decides which tests it runs.
type proofArea struct {
	Packages []string // as go test takes them
	Run      string   // a regular expression of tests; "" is all
	Short    bool     // the form of make test, in which the long tests are skipped
	Command  []string // runs instead of go test
}

// runs reports whether the area runs the long tests of the package, a folder of the checkout.
func (a proofArea) runs(folder string) bool {
	return !a.Short && len(a.Command) == 0 && slices.ContainsFunc(a.Packages, func(pattern string) bool {
		top, below := strings.CutSuffix(strings.TrimPrefix(pattern, "./"), "/...")
		return pattern == "./..." || folder == top || below && strings.HasPrefix(folder, top+"/")
	})
}

// badAreas returns one sentence for each area in the file that does not exist or would not run the
// test, and for each call of runenv.ProofOnly whose area is not a literal.
func badAreas(path, text string, areas map[string]proofArea) []string {
	var found []string
	calls := literalArea.FindAllStringSubmatch(text, -1)
	if filepath.Ext(path) != ".go" {
		calls = nil // a page shows how to write one
	} else if len(proofOnly.FindAllString(text, -1)) != len(calls) {
		found = append(found, path+": write the area of runenv.ProofOnly as a literal")
	}
	for _, call := range calls {
		if !areas[call[1]].runs(filepath.Dir(path)) {
			found = append(found, path+": area "+call[1]+" of test/proof/areas.json does not run this package")
		}
	}
	for _, test := range longTest.FindAllStringSubmatch(text, -1) {
		if run := areas[test[2]].Run; !regexp.MustCompile(run).MatchString(test[1]) {
			found = append(found, path+": area "+test[2]+" runs "+run+", which "+test[1]+" does not match")
		}
	}
	for _, named := range makeProof.FindAllStringSubmatch(text, -1) {
		if _, ok := areas[named[1]]; !ok {
			found = append(found, path+": area "+named[1]+" is not in test/proof/areas.json")
		}
	}
	return found
}

// A test that waits for an area that does not run it would never run.
func TestAreas_NamedOnesRunTheTest(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "test", "proof", "areas.json"))
	require.NoError(t, err)
	var list struct {
		Areas []struct {
			Name string
			proofArea
		}
	}
	require.NoError(t, json.Unmarshal(text, &list))
	areas := map[string]proofArea{}
	for _, area := range list.Areas {
		require.Regexp(t, `^[a-z][a-z0-9-]*$`, area.Name)
		require.NotContains(t, areas, area.Name, "two areas have this name")
		areas[area.Name] = area.proofArea
	}
	require.NotEmpty(t, areas)
	for path, text := range sources(t, ".go", ".md", ".sh") {
		path, err := filepath.Rel(root, path)
		require.NoError(t, err)
		if filepath.Dir(path) != filepath.Join("test", "arch") { // the cases below
			require.Empty(t, badAreas(path, text, areas))
		}
	}
}

func TestAreas_BadOnesAreReported(t *testing.T) {
	t.Parallel()
	areas := map[string]proofArea{
		"kills": {Packages: []string{"./a"}},
		"below": {Packages: []string{"./a/...", "./b"}},
		"some":  {Packages: []string{"./a"}, Run: "Real$"},
		"race":  {Packages: []string{"./..."}, Short: true},
		"chaos": {Packages: []string{"./..."}, Command: []string{"chaos"}},
	}
	for text, want := range map[string]string{
		`a/x_test.go runenv.ProofOnly(t, "kills")`:                                  "",
		`a/x_test.go runenv.ProofOnly(t, "below")`:                                  "",
		`a/b/x_test.go runenv.ProofOnly(t, "below")`:                                "",
		`a/b/x_test.go runenv.ProofOnly(t, "kills")`:                                "area kills of test/proof/areas.json does not run",
		`ab/x_test.go runenv.ProofOnly(t, "below")`:                                 "does not run",
		`a/x_test.go runenv.ProofOnly(t, "race")`:                                   "does not run",
		`a/x_test.go runenv.ProofOnly(t, "chaos")`:                                  "does not run",
		`a/x_test.go runenv.ProofOnly(t, "lost")`:                                   "does not run",
		"a/x_test.go func TestReal(t *testing.T) {\n runenv.ProofOnly(t, \"some\")": "",
		"a/x_test.go func TestSim(t *testing.T) {\n runenv.ProofOnly(t, \"some\")":  "does not match",
		`a/x_test.go runenv.ProofOnly(t, area)`:                                     "write the area",
		"a.md run `make proof AREA=lost` for it":                                    "area lost is not in",
		"a.md runs in `make proof AREA=%s`":                                         "",
		"a.md make proof AREA=chaos":                                                "",
		`a.md runenv.ProofOnly(t, "kills")`:                                         "",
	} {
		path, _, _ := strings.Cut(text, " ")
		found := strings.Join(badAreas(path, text, areas), "\n")
		require.Equal(t, want == "", found == "", text)
		require.Contains(t, found, want)
	}
}
