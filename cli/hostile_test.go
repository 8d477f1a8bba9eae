package cli_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"gopkg.in/yaml.v3"

	"github.com/slipway-cloud/slipway/cli"
	"github.com/slipway-cloud/slipway/test/hostile"
)

// document is what the walk needs of docs/api/openapi.yaml.
type document struct {
	Paths      map[string]map[string]operation `yaml:"paths"`
	Components struct {
		Schemas map[string]schema `yaml:"schemas"`
	} `yaml:"components"`
}

type operation struct {
	Responses map[string]struct {
		Content map[string]struct{ Schema schema }
	}
}

type schema struct {
	Ref                  string `yaml:"$ref"`
	Type                 any    `yaml:"type"`
	Format               string
	ContentEncoding      string `yaml:"contentEncoding"`
	Properties           map[string]schema
	AdditionalProperties *additional `yaml:"additionalProperties"`
	Items                *schema
}

// additional is the schema of further properties, which may be just true or false.
type additional schema

func (a *additional) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		return nil
	}
	return n.Decode((*schema)(a))
}

// hostileServer answers every operation of the API as its schema says, with text in every field
// that may hold any text.
type hostileServer struct {
	doc  document
	text string
}

func (h *hostileServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, "/slipway.v1.") {
		h.serveMessage(w, r)
		return
	}
	path := strings.TrimPrefix(r.URL.Path, "/api/v1")
	for template, item := range h.doc.Paths {
		op, ok := item[strings.ToLower(r.Method)]
		if !ok || !matches(strings.TrimPrefix(template, "/api/v1"), path) {
			continue
		}
		for code, res := range op.Responses {
			if body, ok := res.Content["application/json"]; ok && strings.HasPrefix(code, "2") {
				answer := h.value("", body.Schema, 0)
				if m, ok := answer.(map[string]any); ok {
					delete(m, "next_cursor")
				}
				w.Header().Set("ETag", `"1"`)
				if m, ok := answer.(map[string]any); ok && m["complete"] != nil { // an export, which ends with it
					delete(m, "complete")
					raw, _ := json.Marshal(m)
					_, _ = fmt.Fprintf(w, "%s,\"complete\":true}\n", bytes.TrimSuffix(raw, []byte("}")))
					return
				}
				_ = json.NewEncoder(w).Encode(answer)
				return
			}
		}
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(http.StatusConflict)
	_ = json.NewEncoder(w).Encode(map[string]any{"title": h.text, "detail": h.text, "existing": h.text, "allowed": []string{h.text},
		"errors": []map[string]string{{"location": h.text, "message": h.text}}})
}

// matches is true where path is one of the template's.
func matches(template, path string) bool {
	want, have := strings.Split(template, "/"), strings.Split(path, "/")
	return len(want) == len(have) && !slices.ContainsFunc(want, func(part string) bool {
		got := have[0]
		have = have[1:]
		return part != got && !strings.HasPrefix(part, "{")
	})
}

// value returns what a field with this name and schema holds.
func (h *hostileServer) value(name string, s schema, depth int) any {
	if s.Ref != "" {
		s = h.doc.Components.Schemas[filepath.Base(s.Ref)]
	}
	kind, _ := s.Type.(string)
	if list, ok := s.Type.([]any); ok && len(list) > 0 {
		kind, _ = list[0].(string)
	}
	switch kind {
	case "object":
		out := map[string]any{}
		if depth < 8 {
			for k, p := range s.Properties {
				out[k] = h.value(k, p, depth+1)
			}
		}
		if len(s.Properties) == 0 {
			more := schema{Type: "string"}
			if s.AdditionalProperties != nil && s.AdditionalProperties.Type != nil {
				more = schema(*s.AdditionalProperties)
			}
			key := []rune(h.text)
			out[string(key[:min(len(key), 300)])] = h.value("", more, depth+1) // the API's keys are shorter
		}
		return out
	case "array":
		if s.Items == nil || depth > 8 {
			return []any{}
		}
		return []any{h.value(name, *s.Items, depth+1)}
	case "integer", "number":
		return 1
	case "boolean":
		return true
	case "string":
		switch {
		case s.Format == "date-time":
			return "2026-11-22T10:00:00Z"
		case s.ContentEncoding == "base64" || s.Format == "byte":
			return "aGk="
		case name == "public":
			return "aGk="
		}
		return h.text
	}
	if name == "report" {
		return map[string]any{}
	}
	return h.text // any value
}

