package rest

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// accessTable is the one place that says who may call what: route to least
// role. A route that is missing here, or one here that does not exist, keeps
// the API from starting.
func accessTable() map[string]Role {
	table := map[string]Role{}
	for role, routes := range map[Role][]string{
		RoleNone: {"GET /version", "POST /report"},
		RoleViewer: {
			"GET /whoami", "GET /events",
			"GET /nodes", "GET /nodes/{id}", "GET /nodes/{id}/history", "GET /nodes/{id}/timeline", "GET /nodes/{id}/certificates",
			"GET /nodes/{id}/tasks", "GET /tasks/{id}",
			"GET /admin/maas-sites", "GET /admin/maas-sites/{id}",
			"GET /admin/maas-sites/{id}/profiles", "GET /admin/maas-sites/{id}/profiles/{profile_id}",
			"GET /admin/maas-sites/{id}/roce-assignments", "GET /admin/maas-sites/{id}/roce-assignments/{hostname}",
			"GET /admin/skus", "GET /admin/skus/{id}",
			"GET /admin/bmcs", "GET /admin/bmcs/{id}", "GET /admin/bmcs/{id}/rotations",
			"GET /admin/onboardings", "GET /admin/onboardings/{id}", "GET /admin/onboardings/{id}/plan",
			"GET /admin/jobs", "GET /admin/jobs/{id}", "GET /admin/jobs/{id}/plan",
			"GET /admin/decommissions", "GET /admin/decommissions/{id}", "GET /admin/decommissions/{id}/plan",
			"GET /admin/attention",
			"GET /admin/drift", "GET /admin/drift/{id}", "GET /admin/drift-passes",
			"GET /admin/onboarding-batches", "GET /admin/onboarding-batches/{id}",
		},
		RoleOperator: {
			"PATCH /nodes/{id}",
			"POST /admin/maas-sites/{id}/probe",
			"PUT /admin/maas-sites/{id}/roce-assignments/{hostname}", "DELETE /admin/maas-sites/{id}/roce-assignments/{hostname}",
			"POST /admin/nodes", "POST /admin/nodes/{id}/bootstrap",
			"POST /admin/onboardings", "POST /admin/onboardings/plan", "POST /admin/onboardings/{id}/actions/{action}",
			"POST /admin/jobs/{id}/actions/{action}",
			"POST /admin/onboarding-batches",
			"POST /admin/tasks/{id}/requeue",
			"POST /admin/drift/{id}/actions/{action}",
			"POST /nodes/{id}/actions/drain", "POST /nodes/{id}/actions/retire", "POST /nodes/{id}/actions/reactivate", "POST /nodes/{id}/actions/quarantine",
			"POST /nodes/{id}/actions/unquarantine", "POST /nodes/{id}/actions/resume",
			"POST /admin/decommissions", "POST /admin/decommissions/plan", "POST /admin/decommissions/{id}/actions/{action}",
			"GET /admin/secrets", "GET /admin/secret-names",
			"GET /admin/install-workflows", "GET /admin/install-workflows/{id}", "GET /admin/device-groups",
		},
		RoleAdmin: {
			"POST /admin/maas-sites", "PUT /admin/maas-sites/{id}", "DELETE /admin/maas-sites/{id}",
			"POST /admin/maas-sites/{id}/profiles", "PUT /admin/maas-sites/{id}/profiles/{profile_id}",
			"DELETE /admin/maas-sites/{id}/profiles/{profile_id}",
			"POST /admin/skus", "PUT /admin/skus/{id}", "DELETE /admin/skus/{id}",
			"PUT /admin/secrets",
			"POST /nodes/{id}/state", "PUT /nodes/{id}/hardware", "PUT /nodes/{id}/bmc", "POST /admin/discovered-nodes/purge",
			"POST /admin/install-workflows", "PUT /admin/install-workflows/{id}", "DELETE /admin/install-workflows/{id}",
			"PUT /admin/device-groups/{name}", "DELETE /admin/device-groups/{name}",
			"GET /admin/api-tokens", "POST /admin/api-tokens", "DELETE /admin/api-tokens/{id}",
			"POST /admin/bmcs/{id}/actions/approve-pin", "POST /admin/bmcs/{id}/actions/clear-auth-block",
			"POST /admin/bmcs/{id}/rotations", "PUT /admin/bmcs/{id}/credential",
			"POST /nodes/{id}/actions/remove",
		},
	} {
		for _, r := range routes {
			method, path, _ := strings.Cut(r, " ")
			table[method+" "+prefix+path] = role
		}
	}
	return table
}

// checkAccess holds the table against the operations that are there.
func (s *Server) checkAccess() error {
	left := maps.Clone(s.access)
	for path, item := range s.api.OpenAPI().Paths {
		for method, there := range map[string]bool{
			"GET": item.Get != nil, "POST": item.Post != nil, "PUT": item.Put != nil, "PATCH": item.Patch != nil, "DELETE": item.Delete != nil,
		} {
			if !there {
				continue
			}
			if _, known := s.access[method+" "+path]; !known {
				return fmt.Errorf("route %s %s has no role; add it to the access table", method, path)
			}
			delete(left, method+" "+path)
		}
	}
	if len(left) > 0 {
		return fmt.Errorf("the access table names routes that do not exist: %v", slices.Sorted(maps.Keys(left)))
	}
	return nil
}

// namePattern is what names of sites, profiles, SKUs and tokens look like. An id
// never matches what idPattern refuses, so that a client may take either.
var (
	namePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)
	idPattern   = regexp.MustCompile(`^[a-z]+_[0-9a-f]{8}-`)
)

const maxName = 100

func typeOf[T any]() reflect.Type { return reflect.TypeFor[T]() }
