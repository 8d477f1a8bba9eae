package cli

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-cloud/slipway/lifecycle"
)

// balance is what the command shows of a balance.
type balance struct {
	BillingAccountID string     `json:"billing_account_id"`
	State            string     `json:"state"`
	Since            *time.Time `json:"since"`
	BalanceMinor     int64      `json:"balance_minor"`
	HeldMinor        int64      `json:"held_minor"`
	AvailableMinor   int64      `json:"available_minor"`
	Currency         string     `json:"currency"`
	Exponent         int        `json:"exponent"`
	GraceEndsAt      *time.Time `json:"grace_ends_at"`
	Charging         bool       `json:"charging"`
	Thresholds       struct {
		LowMinor      int64 `json:"low_minor"`
		DepletedMinor int64 `json:"depleted_minor"`
	} `json:"thresholds"`
}

func (a *app) printBalance(raw []byte) error {
	var b balance
	if err := json.Unmarshal(raw, &b); err != nil {
		return err
	}
	amount := func(minor int64) string { return lifecycle.FormatMinor(minor, b.Exponent) + " " + b.Currency }
	state := b.State
	if !b.Charging {
		state = "nothing is charged: there are no prices"
	}
	return a.fields("billing account", b.BillingAccountID, "balance", amount(b.BalanceMinor), "held", amount(b.HeldMinor), "available", amount(b.AvailableMinor),
		"state", state, "since", a.when(b.Since), "low at", amount(b.Thresholds.LowMinor), "depleted at", amount(b.Thresholds.DepletedMinor),
		"released at", orDash(a.when(b.GraceEndsAt)))
}

// reasonFlag adds --reason, which operators give for a customer's project.
func reasonFlag(cmd *cobra.Command, reason *string) {
	cmd.Flags().StringVar(reason, "reason", "", "why you act on a customer's project, for operators; its owners see it")
}

func (a *app) balanceCommand() *cobra.Command {
	var reason string
	cmd := &cobra.Command{Use: "balance PROJECT", Short: "Show the balance that pays for a project", Args: cobra.ExactArgs(1)}
	reasonFlag(cmd, &reason)
	cmd.RunE = does(func(cmd *cobra.Command, args []string) error {
		headers := map[string]string{}
		if reason != "" {
			headers[reasonHeader] = reason
		}
		r, err := a.ask(cmd.Context(), "GET", "/projects/"+url.PathEscape(args[0])+"/balance", nil, headers)
		if err != nil {
			return err
		}
		return a.show(r.raw, func() error { return a.printBalance(r.raw) })
	})
	return cmd
}

func (a *app) ledgerCommand() *cobra.Command {
	return a.projectCommandOf(projectAction{
		use: "ledger PROJECT", short: "List what a project was charged and credited, newest first, in minor units", method: "GET", path: at("/ledger"), list: true,
		columns: []string{"posted_at", "kind", "amount_minor", "currency", "allocation_id", "effective_at", "reason"},
	})
}

func (a *app) usageCommand() *cobra.Command {
	var days bool
	var from, to, reason string
	cmd := &cobra.Command{Use: "usage PROJECT", Short: "List what the allocations of a project use and cost, in minor units", Args: cobra.ExactArgs(1)}
	reasonFlag(cmd, &reason)
	cmd.Flags().BoolVar(&days, "days", false, "what each allocation cost on each day")
	cmd.Flags().StringVar(&from, "from", "", "with --days: the first day, as 2026-11-01")
	cmd.Flags().StringVar(&to, "to", "", "with --days: the last day")
	cmd.RunE = does(func(cmd *cobra.Command, args []string) error {
		path, headers := "/projects/"+url.PathEscape(args[0])+"/usage", map[string]string{}
		if reason != "" {
			headers[reasonHeader] = reason
		}
		if !days {
			raw, err := a.listAllWith(cmd.Context(), path, url.Values{}, 0, headers)
			if err != nil {
				return err
			}
			columns := []string{"allocation_id", "segment", "rate_minor_per_hour", "start_time", "end_time", "last_billed_at", "cost_minor", "currency"}
			return a.show(raw, func() error { return a.printRows(raw, columns) })
		}
		r, err := a.ask(cmd.Context(), "GET", path+"/days?"+url.Values{"from": {from}, "to": {to}}.Encode(), nil, headers)
		if err != nil {
			return err
		}
		return a.show(r.raw, func() error {
			return a.printRows(r.raw, []string{"day", "allocation_id", "seconds", "cost_minor", "currency"})
		})
	})
	return cmd
}

