package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slipway-cloud/slipway/client"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// currency is a currency and the digits of its minor unit. The server says both; none is assumed.
type currency struct {
	code     string
	exponent int
}

func (c currency) format(minor int64) string { return lifecycle.FormatMoney(minor, c.exponent, c.code) }

// parseAmount reads an amount such as 50.00 or 50.00 USD as minor units. name is the argument or
// flag of the amount.
func (c currency) parseAmount(name, text string) (int64, error) {
	minor, err := lifecycle.ParseMoney(text, c.exponent, c.code)
	if err != nil {
		return 0, fail(ExitUsage, "%s %w", name, err)
	}
	return minor, nil
}

// checkAmount refuses a text that is an amount in no currency, before the server is asked for the
// currency.
func checkAmount(name, text string) error {
	amount, _, _ := strings.Cut(strings.TrimSpace(text), " ")
	if amount == "" || strings.Trim(amount, "-.0123456789") != "" {
		return fail(ExitUsage, "%s must be an amount such as 50.00, not %q", name, text)
	}
	return nil
}

// checkFlag refuses another currency than that of the account; "" stands for that of the account.
func (c currency) checkFlag(flag string) error {
	if flag != "" && !strings.EqualFold(flag, c.code) {
		return fail(ExitUsage, "--currency: the billing account is in %s, not in %q, and nothing is converted; leave --currency out", c.code, flag)
	}
	return nil
}

// moneyHelp says how amounts are written.
const moneyHelp = "Amounts are written as 50.00 or \"50.00 USD\"."

// currencies returns the digits of the minor unit of each currency of the server.
func (a *app) currencies(ctx context.Context) (map[string]int, error) {
	got, err := client.Value(a.api.ListCurrencies(ctx))
	if err != nil {
		return nil, err
	}
	out := map[string]int{}
	for _, c := range got.Data {
		out[c.Code] = int(c.Exponent)
	}
	return out, nil
}

