package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-cloud/slipway/assembly/server"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/internal/config"
	"github.com/slipway-cloud/slipway/internal/signing"
	"github.com/slipway-cloud/slipway/internal/temporalx/payloadcodec"
	"github.com/slipway-cloud/slipway/providers/secrets"
)

func signingKey() *cobra.Command {
	parent := &cobra.Command{Use: "signing-key", Short: "The keys that sign tasks, certificates and actions"}
	cmd := &cobra.Command{
		Use: "rotate task|certificate|action", Args: cobra.ExactArgs(1), Short: "Make a new signing key; the old one counts until the overlap is over",
		Long: "Nodes believe a new task key when the old one has signed it, and learn of it with their heartbeats. In the first half of\n" +
			"the overlap the old key still signs, so a node that is away for longer than that refuses tasks until its next heartbeat.\n" +
			"An action key signs what the API passes on to jobs; an action that waits in a job for longer than its key counts is not proven.\n" +
			"With --overlap 0 the old key ends at once: for one that somebody else may have.",
	}
	src := config.Flags(cmd.Flags())
	overlap := cmd.Flags().Duration("overlap", signing.DefaultOverlap, "how long the old key counts beside the new one")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		purpose := signing.Purpose(args[0])
		if purpose != signing.Tasks && purpose != signing.Certificates && purpose != signing.Actions {
			return fmt.Errorf("there is no signing key for %q; name task, certificate or action", args[0])
		}
		cfg, err := src.Load(os.LookupEnv, config.PartDatabase, config.PartSecrets)
		if err != nil {
			return err
		}
		var key signing.PublicKey
		err = withSecrets(cmd.Context(), cfg, func(store *db.Store, sealed *secrets.Secrets) error {
			key, err = (&signing.Ring{Store: store, Secrets: sealed}).Rotate(cmd.Context(), purpose, *overlap)
			return err
		})
		if err != nil {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s is the new %s key; the old one counts until %s\n", key.ID, purpose, time.Now().Add(*overlap).UTC().Format(time.RFC3339))
		return nil
	}
	parent.AddCommand(cmd)
	return parent
}

func payloadKey() *cobra.Command {
	parent := &cobra.Command{Use: "payload-key", Short: "The keys that encrypt what Temporal stores"}
	cmd := &cobra.Command{
		Use: "rotate", Args: cobra.NoArgs, Short: "Make a new payload key; the ones before go on decrypting",
		Long: "Running processes encrypt with the new key within a minute. No key is ever removed: histories that were encrypted with it need it.",
	}
	src := config.Flags(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := src.Load(os.LookupEnv, config.PartDatabase, config.PartSecrets)
		if err != nil {
			return err
		}
		return withSecrets(cmd.Context(), cfg, func(_ *db.Store, sealed *secrets.Secrets) error {
			id, err := payloadcodec.Rotate(cmd.Context(), sealed)
			if err == nil {
				fmt.Fprintf(cmd.OutOrStdout(), "%s is the new payload key\n", id)
			}
			return err
		})
	}
	parent.AddCommand(cmd)
	return parent
}

// withSecrets calls do with the database and the secret store that cfg names.
func withSecrets(ctx context.Context, cfg config.Config, do func(*db.Store, *secrets.Secrets) error) error {
	store, err := db.Open(ctx, cfg.Database.URL)
	if err != nil {
		return err
	}
	defer store.Close()
	sealed, err := secrets.Open(ctx, store, secrets.Keeper{URL: cfg.Secrets.Keeper, KeyFile: cfg.Secrets.KeyFile}, secrets.Options{Previous: server.PreviousKeeper(cfg)})
	if err != nil {
		return fmt.Errorf("secret keeper: %w", err)
	}
	return errors.Join(do(store, sealed), sealed.Close())
}
