package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/client"
	"github.com/slipway-cloud/slipway/test/stack"
)

// operator acts with an admin's token at a running stack.
type operator struct {
	stack *stack.Stack
	api   *client.Client
	token string
	cli   string // the slipway program
	home  string // its configuration folder
	site  string // ids of what was registered
	prof  string
	sku   string

	ada, bob       *customer // of one company
	carol          *customer // of another one
	customerTokens []string
	hooks          *receiver // of the demo's webhook
}

const tokenLife = 30 * 24 * time.Hour

// prepare stores the simulated site's secrets, makes an operator's login, and
// registers site, profile, SKU and RoCE records. It may be repeated.
func prepare(ctx context.Context, s *stack.Stack) (*operator, error) {
	if err := s.SeedSecrets(ctx); err != nil {
		return nil, err
	}
	token, err := op.CreateToken(ctx, s.App.Store, "slipway-dev", []string{"admin"}, tokenLife)
	if err != nil {
		return nil, err
	}
	api, err := newAPI(s, token)
	if err != nil {
		return nil, err
	}
	o := &operator{
		stack: s, api: api, token: token,
		cli: filepath.Join(s.Bin, "slipway"), home: filepath.Join(s.Dir, "cli"),
	}
	if err := o.register(ctx); err != nil {
		return nil, err
	}
	return o, o.login(ctx, o.home, token)
}

// callTimeout is how long one request may take.
const callTimeout = 20 * time.Second

// newAPI returns a client of the stack's API for the owner of the token.
func newAPI(s *stack.Stack, token string) (*client.Client, error) {
	api, err := client.New(client.Config{Server: s.Config.API.PublicURL, Token: token, UserAgent: "slipway-dev"})
	if err == nil {
		api.Timeout = callTimeout
	}
	return api, err
}

// login points the slipway program at this stack, in a folder for the owner of the token.
func (o *operator) login(ctx context.Context, home, token string) error {
	if err := os.MkdirAll(home, 0o700); err != nil {
		return err
	}
	cmd := o.commandOf(ctx, home, "login", "--server", o.stack.Config.API.PublicURL, "--token-stdin")
	cmd.Stdin = strings.NewReader(token + "\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("slipway login: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

func (o *operator) command(ctx context.Context, args ...string) *exec.Cmd {
	return o.commandOf(ctx, o.home, args...)
}

func (o *operator) commandOf(ctx context.Context, home string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, o.cli, args...)
	cmd.Env = append(os.Environ(), "XDG_CONFIG_HOME="+home)
	return cmd
}

// show prints a slipway command and runs it, so that it can be repeated by hand.
func (o *operator) show(ctx context.Context, out io.Writer, args ...string) error {
	fmt.Fprintf(out, "\n$ slipway %s\n", strings.Join(args, " "))
	cmd := o.command(ctx, args...)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("slipway %s: %w", strings.Join(args, " "), err)
	}
	return nil
}

// register creates what is not there yet.
func (o *operator) register(ctx context.Context) error {
	var err error
	if o.site, err = o.sites().ensure(ctx, "sim", o.stack.SiteSpec()); err != nil {
		return err
	}
	profile := o.stack.ProfileSpec()
	profile.BatchMaxParallel = demoMachines - demoSingles // the demo's batch at once
	if o.prof, err = o.profiles().ensure(ctx, "standard", profile); err != nil {
		return err
	}
	if o.sku, err = o.skus().ensure(ctx, "h100x8", o.stack.SKUSpec()); err != nil {
		return err
	}
	for i, m := range o.stack.Sims.Fleet.All() {
		body := client.Body(map[string]any{"ports": stack.RoCEPorts(m, i)})
		if _, err := o.api.PutRoce(ctx, o.site, hostname(m), client.RoCERequest{}, body); err != nil {
			return err
		}
	}
	return nil
}

// registry is how one kind of named resources is listed, created and replaced.
type registry struct {
	list   func(ctx context.Context) ([]byte, error)
	create func(ctx context.Context, body client.Option) ([]byte, error)
	update func(ctx context.Context, id string, body client.Option) ([]byte, error)
}

// raw returns the JSON of an answer.
func raw[T any](a client.Answer[T], err error) ([]byte, error) { return a.Raw, err }

func (o *operator) sites() registry {
	return registry{
		func(ctx context.Context) ([]byte, error) { return raw(o.api.ListSites(ctx, nil)) },
		func(ctx context.Context, body client.Option) ([]byte, error) {
			return raw(o.api.CreateSite(ctx, client.SiteRequest{}, body))
		},
		func(ctx context.Context, id string, body client.Option) ([]byte, error) {
			return raw(o.api.UpdateSite(ctx, id, client.SiteRequest{}, body, client.IfMatch("*")))
		},
	}
}

func (o *operator) profiles() registry {
	return registry{
		func(ctx context.Context) ([]byte, error) { return raw(o.api.ListProfiles(ctx, o.site, nil)) },
		func(ctx context.Context, body client.Option) ([]byte, error) {
			return raw(o.api.CreateProfile(ctx, o.site, client.ProfileRequest{}, body))
		},
		func(ctx context.Context, id string, body client.Option) ([]byte, error) {
			return raw(o.api.UpdateProfile(ctx, o.site, id, client.ProfileRequest{}, body, client.IfMatch("*")))
		},
	}
}

func (o *operator) skus() registry {
	return registry{
		func(ctx context.Context) ([]byte, error) { return raw(o.api.ListSkus(ctx, nil)) },
		func(ctx context.Context, body client.Option) ([]byte, error) {
			return raw(o.api.CreateSku(ctx, client.SKURequest{}, body))
		},
		func(ctx context.Context, id string, body client.Option) ([]byte, error) {
			return raw(o.api.UpdateSku(ctx, id, client.SKURequest{}, body, client.IfMatch("*")))
		},
	}
}

// ensure finds a named resource or creates it, and returns its id. A resource that is there gets
// the present spec: the simulated site's ports change at each start.
func (r registry) ensure(ctx context.Context, name string, spec any) (string, error) {
	type named struct{ ID, Name string }
	var list struct{ Data []named }
	text, err := r.list(ctx)
	if err == nil {
		err = json.Unmarshal(text, &list)
	}
	if err != nil {
		return "", err
	}
	body := client.Body(map[string]any{"name": name, "spec": spec})
	for _, found := range list.Data {
		if found.Name == name { // the dev stack owns what it registered
			_, err := r.update(ctx, found.ID, body)
			return found.ID, err
		}
	}
	var made named
	if text, err = r.create(ctx, body); err == nil {
		err = json.Unmarshal(text, &made)
	}
	return made.ID, err
}

// addresses prints where everything is.
func (o *operator) addresses(out io.Writer) {
	s := o.stack
	fmt.Fprintf(out, "\n  Portal                      %s/portal/\n", s.Config.API.PublicURL)
	fmt.Fprintf(out, "  API and its documentation   %s/docs\n", s.Config.API.PublicURL)
	fmt.Fprintf(out, "  Temporal Web UI             %s\n", s.Temporal.UI())
	fmt.Fprintf(out, "  Temporal                    %s (namespace %s)\n", s.Temporal.Address(), s.Config.Temporal.Namespace)
	fmt.Fprintf(out, "  MAAS region (simulated)     %s\n", s.Sims.URL)
	fmt.Fprintf(out, "  its scenario port           %s/_sim/\n", s.Sims.Admin)
	fmt.Fprintf(out, "  Stripe (simulated)          %s\n", s.Config.Payment.StripeURL)
}
