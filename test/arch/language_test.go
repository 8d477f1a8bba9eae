package arch

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// What is counted in Go files that no generator writes.
const (
	pronounClauses   = "sentences of comments that begin with What, Who, One or That as a pronoun"
	shortFunctions   = "functions and methods whose name is one lower-case word of five letters or less"
	otherPasses      = "comments in which pass means anything else than a pass of periodic work"
	plainTestNames   = "test names without an underscore"
	wideComments     = "comment lines of more than 100 columns"
	commentColumns   = 100
	tabColumns       = 4
	shortNameLetters = 5
)

// aims are the numbers that the counts are to fall to.
func aims() map[string]int {
	return map[string]int{pronounClauses: 0, shortFunctions: 300, otherPasses: 0, plainTestNames: 100, wideComments: 0}
}

var (
	pronounClause = regexp.MustCompile(`(?:^|[.:;] )(?:(?:What|Who) |One (?:that|who|which|of which) |That (?:is|was|does|has|makes|needs|means|way) )`)
	otherPass     = regexp.MustCompile(`(?i)\b(?:pass(?:es)? (?:on|by|it|them|through|over|along|a|an|the)\b|(?:has|have|had|is|are|was|were) passed\b|passed (?:on|to|by|through)\b)`)
	shortName     = regexp.MustCompile(fmt.Sprintf(`^[a-z]{1,%d}$`, shortNameLetters))
	plainTestName = regexp.MustCompile(`^Test[A-Z][^_]*$`)
)

// countLanguage counts one Go file.
func countLanguage(path, text string) (map[string]int, error) {
	counts := map[string]int{}
	file, err := parser.ParseFile(token.NewFileSet(), path, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	for _, group := range file.Comments {
		words := strings.Join(strings.Fields(group.Text()), " ")
		counts[pronounClauses] += len(pronounClause.FindAllString(words, -1))
		counts[otherPasses] += len(otherPass.FindAllString(words, -1))
	}
	for line := range strings.Lines(text) {
		line = strings.ReplaceAll(strings.TrimRight(line, "\n"), "\t", strings.Repeat(" ", tabColumns))
		if strings.HasPrefix(strings.TrimSpace(line), "// ") && utf8.RuneCountInString(line) > commentColumns {
			counts[wideComments]++
		}
	}
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		switch {
		case !ok || f.Name.Name == "main" || f.Name.Name == "init":
		case shortName.MatchString(f.Name.Name):
			counts[shortFunctions]++
		case strings.HasSuffix(path, "_test.go") && plainTestName.MatchString(f.Name.Name) && f.Name.Name != "TestMain":
			counts[plainTestNames]++
		}
	}
	return counts, nil
}

// The counts may only fall. When one has fallen, `go test ./test/arch -run TestLanguage -update` writes the
// new count, which no later change may exceed.
func TestLanguage_OnlyGetsPlainer(t *testing.T) {
	t.Parallel()
	counts := map[string]int{}
	for path, text := range sources(t, ".go") {
		name, err := filepath.Rel(root, path)
		require.NoError(t, err)
		if generated.MatchString(text) || name == filepath.Join("test", "arch", "language_test.go") {
			continue
		}
		one, err := countLanguage(name, text)
		require.NoError(t, err)
		for what, n := range one {
			counts[what] += n
		}
	}
	const list = "language.json"
	if *update {
		text, err := json.MarshalIndent(counts, "", "  ")
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(list, append(text, '\n'), 0o644))
	}
	text, err := os.ReadFile(list)
	require.NoError(t, err)
	allowed := map[string]int{}
	require.NoError(t, json.Unmarshal(text, &allowed))
	require.ElementsMatch(t, slices.Collect(maps.Keys(aims())), slices.Collect(maps.Keys(allowed)))
	for what, aim := range aims() {
		switch n := counts[what]; {
		case n > allowed[what]:
			t.Errorf("%d %s; %d are allowed (test/arch/language.json), and the aim is %d: put the nouns in, name a function for its effect, and wrap", n, what, allowed[what], aim)
		case n < allowed[what]:
			t.Errorf("only %d %s now; run `go test ./test/arch -run TestLanguage -update`, so that the number stays (%d)", n, what, allowed[what])
		}
	}
}

func TestLanguage_IsCounted(t *testing.T) {
	t.Parallel()
	const text = `package x

// What runs is written. One that has ended passes it on. One node is free: that is known.
func do() {}

// A pass of the sweeper. Who asks is told.
func doIt() { // 1234567890 1234567890 1234567890 1234567890 1234567890 1234567890 1234567890 1234567890 1234567890
	// 234567890 1234567890 1234567890 1234567890 1234567890 1234567890 1234567890 1234567890 1234567890
}

func TestPlain(t int)    {}
func TestNamed_Well(t int) {}
`
	got, err := countLanguage("x_test.go", text)
	require.NoError(t, err)
	require.Equal(t, map[string]int{pronounClauses: 3, otherPasses: 1, shortFunctions: 1, plainTestNames: 1, wideComments: 1}, got)
}
