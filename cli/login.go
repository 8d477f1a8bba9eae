package cli

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/gofrs/flock"
	"github.com/spf13/cobra"

	"github.com/slipway-cloud/slipway/client"
)

const maxTokenText = 16 << 10

// loginFlags are the flags of slipway login.
type loginFlags struct {
	server, file, name, ca string
	stdin, device          bool
}

func (a *app) loginCommand() *cobra.Command {
	var l loginFlags
	cmd := &cobra.Command{
		Use: "login --server URL [--device | --token-stdin | --token-file FILE]", Short: "Sign in to a server and keep it as a context", Args: cobra.NoArgs,
		Long: "Without a token it opens the page of the server's identity provider in a browser of this machine, and prints its address. " +
			"--device is for a machine without a browser: it prints an address and a code to confirm in a browser elsewhere. " +
			"An API token is never an argument, which others could see. The context is kept in " +
			"~/.config/slipway/config.yaml (SLIPWAY_CONFIG), readable by you only. SLIPWAY_SERVER and SLIPWAY_TOKEN override it.",
	}
	f := cmd.Flags()
	f.StringVar(&l.server, "server", "", "URL of the API, such as https://slipway.example.com")
	f.StringVar(&l.file, "token-file", "", "file that holds an API token")
	f.BoolVar(&l.stdin, "token-stdin", false, "read an API token from standard input")
	f.BoolVar(&l.device, "device", false, "confirm the sign-in in a browser of another machine")
	f.StringVar(&l.name, "name", "", "name of the context (default: HOST of the server, or HOST/USER if another user has HOST)")
	f.StringVar(&l.ca, "ca-file", "", "CA certificates for the server (default: those of the system)")
	_ = cmd.MarkFlagRequired("server")
	cmd.MarkFlagsMutuallyExclusive("token-file", "token-stdin", "device")
	cmd.RunE = does(func(cmd *cobra.Command, _ []string) error { return a.signInTo(cmd.Context(), l) })
	return cmd
}

func (a *app) signInTo(ctx context.Context, l loginFlags) error {
	u, err := url.Parse(l.server)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil {
		return fail(ExitUsage, "--server must be a URL such as https://slipway.example.com")
	}
	usesToken := l.stdin || l.file != ""
	if u.Scheme == "http" && !isLoopback(u.Hostname()) {
		if !usesToken {
			return fail(ExitUsage, "--server must be an https URL: without TLS anybody on the way could send you to a sign-in of his own")
		}
		fmt.Fprintln(a.Err, "slipway: the token will travel unencrypted; use https")
	}
	acc := account{Server: strings.TrimRight(l.server, "/"), CAFile: l.ca}
	if usesToken {
		acc.Token, err = a.readToken(l.file)
	} else {
		acc.Token, acc.Session, err = a.signIn(ctx, acc, l.device)
	}
	if err != nil {
		return err
	}
	kept, err := a.keepLogin(ctx, l.name, u.Host, acc)
	if err != nil {
		a.endSession(ctx, acc)
		return err
	}
	if kept.replaced.Session != nil {
		if err := a.endReplaced(ctx, kept); err != nil {
			return err
		}
	}
	roles := cmp.Or(strings.Join(kept.who.Roles, ", "), "no role of the platform")
	fmt.Fprintf(a.Out, "signed in to %s as %s (%s); context %s\n", acc.Server, oneLine(kept.who.Name), oneLine(roles), kept.name)
	return nil
}

// keptLogin is a login that a context holds, with the account that the context held before.
type keptLogin struct {
	name          string
	who           client.Principal
	acc, replaced account
}

// keepLogin asks the server who has signed in, and keeps the account as a context.
func (a *app) keepLogin(ctx context.Context, name, host string, acc account) (keptLogin, error) {
	a.signing = &acc
	who, err := client.Value(a.api.Whoami(ctx))
	if err != nil {
		return keptLogin{}, err
	}
	acc.User, acc.UserID = who.Name, who.ID
	k := keptLogin{who: who, acc: acc}
	k.name, k.replaced, err = a.keepAccount(ctx, name, host, acc)
	return k, err
}

// keepAccount keeps an account as the current context. It returns the context's name, and the
// account that the context held before. It never replaces the account of another user or server.
func (a *app) keepAccount(ctx context.Context, name, host string, acc account) (used string, replaced account, err error) {
	err = a.changeContexts(ctx, func(c *contexts) error {
		free := func(name string) bool {
			old, taken := c.Contexts[name]
			return !taken || old.Server == acc.Server && old.UserID == acc.UserID
		}
		switch {
		case name == "" && free(host):
			name = host
		case name == "":
			name = host + "/" + acc.User
			if !free(name) { // two users may have one name
				name = host + "/" + acc.UserID
			}
		}
		if !free(name) {
			old := c.Contexts[name]
			return fail(ExitRefused, "the context %q is of %s at %s; choose another --name, or run slipway logout %s first", name, oneLine(cmp.Or(old.User, "another token")), old.Server, name)
		}
		replaced = c.Contexts[name] // of the same user
		acc.Project, acc.ProjectName = replaced.Project, replaced.ProjectName
		c.Contexts[name], c.Current = acc, name
		return nil
	})
	return name, replaced, err
}

