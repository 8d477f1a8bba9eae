package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slipway-cloud/slipway/client"
)

func (a *app) nodeDrives() *cobra.Command {
	var accept, reason string
	cmd := &cobra.Command{
		Use: "drives NODE", Short: "Show the drives that a node is expected to have and those that its agent reports, or accept the reported ones", Args: cobra.ExactArgs(1),
		Long: "A job erases no drive that the node is not expected to have. Compare the reported drives with the machine, then accept them by their digest\n" +
			"and retry the parked stage. A drive that must stay is protected by the label protect-serials, the profile or the SKU.",
	}
	cmd.Flags().StringVar(&accept, "accept", "", "the digest of the reported drives: expect these from now on")
	cmd.Flags().StringVar(&reason, "reason", "", "with --accept: why the drives differ; it stands in the history")
	cmd.RunE = does(func(cmd *cobra.Command, args []string) error {
		if (accept == "") != (reason == "") {
			return fail(ExitUsage, "--accept and --reason go together")
		}
		id, err := a.nodeOf(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		var r client.Answer[client.NodeDrives]
		if accept == "" {
			r, err = a.api.GetNodeDrives(cmd.Context(), id)
		} else {
			r, err = a.api.AcceptNodeDrives(cmd.Context(), id, client.AcceptDrivesRequest{ReportedDigest: accept, Reason: reason})
		}
		if err != nil {
			return err
		}
		return a.showNodeDrives(r)
	})
	return cmd
}

func (a *app) showNodeDrives(r client.Answer[client.NodeDrives]) error {
	return show(a, r, func(l client.NodeDrives) error {
		err := a.fields("expected from", l.Source, "recorded", a.when(l.RecordedAt), "reported", a.when(l.ReportedAt), "reported digest", l.ReportedDigest,
			"protected", strings.Join(l.ProtectSerials, ", "))
		if err != nil {
			return err
		}
		t := a.table("DRIVE", "MODEL", "BYTES", "EXPECTED", "REPORTED")
		for _, d := range l.Expected {
			t.row(d.Serial, d.Model, d.Bytes, "yes", yesNo(slices.Contains(l.Reported, d)))
		}
		for _, d := range l.Reported {
			if !slices.Contains(l.Expected, d) {
				t.row(d.Serial, d.Model, d.Bytes, "no", "yes")
			}
		}
		return t.flush()
	})
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