// serveMessage answers a call of the gRPC API with the text in every field that may hold any text.
func (h *hostileServer) serveMessage(w http.ResponseWriter, r *http.Request) {
	service, method, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service))
	if err != nil {
		http.NotFound(w, r)
		return
	}
	output := d.(protoreflect.ServiceDescriptor).Methods().ByName(protoreflect.Name(method)).Output()
	kind, err := protoregistry.GlobalTypes.FindMessageByName(output.FullName())
	if err != nil {
		http.NotFound(w, r)
		return
	}
	m := kind.New()
	h.fill(m)
	raw, err := proto.Marshal(m.Interface())
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/proto")
	_, _ = w.Write(raw)
}

// fill puts the text into every string of a message and of those in it. There is no next page.
func (h *hostileServer) fill(m protoreflect.Message) {
	text := protoreflect.ValueOfString(strings.ToValidUTF8(h.text, "?"))
	for i := range m.Descriptor().Fields().Len() {
		f := m.Descriptor().Fields().Get(i)
		switch {
		case f.Name() == "next_page_token" || f.ContainingOneof() != nil && m.WhichOneof(f.ContainingOneof()) != nil:
		case f.IsMap():
			// A key is bounded in the API, and one of YAML is.
			key := []rune(text.String())[:64]
			m.Mutable(f).Map().Set(protoreflect.ValueOfString(string(key)).MapKey(), text)
		case f.IsList() && f.Message() != nil:
			h.fill(m.Mutable(f).List().AppendMutable().Message())
		case f.IsList():
			m.Mutable(f).List().Append(text)
		case f.Kind() == protoreflect.StringKind:
			m.Set(f, text)
		case f.Message() != nil && f.Message().FullName() != "google.protobuf.Timestamp":
			h.fill(m.Mutable(f).Message())
		}
	}
}

func readDocument(t *testing.T) document {
	t.Helper()
	raw, err := os.ReadFile("../docs/api/openapi.yaml")
	require.NoError(t, err)
	var doc document
	require.NoError(t, yaml.Unmarshal(raw, &doc))
	return doc
}

// readers lists the commands that show what the server knows, as command lines.
func readers() [][]string {
	var out [][]string
	var walk func(*cobra.Command, []string)
	walk = func(c *cobra.Command, path []string) {
		for _, child := range c.Commands() {
			walk(child, append(slices.Clone(path), child.Name()))
		}
		if !c.Runnable() || c.HasSubCommands() || !shows[c.Name()] {
			return
		}
		line := slices.Clone(path)
		for _, word := range strings.Fields(c.Use)[1:] {
			if id, ok := ids[strings.Trim(word, "[]")]; ok {
				line = append(line, id)
			}
		}
		if c.Flags().Lookup("site") != nil && c.Name() != "list" || c.Parent().Name() == "profile" {
			line = append(line, "--site", ids["SITE"])
		}
		out = append(out, line)
	}
	walk(cli.Commands(), nil)
	return out
}

var shows = map[string]bool{
	"list": true, "show": true, "history": true, "occupancies": true, "timeline": true, "tasks": true, "actions": true, "drives": true, "plan": true, "attention": true,
	"passes": true, "rotations": true, "probe": true, "export": true, "audit-log": true, "deliveries": true,
	"balance": true, "usage": true, "types": true, "orphans": true, "ledger": true, "statement": true,
}

var ids = map[string]string{
	"NODE": "node_1", "JOB": "job_1", "SITE": "site_1", "BMC": "bmc_1", "TASK": "task_1", "BATCH": "batch_1", "FINDING": "drift_1", "NAME": "sku_1", "HOSTNAME": "h", "INSTALL-WORKFLOW": "wf_1", "PROFILE": "prof_1", "SKU": "sku_1",
	"ACCOUNT": "acc_1", "PROJECT": "prj_1", "KEY": "key_1", "MEMBER": "mem_1", "WEBHOOK": "whk_1", "ALLOCATION": "alc_1", "MONTH": "2026-11", "PAYMENT": "pay_1", "PRICE": "prc_1", "INSTANCE": "inst_1", "CLUSTER": "cluster-1", "CAMPAIGN": "campaign_1", "DEVICE": "rackdev_1",
}