func (a *app) statementCommand() *cobra.Command {
	var reason string
	var asCSV bool
	cmd := &cobra.Command{
		Use: "statement PROJECT MONTH", Short: "Write what a project was charged and credited in a month, as JSON or CSV", Args: cobra.ExactArgs(2),
		Example: "  slipway statement prj_... 2026-11 --csv > november.csv",
		Long:    "One that breaks off exits with an error, and lacks its last member, complete, or its last row, total.",
	}
	reasonFlag(cmd, &reason)
	cmd.Flags().BoolVar(&asCSV, "csv", false, "comma-separated rows in place of JSON")
	cmd.RunE = does(func(cmd *cobra.Command, args []string) error {
		path := "/projects/" + url.PathEscape(args[0]) + "/statements/" + url.PathEscape(args[1])
		if asCSV {
			return a.writeLines(cmd.Context(), path+"?format=csv", reason, oneLine, func(last string) bool { return strings.HasPrefix(last, ",total,") })
		}
		return a.writeExport(cmd.Context(), path, reason)
	})
	return cmd
}

func (a *app) budgetCommand() *cobra.Command {
	columns := []string{"month", "spent_minor", "limit_minor", "warn_percent"}
	var percent int
	return group("budget", "Budgets: what a project may cost in a month until its owners are told",
		a.projectCommandOf(projectAction{use: "show PROJECT", short: "Show the budget of a project, and what it has cost in this month, in minor units", method: "GET",
			path: at("/budget"), columns: columns}),
		a.projectCommandOf(projectAction{
			use: "set PROJECT AMOUNT", short: "Set the budget of a project for each month, in minor units", method: "PUT", args: 1, path: at("/budget"), columns: columns,
			body: func(args []string) (map[string]any, error) {
				limit, err := minorUnits("AMOUNT", args[0])
				return map[string]any{"limit_minor": limit, "warn_percent": percent}, err
			},
			flags: func(c *cobra.Command) {
				c.Flags().IntVar(&percent, "warn-percent", 80, "the part at which they are told first")
			},
		}),
		a.projectCommandOf(projectAction{use: "delete PROJECT", short: "Remove the budget of a project", method: "DELETE", path: at("/budget")}),
	)
}

func minorUnits(name, text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fail(ExitUsage, "%s must be a whole number of minor units, as 1993 for 19.93 USD, not %q", name, text)
	}
	return n, nil
}

func (a *app) priceCommand() *cobra.Command {
	const base = "/admin/prices"
	columns := []string{"id", "sku_id", "currency", "rate_minor_per_hour", "valid_from", "valid_until"}
	var currency, from, hash string
	var confirm bool
	body := func(ctx context.Context, args []string) (map[string]any, error) {
		sku, err := a.skuOf(ctx, args[0])
		if err != nil {
			return nil, err
		}
		rate, err := minorUnits("RATE", args[1])
		out := map[string]any{"sku_id": sku, "currency": currency, "rate_minor_per_hour": rate}
		if from != "" {
			out["valid_from"] = from
		}
		return out, err
	}
	try := a.sendOne("try SKU RATE", "Say what a price would change, with the hash that price create needs", 2,
		[]string{"sku_id", "currency", "rate_minor_per_hour", "valid_from", "factor", "needs_confirmation", "affected", "plan_hash"},
		func(ctx context.Context, args []string) (string, string, any, error) {
			b, err := body(ctx, args)
			return http.MethodPost, base + "/plan", b, err
		})
	create := a.sendOne("create SKU RATE", "Set a price: RATE minor units for each hour of one node", 2, columns, func(ctx context.Context, args []string) (string, string, any, error) {
		b, err := body(ctx, args)
		if err == nil {
			b["plan_hash"], b["confirm"] = hash, confirm
		}
		return http.MethodPost, base, b, err
	})
	create.Flags().StringVar(&hash, "plan-hash", "", "of slipway price try with the same price")
	create.Flags().BoolVar(&confirm, "confirm", false, "that a price of zero, or one below half or above twice the price before, is meant")
	for _, c := range []*cobra.Command{try, create} {
		c.Flags().StringVar(&currency, "currency", "USD", "currency of the billing accounts that pay it")
		c.Flags().StringVar(&from, "from", "", "when it begins, as 2026-12-01T00:00:00Z, at least an hour ahead (default: in 65 minutes)")
	}
	return group("price", "Prices of SKUs", a.listOf("list", "List prices, past and future ones too", base, columns...), try, create)
}

