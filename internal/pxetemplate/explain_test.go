package pxetemplate

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

func TestWhatIsWrongWithATemplateIsSaidInWords(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, says string }{
		"an unknown value":        {"#cloud-config\na: 1\nb: {{ .Password }}\n", "cannot be rendered: line 3: there is no .Password; the values are .Attempt, .Hostname, .IPAddress, .Labels.NAME, .MAC, "},
		"a value within a value":  {"\n{{ .MAC.Vendor }}", "line 2: there is no .MAC.Vendor: nothing lies within the value"},
		"a number for a status":   {"{{ report .Attempt }}", "line 1: .Attempt cannot be used like that"},
		"no status":               {"{{ report }}", "line 1: report has too few arguments or too many"},
		"a status that is none":   {"\n\n{{ report \"done\" }}", `line 3: report "done": must be started, progress, complete or failed`},
		"a label by its number":   {"{{ index .Labels 1 }}", "line 1: index .Labels 1 cannot be used like that"},
		"what cannot be compared": {"{{ if eq .Attempt .MAC }}{{ end }}", "line 1: eq .Attempt .MAC cannot be used like that"},
		"a function of its own":   {"a\n{{ shell \"x\" }}", "is not a template: line 2: there is no function shell here"},
		"no end":                  {"a\n{{ if .MAC }}\n", "is not a template: line 3: unexpected EOF"},
		"a loop":                  {"a\n\n{{ range .Labels }}{{ end }}", "line 3 uses {{range .Labels}}"},
		"a printf":                {"a\n{{ printf \"x\" }}", "line 2 uses printf"},
	} {
		err := Check(newSpec(func(s *spec.InstallWorkflowSpec) { s.UserData = c.text }))
		require.ErrorContains(t, err, c.says, name)
		require.NotContains(t, err.Error(), "pxetemplate.", name)
		require.NotContains(t, err.Error(), "executing", name)
	}
	named, err := parseClosed("{{ .Labels.rack }}", nil)
	require.NoError(t, err)
	_, err = execute(named, UserData{Labels: map[string]Quoted{}})
	require.ErrorContains(t, err, `line 1: the node has no label "rack"`)
	err = Check(newSpec(func(s *spec.InstallWorkflowSpec) { s.CommandLine = "{{ .Vendor }}" }))
	require.ErrorContains(t, err, "line 1: there is no .Vendor; the values are .Hostname, .MAC, .NodeID, .ReportURL, .SeedURL, .Token")
}

func TestInstallAgentNeedsAnAgentBlock(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"#cloud-config\nrun: [{{ install_agent }}]\n", "{{ if false }}{{ install_agent }}{{ end }}", "{{ with .Labels.x }}{{ else }}{{ install_agent }}{{ end }}",
	} {
		use := func(s *spec.InstallWorkflowSpec) { s.UserData = text }
		require.ErrorContains(t, Check(newSpec(use)), "no agent block", text)
		require.NoError(t, Check(newSpec(func(s *spec.InstallWorkflowSpec) { use(s); s.Agent = &spec.InstallAgent{} })), text)
	}
	require.ErrorContains(t, Check(newSpec(func(s *spec.InstallWorkflowSpec) {
		s.CommandLine, s.Agent = "{{ install_agent }}", &spec.InstallAgent{}
	})), "function")
	require.ErrorContains(t, Check(newSpec(func(s *spec.InstallWorkflowSpec) {
		s.UserData, s.Agent = "{{ install_agent 1 }}", &spec.InstallAgent{}
	})), "arguments")
	require.NoError(t, Check(newSpec(func(s *spec.InstallWorkflowSpec) { s.Agent = &spec.InstallAgent{} })), "an installer may fetch it by itself")
}