func TestCommands_ShowHostileTexts(t *testing.T) {
	t.Parallel()
	texts, err := hostile.Texts()
	require.NoError(t, err)
	lines := readers()
	require.Greater(t, len(lines), 20, "no commands to walk over")
	server := &hostileServer{doc: readDocument(t)}
	srv := httptest.NewServer(server)
	t.Cleanup(srv.Close)
	for _, text := range texts {
		begin := []rune(text.Text)
		server.text += string(begin[:min(len(begin), 100)]) + " "
	}
	for _, line := range lines {
		name := strings.Join(line, " ")
		table := runAgainst(t, srv.URL, line...)
		require.Equal(t, cli.ExitOK, table.code, "%s showed nothing, so the walk proves nothing about it: %.2000s", name, table.err)
		requireHarmless(t, name, table.out+table.err)
		for _, form := range []string{"json", "yaml"} {
			requireHarmless(t, name+" "+form, runAgainst(t, srv.URL, append(slices.Clone(line), "-o", form)...).exits(cli.ExitOK).out)
		}
	}
	refused := runAgainst(t, srv.URL, "secret", "delete", "name")
	require.NotEqual(t, cli.ExitOK, refused.code)
	requireHarmless(t, "a refusal", refused.out+refused.err)
}

func runAgainst(t *testing.T, url string, args ...string) said {
	t.Helper()
	var out, errs bytes.Buffer
	env := map[string]string{"SLIPWAY_SERVER": url, "SLIPWAY_TOKEN": "x"}
	code := cli.Run(t.Context(), cli.Env{
		In: strings.NewReader(""), Out: &out, Err: &errs, Version: "test", ConfigPath: filepath.Join(t.TempDir(), "config.yaml"),
		Getenv: func(k string) string { return env[k] },
	}, args)
	return said{t, code, out.String(), errs.String()}
}

func requireHarmless(t *testing.T, what, out string) {
	t.Helper()
	for _, r := range out {
		if r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp)) {
			require.Failf(t, "a character reached the terminal", "%s: %U in %q", what, r, out)
		}
	}
	for line := range strings.Lines(out) {
		require.False(t, strings.HasPrefix(strings.TrimSpace(line), "FORGED"), "%s: a text began a line of its own: %q", what, out)
	}
}

func TestRaw_KeepsTexts(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(&hostileServer{doc: readDocument(t), text: "a\x1b[31mb\u202ec\nd"})
	t.Cleanup(srv.Close)
	require.Contains(t, runAgainst(t, srv.URL, "node", "list").exits(cli.ExitOK).out, "a\ufffd[31mb\ufffdc d")
	require.Contains(t, runAgainst(t, srv.URL, "node", "list", "--raw").exits(cli.ExitOK).out, "a\x1b[31mb\u202ec d")
}

// A certificate's signature covers its text, so an export must mean exactly what the server sent.
func TestDocuments_KeepMeaning(t *testing.T) {
	t.Parallel()
	texts, err := hostile.Texts()
	require.NoError(t, err)
	server := &hostileServer{doc: readDocument(t)}
	srv := httptest.NewServer(server)
	t.Cleanup(srv.Close)
	for _, text := range texts {
		server.text = text.Text
		for _, form := range []string{"json", "yaml"} {
			out := runAgainst(t, srv.URL, "node", "show", "node_1", "-o", form).exits(cli.ExitOK).out
			var got struct{ Hostname string }
			read := json.Unmarshal
			if form == "yaml" {
				read = yaml.Unmarshal
			}
			require.NoError(t, read([]byte(out), &got), "%s: %s", text.Name, out)
			require.Equal(t, text.Text, got.Hostname, "%s as %s: %s", text.Name, form, out)
		}
	}
}

// A watched job is drawn again and again with control sequences of the client's own; those of a
// message must not be among them.
func TestWatch_DrawsHostileTexts(t *testing.T) {
	t.Parallel()
	for _, terminal := range []bool{true, false} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_ = json.NewEncoder(w).Encode(map[string]any{"id": "job_1", "kind": "onboarding", "status": "cancelled", "hostname": "h\x1b]0;owned\x07",
				"message": "m\x1b[2J\nFORGED", "stages": []any{map[string]any{"ordinal": 1, "name": "s", "state": "failed", "message": "x\u202ey\nFORGED\x1b[9A"}}})
		}))
		t.Cleanup(srv.Close)
		var out, errs bytes.Buffer
		code := cli.Run(t.Context(), cli.Env{
			In: strings.NewReader(""), Out: &out, Err: &errs, Terminal: terminal, Version: "test", ConfigPath: filepath.Join(t.TempDir(), "c.yaml"),
			Getenv: func(k string) string { return map[string]string{"SLIPWAY_SERVER": srv.URL, "SLIPWAY_TOKEN": "x"}[k] },
		}, []string{"job", "retry", "job_1", "--watch", "--watch-timeout", "20s"})
		require.Equal(t, cli.ExitJobFailed, code, errs.String())
		ours := strings.NewReplacer("\r", "", "\x1b[K", "", "\x1b[J", "")
		requireHarmless(t, "watch", ours.Replace(out.String())+errs.String())
	}
}
