package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-cloud/slipway/client"
	"github.com/slipway-cloud/slipway/lifecycle"
)

func (a *app) printBalance(b client.Balance) error {
	amount := currency{b.Currency, int(b.Exponent)}.format
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

func (a *app) ledgerCommand() *cobra.Command {
	return projectCommandOf(a, projectAction[client.ListLedgerLine]{
		use: "ledger PROJECT", short: "List what a project was charged and credited, newest first", list: allOf(a.api.ListLedger),
		columns: []string{"posted_at", "kind", "amount_minor", "allocation_id", "effective_at", "reason"},
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
			columns := []string{"allocation_id", "instance_id", "segment", "rate_minor_per_hour", "start_time", "end_time", "last_billed_at", "cost_minor"}
			return a.showMoney(cmd.Context(), r.Raw, columns)
		}
		period := client.ListUsageDaysParams{From: optional[string](from), To: optional[string](to)}
		r, err := a.api.ListUsageDays(cmd.Context(), project, &period, client.Because(reason))
		if err != nil {
			return err
		}
		return a.showMoney(cmd.Context(), r.Raw, []string{"day", "allocation_id", "instance_id", "seconds", "cost_minor"})
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
		projectCommandOf(a, projectAction[client.Budget]{use: "show PROJECT", short: "Show the budget of a project, and what it has cost in this month",
			send: ofProject(a.api.GetBudget), columns: columns}),
		projectCommandOf(a, projectAction[client.Budget]{
			use: "set PROJECT AMOUNT", short: "Set the budget of a project for each month, as 2500.00", args: 1, columns: columns,
			send: func(ctx context.Context, project string, args []string, because client.Option) (client.Answer[client.Budget], error) {
				c, err := a.currencyOfProject(ctx, project, because)
				if err != nil {
					return client.Answer[client.Budget]{}, err
				}
				limit, err := c.parseAmount("AMOUNT", args[0])
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

func (a *app) priceCommand() *cobra.Command {
	columns := []string{"id", "sku_id", "instance_type", "rate_minor_per_hour", "valid_from", "valid_until"}
	var code, from, hash string
	var confirm bool
	body := func(ctx context.Context, args []string) (out client.PricePlanRequest, err error) {
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
		if err := checkAmount("RATE", args[1]); err != nil {
			return out, err
		}
		c, err := a.currencyOf(ctx, code)
		if err != nil {
			return out, err
		}
		out.Currency = c.code
		out.RateMinorPerHour, err = c.parseAmount("RATE", args[1])
		return out, err
	}
	try := &cobra.Command{Use: "try SKU|TYPE RATE", Short: "Say what a price would change, with the hash that price create needs", Args: cobra.ExactArgs(2), RunE: does(func(cmd *cobra.Command, args []string) error {
		b, err := body(cmd.Context(), args)
		if err != nil {
			return err
		}
		r, err := a.api.PlanPrice(cmd.Context(), b)
		if err != nil {
			return err
		}
		return show(a, r, a.printPricePlan)
	})}
	create := sendOne(a, "create SKU|TYPE RATE", "Set a price: RATE, as 19.93, for each hour of one node or instance", 2, columns, func(ctx context.Context, args []string) (client.Answer[client.Price], error) {
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
		c.Flags().StringVar(&code, "currency", "USD", "currency of the billing accounts that pay it")
		c.Flags().StringVar(&from, "from", "", "when it begins, as 2026-12-01T00:00:00Z, at least an hour ahead (default: in 65 minutes)")
	}
	return group("price", "Prices of SKUs, and of types of instances such as scaleway/L4-1-24G", listOf(a, "list", "List prices, past and future ones too", list(a.api.ListPrices, nil), columns...), try, create, withdraw)
}

func (a *app) adjustmentCommand() *cobra.Command {
	var project, reason, code string
	var confirm bool
	create := &cobra.Command{
		Use: "create ACCOUNT AMOUNT", Short: "Book AMOUNT on a balance; a negative amount, after --, is taken from it", Args: cobra.ExactArgs(2),
		Example: "  slipway adjustment create acme 500.00 --reason \"invoice 17 is paid\"",
		Long:    moneyHelp + " An amount above the policy amount of the installation (1000.00 USD at first) is asked for again; --confirm answers before.",
	}
	f := create.Flags()
	f.StringVar(&project, "project", "", "the project on whose statement it stands, by name or id")
	f.StringVar(&reason, "reason", "", "why; those who pay for the project see it")
	f.StringVar(&code, "currency", "", "of the amount (default, and always: that of the account)")
	f.BoolVar(&confirm, "confirm", false, "that an amount above the policy amount is meant")
	_ = create.MarkFlagRequired("reason")
	create.RunE = does(func(cmd *cobra.Command, args []string) error {
		account, err := a.accountOf(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		c, err := a.currencyOfAccount(cmd.Context(), account)
		if err != nil {
			return err
		}
		if err := c.checkFlag(code); err != nil {
			return err
		}
		amount, err := c.parseAmount("AMOUNT", args[1])
		if err != nil {
			return err
		}
		body := client.AdjustmentRequest{BillingAccountID: account, ProjectID: optional[string](project), AmountMinor: amount, Reason: reason}
		if confirm {
			body.Confirm = &confirm
		}
		r, err := a.api.CreateAdjustment(cmd.Context(), body)
		if !confirm && a.output == "table" && refusesField(err, "body.confirm") {
			word := lifecycle.FormatMinor(amount, c.exponent)
			question := fmt.Sprintf("Book %s on billing account %s? It is above the policy amount. Type %s to go on: ", c.format(amount), args[0], word)
			if err := a.confirm(question, word, "--confirm"); err != nil {
				return err
			}
			body.Confirm = new(true)
			r, err = a.api.CreateAdjustment(cmd.Context(), body)
		}
		if err != nil {
			return err
		}
		return a.showMoney(cmd.Context(), r.Raw, []string{"transaction_id", "billing_account_id", "project_id", "amount_minor", "reason", "posted_at"})
	})
	return group("adjustment", "Adjustments of balances", create)
}

// refusesField reports whether an error is a refusal that names a field of the request.
func refusesField(err error, location string) bool {
	var r *client.Refusal
	return errors.As(err, &r) && slices.ContainsFunc(r.Errors, func(f client.Field) bool { return f.Location == location })
}

// thresholdsCommand sets the thresholds of a billing account. A value that no flag names stays as
// it is.
func (a *app) thresholdsCommand() *cobra.Command {
	amounts := map[string]*string{"low": new(string), "depleted": new(string), "rearm": new(string)}
	var grace time.Duration
	var reason string
	var cmd *cobra.Command
	cmd = sendOne(a, "thresholds ACCOUNT", "Set the balances at which the state of an account changes, as 10.00", 1,
		[]string{"billing_account_id", "state", "balance_minor", "grace_seconds"},
		func(ctx context.Context, args []string) (client.Answer[client.Balance], error) {
			r, err := a.api.GetAccountBalance(ctx, args[0])
			now, err := client.Value(r, err)
			if err != nil {
				return r, err
			}
			body := client.ThresholdsRequest{
				GraceSeconds: &now.GraceSeconds, Reason: reason, LowMinor: &now.Thresholds.LowMinor,
				DepletedMinor: &now.Thresholds.DepletedMinor, RearmMinor: &now.Thresholds.RearmMinor,
			}
			c := currency{now.Currency, int(now.Exponent)}
			for name, field := range map[string]*int64{"low": body.LowMinor, "depleted": body.DepletedMinor, "rearm": body.RearmMinor} {
				if !cmd.Flags().Changed(name) {
					continue
				}
				if *field, err = c.parseAmount("--"+name, *amounts[name]); err != nil {
					return r, err
				}
			}
			if cmd.Flags().Changed("grace") {
				body.GraceSeconds = new(int64(grace.Seconds()))
			}
			return a.api.SetAccountThresholds(ctx, args[0], body, client.IfMatch(r.ETag))
		})
	f := cmd.Flags()
	f.StringVar(amounts["low"], "low", "", "low_balance at this balance and below (10 whole units at first)")
	f.StringVar(amounts["depleted"], "depleted", "", "depleted at this balance and below; a negative one is a credit line (0 at first)")
	f.StringVar(amounts["rearm"], "rearm", "", "the next notice is given after the balance was above this (12 whole units at first)")
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
