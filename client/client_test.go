package client_test

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"

	"github.com/slipway-cloud/slipway/client"
)

// newClient returns a client of a server that answers with handle.
func newClient(t *testing.T, handle http.HandlerFunc) *client.Client {
	t.Helper()
	srv := httptest.NewServer(handle)
	t.Cleanup(srv.Close)
	c, err := client.New(client.Config{Server: srv.URL, Token: "slp_x", UserAgent: "test/1"})
	require.NoError(t, err)
	return c
}

func TestClient_SendsWhatEveryRequestNeeds(t *testing.T) {
	t.Parallel()
	var got []*http.Request
	var body []byte
	c := newClient(t, func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r)
		body, _ = io.ReadAll(r.Body)
		w.Header().Set("ETag", `"7"`)
		_, _ = io.WriteString(w, `{"id":"prj_1","name":"training"}`)
	})
	r, err := c.UpdateProject(t.Context(), "a/b c", client.ProjectPatch{Name: new("")}, client.IfMatch("*"), client.Because("help"))
	require.NoError(t, err)
	require.Equal(t, `"7"`, r.ETag)
	p, err := r.Decode()
	require.NoError(t, err)
	require.Equal(t, "training", p.Name)
	require.Equal(t, "/api/v1/projects/a%2Fb%20c", got[0].URL.EscapedPath())
	require.JSONEq(t, `{"name":""}`, string(body), "an empty name is not one that was left out")
	for name, want := range map[string]string{
		"Authorization": "Bearer slp_x", "User-Agent": "test/1", "Accept": "application/json", "If-Match": "*", "Slipway-Reason": "help", "Idempotency-Key": "",
	} {
		require.Equal(t, want, got[0].Header.Get(name), name)
	}
	for range 2 {
		_, err = c.CreateProject(t.Context(), client.ProjectRequest{Name: "x"})
		require.NoError(t, err)
	}
	require.NotEmpty(t, got[1].Header.Get("Idempotency-Key"))
	require.NotEqual(t, got[1].Header.Get("Idempotency-Key"), got[2].Header.Get("Idempotency-Key"))
	_, err = c.CreateProject(t.Context(), client.ProjectRequest{Name: "x"}, client.WithKey("mine"))
	require.NoError(t, err)
	require.Equal(t, "mine", got[3].Header.Get("Idempotency-Key"))
	_, err = c.ListNodes(t.Context(), &client.ListNodesParams{Hostname: new("a&b"), Status: []string{"active", "failed"}}, client.Query("limit", "2"))
	require.NoError(t, err)
	require.Equal(t, map[string][]string{"hostname": {"a&b"}, "status": {"active", "failed"}, "limit": {"2"}}, map[string][]string(got[4].URL.Query()))
	_, err = c.FleetHistory(t.Context(), &client.FleetHistoryParams{Since: new(time.Unix(0, 1).UTC())})
	require.NoError(t, err)
	require.Equal(t, map[string][]string{"since": {"1970-01-01T00:00:00.000000001Z"}}, map[string][]string(got[5].URL.Query()))
	_, err = c.GetSecret(t.Context(), &client.GetSecretParams{})
	require.NoError(t, err)
	require.Equal(t, "name=", got[6].URL.RawQuery, "the server says that the name is missing")
	_, err = c.PlanJob(t.Context(), "job_1", &client.PlanJobParams{Login: new(false)})
	require.NoError(t, err)
	require.Equal(t, "login=false", got[7].URL.RawQuery)
	_, err = c.CreateSite(t.Context(), client.SiteRequest{}, client.Body(json.RawMessage(`{"colour": 1}`)))
	require.NoError(t, err)
	require.JSONEq(t, `{"colour":1}`, string(body), "the server says which field it does not know")
	require.Equal(t, "application/json", got[8].Header.Get("Content-Type"))
	res, err := c.FollowProjectEvents(t.Context(), "prj_1", nil, client.After("7"))
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, []string{"text/event-stream, application/problem+json", "7"}, []string{got[9].Header.Get("Accept"), got[9].Header.Get("Last-Event-Id")})
}

// The generator writes one method an operation, and nothing beside it.
func TestClient_HasOneMethodAnOperation(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../docs/api/openapi.yaml")
	require.NoError(t, err)
	operations := strings.Count(string(raw), "operationId: ")
	require.Greater(t, operations, 200)
	require.Equal(t, operations, reflect.TypeFor[*client.Client]().NumMethod())
}

// A part of a path that is resolved would make the request another one.
func TestClient_SendsNoPathThatNamesAnother(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	c := newClient(t, func(http.ResponseWriter, *http.Request) { asked.Add(1) })
	for _, id := range []string{"", ".", ".."} {
		_, err := c.DeleteProject(t.Context(), id)
		require.ErrorContains(t, err, "nothing was sent", id)
		_, err = c.DeleteSSHKey(t.Context(), "prj_1", id)
		require.ErrorContains(t, err, "nothing was sent", id)
		_, err = c.FollowProjectEvents(t.Context(), id, nil)
		require.ErrorContains(t, err, "nothing was sent", id)
	}
	require.Zero(t, asked.Load())
}

