package server

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"gopkg.in/yaml.v3"

	"github.com/slipway-cloud/slipway/agent/protocol"
	"github.com/slipway-cloud/slipway/api/agentapi"
	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/rest"
	"github.com/slipway-cloud/slipway/assembly/server/httpapi"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/internal/telemetry"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers/secrets"
)

//go:generate go test . -run ^TestAccessPage_IsCurrent$ -update

var update = flag.Bool("update", false, "write the generated page")

// plainRoutes are the routes that are no operations of the document, with who may call them: a
// role, or what a caller shows instead.
func plainRoutes() map[string]string {
	const token, session = "the boot token in the path", "the session's cookie"
	const bearer, machines = "a bearer token", "a bearer token with the role that docs/machines.md names for the call, or a session with it for reads, StartRun and CancelRun"
	return map[string]string{
		"GET /":     everybody,
		"GET /docs": everybody, "GET /docs/*": everybody, "GET /docs/ui/{file}": everybody, "GET /openapi.json": everybody, "GET /openapi.yaml": everybody,
		"GET /openapi-3.0.json": everybody, "GET /openapi-3.0.yaml": everybody,
		"GET /healthz": everybody, "HEAD /healthz": everybody, "GET /readyz": everybody, "HEAD /readyz": everybody,
		"GET /portal": everybody, "GET /portal/*": everybody, "HEAD /portal/*": everybody,
		"GET /portal/sign-in": everybody, "GET /portal/session": session, "DELETE /portal/session": session,
		"POST /portal/session": "an API token in the body", "POST /portal/step-up": session + " and its API token in the body",
		"GET /portal/oidc/sign-in": "everybody, within a rate per address", "GET /portal/oidc/step-up": session,
		"GET /portal/oidc/callback": "the identity provider's code and the cookie of the sign-in",
		"POST /portal/oidc/logout":  "a token that the identity provider has signed",
		"GET /metrics":              string(op.RoleViewer),
		"POST /codec/*":             string(op.RoleOperator),

		"POST /slipway.v1.MachineService/*": machines, "POST /slipway.v1.PlanService/*": machines, "POST /slipway.v1.RunService/*": machines, "POST /slipway.v1.CampaignService/*": machines,
		"POST /grpc.reflection.v1.ServerReflection/*": bearer, "POST /grpc.reflection.v1alpha.ServerReflection/*": bearer, "POST /grpc.health.v1.Health/*": everybody,

		"OPTIONS /codec/*":             "everybody, from an origin of api.codec_origins",
		"POST /api/v1/webhooks/stripe": "a body that Stripe has signed",
		"GET /boot/start.ipxe":         "everybody, within a rate per address",
		"GET /boot/{mac}.ipxe":         "everybody, within a rate per address",
		"GET /boot/{token}/user-data":  token, "GET /boot/{token}/meta-data": token, "GET /boot/{token}/vendor-data": token,
		"GET /boot/{token}/install-agent": token, "GET /boot/{token}/image/{number}": token, "HEAD /boot/{token}/image/{number}": token,
	}
}

const everybody = "everybody"

type noTasks struct{ agentapi.TaskStore }

type noKeys struct{ agentapi.TaskSigner }

// Each route has a row: one that is in no table fails the test.
func TestAccessPage_IsCurrent(t *testing.T) {
	t.Parallel()
	temporal, err := client.NewLazyClient(client.Options{HostPort: "127.0.0.1:1"})
	require.NoError(t, err)
	t.Cleanup(temporal.Close)
	sealed, err := secrets.Open(t.Context(), &secrets.Memory{}, secrets.Keeper{KeyFile: t.TempDir() + "/key"}, secrets.Options{})
	require.NoError(t, err)
	api, err := httpapi.New(httpapi.Config{
		API: op.Config{Store: &db.Store{}, Version: "v1"}, REST: rest.Config{Temporal: temporal, Secrets: sealed},
		Health: telemetry.NewHealth(nil), Metrics: prometheus.NewRegistry(),
	})
	require.NoError(t, err)
	page := accessPage(t, api, agentapi.New(agentapi.Config{Tasks: noTasks{}, TaskKeys: noKeys{}, Instances: agentapi.NewInstanceStore(nil)}).Routes())
	const path = "../../docs/api/access.md"
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(page), 0o600))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), page, "%s is stale: run make generate", path)
}

