package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/assembly/devserver/toolcache"
	"github.com/slipway-cloud/slipway/test/runenv"
)

func TestMissedDeadline(t *testing.T) {
	t.Parallel()
	const (
		never = "    x_test.go:3: \n        \tError Trace:\tx.go:1\n        \tError: Condition never satisfied\n"
		wrong = "    x_test.go:4: \n        \tError Trace:\tx.go:2\n        \tError: Not equal\n"
		log   = "    x_test.go:1: seed 7\n"
	)
	for name, tc := range map[string]struct {
		output string
		want   bool
	}{
		"a condition of testify":             {log + never + "--- FAIL: TestX\n", true},
		"the marker":                         {log + "    x_test.go:3: " + runenv.Deadline + "the job did not end\n", true},
		"an assertion":                       {wrong, false},
		"an assertion after a missed one":    {never + wrong, false},
		"an assertion before a missed one":   {wrong + never, false},
		"an assertion beside a logged one":   {"    x_test.go:1: " + runenv.Deadline + "a log\n" + wrong, false},
		"a report after a missed one":        {never + "    x_test.go:9: the row is still there\n", false},
		"a data race beside a missed one":    {never + "WARNING: DATA RACE\n", false},
		"a race that stands elsewhere":       {never + "    testing.go:1: race detected during execution of test\n", false},
		"a panic beside a missed one":        {never + "panic: nil map\n", false},
		"a doubled effect, worded as a wait": {never + "        \tMessages: a duplicate deployment\n", false},
		"a broken invariant":                 {never + "        \tMessages: invariant jobs_one_live\n", false},
		"a secret":                           {never + "        \tMessages: a secret is in the log\n", false},
		"nothing":                            {"", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, missedDeadline(tc.output))
		})
	}
}

// TestRead_KeepsWhatNoLaterRunTakesBack plays a package that ends in the middle of its tests, and
// then a second run in which its late test passes.
func TestRead_KeepsWhatNoLaterRunTakesBack(t *testing.T) {
	t.Parallel()
	late := line(t, "run", "Late", "") + line(t, "output", "Late", "    x_test.go:3: "+runenv.Deadline+"x\n") + line(t, "fail", "Late", "")
	second := line(t, "run", "Late", "") + line(t, "pass", "Late", "") + line(t, "pass", "", "")
	for name, tc := range map[string]struct {
		first string
		want  []testKey
	}{
		"a late test alone": {late + line(t, "fail", "", ""), nil},
		"a crash under another test": {
			line(t, "run", "Open", "") + late + line(t, "output", "Open", "panic: boom\n") + line(t, "fail", "", ""),
			[]testKey{{module + "/p", ""}, {module + "/p", "Open"}},
		},
		"a binary that was killed": {
			line(t, "run", "Open", "") + late + line(t, "fail", "", ""), []testKey{{module + "/p", "Open"}},
		},
		"a race reported under a test that passes": {
			line(t, "run", "Good", "") + late + line(t, "output", "Good", "WARNING: DATA RACE\n") + line(t, "pass", "Good", "") + line(t, "fail", "", ""),
			[]testKey{{module + "/p", ""}},
		},
		"a test that failed and then skips": {
			late + line(t, "output", "Other", "    x_test.go:1: wrong\n") + line(t, "fail", "Other", "") +
				line(t, "skip", "Other", "") + line(t, "fail", "", ""),
			[]testKey{{module + "/p", "Other"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newResults()
			require.NoError(t, r.read(strings.NewReader(tc.first)))
			require.NoError(t, r.read(strings.NewReader(second)))
			require.Equal(t, tc.want, r.failures())
		})
	}
}

// line is one event of go test -json.
func line(t *testing.T, action, test, output string) string {
	t.Helper()
	text, err := json.Marshal(event{Action: action, Package: module + "/p", Test: test, Output: output})
	require.NoError(t, err)
	return string(text) + "\n"
}

func TestLate_PicksTestsThatOnlyWaited(t *testing.T) {
	t.Parallel()
	const never = "    x_test.go:1: \n\tError Trace: x.go:1\n\tError: Condition never satisfied\n"
	const wrong = "    x_test.go:1: \n\tError Trace: x.go:1\n\tError: Not equal\n"
	r := newResults()
	events := line(t, "output", "Slow", never) + line(t, "fail", "Slow", "") +
		line(t, "output", "Wrong", wrong) + line(t, "fail", "Wrong", "") +
		line(t, "output", "Parent/a", never) + line(t, "fail", "Parent/a", "") + line(t, "fail", "Parent", "") +
		line(t, "output", "Noted", "    rows [1 2] of 9\n") + line(t, "output", "Noted/a", never+"    59.3s\n") +
		line(t, "fail", "Noted/a", "") + line(t, "fail", "Noted", "") +
		line(t, "output", "Mixed/a", never) + line(t, "fail", "Mixed/a", "") +
		line(t, "output", "Mixed/b", wrong) + line(t, "fail", "Mixed/b", "") + line(t, "fail", "Mixed", "") +
		line(t, "pass", "Good", "") + line(t, "fail", "", "")
	require.NoError(t, r.read(strings.NewReader(events)))
	again, red := r.late()
	require.Equal(t, []testKey{{module + "/p", "Noted"}, {module + "/p", "Parent"}, {module + "/p", "Slow"}}, again)
	require.True(t, red, "the others are red at once")
}

func TestFlakes_Verdict(t *testing.T) {
	t.Parallel()
	one := testKey{module + "/p", "Slow"}
	seen := func(n int) []flake {
		var all []flake
		for range n {
			all = append(all, flake{Test: one.String()})
		}
		return all
	}
	f := &flakes{known: seen(1)}
	f.add(one, 7, 1.5)
	require.NoError(t, f.verdict(), "a second flake is only reported")
	f = &flakes{known: seen(2)}
	f.add(one, 7, 1.5)
	require.ErrorContains(t, f.verdict(), "p Slow missed a deadline 3 times")
	f = &flakes{}
	for _, name := range []string{"A", "B", "C"} {
		f.add(testKey{module + "/p", name}, 7, 1.5)
	}
	require.NoError(t, f.verdict())
	f.add(testKey{module + "/p", "D"}, 7, 1.5)
	require.ErrorContains(t, f.verdict(), "4 tests missed a deadline in this run; at most 3 may")
}

func TestFlakes_AreKeptInTheTree(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(root, "test", "run"), 0o755))
	f, err := readFlakes(root)
	require.NoError(t, err)
	require.NoError(t, f.save(), "no flake, no file")
	require.NoFileExists(t, filepath.Join(root, flakesFile))
	f.add(testKey{module + "/p", "Slow"}, 7, 1.5)
	require.NoError(t, f.save())
	f, err = readFlakes(root)
	require.NoError(t, err)
	require.Len(t, f.known, 1)
	require.Equal(t, uint64(7), f.known[0].Seed)
}