func (a *app) adjustmentCommand() *cobra.Command {
	var project, reason string
	create := a.sendOne("create ACCOUNT AMOUNT", "Book AMOUNT minor units on a balance; a negative amount, after --, is taken from it", 2,
		[]string{"transaction_id", "billing_account_id", "project_id", "amount_minor", "currency", "reason", "posted_at"},
		func(ctx context.Context, args []string) (string, string, any, error) {
			account, err := a.accountOf(ctx, args[0])
			if err != nil {
				return "", "", nil, err
			}
			amount, err := minorUnits("AMOUNT", args[1])
			return http.MethodPost, "/admin/adjustments",
				map[string]any{"billing_account_id": account, "project_id": project, "amount_minor": amount, "reason": reason}, err
		})
	create.Flags().StringVar(&project, "project", "", "the project on whose statement it stands")
	create.Flags().StringVar(&reason, "reason", "", "why; those who pay for the project see it")
	_ = create.MarkFlagRequired("reason")
	return group("adjustment", "Adjustments of balances", create)
}

// thresholdsCommand sets the thresholds of a billing account. What no flag names is that of the policy.
func (a *app) thresholdsCommand() *cobra.Command {
	amounts := map[string]*int64{"low": new(int64), "depleted": new(int64), "rearm": new(int64)}
	var grace time.Duration
	var reason string
	var cmd *cobra.Command
	cmd = a.sendOne("thresholds ACCOUNT", "Set the balances at which the state of an account changes, in minor units", 1,
		[]string{"billing_account_id", "state", "balance_minor", "currency", "grace_seconds"},
		func(ctx context.Context, args []string) (string, string, any, error) {
			account, err := a.accountOf(ctx, args[0])
			body := map[string]any{"grace_seconds": int(grace.Seconds()), "reason": reason}
			for name, amount := range amounts {
				if cmd.Flags().Changed(name) {
					body[name+"_minor"] = *amount
				}
			}
			return http.MethodPut, "/admin/billing-accounts/" + url.PathEscape(account) + "/thresholds", body, err
		})
	f := cmd.Flags()
	f.Int64Var(amounts["low"], "low", 0, "low_balance at this balance and below (default: 10 whole units)")
	f.Int64Var(amounts["depleted"], "depleted", 0, "depleted at this balance and below; a negative one is a credit line (default: 0)")
	f.Int64Var(amounts["rearm"], "rearm", 0, "the next notice is given after the balance was above this (default: 12 whole units)")
	f.DurationVar(&grace, "grace", 0, "how long after the balance is depleted until allocations are released, up to 1h")
	f.StringVar(&reason, "reason", "", "why; it stands in the audit log")
	_ = cmd.MarkFlagRequired("reason")
	return cmd
}

func (a *app) billingCommand() *cobra.Command {
	var reason string
	resume := a.sendOne("resume", "Let depleted accounts be released again, after a look at why so many were depleted at once", 0, nil,
		func(context.Context, []string) (string, string, any, error) {
			return http.MethodPost, "/admin/billing/resume", map[string]any{"reason": reason}, nil
		})
	resume.Flags().StringVar(&reason, "reason", "", "why; it stands in the audit log")
	_ = resume.MarkFlagRequired("reason")
	return group("billing", "Charging and forced releases", resume)
}
