package cli

import (
	"context"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
)

// tenancyFlags are the fields of a SKU that say how tenants use its nodes. They are nil for other
// kinds.
type tenancyFlags struct {
	cmd      *cobra.Command
	root     bool
	reserves []string
}

// skuFlags adds the flags of a SKU.
func (k kind[T, L]) skuFlags(cmd *cobra.Command) *tenancyFlags {
	if k.use != "sku" {
		return nil
	}
	f := &tenancyFlags{cmd: cmd}
	cmd.Flags().BoolVar(&f.root, "tenant-root", true, "whether tenants are root on their nodes")
	cmd.Flags().StringArrayVar(&f.reserves, "reserve", nil, "free nodes to keep back from allocations, as SITE=NODES; repeat it for each site, none keeps none")
	return f
}

// onto adds what the flags say to a request.
func (f *tenancyFlags) onto(ctx context.Context, a *app, request map[string]any) error {
	if f == nil {
		return nil
	}
	if f.cmd.Flags().Changed("tenant-root") {
		request["tenant_root"] = f.root
	}
	if !f.cmd.Flags().Changed("reserve") {
		return nil
	}
	reserves := []map[string]any{}
	for _, one := range f.reserves {
		if one == "none" {
			continue
		}
		site, count, _ := strings.Cut(one, "=")
		nodes, err := strconv.Atoi(count)
		if err != nil || site == "" {
			return fail(ExitUsage, "--reserve %q must be SITE=NODES, or none", one)
		}
		id, err := a.siteOf(ctx, site)
		if err != nil {
			return err
		}
		reserves = append(reserves, map[string]any{"site_id": id, "nodes": nodes})
	}
	request["reserves"] = reserves
	return nil
}

// tenancy returns the fields of a SKU that its spec does not have, for a view of it.
func (r resource) tenancy() []any {
	if r.TenantRoot == nil {
		return nil
	}
	kept := make([]string, 0, len(r.Reserves))
	for _, one := range r.Reserves {
		kept = append(kept, one.SiteID+"="+strconv.FormatInt(one.Nodes, 10))
	}
	return []any{"tenant_root", *r.TenantRoot, "reserves", strings.Join(kept, " ")}
}
