package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// belowAPI are the folders that no API's syntax reaches: they say what is wrong, and the API that
// was asked names its call and its command.
var belowAPI = []string{"activities", "contract", "db", "intent", "internal", "lifecycle", "loops", "providers", "workflows"}

// apiSyntax does not match labels of cryptography, which end in a zero byte.
var apiSyntax = regexp.MustCompile(`\bslipway [a-z][^\x00]*$|/api/v[0-9]`)

func TestTextsBelowAPI_NameNoCommandOrPath(t *testing.T) {
	t.Parallel()
	checked := 0
	for path, source := range sources(t, ".go") {
		folder, _, _ := strings.Cut(strings.TrimPrefix(filepath.ToSlash(path), root+"/"), "/")
		if strings.HasSuffix(path, "_test.go") || !slices.Contains(belowAPI, folder) {
			continue
		}
		checked++
		for at, text := range apiTexts(t, path, source) {
			t.Errorf("%s: %q names a command or a path of an API; say what is missing, as a typed reason where an API can render a hint", at, text)
		}
	}
	require.Greater(t, checked, 100, "the walk saw the tree")
}

func TestTextsBelowAPI_FindsPlantedTexts(t *testing.T) {
	t.Parallel()
	for text, found := range map[string]int{
		"x = \"run slipway node list\"":             1,
		"x = `store it with slipway secret`":        1,
		"x = \"POST \" + \"/api/v1/nodes\"":         1,
		"x = \"slipway key 1\\x00\"":                0,
		"x = \"slipway:lock\" // slipway node list": 0,
	} {
		require.Len(t, apiTexts(t, "planted.go", "package p\nvar "+text+"\n"), found, text)
	}
}

// apiTexts returns the string literals of a file that hold a command or a path, by position.
func apiTexts(t *testing.T, path, source string) map[string]string {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, source, parser.SkipObjectResolution)
	require.NoError(t, err)
	found := map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		if _, isImport := n.(*ast.ImportSpec); isImport {
			return false // the path of a package is no text
		}
		lit, ok := n.(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING {
			return true
		}
		if text, _ := strconv.Unquote(lit.Value); apiSyntax.MatchString(text) {
			found[files.Position(lit.Pos()).String()] = text
		}
		return true
	})
	return found
}
