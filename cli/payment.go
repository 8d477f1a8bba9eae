package cli

import (
	"context"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slipway-cloud/slipway/client"
)

func (a *app) topupCommand() *cobra.Command {
	var reason, back, code string
	var w watchFlags
	cmd := &cobra.Command{
		Use: "topup [PROJECT] AMOUNT", Short: "Ask for a payment page, to add AMOUNT to the balance that pays for a project", Args: cobra.RangeArgs(1, 2),
		Example: "  slipway topup training 50.00 --currency USD --watch",
		Long:    moneyHelp + " Open the address that it prints in a browser and pay there. The amount is credited after Stripe has confirmed the payment.",
	}
	reasonFlag(cmd, &reason)
	cmd.Flags().StringVar(&back, "return-url", "", "where the browser goes afterwards (default: the payments of the project in the portal)")
	cmd.Flags().StringVar(&code, "currency", "", "of the amount (default, and always: that of the billing account)")
	w.add(cmd)
	cmd.Flags().Lookup("watch").Usage = "wait until it is credited; exits with 6 when it is not"
	cmd.RunE = a.withProject(cmd, 1, func(cmd *cobra.Command, project string, args []string) error {
		c, err := a.currencyOfProject(cmd.Context(), project, client.Because(reason))
		if err != nil {
			return err
		}
		if err := c.checkFlag(code); err != nil {
			return err
		}
		amount, err := c.parseAmount("AMOUNT", args[0])
		if err != nil {
			return err
		}
		if back == "" {
			acc, err := a.account(cmd.Context())
			if err != nil {
				return err
			}
			back = strings.TrimRight(acc.Server, "/") + "/portal/projects/" + url.PathEscape(project) + "/payments"
		}
		r, err := a.api.CreateCheckoutSession(cmd.Context(), project, client.CheckoutRequest{AmountMinor: amount, SuccessURL: back, CancelURL: back}, client.Because(reason))
		p, err := client.Value(r, err)
		if err != nil {
			return err
		}
		if !w.on || a.output == "table" {
			if err := a.show(r.Raw, func() error {
				return a.fields("payment", p.ID, "amount", c.format(p.RequestedAmountMinor), "status", p.Status, "open", p.URL, "page closes", a.when(p.ExpiresAt))
			}); err != nil || !w.on {
				return err
			}
		}
		return a.watchPayment(cmd.Context(), p, client.Because(reason), w)
	})
	return cmd
}

// watchPayment follows a payment until it is credited, or will not be without an operator.
func (a *app) watchPayment(ctx context.Context, p client.PaymentSession, because client.Option, w watchFlags) error {
	project, id := p.ProjectID, p.ID
	read := func(ctx context.Context) (client.Answer[client.PaymentSession], error) {
		return a.api.GetPaymentSession(ctx, project, id, because)
	}
	return follow(ctx, read, w, func(r client.Answer[client.PaymentSession], p client.PaymentSession) (bool, error) {
		switch p.Status {
		case client.PaymentSessionStatusCheckoutCompleted:
			if p.PaymentStatus == "async_failed" {
				return true, fail(ExitJobFailed, "the payment method of payment %s failed; nothing was taken: ask for another one with slipway topup", p.ID)
			}
			return false, nil
		case client.PaymentSessionStatusInitiated:
			return false, nil
		case client.PaymentSessionStatusCredited:
			return true, a.showMoney(ctx, r.Raw, paymentShown())
		case client.PaymentSessionStatusFailedReconcile:
			return true, fail(ExitJobFailed, "payment %s came and could not be credited: %s\n  an operator decides about it: slipway payment resolve %s", p.ID, oneLine(p.FailureMessage), p.ID)
		case client.PaymentSessionStatusExpired:
		}
		text := "payment " + p.ID + " is " + string(p.Status)
		if p.FailureMessage != "" {
			text += ": " + oneLine(p.FailureMessage)
		}
		return true, fail(ExitJobFailed, "%s; nothing was taken: ask for another one with slipway topup", text)
	})
}

