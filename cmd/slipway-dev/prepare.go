package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/test/stack"
)

// operator acts with an admin's token at a running stack.
type operator struct {
	stack *stack.Stack
	api   *client
	cli   string // the slipway program
	home  string // its configuration folder
	site  string // ids of what was registered
	prof  string
	sku   string

	bob, carol     *customer // of two companies
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
	o := &operator{
		stack: s, api: &client{base: s.Config.API.PublicURL, token: token},
		cli: filepath.Join(s.Bin, "slipway"), home: filepath.Join(s.Dir, "cli"),
	}
	if err := o.register(ctx); err != nil {
		return nil, err
	}
	return o, o.login(ctx, o.home, token)
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
	if o.site, err = o.ensure(ctx, "/admin/maas-sites", "sim", o.stack.SiteSpec()); err != nil {
		return err
	}
	profile := o.stack.ProfileSpec()
	profile.BatchMaxParallel = demoMachines - demoSingles // the demo's batch at once
	if o.prof, err = o.ensure(ctx, "/admin/maas-sites/"+o.site+"/profiles", "standard", profile); err != nil {
		return err
	}
	if o.sku, err = o.ensure(ctx, "/admin/skus", "h100x8", o.stack.SKUSpec()); err != nil {
		return err
	}
	for i, m := range o.stack.Sims.Fleet.All() {
		path := "/admin/maas-sites/" + o.site + "/roce-assignments/" + hostname(m)
		if err := o.api.call(ctx, http.MethodPut, path, map[string]any{"ports": stack.RoCEPorts(m, i)}, nil); err != nil {
			return err
		}
	}
	return nil
}

// ensure finds a named resource or creates it, and returns its id. One that is
// there gets the present spec: the simulated site's ports change at each start.
func (o *operator) ensure(ctx context.Context, path, name string, spec any) (string, error) {
	var list struct {
		Data []struct{ ID, Name string }
	}
	if err := o.api.call(ctx, http.MethodGet, path, nil, &list); err != nil {
		return "", err
	}
	for _, r := range list.Data {
		if r.Name == name {
			replace := [2]string{"If-Match", "*"} // the dev stack owns what it registered
			return r.ID, o.api.call(ctx, http.MethodPut, path+"/"+r.ID, map[string]any{"name": name, "spec": spec}, nil, replace)
		}
	}
	var made struct{ ID string }
	err := o.api.call(ctx, http.MethodPost, path, map[string]any{"name": name, "spec": spec}, &made)
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
}
