package cli_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/cli"
)

// oneOfEach answers every request with a list of one resource that has another name than the one
// that was asked for, and counts the requests by method.
func oneOfEach(t *testing.T) (run func(args ...string) said, asked map[string]int) {
	t.Helper()
	asked = map[string]int{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked[r.Method]++
		_, _ = w.Write([]byte(`{"data":[{"id":"node_1","name":"only","hostname":"only","status":"active"}]}`))
	}))
	t.Cleanup(srv.Close)
	env := map[string]string{"SLIPWAY_SERVER": srv.URL, "SLIPWAY_TOKEN": "slp_x"}
	return func(args ...string) said {
		var out, errs bytes.Buffer
		code := cli.Run(t.Context(), cli.Env{In: strings.NewReader(""), Out: &out, Err: &errs, Version: "test", ConfigPath: t.TempDir() + "/config.yaml",
			Getenv: func(k string) string { return env[k] }}, args)
		return said{t, code, out.String(), errs.String()}
	}, asked
}

// walkCommands visits every command that does something.
func walkCommands(c *cobra.Command, visit func(path []string, c *cobra.Command)) {
	for _, child := range c.Commands() {
		if !child.HasSubCommands() {
			visit(strings.Fields(child.CommandPath())[1:], child)
		}
		walkCommands(child, visit)
	}
}

// argumentCount is how many arguments a command takes at least, of those that take any.
func argumentCount(c *cobra.Command) int {
	for n := 1; n <= 3; n++ {
		if c.Args(c, slices.Repeat([]string{"x"}, n)) == nil {
			return n
		}
	}
	return 0
}

func TestCommands_RefuseBlankArguments(t *testing.T) {
	t.Parallel()
	run, asked := oneOfEach(t)
	refused := func(blank string, args ...string) {
		require.Contains(t, run(args...).exits(cli.ExitUsage).err, blank, args)
		require.Empty(t, asked, args)
	}
	commands, flags := 0, 0
	walkCommands(cli.Commands(), func(path []string, c *cobra.Command) {
		n := argumentCount(c)
		args := slices.Repeat([]string{"x"}, n)
		for i := range n {
			commands++
			for _, blank := range []string{"", "  ", "\t\n"} {
				bad := slices.Clone(args)
				bad[i] = blank
				refused("is empty", slices.Concat(path, []string{"--"}, bad)...)
			}
		}
		needed := required(c)
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Value.Type() != "string" || f.Annotations[cli.MayBeEmpty] != nil || f.Name == "output" {
				return
			}
			flags++
			for _, blank := range []string{"", " "} {
				given := slices.DeleteFunc(slices.Clone(needed), func(s string) bool { return strings.HasPrefix(s, "--"+f.Name+"=") })
				refused("--"+f.Name+" is empty", slices.Concat(path, args, given, []string{"--" + f.Name + "=" + blank})...)
			}
		})
	})
	require.Greater(t, commands, 55)
	require.Greater(t, flags, 100)
}

// required returns a value for each flag that the command must have.
func required(c *cobra.Command) (out []string) {
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Annotations[cobra.BashCompOneRequiredFlag] != nil {
			value := "x"
			switch {
			case f.Name == "site":
				value = "site_1"
			case f.Value.Type() == "int64":
				value = "1"
			}
			out = append(out, "--"+f.Name+"="+value)
		}
	})
	return out
}

