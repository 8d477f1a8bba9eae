package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

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
	dir := filepath.Dir(a.ConfigPath)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return renameio.WriteFile(a.ConfigPath, raw, 0o600, renameio.WithStaticPermissions(0o600))
}

// account is who we are: SLIPWAY_SERVER and SLIPWAY_TOKEN, else the context.
func (a *app) account() (account, error) {
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
			return account{}, fail(ExitUnauthorised, "not signed in; run slipway login --server URL --token-stdin")
		}
		return account{}, noContext(ExitUsage, name)
	}
	return got, nil
}

func noContext(code int, name string) error {
	return fail(code, "there is no context %q; slipway context list shows what there is", name)
}

const maxTokenText = 16 << 10

func (a *app) loginCommand() *cobra.Command {
	var server, file, name, ca string
	var stdin bool
	cmd := &cobra.Command{
		Use: "login --server URL (--token-stdin | --token-file FILE)", Short: "Keep a server and a token as a context", Args: cobra.NoArgs,
		Long: "The token never stands on the command line, where others can see it. The context is kept in " +
			"~/.config/slipway/config.yaml (SLIPWAY_CONFIG), readable by you only. SLIPWAY_SERVER and SLIPWAY_TOKEN go before it.",
	}
	f := cmd.Flags()
	f.StringVar(&server, "server", "", "URL of the API, such as https://slipway.example.com")
	f.StringVar(&file, "token-file", "", "file that holds the token")
	f.BoolVar(&stdin, "token-stdin", false, "read the token from standard input")
	f.StringVar(&name, "name", "", "name of the context (default: the server's host)")
	f.StringVar(&ca, "ca-file", "", "certificates that the server's is checked against (default: the system's)")
	_ = cmd.MarkFlagRequired("server")
	cmd.MarkFlagsMutuallyExclusive("token-file", "token-stdin")
	cmd.MarkFlagsOneRequired("token-file", "token-stdin")
	cmd.RunE = does(func(cmd *cobra.Command, _ []string) error {
		u, err := url.Parse(server)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil {
			return fail(ExitUsage, "--server must be a URL such as https://slipway.example.com")
		}
		if u.Scheme == "http" && !isLoopback(u.Hostname()) {
			fmt.Fprintln(a.Err, "slipway: the token will travel unencrypted; use https")
		}
		token, err := a.readToken(file)
		if err != nil {
			return err
		}
		if name == "" {
			name = u.Host
		}
		acc := account{Server: strings.TrimRight(server, "/"), Token: token, CAFile: ca}
		a.signing = &acc
		r, err := a.api.Whoami(cmd.Context())
		if err != nil {
			return err
		}
		who, err := r.Decode()
		if err != nil {
			return err
		}
		c, err := a.readContexts()
		if err != nil {
			return err
		}
		c.Contexts[name], c.Current = acc, name
		if err := a.writeContexts(c); err != nil {
			return err
		}
		fmt.Fprintf(a.Out, "signed in to %s as %s (%s); context %s\n", acc.Server, oneLine(who.Name), oneLine(strings.Join(who.Roles, ", ")), name)
		return nil
	})
	return cmd
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func (a *app) readToken(file string) (string, error) {
	in := a.In
	if file != "" {
		f, err := openNamed(file)
		if err != nil {
			return "", err
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	raw, err := io.ReadAll(io.LimitReader(in, maxTokenText))
	token := strings.TrimSpace(string(raw))
	if err == nil && token == "" {
		err = fail(ExitUsage, "the token is empty")
	}
	return token, err
}

func (a *app) contextCommand() *cobra.Command {
	list := &cobra.Command{Use: "list", Short: "List contexts; * marks the current one", Args: cobra.NoArgs, RunE: does(func(*cobra.Command, []string) error {
		c, err := a.readContexts()
		if err != nil {
			return err
		}
		t := a.table("", "NAME", "SERVER")
		for _, name := range slices.Sorted(maps.Keys(c.Contexts)) {
			mark := ""
			if name == c.Current {
				mark = "*"
			}
			t.row(mark, name, c.Contexts[name].Server)
		}
		return t.flush()
	})}
	use := &cobra.Command{Use: "use NAME", Short: "Make a context the current one", Args: cobra.ExactArgs(1), RunE: does(func(_ *cobra.Command, args []string) error {
		c, err := a.readContexts()
		if err != nil {
			return err
		}
		if _, ok := c.Contexts[args[0]]; !ok {
			return noContext(ExitNotFound, args[0])
		}
		c.Current = args[0]
		return a.writeContexts(c)
	})}
	return group("context", "Servers and accounts", list, use)
}