func paymentColumns() []string {
	return []string{"id", "status", "requested_amount_minor", "credited_amount_minor", "refunded_minor", "created_at", "resolution"}
}

func paymentShown() []string {
	return append(paymentColumns(), "project_id", "billing_account_id", "payment_status", "url", "expires_at", "completed_at", "credited_at", "ledger_entry_id",
		"stripe_checkout_session_id", "failure_code", "failure_message", "resolution_reason", "received_minor", "last_error", "refunds", "disputes")
}

func (a *app) paymentCommand() *cobra.Command {
	return group("payment", "Payments: what customers add to their balances through Stripe",
		a.paymentListCommand(), a.paymentShowCommand(), a.paymentReconcileCommand(), a.paymentResolveCommand(), a.paymentRefundCommand(),
		a.paymentDisputeCommand(), a.paymentDifferenceCommand(),
		listOf(a, "foreign", "List sessions of the same account at Stripe that are not of this installation", list(a.api.ListForeignPayments, nil),
			"id", "installation", "reference", "amount_minor", "paid", "created_at"),
	)
}

func (a *app) paymentListCommand() *cobra.Command {
	var reason, status, account string
	var stuck bool
	cmd := &cobra.Command{
		Use: "list [PROJECT]", Short: "List payments, newest first", Args: cobra.MaximumNArgs(1),
		Long: "With a project, those that were asked for in it. Without one, those of all billing accounts, for operators.",
	}
	reasonFlag(cmd, &reason)
	cmd.Flags().StringVar(&status, "status", "", "only those of this status, such as credited")
	cmd.Flags().StringVar(&account, "account", "", "without a project: only of this billing account, by name or id")
	cmd.Flags().BoolVar(&stuck, "stuck", false, "without a project: only those that an operator may have to look at")
	cmd.RunE = does(func(cmd *cobra.Command, args []string) error {
		of := client.ListAccountPaymentsParams{Status: optional[client.ListAccountPaymentsParamsStatus](status), Stuck: &stuck}
		switch {
		case len(args) == 1 && (stuck || account != ""):
			return fail(ExitUsage, "--stuck and --account are for operators, without a project")
		case len(args) == 1:
			project, err := a.projectOf(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			params := client.ListPaymentSessionsParams{Status: optional[client.ListPaymentSessionsParamsStatus](status)}
			r, err := listAll(cmd.Context(), listBelow(a.api.ListPaymentSessions, project, &params, client.Because(reason)), 0)
			if err != nil {
				return err
			}
			return a.showMoney(cmd.Context(), r.Raw, paymentColumns())
		case account != "":
			id, err := a.accountOf(cmd.Context(), account)
			if err != nil {
				return err
			}
			of.BillingAccountID = &id
		}
		r, err := listAll(cmd.Context(), list(a.api.ListAccountPayments, &of), 0)
		if err != nil {
			return err
		}
		return a.showMoney(cmd.Context(), r.Raw, append(paymentColumns(), "billing_account_id", "failure_code"))
	})
	return cmd
}

func (a *app) paymentShowCommand() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "show [PROJECT] PAYMENT", Short: "Show a payment", Args: cobra.RangeArgs(1, 2),
		Long: "With a project, one that was asked for in it: one that is not paid yet is compared with Stripe first. Without one, any with its refunds and disputes, for operators.",
	}
	reasonFlag(cmd, &reason)
	cmd.RunE = does(func(cmd *cobra.Command, args []string) error {
		if len(args) == 2 {
			project, err := a.projectOf(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			r, err := a.api.GetPaymentSession(cmd.Context(), project, args[1], client.Because(reason))
			if err != nil {
				return err
			}
			return a.showMoney(cmd.Context(), r.Raw, paymentShown())
		}
		r, err := a.api.GetAccountPayment(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		return a.showMoney(cmd.Context(), r.Raw, paymentShown())
	})
	return cmd
}

// because makes a command that needs --reason.
func because(c *cobra.Command, reason *string, why string) *cobra.Command {
	c.Flags().StringVar(reason, "reason", "", why)
	_ = c.MarkFlagRequired("reason")
	return c
}

func (a *app) paymentReconcileCommand() *cobra.Command {
	var reason string
	var w watchFlags
	cmd := &cobra.Command{
		Use: "reconcile PAYMENT", Short: "Have a payment compared with Stripe, and credited when it is paid", Args: cobra.ExactArgs(1),
		Long: "It prints the job that does so, a new one or the one that is under way. A parked job takes the actions of slipway job.",
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why; it stands in the audit log")
	w.add(cmd)
	cmd.RunE = does(func(cmd *cobra.Command, args []string) error {
		r, err := a.api.ReconcilePayment(cmd.Context(), args[0], client.ReconcileRequest{Reason: reason})
		got, err := client.Value(r, err)
		if err != nil {
			return err
		}
		if w.on {
			return a.watchJob(cmd.Context(), got.JobID, w)
		}
		return a.showRows(r.Raw, []string{"session_id", "job_id", "status"})
	})
	return cmd
}

func (a *app) paymentResolveCommand() *cobra.Command {
	var reason string
	return because(sendOne(a, "resolve PAYMENT credit|refund|write_off", "Decide about a payment that could not be credited", 2, paymentShown(),
		func(ctx context.Context, args []string) (client.Answer[client.AccountPayment], error) {
			return a.api.ResolvePayment(ctx, args[0], client.ResolveRequest{Resolution: client.ResolveRequestResolution(args[1]), Reason: reason})
		}), &reason, "why; those who pay for the project see it")
}

func (a *app) paymentRefundCommand() *cobra.Command {
	var reason string
	return because(sendOne(a, "refund PAYMENT AMOUNT", "Return AMOUNT, as 10.00, of a credited payment to the payer", 2,
		[]string{"id", "session_id", "state", "amount_minor", "stripe_refund_id", "last_error"},
		func(ctx context.Context, args []string) (client.Answer[client.PaymentRefund], error) {
			p, err := client.Value(a.api.GetAccountPayment(ctx, args[0]))
			if err != nil {
				return client.Answer[client.PaymentRefund]{}, err
			}
			amount, err := currency{p.Currency, int(p.Exponent)}.parseAmount("AMOUNT", args[1])
			if err != nil {
				return client.Answer[client.PaymentRefund]{}, err
			}
			return a.api.CreateRefund(ctx, args[0], client.RefundRequest{AmountMinor: amount, Reason: reason})
		}), &reason, "why; those who pay for the project see it")
}

func (a *app) paymentDisputeCommand() *cobra.Command {
	var reason string
	return because(sendOne(a, "clear-dispute DISPUTE", "Let the billing account of a lost dispute have new allocations again", 1, nil,
		func(ctx context.Context, args []string) (client.Answer[client.Nothing], error) {
			return a.api.ClearDispute(ctx, args[0], client.ReasonRequest{Reason: reason})
		}), &reason, "why; it stands in the audit log")
}

func (a *app) paymentDifferenceCommand() *cobra.Command {
	var reason string
	return group("difference", "What differs between Stripe and the ledger",
		listOf(a, "list", "List what differs", list(a.api.ListPaymentDifferences, nil), "kind", "subject", "amount_minor", "found_at", "acknowledged_at", "message"),
		because(sendOne(a, "acknowledge KIND SUBJECT", "Say that a difference is known", 2, nil, func(ctx context.Context, args []string) (client.Answer[client.Nothing], error) {
			return a.api.AcknowledgePaymentDifference(ctx, args[0], args[1], client.ReasonRequest{Reason: reason})
		}), &reason, "why; it stands in the audit log"),
	)
}
