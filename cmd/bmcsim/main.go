// Command bmcsim runs a Redfish simulator by itself: a machine with one
// vendor's BMC, or a recorded mockup tree, read-only.
//
//	bmcsim --personality Dell --listen 127.0.0.1:8000 --admin 127.0.0.1:8001
//	bmcsim --tree dell_poweredge_r750.tar.gz --listen 127.0.0.1:8000
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	simcontrol "github.com/slipway-cloud/slipway/sim/control"
	simhw "github.com/slipway-cloud/slipway/sim/hw"
	redfishsim "github.com/slipway-cloud/slipway/sim/redfish"
)

type options struct {
	tree, listen, admin, personality, user, password string
	tls                                              bool
	speed                                            float64
	seed                                             uint64
}

func main() { os.Exit(simcontrol.Main("bmcsim", run)) }

// run serves until ctx ends. It prints one line a port to out once it listens.
func run(ctx context.Context, args []string, out, errOut io.Writer) error {
	o, err := parse(args, errOut)
	if err != nil {
		return err
	}
	if o.tree != "" {
		return serveTree(ctx, o, out)
	}
	return serveMachine(ctx, o, out)
}

func parse(args []string, errOut io.Writer) (options, error) {
	var o options
	fs := flag.NewFlagSet("bmcsim", flag.ContinueOnError)
	fs.StringVar(&o.tree, "tree", "", "serve this recorded mockup (a directory or .tar.gz) read-only, without login")
	fs.StringVar(&o.listen, "listen", "127.0.0.1:8000", "address of the Redfish service")
	fs.StringVar(&o.admin, "admin", "", "address of the admin port (faults, counters); empty for none; it has no login")
	fs.StringVar(&o.personality, "personality", "Dell", "vendor or machine: "+strings.Join(slices.Concat(redfishsim.Names(), redfishsim.Variants()), ", "))
	fs.StringVar(&o.user, "user", "root", "BMC user")
	fs.StringVar(&o.password, "password", "", "BMC password; empty draws one and prints it")
	fs.BoolVar(&o.tls, "tls", false, "serve https with a self-signed certificate")
	fs.Float64Var(&o.speed, "speed", 1, "how much faster than the wall the machine's clock runs")
	fs.Uint64Var(&o.seed, "seed", 0, "makes tokens repeatable; 0 for random ones")
	if err := simcontrol.ParseFlags(fs, args, errOut); err != nil {
		return o, err
	}
	return o, nil
}

func serveMachine(ctx context.Context, o options, out io.Writer) error {
	p, err := redfishsim.PersonalityOf(o.personality)
	if err != nil {
		return err
	}
	vendor, _, _ := strings.Cut(p.Name, "-")
	spec := simhw.GPUServer(vendor, 1)
	spec.BMCUser = o.user
	if o.password != "" {
		spec.BMCPassword = o.password
	}
	m := simhw.NewMachine(ctx, simhw.NewClock(o.speed), spec)
	s, err := redfishsim.New(redfishsim.Options{Machine: m, Personality: p.Name, TLS: o.tls, Seed: o.seed})
	if err != nil {
		return err
	}
	url, stop, err := s.Start(ctx, o.listen)
	if err != nil {
		return err
	}
	defer stop()
	fmt.Fprintf(out, "Redfish (%s): %s/redfish/v1\n", p.Name, url)
	if o.password == "" {
		fmt.Fprintf(out, "Login of the simulated BMC: %s / %s\n", spec.BMCUser, spec.BMCPassword)
	}
	if o.admin != "" {
		adminURL, stopAdmin, err := s.StartAdmin(ctx, o.admin)
		if err != nil {
			return err
		}
		defer stopAdmin()
		fmt.Fprintf(out, "Admin: %s\n", adminURL)
	}
	<-ctx.Done()
	return nil
}

func serveTree(ctx context.Context, o options, out io.Writer) error {
	if o.tls || o.admin != "" {
		return errors.New("--tree is served read-only over plain http: leave --tls and --admin out")
	}
	tree, err := redfishsim.OpenTree(o.tree)
	if err != nil {
		return err
	}
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.listen)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", o.listen, err)
	}
	srv := &http.Server{Handler: redfishsim.Tree(tree), ReadHeaderTimeout: 10 * time.Second, WriteTimeout: time.Minute}
	defer context.AfterFunc(ctx, func() { _ = srv.Close() })()
	fmt.Fprintf(out, "Recorded tree, read-only: http://%s/redfish/v1\n", ln.Addr())
	if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
