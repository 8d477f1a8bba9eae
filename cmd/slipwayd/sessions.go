package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/slipway-cloud/slipway/api/portal/session"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/internal/config"
)

func sessions() *cobra.Command {
	parent := &cobra.Command{Use: "sessions", Short: "Sessions of browsers in the portal"}
	cmd := &cobra.Command{
		Use: "end-all", Args: cobra.NoArgs, Short: "End all sessions; after a restore, or when cookies may be in wrong hands",
		Long: "A restored backup has sessions that were ended after it was made. Everybody signs in again.",
	}
	src := config.Flags(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := src.Load(os.LookupEnv, config.PartDatabase)
		if err != nil {
			return err
		}
		store, err := db.Open(cmd.Context(), cfg.Database.URL)
		if err != nil {
			return err
		}
		defer store.Close()
		ended, err := session.EndAll(cmd.Context(), store)
		if err != nil {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(), "sessions that were ended: %d\n", ended)
		return nil
	}
	parent.AddCommand(cmd)
	return parent
}