// changeContexts changes the configuration file while no other slipway of the user does.
func (a *app) changeContexts(ctx context.Context, change func(*contexts) error) error {
	unlock, err := a.lockContexts(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	c, err := a.readContexts()
	if err != nil {
		return err
	}
	if err := change(&c); err != nil {
		return err
	}
	return a.writeContexts(c)
}

// lockContexts waits until no other slipway of the user changes the configuration file.
func (a *app) lockContexts(ctx context.Context) (unlock func(), err error) {
	if err := a.makeConfigDir(); err != nil {
		return nil, err
	}
	lock := flock.New(a.ConfigPath+".lock", flock.SetPermissions(0o600))
	ctx, cancel := context.WithTimeout(ctx, lockLimit)
	defer cancel()
	_, err = lock.TryLockContext(ctx, lockPoll)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return nil, fail(ExitUnreachable, "another slipway has held %s.lock for %s; repeat the command", a.ConfigPath, lockLimit)
	case err != nil:
		return nil, fmt.Errorf("lock %s: %w", a.ConfigPath, err)
	}
	return func() { _ = lock.Unlock() }, nil
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

func (a *app) logoutCommand() *cobra.Command {
	return &cobra.Command{
		Use: "logout [CONTEXT]", Short: "End a sign-in and forget its context; the current one without a name", Args: cobra.MaximumNArgs(1),
		Long: "The identity provider is asked to end the sign-in of this machine. An API token is only forgotten: slipway token revoke ends it.",
		RunE: does(func(cmd *cobra.Command, args []string) error {
			if a.Getenv("SLIPWAY_TOKEN") != "" && a.context == "" && len(args) == 0 {
				return fail(ExitUsage, "SLIPWAY_TOKEN overrides the contexts, and logout does not end it; name the context to end")
			}
			if a.context != "" && len(args) == 1 {
				return fail(ExitUsage, "name the context to end once, with --context or behind logout")
			}
			return a.logout(cmd.Context(), append(args, a.context)[0])
		}),
	}
}

// logout ends the sign-in of a context, "" being the current one, and forgets the context. While
// the identity provider does not answer, the context stays, so that logout can be repeated.
func (a *app) logout(ctx context.Context, name string) error {
	var ended account
	err := a.changeContexts(ctx, func(c *contexts) error {
		name = cmp.Or(name, c.Current)
		if name == "" {
			return fail(ExitUsage, "you are not signed in, so there is nothing to end; slipway context list shows the contexts")
		}
		found := false
		if ended, found = c.Contexts[name]; !found {
			return noContext(ExitNotFound, name)
		}
		if err := a.revoke(ctx, ended); err != nil {
			return fail(ExitUnreachable, "%w, so the context stays; repeat the command", err)
		}
		delete(c.Contexts, name)
		if c.Current == name {
			c.Current = ""
		}
		return nil
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(a.Out, "signed out of %s; context %s is forgotten\n", ended.Server, name)
	if ended.Session == nil {
		fmt.Fprintln(a.Err, "slipway: the API token stays valid until it ends; slipway token revoke ends it now")
	}
	return nil
}

// clientOf returns an HTTP client for the identity provider of an account. It follows no redirects.
func (a *app) clientOf(acc account) (*http.Client, error) {
	c, err := a.transport(acc)
	if err != nil {
		return nil, err
	}
	rounds := cmp.Or[http.RoundTripper](c.Transport, http.DefaultTransport)
	if own, ok := rounds.(*http.Transport); ok && acc.CAFile != "" { // the provider may have a public certificate
		pool, err := x509.SystemCertPool()
		if err != nil {
			return nil, err
		}
		if err := addCertificates(pool, acc.CAFile); err != nil {
			return nil, err
		}
		own = own.Clone()
		own.TLSClientConfig.RootCAs = pool
		rounds = own
	}
	rounds = namedProgram{rounds, "slipway/" + a.Version + " (" + deviceName() + ")"}
	return &http.Client{Transport: rounds, CheckRedirect: c.CheckRedirect, Timeout: providerLimit}, nil
}

// namedProgram names the program and its machine in each request to an identity provider, whose
// page can then show which device asks to be signed in.
type namedProgram struct {
	http.RoundTripper
	name string
}

func (p namedProgram) RoundTrip(r *http.Request) (*http.Response, error) {
	named := r.Clone(r.Context())
	named.Header.Set("User-Agent", p.name)
	return p.RoundTripper.RoundTrip(named)
}

const maxDeviceName = 64

// deviceName returns the name of this machine, as far as a header can hold it.
func deviceName() string {
	host, err := os.Hostname()
	host = strings.Map(func(r rune) rune {
		if r < '0' && r != '-' && r != '.' || r > 'z' {
			return -1
		}
		return r
	}, host)
	if err != nil || host == "" {
		return "unknown host"
	}
	return host[:min(len(host), maxDeviceName)]
}
