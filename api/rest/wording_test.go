package rest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Refusals of the API are read by people at the command line as well as by those who speak HTTP: a
// text that names a request names the command too, and no list is printed as Go prints it.
func TestRefusalsFitTheCommandLineToo(t *testing.T) {
	t.Parallel()
	verb := regexp.MustCompile(`\b(POST|PUT|PATCH|DELETE) |force: true`)
	for where, text := range refusals(t) {
		if verb.MatchString(text) {
			require.Regexp(t, `slipway [a-z]|--[a-z]`, text, where)
		}
		require.NotContains(t, text, "%v", where)
	}
}

// refusals are the texts of all calls of problem.New in this package and of all hints, by place.
func refusals(t *testing.T) map[string]string {
	t.Helper()
	files := token.NewFileSet()
	packages, err := parser.ParseDir(files, ".", func(f fs.FileInfo) bool { return !strings.HasSuffix(f.Name(), "_test.go") }, 0) //nolint:staticcheck // without types
	require.NoError(t, err)
	hints, err := parser.ParseFile(files, "../problem/refusal.go", nil, 0)
	require.NoError(t, err)
	out := map[string]string{}
	ast.Inspect(packages["rest"], func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		name, ok := call.Fun.(*ast.SelectorExpr)
		if ok && name.Sel.Name == "New" && isNamed(name.X, "problem") {
			out[files.Position(call.Pos()).String()] = literals(call)
		}
		return true
	})
	ast.Inspect(hints, func(n ast.Node) bool {
		if clause, ok := n.(*ast.CaseClause); ok {
			out[files.Position(clause.Pos()).String()] = literals(clause)
		}
		return true
	})
	require.Greater(t, len(out), 40)
	return out
}

func isNamed(e ast.Expr, name string) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == name
}

func literals(n ast.Node) string {
	var b strings.Builder
	ast.Inspect(n, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			s, _ := strconv.Unquote(lit.Value)
			b.WriteString(s)
		}
		return true
	})
	return b.String()
}
