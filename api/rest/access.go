package rest

import (
	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// access says who may call what of this package.
func access() op.Access {
	return op.Access{
		op.RoleNone:     {"GET /version", "GET /sign-in"},
		op.RoleSignedIn: {"GET /whoami"},
		op.RoleViewer: {
			"GET /events",
			"GET /nodes", "GET /nodes/counts", "GET /stats/fleet", "GET /stats/stages", "GET /nodes/{id}", "GET /nodes/{id}/history", "GET /nodes/{id}/occupancies", "GET /nodes/{id}/drives", "GET /nodes/{id}/timeline", "GET /nodes/{id}/certificates",
			"GET /nodes/{id}/tasks", "GET /tasks/{id}",
			"GET /admin/maas-sites", "GET /admin/maas-sites/{id}",
			"GET /admin/maas-sites/{id}/profiles", "GET /admin/maas-sites/{id}/profiles/{profile_id}",
			"GET /admin/maas-sites/{id}/roce-assignments", "GET /admin/maas-sites/{id}/roce-assignments/{hostname}",
			"GET /admin/skus", "GET /admin/skus/{id}",
			"GET /admin/bmcs", "GET /admin/bmcs/{id}", "GET /admin/bmcs/{id}/rotations",
			"GET /admin/onboardings", "GET /admin/onboardings/{id}", "GET /admin/onboardings/{id}/plan",
			"GET /admin/jobs", "GET /admin/jobs/{id}", "GET /admin/jobs/{id}/action-logs", "GET /nodes/{id}/action-logs", "GET /admin/jobs/{id}/plan",
			"GET /admin/decommissions", "GET /admin/decommissions/{id}", "GET /admin/decommissions/{id}/plan",
			"GET /admin/attention",
			"GET /admin/drift", "GET /admin/drift/{id}", "GET /admin/drift-passes",
			"GET /admin/onboarding-batches", "GET /admin/onboarding-batches/{id}",
			"GET /admin/agent-releases",
		},
		op.RoleOperator: {
			"PATCH /nodes/{id}", "POST /nodes/{id}/drives/accept",
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
			"GET /admin/audit", "GET /admin/audit/verification",
			"GET /admin/secrets", "GET /admin/secret-names",
			"GET /admin/install-workflows", "GET /admin/install-workflows/{id}", "GET /admin/device-groups",
		},
		op.RoleAdmin: {
			"POST /admin/maas-sites", "PUT /admin/maas-sites/{id}", "DELETE /admin/maas-sites/{id}",
			"POST /admin/maas-sites/{id}/profiles", "PUT /admin/maas-sites/{id}/profiles/{profile_id}",
			"DELETE /admin/maas-sites/{id}/profiles/{profile_id}",
			"POST /admin/skus", "PUT /admin/skus/{id}", "DELETE /admin/skus/{id}",
			"PUT /admin/secrets", "PUT /admin/secret-uses",
			"POST /nodes/{id}/state", "PUT /nodes/{id}/hardware", "PUT /nodes/{id}/bmc", "POST /admin/discovered-nodes/purge",
			"POST /admin/install-workflows", "PUT /admin/install-workflows/{id}", "DELETE /admin/install-workflows/{id}",
			"PUT /admin/device-groups/{name}", "DELETE /admin/device-groups/{name}",
			"GET /admin/api-tokens", "POST /admin/api-tokens", "DELETE /admin/api-tokens/{id}",
			"POST /admin/bmcs/{id}/actions/approve-pin", "POST /admin/bmcs/{id}/actions/clear-auth-block",
			"POST /admin/bmcs/{id}/rotations", "PUT /admin/bmcs/{id}/credential",
			"POST /nodes/{id}/actions/remove",
			"POST /nodes/{id}/actions/reissue-agent", "POST /nodes/{id}/actions/update-agent", "POST /admin/agent-reissues",
			"PUT /admin/agent-releases/{version}",
		},
	}
}

// stepUps lists what a session of the portal may do only after a second sign-in: what destroys data
// or access, or takes an outcome for proven.
func stepUps() []op.StepUp {
	adopt := []string{string(lifecycle.ActionAdopt)} // an outcome that nobody has proven
	return []op.StepUp{
		{Route: "POST /admin/decommissions"}, // each mode erases what the tenant left
		{Route: "POST /nodes/{id}/actions/retire"},
		{Route: "POST /nodes/{id}/actions/remove"},
		{Route: "POST /nodes/{id}/state"},
		{Route: "POST /admin/discovered-nodes/purge"},
		{Route: "POST /admin/onboardings/{id}/actions/{action}", Param: "action", Values: adopt},
		{Route: "POST /admin/jobs/{id}/actions/{action}", Param: "action", Values: adopt},
		{Route: "POST /admin/decommissions/{id}/actions/{action}", Param: "action", Values: adopt},
		{Route: "POST /admin/api-tokens"}, // or a session that was left open becomes one that never ends
		{Route: "DELETE /admin/api-tokens/{id}"},
		{Route: "DELETE /admin/maas-sites/{id}"},
		{Route: "DELETE /admin/maas-sites/{id}/profiles/{profile_id}"},
		{Route: "DELETE /admin/maas-sites/{id}/roce-assignments/{hostname}"},
		{Route: "DELETE /admin/skus/{id}"},
		{Route: "DELETE /admin/install-workflows/{id}"},
		{Route: "DELETE /admin/device-groups/{name}"},
		{Route: "PUT /admin/secrets"},
		{Route: "PUT /admin/secret-uses"},
		{Route: "PUT /admin/bmcs/{id}/credential"},
		{Route: "POST /admin/bmcs/{id}/actions/approve-pin"}, // or an impostor gets the BMC's login
		{Route: "POST /admin/bmcs/{id}/rotations"},           // the login that everything else reaches the BMC with
		{Route: "POST /admin/install-workflows"},             // what every machine that installs by it will run
		{Route: "PUT /admin/install-workflows/{id}"},
		{Route: "PUT /admin/agent-releases/{version}"}, // the program that runs as root on every node
		{Route: "PUT /nodes/{id}/bmc"},                 // the address that the login is sent to
		{Route: "PUT /admin/maas-sites/{id}"},          // the address that the API key is sent to
		{Route: "POST /nodes/{id}/drives/accept"},      // drives that were exchanged, with what is on them
		{Route: "POST /nodes/{id}/actions/reissue-agent"},
		{Route: "POST /admin/agent-reissues"},
		{Route: "POST /admin/nodes/{id}/bootstrap"}, // of a node in service it is a reissue, whose token the caller gets
	}
}
