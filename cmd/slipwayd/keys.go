package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/internal/config"
	"github.com/slipway-cloud/slipway/internal/signing"
	"github.com/slipway-cloud/slipway/providers/secrets"
)

func signingKey() *cobra.Command {
	parent := &cobra.Command{Use: "signing-key", Short: "The keys that sign tasks and certificates"}
	cmd := &cobra.Command{
		Use: "rotate task|certificate", Args: cobra.ExactArgs(1), Short: "Make a new signing key; the old one counts until the overlap is over",
		Long: "Nodes believe a new task key when the old one has signed it, and learn of it with their heartbeats. In the first half of\n" +
			"the overlap the old key still signs, so a node that is away for longer than that refuses tasks until its next heartbeat.\n" +
			"With --overlap 0 the old key ends at once: for one that somebody else may have.",
	}
	src := config.Flags(cmd.Flags())
	overlap := cmd.Flags().Duration("overlap", signing.DefaultOverlap, "how long the old key counts beside the new one")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		purpose := signing.Purpose(args[0])
		if purpose != signing.Tasks && purpose != signing.Certificates {
			return fmt.Errorf("there is no signing key for %q; name task or certificate", args[0])
		}
		cfg, err := src.Load(os.LookupEnv, config.PartDatabase, config.PartSecrets)
		if err != nil {
			return err
		}
		key, err := rotate(cmd.Context(), cfg, purpose, *overlap)
		if err != nil {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s is the new %s key; the old one counts until %s\n", key.ID, purpose, time.Now().Add(*overlap).UTC().Format(time.RFC3339))
		return nil
	}
	parent.AddCommand(cmd)
	return parent
}

func rotate(ctx context.Context, cfg config.Config, p signing.Purpose, overlap time.Duration) (key signing.PublicKey, err error) {
	store, err := db.Open(ctx, cfg.Database.URL)
	if err != nil {
		return key, err
	}
	defer store.Close()
	sealed, err := secrets.Open(ctx, store, secrets.Keeper{URL: cfg.Secrets.Keeper, KeyFile: cfg.Secrets.KeyFile}, secrets.Options{})
	if err != nil {
		return key, fmt.Errorf("secret keeper: %w", err)
	}
	defer func() { err = errors.Join(err, sealed.Close()) }()
	return (&signing.Ring{Store: store, Secrets: sealed}).Rotate(ctx, p, overlap)
}