// currencyOf returns a currency of the server by its code.
func (a *app) currencyOf(ctx context.Context, code string) (currency, error) {
	known, err := a.currencies(ctx)
	if err != nil {
		return currency{}, err
	}
	code = strings.ToUpper(code)
	digits, found := known[code]
	if !found {
		return currency{}, fail(ExitUsage, "--currency: %q is not one of the currencies of this installation: %s", code, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
	}
	return currency{code, digits}, nil
}

// currencyOfProject returns the currency of the billing account that pays for a project.
func (a *app) currencyOfProject(ctx context.Context, project string, because client.Option) (currency, error) {
	b, err := client.Value(a.api.GetBalance(ctx, project, because))
	return currency{b.Currency, int(b.Exponent)}, err
}

// currencyOfAccount returns the currency of a billing account.
func (a *app) currencyOfAccount(ctx context.Context, account string) (currency, error) {
	b, err := client.Value(a.api.GetAccountBalance(ctx, account))
	return currency{b.Currency, int(b.Exponent)}, err
}

// showMoney is showRows for answers whose rows may have amounts.
func (a *app) showMoney(ctx context.Context, raw []byte, columns []string) error {
	return a.show(raw, func() error {
		raw, err := a.addDigits(ctx, raw, columns)
		if err != nil {
			return err
		}
		return a.printRows(raw, columns)
	})
}

// addDigits adds to each row with an amount how many digits its currency has, where the row does
// not say so. A currency that the server does not know stays without digits.
func (a *app) addDigits(ctx context.Context, raw []byte, columns []string) ([]byte, error) {
	if !slices.ContainsFunc(columns, isMoney) {
		return raw, nil
	}
	var answer map[string]any
	if err := json.Unmarshal(raw, &answer); err != nil {
		return nil, err
	}
	rows := []any{answer}
	if list, isList := answer["data"].([]any); isList {
		rows = list
	}
	var known map[string]int
	for _, r := range rows {
		row, _ := r.(map[string]any)
		for _, of := range []string{"", "received_"} {
			code, _ := row[of+"currency"].(string)
			if _, said := row[of+"exponent"]; said || code == "" {
				continue
			}
			if known == nil {
				var err error
				if known, err = a.currencies(ctx); err != nil && client.StatusOf(err) != http.StatusNotFound { // a server that does not list them
					return nil, err
				}
				if known == nil {
					known = map[string]int{}
				}
			}
			if digits, found := known[code]; found {
				row[of+"exponent"] = digits
			}
		}
	}
	return json.Marshal(answer)
}

func isMoney(name string) bool { return strings.Contains(name, "_minor") }

// column returns the name and the text of a field. An amount of minor units is written with its
// currency; where the digits of the currency are not known, as minor units.
func column(row map[string]any, name string) (title, text string) {
	if parts, isList := row[name].([]any); isList && len(parts) > 0 {
		if _, isObject := parts[0].(map[string]any); isObject {
			return name, partsText(row, parts)
		}
	}
	if !isMoney(name) {
		return name, cell(row[name])
	}
	title = strings.Replace(name, "_minor", "", 1)
	minor, isAmount := row[name].(float64)
	if !isAmount {
		return title, cell(row[name])
	}
	of := ""
	if other, _ := row["received_currency"].(string); other != "" && name == "received_minor" {
		of = "received_"
	}
	code, _ := row[of+"currency"].(string)
	digits, known := row[of+"exponent"].(float64)
	if !known {
		return title, strings.TrimSpace(cell(minor) + " minor units " + code)
	}
	return title, strings.TrimSpace(lifecycle.FormatMoney(int64(minor), int(digits), code))
}

// partsText writes the parts of a row, such as the refunds of a payment, with their amounts in the
// form of all others.
func partsText(row map[string]any, parts []any) string {
	var out []string
	for _, p := range parts {
		part, _ := p.(map[string]any)
		if _, said := part["exponent"]; !said && part["currency"] == row["currency"] {
			part["exponent"] = row["exponent"]
		}
		var fields []string
		for _, name := range slices.Sorted(maps.Keys(part)) {
			if name == "currency" || name == "exponent" {
				continue
			}
			if title, text := column(part, name); text != "" {
				fields = append(fields, title+" "+text)
			}
		}
		out = append(out, strings.Join(fields, ", "))
	}
	return strings.Join(out, "; ")
}

// rateText is what a node costs an hour.
func (c currency) rateText(minor int64) string { return c.format(minor) + " an hour" }

// catalogueList lists the catalogue with what a node of each SKU costs.
func (a *app) catalogueList() *cobra.Command {
	var project string
	var reason operatorFlag
	cmd := &cobra.Command{
		Use: "list", Short: "List the catalogue with prices", Args: cobra.NoArgs,
		Long: "Prices are in the currencies of the billing accounts that pay for your projects; --project shows those of one project.\n" +
			"MINIMUM is what an allocation costs at least once it is active, HELD BACK what is held back of the balance until its charge ends.",
	}
	cmd.Flags().StringVar(&project, "project", "", "a project, by id: only prices in the currency of the account that pays for it")
	reason.add(cmd)
	cmd.RunE = does(func(cmd *cobra.Command, _ []string) error {
		r, err := listAll(cmd.Context(), list(a.api.ListCatalogue, &client.ListCatalogueParams{ProjectID: optional[string](project)}, reason.because()), 0)
		if err != nil {
			return err
		}
		return show(a, r, a.printCatalogue)
	})
	return cmd
}

func (a *app) printCatalogue(items client.ListCatalogueItem) error {
	t := a.table("SKU", "TITLE", "GPUS", "ISOLATION", "AVAILABILITY", "PRICE AN HOUR", "MINIMUM", "HELD BACK")
	for _, item := range items.Data {
		var rates, least, holds []string
		for _, p := range item.Prices {
			c := currency{p.Currency, int(p.Exponent)}
			rates, least, holds = append(rates, c.format(p.RateMinorPerHour)), append(least, c.format(p.MinimumChargeMinor)), append(holds, c.format(p.HoldMinor))
		}
		price := strings.Join(rates, ", ")
		switch {
		case price != "":
		case item.Charging:
			price = "no price"
		default:
			price = "nothing is charged"
		}
		t.row(item.Sku, item.Title, item.Gpus, item.Isolation, item.Availability, price, orDash(strings.Join(least, ", ")), orDash(strings.Join(holds, ", ")))
	}
	return t.flush()
}

// showAllocationPlan shows what a request for a node would do, and exits with 4 when it would be
// refused.
func (a *app) showAllocationPlan(r client.Answer[client.AllocationPlan]) error {
	p, err := r.Decode()
	if err != nil {
		return err
	}
	if err := show(a, r, a.printAllocationPlan); err != nil {
		return err
	}
	if len(p.Refusals) > 0 {
		return fail(ExitRefused, "the request would be refused now")
	}
	return nil
}

func (a *app) printAllocationPlan(p client.AllocationPlan) error {
	c := currency{p.Currency, int(p.Exponent)}
	free := "no"
	if p.NodeFree {
		free = "yes"
	}
	pairs := []any{"project", p.ProjectID, "sku", p.Sku, "a node is free", free}
	switch {
	case p.Price != nil:
		pairs = append(pairs, "price", c.rateText(p.Price.RateMinorPerHour), "minimum charge", c.format(p.Price.MinimumChargeMinor)+" (ten minutes)",
			"held back", c.format(p.Price.HoldMinor))
	case p.Charging:
		pairs = append(pairs, "price", "none in "+p.Currency)
	default:
		pairs = append(pairs, "price", "nothing is charged")
	}
	if b := p.Balance; b != nil {
		pairs = append(pairs, "balance", c.format(b.BalanceMinor), "available", c.format(b.AvailableMinor), "available after", c.format(b.AvailableAfterMinor))
	}
	for _, refused := range p.Refusals {
		pairs = append(pairs, "would be refused", problemText(refused))
	}
	if len(p.Refusals) == 0 {
		pairs = append(pairs, "would be refused", "no")
	}
	return a.fields(pairs...)
}

// costText is the rate and the cost so far of an allocation. Each is empty where it is not known.
func costText(l client.Allocation) (rate, soFar string) {
	if l.Cost == nil {
		return "", ""
	}
	c := currency{l.Cost.Currency, int(l.Cost.Exponent)}
	if l.Cost.RateMinorPerHour != nil {
		rate = c.rateText(*l.Cost.RateMinorPerHour)
	}
	if l.Cost.CostMinor != nil {
		soFar = c.format(*l.Cost.CostMinor)
	}
	return rate, soFar
}

// printPricePlan prints the dry run of a price with what it concerns.
func (a *app) printPricePlan(p client.PricePlan) error {
	c := currency{p.Currency, int(p.Exponent)}
	before, factor := "", ""
	if p.Before.ID != "" {
		before = c.rateText(p.Before.RateMinorPerHour)
	}
	if p.Factor != 0 {
		factor = fmt.Sprintf("%.4g", p.Factor)
	}
	err := a.fields("sku_id", p.SkuID, "instance_type", p.InstanceType, "price", c.rateText(p.RateMinorPerHour), "valid from", a.when(p.ValidFrom), "before", before, "factor", factor,
		"needs confirmation", p.NeedsConfirmation, "affected", len(p.Affected), "ends", p.Ends, "plan_hash", p.PlanHash)
	if err != nil || len(p.Affected) == 0 {
		return err
	}
	t := a.table("AFFECTED", "PROJECT", "ACCOUNT", "PRICE NOW", "SINCE", "ENDS")
	for _, x := range p.Affected {
		rate, ends := "-", ""
		if x.RateMinorPerHour != nil {
			rate = c.rateText(*x.RateMinorPerHour)
		}
		if x.Ends {
			ends = "yes"
		}
		t.row(x.AllocationID+x.InstanceID, x.ProjectID, x.BillingAccountID, rate, orDash(a.when(x.StartTime)), ends)
	}
	if p.More {
		t.row("and more")
	}
	return t.flush()
}