// TestCostliestPackages_NamesLongOnes: a test binary that waits long is named, however little CPU
// time it uses.
func TestCostliestPackages_NamesLongOnes(t *testing.T) {
	t.Parallel()
	usage := []binaryCost{
		{Package: "busy", Step: otherStep, cost: cost{CPU: time.Hour, Wall: longTests}},
		{Package: "waits", Step: racedStep, cost: cost{Wall: longTests + time.Second}},
		{Package: "longest", Step: otherStep, cost: cost{Wall: 2 * longTests}},
	}
	require.Contains(t, costliestPackages(usage), "\ntook more than 90 s: longest (other packages) 180 s, waits (raced packages) 91 s\n")
	require.NotContains(t, costliestPackages(usage[:1]), "took more than")
}

func TestBudget(t *testing.T) {
	t.Parallel()
	root, err := toolcache.Root()
	require.NoError(t, err)
	rows, err := readBudget(root)
	require.NoError(t, err, "the committed budget is valid")
	require.NotEmpty(t, rows)

	rows = []budgetRow{{"first", map[string]float64{racedStep: 100, otherStep: 10}}, {"second", map[string]float64{racedStep: 20}}}
	usage := func(seconds int) []binaryCost {
		return []binaryCost{
			{Package: "small", Step: racedStep, cost: cost{CPU: time.Second}},
			{Package: "large", Step: racedStep, cost: cost{CPU: time.Duration(seconds-1) * time.Second}},
			{Package: "again", Step: "again 1", cost: cost{CPU: time.Hour}},
		}
	}
	report, err := checkBudget(rows, usage(149), 0, 1)
	require.NoError(t, err)
	require.Regexp(t, `(?m)^raced packages +149 +150$`, report)
	_, err = checkBudget(rows, usage(151), 0, 1)
	require.ErrorContains(t, err, `over budget: step "raced packages" used 151 CPU s`)
	require.ErrorContains(t, err, "its costliest packages: large 150 s, small 1 s")
	_, err = checkBudget(rows, usage(151), 0, 2)
	require.NoError(t, err, "a machine of half the speed may take twice the CPU time")
	_, err = checkBudget([]budgetRow{{"demo", map[string]float64{demoStep: 10}}}, nil, 13*time.Second, 1)
	require.ErrorContains(t, err, demoStep)

	write := func(text string) string {
		root := t.TempDir()
		require.NoError(t, os.MkdirAll(filepath.Join(root, "test", "run"), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(root, budgetFile), []byte(text), 0o600))
		return root
	}
	for _, text := range []string{
		`[]`, `[{"capability": "a", "cpu_seconds": {"raced packages": 900}}, {"capability": "b", "cpu_seconds": {"raced packages": 50, "other packages": 1}}]`,
		`[{"capability": "", "cpu_seconds": {"raced packages": 9}}]`, `[{"capability": "a", "cpu_seconds": {"raced packages": -1}}]`, `{`,
		`[{"capability": "a"}]`, `[{"capability": "a", "cpu_seconds": {"lint": 9}}]`, `[{"capability": "a", "seconds": {}}]`,
	} {
		_, err := readBudget(write(text))
		require.ErrorContains(t, err, budgetFile, text)
	}
}

