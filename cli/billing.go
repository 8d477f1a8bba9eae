package cli

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-cloud/slipway/client"
	"github.com/slipway-cloud/slipway/lifecycle"
)

func (a *app) printBalance(b client.Balance) error {
	amount := func(minor int64) string { return lifecycle.FormatMinor(minor, int(b.Exponent)) + " " + b.Currency }
	state := b.State
	if !b.Charging {
		state = "nothing is charged: no price is in force"
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
	cmd := &cobra.Command{Use: "balance [PROJECT]", Short: "Show the balance that pays for a project", Args: cobra.MaximumNArgs(1)}
	reasonFlag(cmd, &reason)
	cmd.RunE = a.withProject(cmd, 0, func(cmd *cobra.Command, project string, _ []string) error {
		r, err := a.api.GetBalance(cmd.Context(), project, client.Because(reason))
		if err != nil {
			return err
		}
		return show(a, r, a.printBalance)
	})
	return cmd
}

// printAmounts prints a list whose amounts are in the currency of a project's balance, which says
// how many digits its minor unit has.
func (a *app) printAmounts(ctx context.Context, project, reason string, raw []byte, columns []string) error {
	b, err := client.Value(a.api.GetBalance(ctx, project, client.Because(reason)))
	if err != nil {
		return err
	}
	var list map[string][]map[string]any
	if err := json.Unmarshal(raw, &list); err != nil {
		return err
	}
	for _, row := range list["data"] {
		if row["currency"] == b.Currency {
			row["exponent"] = b.Exponent
		}
	}
	if raw, err = json.Marshal(list); err != nil {
		return err
	}
	return a.printRows(raw, columns)
}

func (a *app) ledgerCommand() *cobra.Command {
	return projectCommandOf(a, projectAction[client.ListLedgerLine]{
		use: "ledger PROJECT", short: "List what a project was charged and credited, newest first", list: allOf(a.api.ListLedger), amounts: true,
		columns: []string{"posted_at", "kind", "amount_minor", "currency", "allocation_id", "effective_at", "reason"},
	})
}

func (a *app) usageCommand() *cobra.Command {
	var days bool
	var from, to, reason string
	cmd := &cobra.Command{Use: "usage [PROJECT]", Short: "List what the allocations and instances of a project use and cost", Args: cobra.MaximumNArgs(1)}
	reasonFlag(cmd, &reason)
	cmd.Flags().BoolVar(&days, "days", false, "what each allocation and instance cost on each day")
	cmd.Flags().StringVar(&from, "from", "", "with --days: the first day, as 2026-11-01")
	cmd.Flags().StringVar(&to, "to", "", "with --days: the last day")
	cmd.RunE = a.withProject(cmd, 0, func(cmd *cobra.Command, project string, _ []string) error {
		if !days {
			if from != "" || to != "" {
				return fail(ExitUsage, "--from and --to go with --days")
			}
			r, err := listAll(cmd.Context(), listBelow(a.api.ListUsage, project, nil, client.Because(reason)), 0)
			if err != nil {
				return err
			}
			columns := []string{"allocation_id", "instance_id", "segment", "rate_minor_per_hour", "start_time", "end_time", "last_billed_at", "cost_minor", "currency"}
			return a.show(r.Raw, func() error { return a.printAmounts(cmd.Context(), project, reason, r.Raw, columns) })
		}
		period := client.ListUsageDaysParams{From: optional[string](from), To: optional[string](to)}
		r, err := a.api.ListUsageDays(cmd.Context(), project, &period, client.Because(reason))
		if err != nil {
			return err
		}
		return a.show(r.Raw, func() error {
			return a.printAmounts(cmd.Context(), project, reason, r.Raw, []string{"day", "allocation_id", "instance_id", "seconds", "cost_minor", "currency"})
		})
	})
	return cmd
}

func (a *app) statementCommand() *cobra.Command {
	var reason string
	var asCSV bool
	cmd := &cobra.Command{
		Use: "statement [PROJECT] MONTH", Short: "Write what a project was charged and credited in a month, as JSON or CSV", Args: cobra.RangeArgs(1, 2),
		Example: "  slipway statement training 2026-11 --csv > november.csv",
		Long:    "One that breaks off exits with an error, and lacks its last member, complete, or its last row, total.",
	}
	reasonFlag(cmd, &reason)
	cmd.Flags().BoolVar(&asCSV, "csv", false, "comma-separated rows in place of JSON")
	cmd.RunE = a.withProject(cmd, 1, func(cmd *cobra.Command, project string, args []string) error {
		params := client.GetStatementParams{}
		open := func(ctx context.Context) (*http.Response, error) {
			return a.api.GetStatement(ctx, project, args[0], &params, client.Because(reason))
		}
		if asCSV {
			params.Format = new(client.GetStatementParamsFormatCsv)
			return a.writeLines(cmd.Context(), open, oneLine, func(last string) bool { return strings.HasPrefix(last, ",total,") })
		}
		return a.writeExport(cmd.Context(), open)
	})
	return cmd
}

func (a *app) budgetCommand() *cobra.Command {
	columns := []string{"month", "spent_minor", "limit_minor", "warn_percent"}
	var percent int
	return group("budget", "Budgets: what a project may cost in a month until its owners are told",
		projectCommandOf(a, projectAction[client.Budget]{use: "show PROJECT", short: "Show the budget of a project, and what it has cost in this month, in minor units",
			send: ofProject(a.api.GetBudget), columns: columns}),
		projectCommandOf(a, projectAction[client.Budget]{
			use: "set PROJECT AMOUNT", short: "Set the budget of a project for each month, in minor units", args: 1, columns: columns,
			send: func(ctx context.Context, project string, args []string, because client.Option) (client.Answer[client.Budget], error) {
				limit, err := minorUnits("AMOUNT", args[0])
				if err != nil {
					return client.Answer[client.Budget]{}, err
				}
				return a.api.PutBudget(ctx, project, client.BudgetRequest{LimitMinor: limit, WarnPercent: int64(percent)}, because)
			},
			flags: func(c *cobra.Command) {
				c.Flags().IntVar(&percent, "warn-percent", 80, "the part at which they are told first")
			},
		}),
		projectCommandOf(a, projectAction[client.Nothing]{use: "delete PROJECT", short: "Remove the budget of a project", send: ofProject(a.api.DeleteBudget, client.IfMatch("*"))}),
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
	columns := []string{"id", "sku_id", "instance_type", "currency", "rate_minor_per_hour", "valid_from", "valid_until"}
	var currency, from, hash string
	var confirm bool
	body := func(ctx context.Context, args []string) (out client.PricePlanRequest, err error) {
		out.Currency = currency
		if strings.Contains(args[0], "/") { // no name of a SKU has one
			out.InstanceType = &args[0]
		} else {
			id, err := a.skuOf(ctx, args[0])
			if err != nil {
				return out, err
			}
			out.SkuID = &id
		}
		if from != "" {
			begins, err := time.Parse(time.RFC3339, from)
			if err != nil {
				return out, fail(ExitUsage, "--from must be a time such as 2026-12-01T00:00:00Z, not %q", from)
			}
			out.ValidFrom = &begins
		}
		out.RateMinorPerHour, err = minorUnits("RATE", args[1])
		return out, err
	}
	try := sendOne(a, "try SKU|TYPE RATE", "Say what a price would change, with the hash that price create needs", 2,
		[]string{"sku_id", "instance_type", "currency", "rate_minor_per_hour", "valid_from", "factor", "needs_confirmation", "affected", "ends", "plan_hash"},
		func(ctx context.Context, args []string) (client.Answer[client.PricePlan], error) {
			b, err := body(ctx, args)
			if err != nil {
				return client.Answer[client.PricePlan]{}, err
			}
			return a.api.PlanPrice(ctx, b)
		})
	create := sendOne(a, "create SKU|TYPE RATE", "Set a price: RATE minor units for each hour of one node or instance", 2, columns, func(ctx context.Context, args []string) (client.Answer[client.Price], error) {
		b, err := body(ctx, args)
		if err != nil {
			return client.Answer[client.Price]{}, err
		}
		return a.api.CreatePrice(ctx, client.PriceRequest{
			SkuID: b.SkuID, InstanceType: b.InstanceType, Currency: b.Currency, RateMinorPerHour: b.RateMinorPerHour, ValidFrom: b.ValidFrom, PlanHash: &hash, Confirm: &confirm,
		})
	})
	var reason string
	withdraw := sendOne(a, "withdraw PRICE", "Take back a price that has not begun; the one before it goes on", 1, columns, func(ctx context.Context, args []string) (client.Answer[client.Price], error) {
		return a.api.WithdrawPrice(ctx, args[0], client.ReasonRequest{Reason: reason})
	})
	withdraw.Flags().StringVar(&reason, "reason", "", "why, for the audit log")
	_ = withdraw.MarkFlagRequired("reason")
	create.Flags().StringVar(&hash, "plan-hash", "", "of slipway price try with the same price")
	_ = create.MarkFlagRequired("plan-hash")
	create.Flags().BoolVar(&confirm, "confirm", false, "that a price of zero, one below half or above twice the price before, one that begins in more than 31 days, or one that ends instances, is meant")
	for _, c := range []*cobra.Command{try, create} {
		c.Flags().StringVar(&currency, "currency", "USD", "currency of the billing accounts that pay it")
		c.Flags().StringVar(&from, "from", "", "when it begins, as 2026-12-01T00:00:00Z, at least an hour ahead (default: in 65 minutes)")
	}
	return group("price", "Prices of SKUs, and of types of instances such as scaleway/L4-1-24G", listOf(a, "list", "List prices, past and future ones too", list(a.api.ListPrices, nil), columns...), try, create, withdraw)
}

func (a *app) adjustmentCommand() *cobra.Command {
	var project, reason string
	create := sendOne(a, "create ACCOUNT AMOUNT", "Book AMOUNT minor units on a balance; a negative amount, after --, is taken from it", 2,
		[]string{"transaction_id", "billing_account_id", "project_id", "amount_minor", "currency", "reason", "posted_at"},
		func(ctx context.Context, args []string) (client.Answer[client.Adjustment], error) {
			project, err := a.optionalProject(ctx, project)
			if err != nil {
				return client.Answer[client.Adjustment]{}, err
			}
			amount, err := minorUnits("AMOUNT", args[1])
			if err != nil {
				return client.Answer[client.Adjustment]{}, err
			}
			body := client.AdjustmentRequest{BillingAccountID: args[0], ProjectID: project, AmountMinor: amount, Reason: reason}
			return a.api.CreateAdjustment(ctx, body)
		})
	create.Flags().StringVar(&project, "project", "", "the project on whose statement it stands, by name or id")
	create.Flags().StringVar(&reason, "reason", "", "why; those who pay for the project see it")
	_ = create.MarkFlagRequired("reason")
	return group("adjustment", "Adjustments of balances", create)
}

// thresholdsCommand sets the thresholds of a billing account. A value that no flag names stays as
// it is.
func (a *app) thresholdsCommand() *cobra.Command {
	amounts := map[string]*int64{"low": new(int64), "depleted": new(int64), "rearm": new(int64)}
	var grace time.Duration
	var reason string
	var cmd *cobra.Command
	cmd = sendOne(a, "thresholds ACCOUNT", "Set the balances at which the state of an account changes, in minor units", 1,
		[]string{"billing_account_id", "state", "balance_minor", "currency", "grace_seconds"},
		func(ctx context.Context, args []string) (client.Answer[client.Balance], error) {
			r, err := a.api.GetAccountBalance(ctx, args[0])
			now, err := client.Value(r, err)
			if err != nil {
				return r, err
			}
			given := func(name string, old int64) *int64 {
				if !cmd.Flags().Changed(name) {
					return &old
				}
				return amounts[name]
			}
			body := client.ThresholdsRequest{
				GraceSeconds: &now.GraceSeconds, Reason: reason, LowMinor: given("low", now.Thresholds.LowMinor),
				DepletedMinor: given("depleted", now.Thresholds.DepletedMinor), RearmMinor: given("rearm", now.Thresholds.RearmMinor),
			}
			if cmd.Flags().Changed("grace") {
				body.GraceSeconds = new(int64(grace.Seconds()))
			}
			return a.api.SetAccountThresholds(ctx, args[0], body, client.IfMatch(r.ETag))
		})
	f := cmd.Flags()
	f.Int64Var(amounts["low"], "low", 0, "low_balance at this balance and below (10 whole units at first)")
	f.Int64Var(amounts["depleted"], "depleted", 0, "depleted at this balance and below; a negative one is a credit line (0 at first)")
	f.Int64Var(amounts["rearm"], "rearm", 0, "the next notice is given after the balance was above this (12 whole units at first)")
	f.DurationVar(&grace, "grace", 0, "how long after the balance is depleted until allocations are released, up to 1h")
	f.StringVar(&reason, "reason", "", "why; it stands in the audit log")
	_ = cmd.MarkFlagRequired("reason")
	return cmd
}

func (a *app) billingCommand() *cobra.Command {
	var reason string
	resume := sendOne(a, "resume", "Let depleted accounts be released again, after a look at why so many were depleted at once", 0, nil,
		func(ctx context.Context, _ []string) (client.Answer[client.Nothing], error) {
			return a.api.ResumeEnforcement(ctx, client.ReasonRequest{Reason: reason})
		})
	resume.Flags().StringVar(&reason, "reason", "", "why; it stands in the audit log")
	_ = resume.MarkFlagRequired("reason")
	return group("billing", "Charging and forced releases", resume)
}
