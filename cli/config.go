package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"slices"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"
	"gopkg.in/yaml.v3"
)

// contexts is the configuration file: servers and the tokens for them.
type contexts struct {
	Current  string             `yaml:"current"`
	Contexts map[string]account `yaml:"contexts"`
}

// account is one server and who we are there.
type account struct {
	Server string `yaml:"server"`
	Token  string `yaml:"token"`
	CAFile string `yaml:"ca_file,omitempty"`
	// User and UserID are who signed in. A login of another user does not replace the context.
	User   string `yaml:"user,omitempty"`
	UserID string `yaml:"user_id,omitempty"`
	// Project is the default project of the context, with its name when it was chosen.
	Project     string `yaml:"project,omitempty"`
	ProjectName string `yaml:"project_name,omitempty"`
	// Session is the sign-in at the identity provider; nil for an API token.
	Session *session `yaml:"session,omitempty"`
}

func (a *app) readContexts() (contexts, error) {
	c := contexts{Contexts: map[string]account{}}
	raw, err := os.ReadFile(a.ConfigPath)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return c, err
	}
	if info, err := os.Stat(a.ConfigPath); err == nil && info.Mode().Perm()&0o077 != 0 {
		return c, fmt.Errorf("%s holds tokens and others can read it; run chmod 600 on it", a.ConfigPath)
	}
	if err := yaml.Unmarshal(raw, &c); err != nil {
		return c, fmt.Errorf("%s is not the file that slipway login writes; fix or remove it", a.ConfigPath)
	}
	if c.Contexts == nil {
		c.Contexts = map[string]account{}
	}
	return c, nil
}

// writeContexts replaces the file whole, so that a reader never sees half of it.
func (a *app) writeContexts(c contexts) error {
	raw, err := yaml.Marshal(c)
	if err != nil {
		return err
	}
	if err := a.makeConfigDir(); err != nil {
		return err
	}
	return renameio.WriteFile(a.ConfigPath, raw, 0o600, renameio.WithStaticPermissions(0o600))
}

// account is who we are: SLIPWAY_SERVER and SLIPWAY_TOKEN, else the context.
func (a *app) account(ctx context.Context) (account, error) {
	if a.signing != nil {
		return *a.signing, nil
	}
	acc := account{Server: a.Getenv("SLIPWAY_SERVER"), Token: a.Getenv("SLIPWAY_TOKEN"), CAFile: a.Getenv("SLIPWAY_CA_FILE")}
	if acc.Server != "" && acc.Token != "" && a.context == "" {
		return acc, nil
	}
	if (acc.Server != "" || acc.Token != "") && a.context == "" { // the context may be another server
		return account{}, fail(ExitUsage, "only one of SLIPWAY_SERVER and SLIPWAY_TOKEN is set; set both, or none to use the context")
	}
	c, err := a.readContexts()
	if err != nil {
		return account{}, err
	}
	name := a.context
	if name == "" {
		name = c.Current
	}
	got, ok := c.Contexts[name]
	if !ok {
		if name == "" {
			return account{}, fail(ExitUnauthorised, "not signed in; run slipway login --server URL")
		}
		return account{}, noContext(ExitUsage, name)
	}
	return a.current(ctx, name, got)
}

func noContext(code int, name string) error {
	return fail(code, "there is no context %q; slipway context list shows what there is", name)
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func (a *app) contextCommand() *cobra.Command {
	list := &cobra.Command{Use: "list", Short: "List contexts; * marks the current one", Args: cobra.NoArgs, RunE: does(func(*cobra.Command, []string) error {
		c, err := a.readContexts()
		if err != nil {
			return err
		}
		t := a.table("", "NAME", "SERVER", "USER")
		for _, name := range slices.Sorted(maps.Keys(c.Contexts)) {
			mark := ""
			if name == c.Current {
				mark = "*"
			}
			t.row(mark, name, c.Contexts[name].Server, oneLine(c.Contexts[name].User))
		}
		return t.flush()
	})}
	use := &cobra.Command{Use: "use NAME", Short: "Make a context the current one", Args: cobra.ExactArgs(1), RunE: does(func(cmd *cobra.Command, args []string) error {
		return a.changeContexts(cmd.Context(), func(c *contexts) error {
			if _, ok := c.Contexts[args[0]]; !ok {
				return noContext(ExitNotFound, args[0])
			}
			c.Current = args[0]
			return nil
		})
	})}
	return group("context", "Servers and accounts", list, use)
}