// TestCommands_RefuseWrongInput: each is refused with what is wrong, before anything is sent.
func TestCommands_RefuseWrongInput(t *testing.T) {
	t.Parallel()
	run, asked := oneOfEach(t)
	dir := t.TempDir()
	missing, misspelt, machine := filepath.Join(dir, "missing"), filepath.Join(dir, "batch.yaml"), filepath.Join(dir, "m.json")
	require.NoError(t, os.WriteFile(machine, []byte(`{"machine_id": "m-1", "rack": 1}`), 0o600))
	require.NoError(t, os.WriteFile(misspelt, []byte("{site: only, profile: only, sku: only, items: [{hostname: a, bmc: 127.0.0.1, credential: x, bmc_port_name: ipmi}]}"), 0o600))
	for _, c := range []struct {
		says string
		args []string
	}{
		{"-5 is read as a flag", []string{"adjustment", "create", "acme", "-5", "--reason", "a gift"}},
		{`unknown command "klingon"`, []string{"completion", "klingon"}},
		{"no such file", []string{"node", "onboard", "--file", missing}},
		{"is a directory", []string{"node", "onboard", "--file", dir}},
		{`unknown field "bmc_port_name"`, []string{"node", "onboard", "--file", misspelt}},
		{"[file hostname]", []string{"node", "onboard", "--file", misspelt, "--hostname", "b"}},
		{machine + `, line 1, column 23: unknown field "rack"`, []string{"machine", "register", machine}},
		{"no such file", []string{"key", "create", "prj_1", "laptop", missing}},
		{"no such file", []string{"secret", "put", "x", "--kind", "bmc_login", "--installation", "--from-file", missing}},
		{"no such file", []string{"agent-release", "add", missing, missing, "https://example.com/agent"}},
		{"go with --days", []string{"usage", "prj_1", "--from", "2026-11-01"}},
		{"at least 1", []string{"billing-account", "create", "acme", "--max-projects", "0"}},
		{`"plan-hash" not set`, []string{"price", "create", "h100x8", "100"}},
		{"at least one of the flags", []string{"machine", "set-access", "m-1"}},
		{`"reason" not set`, []string{"price", "withdraw", "price_1"}},
	} {
		require.Contains(t, run(c.args...).exits(cli.ExitUsage).err, c.says, c.args)
		require.Empty(t, asked, c.args)
	}
}

// TestCommands_RefuseHalfAnEnvironment: a server without its token does not act on the context's
// server.
func TestCommands_RefuseHalfAnEnvironment(t *testing.T) {
	t.Parallel()
	for _, set := range []string{"SLIPWAY_SERVER", "SLIPWAY_TOKEN"} {
		var errs bytes.Buffer
		code := cli.Run(t.Context(), cli.Env{In: strings.NewReader(""), Out: io.Discard, Err: &errs, ConfigPath: t.TempDir() + "/config.yaml", Getenv: func(k string) string {
			if k == set {
				return "http://127.0.0.1:1"
			}
			return ""
		}}, []string{"node", "list"})
		require.Equal(t, cli.ExitUsage, code, errs.String())
		require.Contains(t, errs.String(), "set both, or none")
	}
}

// An argument that can be no name and no id is not sent, and an answer that holds another resource
// than the one that was named selects nothing.
func TestCommands_SelectOnlyWhatWasNamed(t *testing.T) {
	t.Parallel()
	placeholder := regexp.MustCompile(`\b(NODE|JOB|BMC|SITE|PROFILE|SKU|INSTALL-WORKFLOW)\b`)
	run, asked := oneOfEach(t)
	tried := 0
	walkCommands(cli.Commands(), func(path []string, c *cobra.Command) {
		first, _, _ := strings.Cut(strings.TrimPrefix(c.Use, c.Name()+" "), " ")
		if !placeholder.MatchString(first) {
			return
		}
		tried++
		rest := slices.Concat(slices.Repeat([]string{"x"}, argumentCount(c)-1), required(c), extra(path))
		for _, bad := range []string{".", "..", "a/b", " only", "only ", "a?b", "a%2fb", "node_../x", "site_../../nodes/x", "job_1/actions/cancel", "bmc_ 1", "o\u202enly", "only\x00"} {
			clear(asked)
			run(slices.Concat(path, []string{bad}, rest)...).exits(cli.ExitUsage)
			require.Empty(t, asked, "%s %q", path, bad)
		}
		clear(asked)
		require.NotZero(t, run(slices.Concat(path, []string{"gpu-1"}, rest)...).code, path)
		require.Zero(t, asked["POST"]+asked["PUT"]+asked["PATCH"]+asked["DELETE"], path)
	})
	require.Greater(t, tried, 40)
}

// extra returns what a command asks for before it looks a name up.
func extra(path []string) []string {
	switch path[len(path)-1] {
	case "decommission":
		return []string{"--mode=drain", "--yes", "--reason=x"}
	case "set":
		return []string{"--port=interface=a"}
	}
	if path[0] == "node" && slices.Contains([]string{"drain", "retire", "quarantine", "unquarantine", "remove", "reactivate", "resume"}, path[1]) {
		return []string{"--reason=x"}
	}
	return nil
}
