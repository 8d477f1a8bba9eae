package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/internal/config"
)

// restored is the command that makes a restored database safe to serve.
func restored() *cobra.Command {
	cmd := &cobra.Command{
		Use: "restored", Args: cobra.NoArgs, Short: "End the access that a restored backup brought back; shows it first",
		Long: "A backup holds sessions, API tokens, project tokens, invitations and webhooks that were ended after it, and the database cannot\n" +
			"tell which. So all of them end: sessions, tokens and invitations are made again, and owners enable their webhooks again.\n" +
			"Members, their roles and SSH keys stay; docs/run/backup.md says how to check them.\n\n" +
			"Run it before the first process serves the database. Without --confirm it changes nothing and prints what it would end.",
	}
	src := config.Flags(cmd.Flags())
	hash := cmd.Flags().String("confirm", "", "end what a run without this flag has shown; the hash that it printed")
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
		if *hash == "" {
			planned, err := store.PlanEndOfAccess(cmd.Context())
			if err != nil {
				return err
			}
			return printPlannedEnd(cmd.OutOrStdout(), planned)
		}
		ended, err := store.EndRestoredAccess(cmd.Context(), *hash)
		if errors.Is(err, db.ErrAccessChanged) {
			return fmt.Errorf("%w, and nothing was ended: stop all processes that serve this database, and run slipwayd restored without --confirm again", err)
		}
		if err != nil {
			return err
		}
		printAccess(cmd.OutOrStdout(), "ended", ended)
		fmt.Fprintln(cmd.OutOrStdout(), "next: slipwayd token create makes an API token; ask the owners of projects for members who were removed since the backup")
		fmt.Fprintln(cmd.OutOrStdout(), "next, where usage is charged: wait for the comparison with Stripe, book only the payments that it still names as missing, and all others since the backup; nothing is released because of a balance until slipway billing resume")
		return nil
	}
	return cmd
}

func printPlannedEnd(out io.Writer, planned db.RestoredAccess) error {
	printAccess(out, "would end", planned)
	fmt.Fprintln(out, "would begin a new epoch of events")
	fmt.Fprintln(out, "would close the claims of all nodes until MAAS and their agents agree with the database about who is on them")
	fmt.Fprintln(out, "would stop the enforcement of balances, where usage is charged, until slipway billing resume")
	_, err := fmt.Fprintf(out, "nothing was changed; to end it: slipwayd restored --confirm %s\n", planned.Hash)
	return err
}

func printAccess(out io.Writer, verb string, access db.RestoredAccess) {
	for _, kind := range db.AccessKinds() {
		fmt.Fprintf(out, "%s %s: %d\n", verb, kind, access.Counts[kind])
	}
}