func TestFactor_IsBounded(t *testing.T) {
	t.Parallel()
	require.InDelta(t, 1, factor(time.Millisecond, time.Second), 0)
	require.InDelta(t, 2, factor(2*time.Second, time.Second), 0)
	require.InDelta(t, maxFactor, factor(time.Hour, time.Second), 0)
	s := calibrate()
	require.GreaterOrEqual(t, s.Wall, 1.0)
	require.GreaterOrEqual(t, s.CPU, 1.0)
}

func TestBoard_StepsAndTable(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	b := newBoard(&out)
	ok := b.step(t.Context(), "good", func(context.Context) (cost, error) { return cost{CPU: 3 * time.Second, RSS: 2048}, nil })
	require.True(t, ok)
	require.False(t, b.step(t.Context(), "bad", func(context.Context) (cost, error) { return cost{}, errors.New("no disk") }))
	require.False(t, b.step(t.Context(), "tests", func(context.Context) (cost, error) { return cost{}, errTestsFailed }))
	require.Equal(t, []string{"bad"}, b.failed(), "failed tests are classified by their results")
	require.Contains(t, out.String(), "== bad: FAILED after 0 s: no disk")
	table := b.table(5 * time.Second)
	require.Regexp(t, `(?m)^good +ok +3 +0 +2$`, table)
	require.Regexp(t, `(?m)^PostgreSQL, Temporal, other +2$`, table)
	require.Regexp(t, `(?m)^all +5 `, table)
}

func TestPrefixed_KeepsLinesWhole(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := &prefixed{b: newBoard(&out), prefix: "x | "}
	for _, part := range []string{"one", " line\ntwo", "\n\nend"} {
		_, err := p.Write([]byte(part))
		require.NoError(t, err)
	}
	require.Equal(t, "x | one line\nx | two\nx | \n", out.String())
	p.flush()
	require.True(t, strings.HasSuffix(out.String(), "x | end\n"), "a last line without its end is printed too")
	out.Reset()
	p = &prefixed{b: newBoard(&out), shows: func(line string) bool { return line != "hidden" }}
	_, err := p.Write([]byte("hidden\nshown\n"))
	require.NoError(t, err)
	require.Equal(t, "shown\n", out.String())
}

// newRepository is a git checkout with the given files.
func newRepository(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	out, err := exec.CommandContext(t.Context(), "git", "-C", root, "init", "-q").CombinedOutput()
	require.NoError(t, err, string(out))
	return root
}

func seedOfTree(t *testing.T, tree tree) uint64 {
	t.Helper()
	hash, err := tree.hash(func(string) bool { return true })
	require.NoError(t, err)
	n, err := seedOfHash(hash)
	require.NoError(t, err)
	return n
}

