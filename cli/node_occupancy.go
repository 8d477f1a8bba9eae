package cli

import (
	"github.com/spf13/cobra"

	"github.com/slipway-cloud/slipway/client"
)

func (a *app) nodeOccupancies() *cobra.Command {
	var limit int
	cmd := &cobra.Command{Use: "occupancies NODE", Short: "List what a node was used for, newest first: by whom, and what proves that it was cleaned", Args: cobra.ExactArgs(1)}
	cmd.Flags().IntVar(&limit, "limit", 100, "at most so many")
	cmd.RunE = does(func(cmd *cobra.Command, args []string) error {
		id, err := a.nodeOf(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		r, err := listAll(cmd.Context(), listBelow(a.api.NodeOccupancies, id, nil), limit)
		if err != nil {
			return err
		}
		return show(a, r, func(got client.ListOccupancy) error {
			t := a.table("SINCE", "UNTIL", "STATE", "ALLOCATION", "CERTIFICATE")
			for _, o := range got.Data {
				until := "-"
				if !o.Until.IsZero() {
					until = a.when(o.Until)
				}
				t.row(a.when(o.Since), until, o.State, orDash(o.AllocationID), orDash(o.CertificateID))
			}
			return t.flush()
		})
	})
	return cmd
}
