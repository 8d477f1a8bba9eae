package cli

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/slipway-cloud/slipway/client"
)

func (a *app) auditCommand() *cobra.Command {
	return group("audit", "The audit log", a.auditVerify())
}

func (a *app) auditVerify() *cobra.Command {
	return &cobra.Command{
		Use: "verify [KIND RESOURCE]", Short: "Verify that no row of the audit log was changed or deleted",
		Long: "Have the database walk the chain of hashes of one resource, or of every one. KIND is such as node, job or site; a node may be named.\n\n" +
			"Exit code 0 when every chain is whole, 1 when one is not.",
		Example: "  slipway audit verify\n  slipway audit verify node gpu-7",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 0 && len(args) != 2 {
				return fail(ExitUsage, "name one resource with its kind, such as: node gpu-7; or nothing, for all of them")
			}
			return nil
		},
		RunE: does(func(cmd *cobra.Command, args []string) error {
			q := client.VerifyAuditParams{Limit: new(int64(maxPage))}
			if len(args) == 2 {
				id, err := a.auditedResource(cmd.Context(), args[0], args[1])
				if err != nil {
					return err
				}
				q.ResourceKind, q.ResourceID = &args[0], &id
			}
			all, failed := a.verifyAudit(cmd.Context(), q)
			if failed != nil && len(all.Data) == 0 {
				return failed
			}
			raw, err := json.Marshal(all)
			if err != nil {
				return err
			}
			if err := a.show(raw, func() error { return a.printAudit(all) }); err != nil {
				return err
			}
			if failed != nil { // what was found before it is shown
				return failed
			}
			if len(all.Data) > 0 {
				return fail(ExitError, "%d of %d chains of the audit log are not whole", len(all.Data), all.Checked)
			}
			return nil
		}),
	}
}

func (a *app) auditedResource(ctx context.Context, kind, name string) (string, error) {
	switch kind {
	case "node":
		return a.nodeOf(ctx, name)
	case "job":
		return a.jobOf(ctx, name)
	case "project":
		return a.projectOf(ctx, name)
	}
	return name, nil
}

// verifyAudit asks for page after page and returns their sum, also of those before an error.
func (a *app) verifyAudit(ctx context.Context, q client.VerifyAuditParams) (all client.AuditVerification, err error) {
	for {
		r, err := a.api.VerifyAudit(ctx, &q)
		if err != nil {
			return all, err
		}
		page, err := r.Decode()
		if err != nil {
			return all, err
		}
		all.Checked, all.Data = all.Checked+page.Checked, append(all.Data, page.Data...)
		if page.NextCursor == "" || q.Cursor != nil && page.NextCursor == *q.Cursor {
			return all, nil
		}
		q.Cursor = &page.NextCursor
	}
}

func (a *app) printAudit(all client.AuditVerification) error {
	if len(all.Data) == 0 {
		_, err := fmt.Fprintf(a.Out, "whole: %d chains of the audit log\n", all.Checked)
		return err
	}
	t := a.table("KIND", "RESOURCE", "FIRST BROKEN ROW")
	t.short = false // a finding about evidence names the whole id
	for _, b := range all.Data {
		t.row(b.ResourceKind, b.ResourceID, b.FirstBrokenSeq)
	}
	return t.flush()
}