func TestTree_SeedFollowsTheContent(t *testing.T) {
	t.Parallel()
	seed := func(files map[string]string) uint64 {
		tree, err := readTree(t.Context(), newRepository(t, files))
		require.NoError(t, err)
		return seedOfTree(t, tree)
	}
	one := seed(map[string]string{"a.go": "1", "b.txt": "2"})
	require.Equal(t, one, seed(map[string]string{"a.go": "1", "b.txt": "2"}))
	require.NotEqual(t, one, seed(map[string]string{"a.go": "1", "b.txt": "3"}))
	archive := t.TempDir() // no repository
	for name, text := range map[string]string{"a.go": "1", "b.txt": "2", "bin/x": "built"} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(archive, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(archive, name), []byte(text), 0o600))
	}
	plain, err := readTree(t.Context(), archive)
	require.NoError(t, err)
	require.Equal(t, one, seedOfTree(t, plain), "an unpacked archive has the seed of the checkout")
	require.Equal(t, one, seed(map[string]string{"a.go": "1", "b.txt": "2", stampsFile: "{}", flakesFile: "[]"}),
		"what a run writes into the tree changes no seed")
}

func TestTree_CoveredFilesOfPackages(t *testing.T) {
	t.Parallel()
	tree := tree{files: []string{
		"go.mod", "README.md", "a/a.go", "a/testdata/x.json", "a/sub/b.go", "a/sub/queries/q.sql", "docs/page.md",
	}}
	covered := func(folders ...string) []string {
		var names []string
		keep := tree.covered(folders)
		for _, name := range tree.files {
			if keep(name) {
				names = append(names, name)
			}
		}
		return names
	}
	require.Equal(t, []string{"go.mod", "a/a.go", "a/testdata/x.json"}, covered("a"))
	require.Equal(t, []string{"go.mod", "a/sub/b.go", "a/sub/queries/q.sql"}, covered("a/sub"))
}

func TestReady_RefusesSizes(t *testing.T) {
	t.Setenv("SLIPWAY_REQUIRE_PEERS", "")
	require.NoError(t, ready())
	require.Equal(t, "1", os.Getenv("SLIPWAY_REQUIRE_PEERS"), "a missing peer is an error in a proof")
	t.Setenv("SLIPWAY_ROTATIONS", "1")
	require.ErrorContains(t, ready(), "SLIPWAY_ROTATIONS is set")

	root, err := toolcache.Root()
	require.NoError(t, err)
	used := regexp.MustCompile(`runenv\.(?:Scale|Sample)\(\w+, "(\w+)"`)
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") || filepath.Dir(path) == filepath.Join(root, "test/runenv") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, found := range used.FindAllSubmatch(text, -1) {
			require.Contains(t, sizes, string(found[1]), "%s reads it", path)
		}
		return err
	}))
}

func TestAreas_AreKnownAndMatchPackages(t *testing.T) {
	t.Parallel()
	root, err := toolcache.Root()
	require.NoError(t, err)
	areas, err := chosen(root, nil)
	require.NoError(t, err)
	for _, a := range areas {
		require.NotEmpty(t, a.Proves, a.Name)
		require.True(t, len(a.Packages) > 0 || len(a.Command) > 0, "%s has packages or a command", a.Name)
		if len(a.Packages) > 0 {
			matched, err := folders(t.Context(), root, a.Packages...)
			require.NoError(t, err)
			require.NotEmpty(t, matched, a.Name)
		}
	}
	_, err = chosen(root, []string{"nothing"})
	require.ErrorContains(t, err, `there is no area "nothing"; write one of: `)
}

func TestCovered_ChangesWithADependency(t *testing.T) {
	t.Parallel()
	files := map[string]string{
		"go.mod": "module " + module + "\n\ngo 1.26\n",
		"p/p.go": "package p\n\nimport _ \"" + module + "/q\"\n",
		"q/q.go": "package q\n", "r/r.go": "package r\n", "s/s.go": "package s\n",
	}
	hash := func(change, text string) string {
		files := maps.Clone(files)
		files[change] = text
		s := &session{root: newRepository(t, files)}
		sum, err := s.covered(t.Context(), area{Name: "x", Packages: []string{"./p"}, Programs: []string{"./s"}, Files: []string{"docs/"}})
		require.NoError(t, err)
		return sum
	}
	base := hash("p/p.go", files["p/p.go"])
	require.Equal(t, base, hash("r/r.go", "package r\n\nvar X int\n"), "p does not import r")
	require.NotEqual(t, base, hash("q/q.go", "package q\n\nvar X int\n"))
	require.NotEqual(t, base, hash("p/testdata/golden", "1"))
	require.NotEqual(t, base, hash("p/p_test.go", "package p\n"))
	require.NotEqual(t, base, hash("dev/go.mod", "module dev\n"), "the Temporal server")
	require.NotEqual(t, base, hash("s/s.go", "package s\n\nvar X int\n"), "a program that the tests run")
	require.NotEqual(t, base, hash("docs/page.md", "x"), "a folder that the tests read")
}
