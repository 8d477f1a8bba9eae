// Command stripesim runs a simulated account of the payment provider Stripe by itself: its API, the
// payment page, and webhooks. No money moves.
//
//	stripesim --listen 127.0.0.1:8100 --admin 127.0.0.1:8101 --webhook http://127.0.0.1:9000/
package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	simcontrol "github.com/slipway-cloud/slipway/sim/control"
	simhw "github.com/slipway-cloud/slipway/sim/hw"
	stripesim "github.com/slipway-cloud/slipway/sim/stripe"
)

type options struct {
	listen, admin, publicURL, key, webhook, secret string
	speed                                          float64
	seed                                           uint64
}

func main() { os.Exit(simcontrol.Main("stripesim", run)) }

// run serves until ctx ends. It prints one line a port to out once it listens.
func run(ctx context.Context, args []string, out, errOut io.Writer) error {
	o, err := parse(args, errOut)
	if err != nil {
		return err
	}
	drawnKey, drawnSecret := o.key == "", o.secret == "" && o.webhook != ""
	if drawnKey {
		o.key = "sk_test_" + randomHex()
	}
	if drawnSecret {
		o.secret = "whsec_" + randomHex()
	}
	opt := stripesim.Options{Key: o.key, Clock: simhw.NewClock(o.speed), Seed: o.seed, PublicURL: o.publicURL}
	if o.webhook != "" {
		opt.Endpoints = []stripesim.Endpoint{{URL: o.webhook, Secrets: []string{o.secret}}}
	}
	s, err := stripesim.New(opt)
	if err != nil {
		return err
	}
	addrs, stop, err := s.Start(ctx, o.listen, o.admin)
	if err != nil {
		return err
	}
	defer stop()
	fmt.Fprintf(out, "Stripe (simulated): %s\n", addrs.URL())
	if drawnKey {
		fmt.Fprintf(out, "Key of the simulated account: %s\n", o.key)
	}
	if drawnSecret {
		fmt.Fprintf(out, "Signing secret of its webhooks: %s\n", o.secret)
	}
	if addrs.Admin != "" {
		fmt.Fprintf(out, "Admin: http://%s/_sim/\n", addrs.Admin)
	}
	<-ctx.Done()
	return nil
}

func parse(args []string, errOut io.Writer) (options, error) {
	var o options
	fs := flag.NewFlagSet("stripesim", flag.ContinueOnError)
	fs.StringVar(&o.listen, "listen", "127.0.0.1:8100", "address of the API and the payment page")
	fs.StringVar(&o.admin, "admin", "", "address of the admin port (faults, acts, clock); empty for none; it has no login")
	fs.StringVar(&o.publicURL, "public-url", "", "base of the payment page; empty takes the address of the API")
	fs.StringVar(&o.key, "key", "", "secret key of the account, sk_test_... or sk_live_..., never a real one; empty draws one and prints it")
	fs.StringVar(&o.webhook, "webhook", "", "URL that receives all events; empty sends none")
	fs.StringVar(&o.secret, "webhook-secret", "", "secret that signs webhooks; empty draws one and prints it")
	fs.Float64Var(&o.speed, "speed", 1, "how much faster than the wall the account's clock runs")
	fs.Uint64Var(&o.seed, "seed", 0, "makes identifiers repeatable; 0 for random ones")
	if err := simcontrol.ParseFlags(fs, args, errOut); err != nil {
		return o, err
	}
	if o.secret != "" && o.webhook == "" {
		return o, errors.New("--webhook-secret signs webhooks: name their receiver with --webhook")
	}
	return o, nil
}

func randomHex() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}
