package cli

import (
	"context"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"
)

// sendOne makes a command that sends one request and prints the answer.
func (a *app) sendOne(use, short string, args int, columns []string, request func(ctx context.Context, args []string) (method, path string, body any, err error)) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Args: cobra.ExactArgs(args), RunE: does(func(cmd *cobra.Command, args []string) error {
		method, path, body, err := request(cmd.Context(), args)
		if err != nil {
			return err
		}
		headers := map[string]string{}
		if method == "DELETE" || method == "PUT" {
			headers["If-Match"] = "*"
		}
		r, err := a.ask(cmd.Context(), method, path, body, headers)
		if err != nil || len(r.raw) == 0 {
			return err
		}
		return a.show(r.raw, func() error { return a.printRows(r.raw, columns) })
	})}
}

func (a *app) accountOf(ctx context.Context, name string) (string, error) {
	return a.byName(ctx, "acc_", "billing-account", "/admin/billing-accounts", name)
}

func (a *app) billingAccountCommand() *cobra.Command {
	const base = "/admin/billing-accounts"
	columns := []string{"id", "name", "max_projects", "currency"}
	one := func(method string) func(context.Context, []string) (string, string, any, error) {
		return func(ctx context.Context, args []string) (string, string, any, error) {
			id, err := a.accountOf(ctx, args[0])
			return method, base + "/" + url.PathEscape(id), nil, err
		}
	}
	var maxProjects int
	var currency string
	create := a.sendOne("create NAME", "Create a billing account", 1, columns, func(_ context.Context, args []string) (string, string, any, error) {
		return "POST", base, map[string]any{"name": args[0], "max_projects": maxProjects, "currency": currency}, nil
	})
	create.Flags().IntVar(&maxProjects, "max-projects", 20, "projects that are not closed, at most")
	create.Flags().StringVar(&currency, "currency", "USD", "of its balance, prices and statements; it is never changed")
	return group("billing-account", "Billing accounts: who pays for projects",
		a.listOf("list", "List billing accounts", base, columns...), create,
		a.sendOne("show ACCOUNT", "Show a billing account", 1, columns, one("GET")),
		a.sendOne("delete ACCOUNT", "Delete a billing account without projects", 1, columns, one("DELETE")),
		a.thresholdsCommand(),
	)
}

// quotaPath returns the path of a quota; sku is a SKU or total.
func (a *app) quotaPath(ctx context.Context, project, sku string) (string, error) {
	if sku != "total" {
		id, err := a.skuOf(ctx, sku)
		if err != nil {
			return "", err
		}
		sku = id
	}
	return "/admin/projects/" + url.PathEscape(project) + "/quotas/" + url.PathEscape(sku), nil
}

func (a *app) quotaCommand() *cobra.Command {
	columns := []string{"sku", "sku_id", "max_nodes"}
	var reason string
	put := a.sendOne("set PROJECT SKU NODES", "Set how many nodes a project may have of a SKU, or of all with total", 3, columns,
		func(ctx context.Context, args []string) (string, string, any, error) {
			n, err := strconv.Atoi(args[2])
			if err != nil {
				return "", "", nil, fail(ExitUsage, "NODES must be a number, not %q", args[2])
			}
			path, err := a.quotaPath(ctx, args[0], args[1])
			return "PUT", path, map[string]any{"max_nodes": n, "reason": reason}, err
		})
	remove := &cobra.Command{
		Use: "delete PROJECT SKU", Short: "Remove a quota; without the total a project may have no nodes", Args: cobra.ExactArgs(2),
		RunE: does(func(cmd *cobra.Command, args []string) error {
			path, err := a.quotaPath(cmd.Context(), args[0], args[1])
			if err == nil {
				_, err = a.ask(cmd.Context(), "DELETE", path, nil, map[string]string{reasonHeader: reason})
			}
			return err
		}),
	}
	for _, c := range []*cobra.Command{put, remove} {
		c.Flags().StringVar(&reason, "reason", "", "why; the owners of the project see it")
		_ = c.MarkFlagRequired("reason")
	}
	return group("quota", "Quotas: how many nodes a project may have",
		a.projectCommandOf(projectAction{use: "list PROJECT", short: "List the quotas of a project", method: "GET", path: at("/quotas"), columns: columns}), put,
		remove,
	)
}

func (a *app) catalogueCommand() *cobra.Command {
	var profile, title, description, isolation string
	offer := a.sendOne("create SKU", "Offer a SKU to customers, or change the offer", 1, []string{"sku_id", "title", "isolation"},
		func(ctx context.Context, args []string) (string, string, any, error) {
			id, err := a.skuOf(ctx, args[0])
			return "PUT", "/admin/catalogue/" + url.PathEscape(id),
				map[string]any{"profile_id": profile, "title": title, "description": description, "isolation": isolation}, err
		})
	offer.Flags().StringVar(&profile, "profile", "", "what is deployed, by id")
	offer.Flags().StringVar(&title, "title", "", "what customers see")
	offer.Flags().StringVar(&description, "description", "", "what customers see below it")
	offer.Flags().StringVar(&isolation, "isolation", "dedicated_network", "dedicated_network or shared_network")
	for _, required := range []string{"profile", "title"} {
		_ = offer.MarkFlagRequired(required)
	}
	return group("catalogue", "The catalogue: SKUs that customers can ask for",
		a.listOf("list", "List the catalogue", "/catalogue", "sku", "title", "gpus", "isolation", "availability"), offer,
		a.sendOne("delete SKU", "Take a SKU out of the catalogue", 1, nil, func(ctx context.Context, args []string) (string, string, any, error) {
			id, err := a.skuOf(ctx, args[0])
			return "DELETE", "/admin/catalogue/" + url.PathEscape(id), nil, err
		}),
	)
}
