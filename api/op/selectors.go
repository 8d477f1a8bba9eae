package op

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"
	"github.com/go-chi/chi/v5"

	"github.com/slipway-cloud/slipway/api/problem"
)

// segmentPattern matches the ids, hostnames and names in paths. Percent signs are part of encoded
// slashes and blanks.
var segmentPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,252}$`)

// selectors refuses a request with an empty or repeated selector in its path or query. Otherwise an
// empty value would mean the same as no value, and a lookup by name would return the first row.
func (a *API) selectors(c huma.Context, next func(huma.Context)) {
	r, w := humachi.Unwrap(c)
	var bad []problem.Field
	if route := chi.RouteContext(r.Context()); route != nil {
		for i, name := range route.URLParams.Keys {
			if name != "*" && !segmentPattern.MatchString(route.URLParams.Values[i]) {
				bad = append(bad, problem.Field{Location: "path." + name, Message: "must be an id or a name: letters, digits, dots, dashes and underscores, and not empty"})
			}
		}
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		bad = append(bad, problem.Field{Location: "query", Message: "cannot be read; encode each value"})
	}
	for name, values := range query {
		switch {
		case len(values) > 1 && !mayRepeat(c.Operation(), name):
			bad = append(bad, problem.Field{Location: queryLocation(name), Message: fmt.Sprintf("is given %d times; give it once", len(values))})
		case slices.ContainsFunc(values, isBlank) && name != "cursor": // the first page has an empty cursor
			bad = append(bad, problem.Field{Location: queryLocation(name), Message: "is empty; give it a value or leave it out"})
		}
	}
	if len(bad) > 0 {
		a.WriteError(w, r, problem.NewInvalid(bad...))
		return
	}
	next(c)
}

// mayRepeat reports whether the parameter of the operation is a list, which a request may repeat.
func mayRepeat(o *huma.Operation, name string) bool {
	return o != nil && slices.ContainsFunc(o.Parameters, func(p *huma.Param) bool {
		return p.Name == name && p.In == "query" && p.Explode != nil && *p.Explode && p.Schema != nil && p.Schema.Type == huma.TypeArray
	})
}

func isBlank(value string) bool { return strings.TrimSpace(value) == "" }

// queryLocation returns the location of a query parameter. For an unknown parameter it does not
// repeat the name from the request.
func queryLocation(name string) string {
	if len(name) > maxName || !namePattern.MatchString(name) {
		return "query"
	}
	return "query." + name
}
