// Command slipwayd is the Slipway server: the HTTP API, the agent API and the
// worker, together or apart.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/assembly/server"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/internal/config"
	"github.com/slipway-cloud/slipway/providers/kube"
	_ "github.com/slipway-cloud/slipway/providers/secrets/cloudkeepers" // Vault, AWS and GCP keepers by URL
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := root().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "slipwayd:", err)
		os.Exit(1)
	}
}

func root() *cobra.Command {
	cmd := &cobra.Command{
		Use: "slipwayd", Short: "The Slipway server", SilenceUsage: true, SilenceErrors: true, Version: server.Version,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("there is no command %q; see slipwayd --help", args[0])
			}
			return cmd.Help()
		},
		Args: cobra.ArbitraryArgs,
	}
	cmd.AddCommand(
		serve("api", "Serve the HTTP API and the agent API", (*server.App).RunAPI,
			config.PartDatabase, config.PartTemporal, config.PartAPI, config.PartAgent, config.PartSecrets),
		serve("worker", "Run workflows and activities, and relay the outbox",
			func(a *server.App, ctx context.Context) error { return a.RunWorker(ctx) },
			config.PartDatabase, config.PartTemporal, config.PartAgent, config.PartSecrets, config.PartWorker),
		serve("all", "Serve the APIs and run the worker in one process", (*server.App).RunAll,
			config.PartDatabase, config.PartTemporal, config.PartAPI, config.PartAgent, config.PartSecrets, config.PartWorker),
		migrate(), token(), sessions(), restored(), signingKey(), payloadKey(), temporalCerts(),
	)
	return cmd
}

func serve(use, short string, run func(*server.App, context.Context) error, parts ...config.Part) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs}
	src := config.Flags(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := src.Load(os.LookupEnv, parts...)
		if err != nil {
			return err
		}
		app, err := server.Open(cmd.Context(), cfg, os.Stderr)
		if err != nil {
			return err
		}
		defer app.Close()
		app.UseClusters(kube.Provider{})
		return app.Run(cmd.Context(), run)
	}
	return cmd
}

func migrate() *cobra.Command {
	cmd := &cobra.Command{
		Use: "migrate", Short: "Bring the database schema up to date and create the node CA", Args: cobra.NoArgs,
		Long: "The node CA is created once, where agent.ca_dir or agent.ca_ref says, and only read by the other commands.",
	}
	src := config.Flags(cmd.Flags())
	var newCA server.NewCA
	cmd.Flags().BoolVar(&newCA.Replace, "new-node-ca", false, "create a node CA although agents have enrolled under one that is missing: every agent needs a new token")
	cmd.Flags().BoolVar(&newCA.KeeperKeyLost, "keeper-key-lost", false,
		"with --new-node-ca: nobody has the key any more that sealed the secrets, so replace a node CA and a payload key that cannot be opened")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if newCA.KeeperKeyLost && !newCA.Replace {
			return errors.New("--keeper-key-lost needs --new-node-ca: every agent then needs a new token")
		}
		cfg, err := src.Load(os.LookupEnv, config.PartMigrations)
		if err != nil {
			return err
		}
		ca, err := server.Migrate(cmd.Context(), cfg, newCA)
		if err != nil {
			return err
		}
		fmt.Fprintln(cmd.OutOrStdout(), "the database schema is up to date")
		if ca {
			fmt.Fprintln(cmd.OutOrStdout(), "the node CA is there")
		} else {
			fmt.Fprintln(cmd.OutOrStdout(), "no node CA was looked for: neither agent.ca_dir nor agent.ca_ref is set")
		}
		return nil
	}
	return cmd
}

func token() *cobra.Command {
	parent := &cobra.Command{Use: "token", Short: "API tokens"}
	cmd := &cobra.Command{
		Use: "create NAME", Args: cobra.ExactArgs(1),
		Short: "Create an API token and print it once; the first one is made this way",
	}
	src := config.Flags(cmd.Flags())
	roles := cmd.Flags().String("roles", "viewer", "comma-separated: admin, operator, viewer")
	ttl := cmd.Flags().Duration("ttl", op.DefaultTokenTTL, "how long it is valid, at most 8760h")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		cfg, err := src.Load(os.LookupEnv, config.PartDatabase)
		if err != nil {
			return err
		}
		store, err := db.Open(cmd.Context(), cfg.Database.URL)
		if err != nil {
			return err
		}
		defer store.Close()
		tok, err := op.CreateToken(cmd.Context(), store, args[0], strings.Split(*roles, ","), *ttl)
		if err != nil {
			return err
		}
		fmt.Fprintln(cmd.OutOrStdout(), tok)
		return nil
	}
	parent.AddCommand(cmd)
	return parent
}
