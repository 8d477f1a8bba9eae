package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slipway-cloud/slipway/client"
)

// loginsOf says whether logins are tried.
func loginsOf(b client.BMC) string {
	if !b.AuthBlockedAt.IsZero() {
		return "stopped"
	}
	return "allowed"
}

func (a *app) bmcCommand() *cobra.Command {
	return group("bmc", "BMCs: their logins and certificates. A BMC is named by its id or by the hostname of its node",
		a.bmcList(),
		a.bmcCall("show BMC", "Show a BMC", cobra.ExactArgs(1), func(ctx context.Context, id string, _ []string) (client.Answer[client.BMC], error) {
			return a.api.GetBmc(ctx, id)
		}),
		a.bmcRotate(), a.bmcRotations(), a.bmcSetCredential(),
		a.bmcCall("approve-pin BMC PIN", "Approve the certificate pin that waits, after comparing it", cobra.ExactArgs(2), func(ctx context.Context, id string, args []string) (client.Answer[client.BMC], error) {
			return a.api.ApproveBmcPin(ctx, id, client.ApproveBmcPinRequest{PinSha256: args[1]})
		}),
		a.bmcClearBlock(),
	)
}

// bmcOf finds a BMC by its id, or that of a node.
func (a *app) bmcOf(ctx context.Context, name string) (string, error) {
	if strings.HasPrefix(name, "bmc_") {
		return name, checkID("bmc_", "BMC", name)
	}
	id, err := a.nodeOf(ctx, name)
	if err != nil {
		return "", err
	}
	got, err := client.Value(a.api.GetNode(ctx, id))
	if err != nil {
		return "", err
	}
	if got.BmcID == "" {
		return "", fail(ExitNotFound, "node %s has no BMC", name)
	}
	return got.BmcID, nil
}

// bmcCall is a command that answers with the BMC.
func (a *app) bmcCall(use, short string, args cobra.PositionalArgs, ask func(ctx context.Context, id string, args []string) (client.Answer[client.BMC], error)) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Args: args, RunE: does(func(cmd *cobra.Command, args []string) error {
		id, err := a.bmcOf(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		r, err := ask(cmd.Context(), id, args)
		if err != nil {
			return err
		}
		return a.showBMC(client.Answer[client.CredentialAnswer](r))
	})}
}

// showBMC shows a BMC, with the next step where the answer has one.
func (a *app) showBMC(r client.Answer[client.CredentialAnswer]) error {
	return show(a, r, func(b client.CredentialAnswer) error {
		return a.fields("bmc", b.ID, "node", b.NodeID, "address", b.Address, "protocol", b.Protocol, "vendor", b.Vendor, "login", b.CredentialRef,
			"rotating to", strings.TrimSpace(b.CandidateRef+" "+string(b.RotationState)), "rotated", a.when(b.RotatedAt), "login before", b.PreviousRef,
			"approved pin", b.PinSha256, "pin that waits", b.PinPending, "logins stopped", a.when(b.AuthBlockedAt), "because", b.AuthBlockedReason,
			"next", b.NextStep)
	})
}

func (a *app) bmcList() *cobra.Command {
	var limit int
	cmd := &cobra.Command{Use: "list", Short: "List BMCs", Args: cobra.NoArgs}
	cmd.Flags().IntVar(&limit, "limit", 50, "at most so many; 0 is all")
	cmd.RunE = does(func(cmd *cobra.Command, _ []string) error {
		r, err := listAll(cmd.Context(), list(a.api.ListBmcs, nil), limit)
		if err != nil {
			return err
		}
		return show(a, r, func(got client.ListBMC) error {
			t := a.table("ID", "ADDRESS", "PROTOCOL", "VENDOR", "LOGIN", "LOGINS", "NODE")
			for _, b := range got.Data {
				t.row(b.ID, b.Address, b.Protocol, orDash(b.Vendor), b.CredentialRef, loginsOf(b), orDash(b.NodeID))
			}
			return t.flush()
		})
	})
	return cmd
}

func (a *app) bmcClearBlock() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "clear-block BMC", Aliases: []string{"clear-auth-block"}, Args: cobra.ExactArgs(1),
		Short: "Allow logins again after a rejected one, when the stored login is right",
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why; it stands in the audit log")
	cmd.RunE = does(func(cmd *cobra.Command, args []string) error {
		id, err := a.bmcOf(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		r, err := a.api.ClearBmcAuthBlock(cmd.Context(), id, client.ClearBmcAuthBlockRequest{Reason: reason})
		if err != nil {
			return err
		}
		return a.showBMC(client.Answer[client.CredentialAnswer](r))
	})
	return cmd
}

func (a *app) bmcSetCredential() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "set-credential BMC SECRET", Args: cobra.ExactArgs(2),
		Short: "Use another stored login, after the password was changed by hand; nothing is tried",
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why; it stands in the audit log")
	cmd.RunE = does(func(cmd *cobra.Command, args []string) error {
		id, err := a.bmcOf(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		now, err := a.api.GetBmc(cmd.Context(), id)
		if err != nil {
			return err
		}
		body := client.SetBmcCredentialRequest{CredentialRef: args[1], Reason: reason}
		r, err := a.api.SetBmcCredential(cmd.Context(), id, body, client.IfMatch(now.ETag))
		if err != nil {
			return err
		}
		return a.showBMC(r)
	})
	return cmd
}

func (a *app) bmcRotate() *cobra.Command {
	var reason string
	var w watchFlags
	cmd := &cobra.Command{
		Use: "rotate BMC", Short: "Replace a BMC's password by one that only Slipway knows; MAAS is told", Args: cobra.ExactArgs(1),
		Example: "  slipway bmc rotate gpu-1 --reason \"yearly\" --watch",
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why; it stands in the history and in the audit log")
	w.add(cmd)
	cmd.RunE = does(func(cmd *cobra.Command, args []string) error {
		id, err := a.bmcOf(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		r, err := a.api.RotateBmcCredential(cmd.Context(), id, client.RotationRequest{Reason: reason})
		return a.followJob(cmd.Context(), r, err, w)
	})
	return cmd
}

func (a *app) bmcRotations() *cobra.Command {
	var limit int
	cmd := &cobra.Command{Use: "rotations BMC", Short: "List a BMC's rotations, newest first", Args: cobra.ExactArgs(1)}
	cmd.Flags().IntVar(&limit, "limit", 50, "at most so many; 0 is all")
	cmd.RunE = does(func(cmd *cobra.Command, args []string) error {
		id, err := a.bmcOf(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		r, err := listAll(cmd.Context(), listBelow(a.api.ListBmcRotations, id, nil), limit)
		if err != nil {
			return err
		}
		return show(a, r, func(got client.ListRotation) error {
			t := a.table("JOB", "WHEN", "WHO", "OUTCOME", "FROM", "TO", "WHY")
			for _, r := range got.Data {
				t.row(r.JobID, a.when(r.RequestedAt), orDash(r.RequestedBy), fmt.Sprintf("%s (%s)", r.Outcome, r.Status), orDash(r.OldCredentialRef), orDash(r.NewCredentialRef), r.Reason)
			}
			return t.flush()
		})
	})
	return cmd
}
