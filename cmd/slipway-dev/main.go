// Command slipway-dev runs the whole system on one machine: Temporal with its
// Web UI, Postgres, a simulated site, and Slipway. `up` keeps it running,
// `demo` shows the main job and ends.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-cloud/slipway/assembly/devserver/toolcache"
	"github.com/slipway-cloud/slipway/internal/config"
	"github.com/slipway-cloud/slipway/test/stack"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := root().ExecuteContext(ctx); err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "slipway-dev:", err)
		os.Exit(1)
	}
}

func root() *cobra.Command {
	cmd := &cobra.Command{
		Use: "slipway-dev", Short: "The whole of Slipway on one machine, with a simulated site", SilenceUsage: true, SilenceErrors: true,
	}
	cmd.AddCommand(upCommand(), demoCommand())
	return cmd
}

func upCommand() *cobra.Command {
	var o stack.Options
	var reset bool
	cmd := &cobra.Command{
		Use: "up", Args: cobra.NoArgs,
		Short: "Start everything and keep it running until Ctrl-C; state is kept in .slipway/",
	}
	f := cmd.Flags()
	f.IntVar(&o.Count, "machines", 8, "simulated machines")
	f.DurationVar(&o.Reconcile, "reconcile", time.Minute, "how often the site is looked over for drift")
	f.Float64Var(&o.Speed, "speed", 60, "virtual seconds a second outside Slipway")
	f.IntVar(&o.APIPort, "api-port", 8080, "port of the HTTP API")
	f.IntVar(&o.AgentPort, "agent-port", 8443, "port of the agent API")
	f.IntVar(&o.IdentityPort, "identity-port", 8081, "port of the identity provider that the portal's users sign in at")
	f.IntVar(&o.PaymentPort, "payment-port", 8100, "port of the simulated account at Stripe, with its payment pages")
	f.IntVar(&o.TemporalPort, "temporal-port", 7233, "port of Temporal")
	f.IntVar(&o.TemporalUI, "temporal-ui-port", 8233, "port of the Temporal Web UI")
	f.BoolVar(&reset, "reset", false, "forget the state of earlier runs first")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		dir, err := stateDir()
		if err != nil {
			return err
		}
		if reset {
			if err := os.RemoveAll(dir); err != nil {
				return err
			}
		}
		if err := os.MkdirAll(dir, 0o750); err != nil {
			return err
		}
		log, err := os.OpenFile(filepath.Join(dir, "slipway.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		defer log.Close() //nolint:errcheck // written line by line
		o.Dir, o.Log, o.Progress, o.DatabaseEnv = dir, log, cmd.OutOrStdout(), "DATABASE_URL"
		o.WithIdentity, o.WithPayments = true, true
		// The Web UI has no login here, so the codec server would refuse it.
		o.Configure = func(c *config.Config) { c.Temporal.PayloadCodec = config.PayloadsPlain }
		return up(cmd.Context(), o, cmd.OutOrStdout())
	}
	return cmd
}

func stateDir() (string, error) {
	root, err := toolcache.Root()
	if err != nil {
		return "", err
	}
	return filepath.Join(root, ".slipway"), nil
}

func up(ctx context.Context, o stack.Options, out io.Writer) error {
	fmt.Fprintln(out, "Slipway dev stack: starting (a first run also builds the embedded Temporal server, about 6 minutes on two cores)")
	s, err := stack.Start(ctx, o)
	if err != nil {
		return err
	}
	defer s.Close()
	op, err := prepare(ctx, s)
	if err != nil {
		return err
	}
	op.addresses(out)
	op.signIns(out)
	first := s.Sims.Fleet.All()[0]
	fmt.Fprintf(out, "\nIt runs until Ctrl-C. In another terminal:\n"+
		"  export XDG_CONFIG_HOME=%s PATH=%s:$PATH\n  slipway node list\n"+
		"  slipway node onboard --site sim --profile standard --sku h100x8 --hostname %s \\\n    --bmc %s --credential %s --watch\n",
		op.home, s.Bin, hostname(first), first.Spec().BMCAddress, stack.BMCSecret(first.Spec().ID))
	fmt.Fprintln(out, "The other servers, with their BMCs and logins:")
	for _, m := range s.Sims.Fleet.All()[1:] {
		fmt.Fprintf(out, "  --hostname %s --bmc %s --credential %s  (%s)\n", hostname(m), m.Spec().BMCAddress, stack.BMCSecret(m.Spec().ID), m.Spec().Vendor)
	}
	<-ctx.Done()
	fmt.Fprintln(out, "\nstopping ...")
	return nil
}
