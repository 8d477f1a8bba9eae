package rest_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/db/dbtest"
)

// Each path parameter and each text of a query is asked for with values that name nothing. One
// resource of each kind is there, which none of them may select.
func TestRoutes_RefuseWhatNamesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t).ready()
	dbtest.Node(t, w.store)
	segments, filters := 0, 0
	for path, item := range w.document().Paths {
		for method, op := range item {
			method := strings.ToUpper(method)
			ask := func(at string, kinds ...problem.Kind) {
				a := w.post(at, nil)
				if method != http.MethodPost {
					a = w.do(method, at, nil, header{"If-Match": "*"})
				}
				require.Contains(t, []int{http.StatusUnprocessableEntity, http.StatusNotFound, http.StatusMethodNotAllowed}, a.status, "%s %s: %s", method, at, a.raw)
				for _, k := range kinds {
					a.refused(k)
				}
			}
			for _, param := range op.Parameters {
				switch param.In {
				case "path":
					segments++
					hole := "{" + param.Name + "}"
					with := func(v string) string {
						return placeholder.ReplaceAllString(strings.Replace(path, hole, v, 1), "x")
					}
					ask(with(""))
					for _, v := range []string{"%20", "%09", ".%2e", "%2e%2E", "..%2f..%2fnodes", "a%2Fb", "a%00", "%E2%80%AE", strings.Repeat("a", 300)} {
						ask(with(v), problem.Invalid)
					}
				case "query":
					filters++
					for _, v := range []string{"%zz", "", "%20%20"} {
						if param.Name == "cursor" && v != "%zz" { // the first page
							continue
						}
						ask(placeholder.ReplaceAllString(path, "x")+"?"+param.Name+"="+v, problem.Invalid)
					}
				}
			}
		}
	}
	require.Greater(t, segments, 55)
	require.Greater(t, filters, 60)
	w.do("GET", "/api/v1/nodes?hostname=a&hostname="+url.QueryEscape("b"), nil).refused(problem.Invalid)
}
