package pxetemplate

import (
	"bytes"
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"
	"pgregory.net/rapid"

	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

func newSpec(change func(*spec.InstallWorkflowSpec)) spec.InstallWorkflowSpec {
	s := spec.InstallWorkflowSpec{Kernel: spec.BootImage{URL: "http://images.example/vmlinuz"}, CommandLine: "quiet", UserData: "#cloud-config\n{}\n"}
	change(&s)
	return s
}

func TestAWorkflowThatCouldDoHarmIsNotSaved(t *testing.T) {
	t.Parallel()
	line := func(text string) func(*spec.InstallWorkflowSpec) {
		return func(s *spec.InstallWorkflowSpec) { s.CommandLine = text }
	}
	user := func(text string) func(*spec.InstallWorkflowSpec) {
		return func(s *spec.InstallWorkflowSpec) { s.UserData = text }
	}
	kernel := func(url string) func(*spec.InstallWorkflowSpec) {
		return func(s *spec.InstallWorkflowSpec) { s.Kernel.URL = url }
	}
	for name, c := range map[string]struct {
		change func(*spec.InstallWorkflowSpec)
		says   string
	}{
		"a second command":         {line("quiet || shell"), "||"},
		"a second line":            {line("quiet\nshell"), "one line"},
		"an expansion":             {line("a=${net0/mac}"), "${"},
		"a comment":                {line("quiet #rest"), "#"},
		"an unknown value":         {line("{{ .Password }}"), "cannot be rendered"},
		"a report in a line":       {line(`{{ report "started" }}`), "function"},
		"a loop":                   {user("{{ range 1000000000 }}{{ end }}"), "if, else and with only"},
		"a template of its own":    {user(`{{ define "x" }}{{ end }}`), "templates of its own"},
		"a template that calls it": {user(`{{ template "template" . }}`), "only"},
		"memory":                   {user(`{{ printf "%1000000000d" 1 }}`), "uses printf"},
		"a call":                   {user("{{ call .X }}"), "uses call"},
		"not a template":           {user("{{ .X"), "is not a template"},
		"no YAML":                  {user("#cloud-config\na: [\n"), "not YAML"},
		"too long when rendered":   {user(strings.Repeat("{{.Token}}", 3200)), "when rendered"},
		"a status that is none":    {user(`{{ report "done" }}`), "must be started"},
		"progress without percent": {user(`{{ report "progress" }}`), "percent"},
		"a kernel in a file":       {kernel("file:///etc/passwd"), "http or https"},
		"a kernel with a login":    {kernel("http://u:p@images.example/k"), "password"},
		"a kernel that expands":    {kernel("http://images.example/${mac}"), "visible ASCII"},
		"a kernel in two words":    {kernel("http://images.example/k || shell"), "visible ASCII"},
		"form data":                {kernel("http://images.example/k##params"), "visible ASCII"},
		"no kernel":                {kernel(""), "http or https"},
		"no sum":                   {func(s *spec.InstallWorkflowSpec) { s.Kernel.SHA256 = "abc" }, "64"},
		"too many images":          {func(s *spec.InstallWorkflowSpec) { s.Initrds = make([]spec.BootImage, 5) }, "at most 4"},
		"a deadline of a year":     {func(s *spec.InstallWorkflowSpec) { s.DeadlineMinutes = 600_000 }, "1 to 1440"},
	} {
		err := Check(newSpec(c.change))
		var invalid *spec.InvalidError
		require.ErrorAs(t, err, &invalid, name)
		require.ErrorContains(t, err, c.says, name)
	}
	require.NoError(t, Check(newSpec(user("#cloud-config\n{{ if eq .Vendor \"Dell\" }}a: 1{{ else }}b: {{ .Labels.rack }}{{ end }}\nc: {{ index .Labels \"row\" }}\nd: {{ report \"failed\" }}\n"))))
	require.NoError(t, Check(newSpec(user("#!/bin/sh\necho {{ .MAC }}\n"))), "not every installer reads cloud-config")
}

// Whatever a machine says of itself stays one scalar of the document.
func TestNoValueLeavesItsPlace(t *testing.T) {
	t.Parallel()
	const text = "#cloud-config\nbefore: 1\nvendor: {{ .Vendor }}\nlist: [{{ .Model }}, {{ .SerialNumber }}]\nrun: {{ report \"failed\" }}\nlabel: {{ .Labels.rack }}\nafter: 2\n"
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.String().Draw(t, "value")
		hostile := rapid.SampledFrom([]string{"", "\"\nrunc", "': {", "$(reboot)", "`x`", "${mac}", "\\\" || x", "{{ .Token }}", "\u2028", "!!python"}).Draw(t, "hostile")
		v := Quoted(value + hostile)
		out, err := UserData{MAC: "52:54:00:00:00:01", Token: "pxe_x", ReportURL: "http://s/api/v1/report", Vendor: v, Model: v, SerialNumber: v, Labels: map[string]Quoted{"rack": v}}.Render(text)
		require.NoError(t, err)
		var doc map[string]any
		require.NoError(t, yaml.Unmarshal([]byte(out), &doc), out)
		require.Len(t, doc, 6)
		clean := spec.CleanText(string(v), maxValue)
		require.Equal(t, []any{clean, clean, clean}, []any{doc["vendor"], doc["list"].([]any)[0], doc["label"]}) //nolint:forcetypeassert // else the test fails
		require.NotContains(t, clean, "$")
	})
}

func TestTheWorkflowOfTheManualIsValid(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/pxe.md")
	require.NoError(t, err)
	_, block, found := strings.Cut(string(page), "```yaml\n")
	require.True(t, found)
	block, _, _ = strings.Cut(block, "```")
	block = regexp.MustCompile(`sha256: [0-9a-f]{4}\.\.\.`).ReplaceAllString(block, "sha256: "+strings.Repeat("a", 64))
	var doc map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(block), &doc))
	raw, err := json.Marshal(doc)
	require.NoError(t, err)
	var s spec.InstallWorkflowSpec
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	require.NoError(t, d.Decode(&s))
	require.NotEmpty(t, s.Initrds[0].SHA256)
	require.NoError(t, Check(s))
}
