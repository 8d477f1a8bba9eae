package boot

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
		err := CheckWorkflow(newSpec(func(s *spec.InstallWorkflowSpec) { s.UserData = c.text }))
		require.ErrorContains(t, err, c.says, name)
		require.NotContains(t, err.Error(), "boot.", name)
		require.NotContains(t, err.Error(), "executing", name)
	}
	named, err := parseClosed("{{ .Labels.rack }}", nil)
	require.NoError(t, err)
	_, err = execute(named, userData{Labels: map[string]quoted{}})
	require.ErrorContains(t, err, `line 1: the node has no label "rack"`)
	err = CheckWorkflow(newSpec(func(s *spec.InstallWorkflowSpec) { s.CommandLine = "{{ .Vendor }}" }))
	require.ErrorContains(t, err, "line 1: there is no .Vendor; the values are .Hostname, .MAC, .NodeID, .ReportURL, .SeedURL, .Token")
}