func accessPage(t *testing.T, api *op.API, agents chi.Router) string {
	t.Helper()
	raw, err := api.OpenAPI()
	require.NoError(t, err)
	var doc accessDocument
	require.NoError(t, yaml.Unmarshal(raw, &doc))
	rows := plainRoutes()
	roles := api.Routes()
	walk := func(r chi.Router, visit func(route string)) {
		require.NoError(t, chi.Walk(r, func(method, path string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
			visit(method + " " + path)
			return nil
		}))
	}
	walk(api.Router(), func(route string) {
		if role, ok := roles[route]; ok {
			rows[route] = string(role)
		}
		require.NotEmpty(t, rows[route], "%s has no row in plainRoutes", route)
	})
	walk(agents, func(route string) {
		rows[route] = "the certificate of a node"
		if strings.HasSuffix(route, "/enroll") {
			rows[route] = "an enrolment token in the body"
		}
		if strings.HasSuffix(route, protocol.PathInstanceHeartbeat) {
			rows[route] = "the key of an instance's worker"
		}
	})
	var b strings.Builder
	b.WriteString("# Who may call what\n\nFor everyone who asks which role a call needs. Generated from the access tables and the routers. Do not edit; `make generate` writes it.\n\n" +
		"A role includes the lower ones: admin, operator, viewer. Operations take a bearer\n" +
		"token or the cookie of a session of the portal. A session needs a second sign-in within the last ten\n" +
		"minutes where the table says so; a bearer token does not. Routes below /agent are on the agent API's\n" +
		"own listener, those below /boot and POST /api/v1/report on the one of the boot network\n(boot.listen, for boot.networks). `TestEveryRouteNeedsItsRole` calls each operation with each role. A route of a project\n" +
		"is for its members: owner includes all, member includes viewer, billing no other role, and each of\n" +
		"them any. An operator needs the header Slipway-Reason there. `TestTwoTenants` calls each of them as another tenant.\n\n" +
		"| method | path | viewer | operator | admin | without a role | also needed | second sign-in |\n|---|---|---|---|---|---|---|---|\n")
	for _, route := range slices.SortedFunc(maps.Keys(rows), func(x, y string) int {
		mx, px, _ := strings.Cut(x, " ")
		my, py, _ := strings.Cut(y, " ")
		return cmp.Or(strings.Compare(px, py), strings.Compare(mx, my))
	}) {
		method, path, _ := strings.Cut(route, " ")
		fmt.Fprintf(&b, "| %s | `%s` | %s | %s | %s |\n", method, path, mayCall(method, rows[route]), doc.alsoNeeded(method, path), stepUpOf(api, route))
	}
	return b.String()
}

// stepUpOf says when a session needs a second sign-in for a call.
func stepUpOf(api *op.API, route string) string {
	u, needed := api.StepUps()[route]
	switch {
	case !needed:
		return ""
	case u.Param == "":
		return "yes"
	default:
		return u.Param + " " + strings.Join(u.Values, ", ")
	}
}

// mayCall writes the columns of the roles.
func mayCall(method, who string) string {
	if cells := tenantMayCall(method, who); cells != "" {
		return cells
	}
	all := []string{string(op.RoleViewer), string(op.RoleOperator), string(op.RoleAdmin)}
	least := slices.Index(all, who)
	switch {
	case who == string(op.RoleNone):
		who, least = everybody, 0
	case least >= 0:
		who = "no"
	default:
		return "- | - | - | " + who // a role neither helps nor is needed
	}
	var b strings.Builder
	for i := range all {
		fmt.Fprintf(&b, "%s | ", map[bool]string{true: "yes", false: "no"}[i >= least])
	}
	return b.String() + who
}

// tenantMayCall writes the columns of a customer's route, "" for other routes.
func tenantMayCall(method, who string) string {
	if who == string(op.RoleSignedIn) {
		return "yes | yes | yes | everybody who is signed in"
	}
	role, ok := strings.CutPrefix(who, "project_")
	if !ok {
		return ""
	}
	viewer := "no"
	if method == http.MethodGet {
		viewer = "with a reason"
	}
	return viewer + " | with a reason | with a reason | role " + role + " in the project"
}

// accessDocument is what the page takes from the OpenAPI document.
type accessDocument struct {
	Paths map[string]map[string]struct {
		Parameters  []struct{ Name, In string }
		RequestBody struct {
			Content map[string]struct {
				Schema struct {
					Ref string `yaml:"$ref"`
				}
			}
		} `yaml:"requestBody"`
	}
	Components struct {
		Schemas map[string]struct{ Required []string }
	}
}

// alsoNeeded says what a call takes besides a role.
func (d accessDocument) alsoNeeded(method, path string) string {
	var out []string
	call := d.Paths[path][strings.ToLower(method)]
	for _, p := range call.Parameters {
		if p.In == "header" && (p.Name == "Idempotency-Key" || p.Name == "If-Match") {
			out = append(out, p.Name)
		}
	}
	reason := false
	for _, c := range call.RequestBody.Content {
		reason = slices.Contains(d.Components.Schemas[strings.TrimPrefix(c.Schema.Ref, "#/components/schemas/")].Required, "reason")
	}
	for _, a := range lifecycle.NodeActions() {
		reason = reason || a.Reason && path == op.Prefix+"/nodes/{id}/actions/"+string(a.Action)
	}
	if reason {
		out = append(out, "reason")
	}
	return strings.Join(out, ", ")
}
