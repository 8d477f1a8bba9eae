package cli

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/slipway-cloud/slipway/client"
)

// sendOne makes a command that sends one request and prints the answer. Arguments that name
// resources are ids in the request.
func sendOne[T any](a *app, use, short string, args int, columns []string, send func(ctx context.Context, args []string) (client.Answer[T], error)) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Args: cobra.ExactArgs(args), RunE: does(func(cmd *cobra.Command, args []string) error {
		args, err := a.resolveArgs(cmd.Context(), usageWords(use), args, lookup{})
		if err != nil {
			return err
		}
		r, err := send(cmd.Context(), args)
		if err != nil || len(r.Raw) == 0 {
			return err
		}
		return a.showMoney(cmd.Context(), r.Raw, columns)
	})}
}

func (a *app) billingAccountCommand() *cobra.Command {
	columns := []string{"id", "name", "max_projects", "currency"}
	show := func(ctx context.Context, args []string) (client.Answer[client.BillingAccount], error) {
		return a.api.GetBillingAccount(ctx, args[0])
	}
	remove := func(ctx context.Context, args []string) (client.Answer[client.Nothing], error) {
		return a.api.DeleteBillingAccount(ctx, args[0], client.IfMatch("*"))
	}
	var maxProjects int
	var currency string
	create := sendOne(a, "create NAME", "Create a billing account", 1, columns, func(ctx context.Context, args []string) (client.Answer[client.BillingAccount], error) {
		if maxProjects < 1 {
			return client.Answer[client.BillingAccount]{}, fail(ExitUsage, "--max-projects must be at least 1")
		}
		return a.api.CreateBillingAccount(ctx, client.NewBillingAccountRequest{Name: args[0], MaxProjects: new(int64(maxProjects)), Currency: &currency})
	})
	create.Flags().IntVar(&maxProjects, "max-projects", 20, "projects that are not closed, at most")
	create.Flags().StringVar(&currency, "currency", "USD", "of its balance, prices and statements; it is never changed")
	return group("billing-account", "Billing accounts: who pays for projects",
		listOf(a, "list", "List billing accounts", list(a.api.ListBillingAccounts, nil), columns...), create,
		sendOne(a, "show ACCOUNT", "Show a billing account", 1, columns, show),
		sendOne(a, "delete ACCOUNT", "Delete a billing account without projects", 1, columns, remove),
		a.thresholdsCommand(), a.accountGroupCommand(),
	)
}

// accountGroupCommand is about the groups of the identity provider that belong to a billing
// account.
func (a *app) accountGroupCommand() *cobra.Command {
	columns := []string{"group", "created_at"}
	return group("group", "Groups of the identity provider that belong to a billing account; its projects may give them roles",
		sendOne(a, "list ACCOUNT", "List the groups of a billing account", 1, columns, func(ctx context.Context, args []string) (r client.Answer[client.ListAccountGroup], err error) {
			return listAll(ctx, listBelow(a.api.ListBillingAccountGroups, args[0], nil), 0)
		}),
		sendOne(a, "add ACCOUNT GROUP", "Have a group belong to a billing account", 2, columns, func(ctx context.Context, args []string) (r client.Answer[client.AccountGroup], err error) {
			return a.api.AddBillingAccountGroup(ctx, args[0], args[1])
		}),
		sendOne(a, "remove ACCOUNT GROUP", "Remove a group from a billing account, with its roles in the projects of the account", 2, columns,
			func(ctx context.Context, args []string) (r client.Answer[client.Nothing], err error) {
				return a.api.RemoveBillingAccountGroup(ctx, args[0], args[1])
			}),
	)
}

// quotaOf returns what a quota is of: the id of a SKU, or total.
func (a *app) quotaOf(ctx context.Context, sku string) (string, error) {
	if sku == "total" {
		return sku, nil
	}
	return a.skuOf(ctx, sku)
}

func (a *app) quotaCommand() *cobra.Command {
	columns := []string{"sku", "sku_id", "max_nodes"}
	var reason string
	put := sendOne(a, "set PROJECT SKU|total NODES", "Set how many nodes a project may have of a SKU, or of all with total", 3, columns,
		func(ctx context.Context, args []string) (client.Answer[client.Quota], error) {
			n, err := strconv.Atoi(args[2])
			if err != nil {
				return client.Answer[client.Quota]{}, fail(ExitUsage, "NODES must be a number, not %q", args[2])
			}
			sku, err := a.quotaOf(ctx, args[1])
			if err != nil {
				return client.Answer[client.Quota]{}, err
			}
			return a.api.SetQuota(ctx, args[0], sku, client.QuotaRequest{MaxNodes: int64(n), Reason: reason})
		})
	remove := sendOne(a, "delete PROJECT SKU|total", "Remove a quota; without the total a project may have no nodes", 2, nil,
		func(ctx context.Context, args []string) (client.Answer[client.Nothing], error) {
			sku, err := a.quotaOf(ctx, args[1])
			if err != nil {
				return client.Answer[client.Nothing]{}, err
			}
			return a.api.DeleteQuota(ctx, args[0], sku, client.Because(reason))
		})
	for _, c := range []*cobra.Command{put, remove} {
		c.Flags().StringVar(&reason, "reason", "", "why; the owners of the project see it")
		_ = c.MarkFlagRequired("reason")
	}
	return group("quota", "Quotas: how many nodes a project may have",
		projectCommandOf(a, projectAction[client.ListQuota]{use: "list PROJECT", short: "List the quotas of a project", send: ofProject(a.api.ListProjectQuotas), columns: columns}), put,
		remove,
	)
}

func (a *app) catalogueCommand() *cobra.Command {
	var profile, title, description, isolation string
	offer := sendOne(a, "create SKU", "Offer a SKU to customers, or change the offer", 1, []string{"sku_id", "title", "isolation"},
		func(ctx context.Context, args []string) (client.Answer[client.Offer], error) {
			profile, err := a.profileOf(ctx, "", profile)
			if err != nil {
				return client.Answer[client.Offer]{}, err
			}
			body := client.OfferRequest{ProfileID: profile, Title: title, Description: description, Isolation: client.OfferRequestIsolation(isolation)}
			return a.api.PutCatalogueItem(ctx, args[0], body)
		})
	offer.Flags().StringVar(&profile, "profile", "", "the profile that is deployed, by name or id")
	offer.Flags().StringVar(&title, "title", "", "what customers see")
	offer.Flags().StringVar(&description, "description", "", "what customers see below it")
	offer.Flags().StringVar(&isolation, "isolation", "dedicated_network", "dedicated_network or shared_network")
	for _, required := range []string{"profile", "title"} {
		_ = offer.MarkFlagRequired(required)
	}
	return group("catalogue", "The catalogue: SKUs that customers can ask for",
		a.catalogueList(), offer,
		sendOne(a, "delete SKU", "Take a SKU out of the catalogue", 1, nil, func(ctx context.Context, args []string) (client.Answer[client.Nothing], error) {
			return a.api.DeleteCatalogueItem(ctx, args[0])
		}),
	)
}
