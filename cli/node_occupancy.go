package cli

import (
	"encoding/json"
	"time"

	"github.com/spf13/cobra"
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
		raw, err := a.listAll(cmd.Context(), listBelow(a.api.NodeOccupancies, id, nil), limit)
		if err != nil {
			return err
		}
		return a.show(raw, func() error {
			var got struct {
				Data []struct {
					State         string
					AllocationID  string `json:"allocation_id"`
					CertificateID string `json:"certificate_id"`
					Since, Until  *time.Time
				}
			}
			if err := json.Unmarshal(raw, &got); err != nil {
				return err
			}
			t := a.table("SINCE", "UNTIL", "STATE", "ALLOCATION", "CERTIFICATE")
			for _, o := range got.Data {
				until := "-"
				if o.Until != nil {
					until = a.when(o.Until)
				}
				t.row(a.when(o.Since), until, o.State, orDash(o.AllocationID), orDash(o.CertificateID))
			}
			return t.flush()
		})
	})
	return cmd
}
