package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-cloud/slipway/internal/temporaltls"
)

// tlsDir is where docker-compose.yaml mounts the volumes of the certificates.
const tlsDir = "/var/lib/slipway-tls"

func temporalCerts() *cobra.Command {
	cmd := &cobra.Command{
		Use: "temporal-certs", Args: cobra.NoArgs, Short: "Make the certificates of mutual TLS between Temporal and its clients on one host",
		Long: "Makes an authority in ca, the certificate of Temporal in server and that of its clients in client, below the folder; those three must exist.\n" +
			"Repeat it once a year: it replaces certificates of which less than a year is left, and leaves the others.",
	}
	dir := cmd.Flags().String("dir", tlsDir, "folder that holds the folders ca, server and client")
	names := cmd.Flags().StringSlice("server-names", []string{"temporal", "localhost", "127.0.0.1"}, "names and addresses under which clients reach Temporal")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := temporaltls.Ensure(*dir, *names, time.Now()); err != nil {
			return err
		}
		fmt.Fprintln(cmd.OutOrStdout(), "the certificates of Temporal are current")
		return nil
	}
	return cmd
}
