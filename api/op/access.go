package op

import (
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/slipway-cloud/slipway/api/problem"
)

// Access is the part of the access table that an area adds. It maps each role to the routes that
// require at least this role. A route under Prefix is written as "GET /nodes/{id}".
type Access map[Role][]string

// Grant adds the rows of an area to the access table. The area must call it before it declares its
// operations.
func (a *API) Grant(rows Access) {
	for role, routes := range rows {
		for _, r := range routes {
			method, path, _ := strings.Cut(r, " ")
			route := method + " " + Prefix + path
			if other, twice := a.access[route]; twice {
				a.misuse = append(a.misuse, fmt.Errorf("route %s has two roles, %s and %s", route, other, role))
			}
			a.access[route] = role
		}
	}
}

// checkAccess compares the access table with the operations.
func (a *API) checkAccess() error {
	left := maps.Clone(a.access)
	for path, item := range a.huma.OpenAPI().Paths {
		for method, there := range map[string]bool{
			"GET": item.Get != nil, "POST": item.Post != nil, "PUT": item.Put != nil, "PATCH": item.Patch != nil, "DELETE": item.Delete != nil,
		} {
			if !there {
				continue
			}
			if _, known := a.access[method+" "+path]; !known {
				return fmt.Errorf("route %s %s has no role; add it to the access table of its area", method, path)
			}
			delete(left, method+" "+path)
		}
	}
	if len(left) > 0 {
		return fmt.Errorf("the access table names routes that do not exist: %v", slices.Sorted(maps.Keys(left)))
	}
	return nil
}

// RequireRole serves h to callers that have the role. It is for plain routes. Add checks the roles
// of operations.
func (a *API) RequireRole(role Role, h http.Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if _, _, p := a.authorize(w, r, role); p != nil {
			a.WriteError(w, r, p)
			return
		}
		h.ServeHTTP(w, r)
	}
}

// namePattern matches the names of resources, and idPattern their ids and the short ids of the
// command line.
var (
	namePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)
	idPattern   = regexp.MustCompile(`^[a-z]+_[0-9a-f]{8}(-|$)`)
)

const maxName = 100

// CheckName checks the name of a resource. It refuses a name that looks like an id, so that calls
// can accept a name or an id in the same place.
func CheckName(name string) error {
	if len(name) > maxName || !namePattern.MatchString(name) || idPattern.MatchString(name) {
		return problem.NewInvalid(problem.Field{Location: "body.name", Message: "must be 1 to 100 letters, digits, dots, dashes or underscores, and not look like an id"})
	}
	return nil
}

func typeOf[T any]() reflect.Type { return reflect.TypeFor[T]() }

// Routes returns the least role of each operation by its method and path, such as
// "GET /api/v1/nodes".
func (a *API) Routes() map[string]Role { return maps.Clone(a.access) }
