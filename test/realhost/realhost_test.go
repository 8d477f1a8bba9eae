package realhost

import (
	"errors"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDecide(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		env       map[string]string
		container bool
		missing   []string
		run       bool
		line, err string
	}{
		"a machine of one's own":      {line: "it is no container"},
		"asked for":                   {env: map[string]string{Var: "1"}, run: true, line: "remove"},
		"kept away in a container":    {env: map[string]string{Var: "0"}, container: true, line: Var + "=0"},
		"container":                   {container: true, run: true, line: "remove"},
		"CI":                          {env: map[string]string{"CI": "true"}, run: true, line: "remove"},
		"not CI":                      {env: map[string]string{"CI": "false"}, line: "it is no container"},
		"peers required":              {env: map[string]string{RequireVar: "1"}, run: true, line: "remove"},
		"lacking":                     {container: true, missing: []string{"root", "chattr"}, line: "lacks root, chattr"},
		"required and lacking":        {env: map[string]string{RequireVar: "1"}, missing: []string{"loop disks", "mounts"}, line: "lacks loop disks, mounts", err: "lacks loop disks, mounts; " + RequireVar + "=1 requires it"},
		"required and asked, lacking": {env: map[string]string{RequireVar: "1", Var: "1"}, missing: []string{"root"}, line: "lacks root", err: "requires it"},
		"required and kept away":      {env: map[string]string{RequireVar: "1", Var: "0"}, line: Var + "=0, although " + RequireVar + "=1"},
		"required and unclear":        {env: map[string]string{RequireVar: "1", Var: "no"}, line: Var + "=no", err: "requires it"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run, line, err := decide(func(v string) string { return c.env[v] }, func() bool { return c.container }, func() []string { return c.missing })
			require.Equal(t, c.run, run)
			require.Contains(t, line, c.line)
			if c.err == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.err)
		})
	}
}

// TestCheck_NamesWhatIsMissing also holds as root: an empty PATH has no program.
func TestCheck_NamesWhatIsMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	missing := Check()
	require.Subset(t, missing, programs[:])
	require.Equal(t, os.Geteuid() != 0, missing[0] == "root")
}

func TestDescribe_LastLineOfErrorOutput(t *testing.T) {
	t.Parallel()
	_, err := exec.CommandContext(t.Context(), "sh", "-c", "echo first >&2; echo no leave >&2; exit 3").Output()
	require.EqualError(t, describe(err), "exit status 3: no leave")
	plain := errors.New("plain")
	require.Equal(t, plain, describe(plain))
}