func TestClient_ReturnsRefusals(t *testing.T) {
	t.Parallel()
	text := `{"detail":"A job is live.","status":409,"existing":"job_1"}`
	c := newClient(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusConflict)
		_, _ = io.WriteString(w, text)
	})
	_, err := c.CreateNode(t.Context(), client.NodeRequest{}, client.WithKey("k"))
	var refused *client.Refusal
	require.ErrorAs(t, err, &refused)
	require.Equal(t, http.StatusConflict, client.StatusOf(err))
	require.Equal(t, "job_1", refused.Existing)
	require.Equal(t, "k", refused.Key)
	require.EqualError(t, err, "A job is live.")
	text = `<html>`
	_, err = c.GetNode(t.Context(), "node_1")
	require.EqualError(t, err, "the server answered 409 Conflict and no problem document; is this a Slipway API?")
	require.Zero(t, client.StatusOf(os.ErrNotExist))
}

func TestClient_SaysWhichRequestWasLost(t *testing.T) {
	t.Parallel()
	c := newClient(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet { // the answer breaks off
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, `{"id`)
			return
		}
		panic(http.ErrAbortHandler)
	})
	var lost *client.Unreachable
	_, err := c.CreateNode(t.Context(), client.NodeRequest{}, client.WithKey("k"))
	require.ErrorAs(t, err, &lost)
	require.Equal(t, "k", lost.Key)
	_, err = c.GetNode(t.Context(), "node_1")
	require.ErrorAs(t, err, &lost)
	require.Empty(t, lost.Key)
	require.ErrorContains(t, err, "broke off")
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
}

// A read waits as the server asks, when the time of the request allows it. Nothing else is
// repeated.
func TestClient_RepeatsReadsAlone(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	later := "1"
	c := newClient(t, func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) == 2 {
			_, _ = io.WriteString(w, `{}`)
			return
		}
		w.Header().Set("Retry-After", later)
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	_, err := c.GetNode(t.Context(), "node_1")
	require.NoError(t, err)
	require.EqualValues(t, 2, asked.Load())
	_, err = c.CreateNode(t.Context(), client.NodeRequest{})
	require.Equal(t, http.StatusServiceUnavailable, client.StatusOf(err))
	require.EqualValues(t, 3, asked.Load())
	_, err = c.ExportProject(t.Context(), "prj_1")
	require.Equal(t, http.StatusServiceUnavailable, client.StatusOf(err), "a stream has no time that ends the waiting")
	require.EqualValues(t, 4, asked.Load())
	c.Timeout, later = 10*time.Second, "20"
	_, err = c.GetNode(t.Context(), "node_1")
	require.Equal(t, http.StatusServiceUnavailable, client.StatusOf(err))
	require.EqualValues(t, 5, asked.Load())
}

// A redirect could name another server, which must not get the token.
func TestClient_FollowsNoRedirect(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	c := newClient(t, func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	})
	_, err := c.Whoami(t.Context())
	require.Equal(t, http.StatusTemporaryRedirect, client.StatusOf(err))
	require.EqualValues(t, 1, asked.Load())
}

// A number or a bool that a request leaves out is not 0 or false, so the fields of request bodies
// must be able to say both. overlay.yaml names them.
func TestRequests_TellLeftOutFromZero(t *testing.T) {
	t.Parallel()
	var doc struct {
		Paths map[string]map[string]struct {
			RequestBody struct {
				Content map[string]struct {
					Schema struct {
						Ref string `yaml:"$ref"`
					}
				}
			} `yaml:"requestBody"`
		}
		Components struct {
			Schemas map[string]struct {
				Required   []string
				Properties map[string]struct {
					Type    any
					Enum    []any
					Minimum float64
				}
			}
		}
	}
	raw, err := os.ReadFile("../docs/api/openapi.yaml")
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(raw, &doc))
	file, err := parser.ParseFile(token.NewFileSet(), "client.gen.go", nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	pointer := map[string]map[string]bool{} // by type and JSON name
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok {
			return true
		}
		if s, ok := spec.Type.(*ast.StructType); ok {
			fields := map[string]bool{}
			for _, f := range s.Fields.List {
				if f.Tag != nil {
					_, rest, _ := strings.Cut(f.Tag.Value, `json:"`)
					name, _, _ := strings.Cut(strings.TrimSuffix(rest, "\"`"), ",")
					_, fields[name] = f.Type.(*ast.StarExpr)
				}
			}
			pointer[spec.Name.Name] = fields
		}
		return false
	})
	seen := 0
	for _, item := range doc.Paths {
		for _, operation := range item {
			for _, body := range operation.RequestBody.Content {
				name := strings.TrimPrefix(body.Schema.Ref, "#/components/schemas/")
				schema := doc.Components.Schemas[name]
				for field, property := range schema.Properties {
					if slices.Contains(schema.Required, field) || property.Type != "boolean" && property.Type != "integer" {
						continue
					}
					if len(property.Enum) > 0 || property.Minimum > 0 { // 0 is no value
						continue
					}
					seen++
					require.True(t, pointer[name][field], "%s.%s is optional: name %s in overlay.yaml and run make generate", name, field, name)
				}
			}
		}
	}
	require.Greater(t, seen, 20)
	text, err := json.Marshal(client.WebhookChange{Enabled: new(false)})
	require.NoError(t, err)
	require.JSONEq(t, `{"enabled":false}`, string(text))
}
