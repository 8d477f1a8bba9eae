package cli_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/cli"
	"github.com/slipway-cloud/slipway/db/dbtest"
)

// shopWorld is a world with a SKU that is offered and a project that may have nodes of it.
func shopWorld(t *testing.T, currency string) (w *world, account, project string) {
	t.Helper()
	w = newWorld(t)
	w.env["SLIPWAY_SERVER"], w.env["SLIPWAY_TOKEN"] = w.url, w.token("admin")
	account = w.run("", "-o", "json", "billing-account", "create", "acme", "--currency", currency).exits(0).id()
	project = w.run("", "-o", "json", "project", "create", "training", "--billing-account", account, "--owner-email", "ada@example.com").exits(0).id()
	w.run("", "quota", "set", project, "total", "2", "--reason", "ticket 4711").exits(0)
	sku, site := dbtest.SKU(t, w.store, dbtest.Named("h100x8")), dbtest.Site(t, w.store, dbtest.Named("south"))
	w.run("", "catalogue", "create", "h100x8", "--profile", dbtest.Profile(t, w.store, dbtest.At(site.ID)).ID, "--title", "Eight GPUs").exits(0)
	w.addKey(project)
	dbtest.FreeNode(t, w.store, dbtest.Of(sku.ID), dbtest.At(site.ID))
	return w, account, project
}

func (w *world) setPrice(rate, currency string) {
	w.t.Helper()
	var plan struct {
		Hash string `json:"plan_hash"`
	}
	said := w.run("", "-o", "json", "price", "try", "h100x8", rate, "--currency", currency).exits(0)
	require.NoError(w.t, json.Unmarshal([]byte(said.out), &plan))
	w.run("", "price", "create", "h100x8", rate, "--currency", currency, "--plan-hash", plan.Hash).exits(0)
}

// TestPrices_AreShownBeforeTheOrder reads a price in the catalogue, tries a request, makes it and
// reads what it costs.
func TestPrices_AreShownBeforeTheOrder(t *testing.T) {
	t.Parallel()
	w, _, project := shopWorld(t, "USD")
	run := func(args ...string) said { return w.run("", append(args, "--reason", "ticket 4711")...) }
	create := func(more ...string) said {
		return run(append([]string{"allocation", "create", "h100x8", "--project", project}, more...)...)
	}
	before := w.run("", "catalogue", "list").exits(0).out
	require.Contains(t, before, "nothing is charged")
	require.Contains(t, create("--dry-run").exits(0).out, "nothing is charged")
	w.setPrice("3000", "JPY")
	require.Contains(t, run("catalogue", "list", "--project", project).exits(0).out, "no price")
	dry := create("--dry-run").exits(cli.ExitRefused).out
	require.Regexp(t, `price +none in USD`, dry)
	require.Contains(t, dry, "has no price in USD")
	w.setPrice("19.93", "USD")
	listed := run("catalogue", "list", "--project", project).exits(0).out
	require.Regexp(t, `h100x8 +Eight GPUs .* 19\.93 USD +3\.32 USD +19\.93 USD`, listed)
	require.Equal(t, strings.Fields(strings.SplitN(before, "\n", 2)[0]), strings.Fields(strings.SplitN(listed, "\n", 2)[0]), "the header does not depend on the rows")
	require.Contains(t, w.run("", "catalogue", "list").exits(0).out, "3000 JPY, 19.93 USD")

	dry = create("--dry-run").exits(cli.ExitRefused).out
	for _, want := range []string{`price +19\.93 USD an hour`, `minimum charge +3\.32 USD`, `held back +19\.93 USD`, `available +0\.00 USD`, `available after +-19\.93 USD`, `19\.93 USD is missing`} {
		require.Regexp(t, want, dry)
	}
	require.Contains(t, create().exits(cli.ExitRefused).err, "19.93 USD is missing")
	w.run("", "adjustment", "create", "acme", "50 USD", "--reason", "invoice 17 is paid").exits(0)
	require.Regexp(t, `available after +30\.07 USD`, create("--dry-run").exits(0).out)
	require.Contains(t, create("--dry-run", "--watch").exits(cli.ExitUsage).err, "leave --watch out")
	require.Contains(t, create("--max-spend", "19.92").exits(cli.ExitUsage).err, "--max-spend: must be at least what an hour costs: 19.93 USD")
	require.Contains(t, create("--max-spend", "30 EUR").exits(cli.ExitUsage).err, "--max-spend must be in USD")
	id := create("--max-spend", "30.00 USD", "-o", "json").exits(0).id()
	shown := run("allocation", "show", id).exits(0).out
	require.Regexp(t, `price +19\.93 USD an hour`, shown)
	require.Regexp(t, `cost so far +0\.00 USD`, shown)
	require.Contains(t, run("-o", "json", "usage", project).exits(0).out, `"max_spend_minor": 3000`)
}

// TestAdjustment_LargeAmountIsAskedFor: an amount above the policy amount is booked after it was
// typed once more, or with --confirm.
func TestAdjustment_LargeAmountIsAskedFor(t *testing.T) {
	t.Parallel()
	w, _, project := shopWorld(t, "JPY")
	book := func(in string, args ...string) said {
		return w.run(in, append([]string{"adjustment", "create", "acme", "100001", "--reason", "invoice 17 is paid"}, args...)...)
	}
	require.Contains(t, book("").exits(cli.ExitUsage).err, "--confirm does it without asking")
	require.Contains(t, book("", "-o", "json").exits(cli.ExitUsage).err, "above 100000 JPY")
	require.Contains(t, book("yes\n").exits(cli.ExitRefused).err, "Book 100001 JPY")
	require.Regexp(t, `balance +0 JPY`, w.run("", "balance", project, "--reason", "ticket 4711").exits(0).out)
	require.Contains(t, book("100001\n").exits(0).out, "100001 JPY")
	require.Contains(t, book("", "--confirm", "--idempotency-key", "once").exits(0).out, "100001 JPY")
	book("", "--idempotency-key", "once").exits(0) // a repetition is not asked for
	require.Regexp(t, `balance +200002 JPY`, w.run("", "balance", project, "--reason", "ticket 4711").exits(0).out)
	require.Contains(t, w.run("", "adjustment", "create", "acme", "10.5", "--reason", "x y z").exits(cli.ExitUsage).err, "whole number")
	require.Contains(t, w.run("", "price", "try", "h100x8", "5", "--currency", "XTS").exits(cli.ExitUsage).err, "is not one of the currencies")
	w.setPrice("1.993", "KWD")
	require.Contains(t, w.run("", "price", "list").exits(0).out, "1.993 KWD")
}

// TestMoney_OfAnUnknownCurrency: no digits are assumed for a currency that the server does not
// name. The amount is shown in minor units with its code, and the header is the same.
func TestMoney_OfAnUnknownCurrency(t *testing.T) {
	t.Parallel()
	for name, currencies := range map[string]func(http.ResponseWriter){
		"not listed": func(w http.ResponseWriter) { _, _ = w.Write([]byte(`{"data":[{"code":"USD","exponent":2}]}`)) },
		"no list": func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(`{"status":404,"detail":"There is no such path."}`))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rows := `[{"number":1,"kind":"usage","amount_minor":-1993,"currency":"XTS"}]`
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				if strings.HasSuffix(r.URL.Path, "/currencies") {
					currencies(w)
					return
				}
				if strings.Contains(r.URL.Path, "prj_empty") {
					_, _ = w.Write([]byte(`{"data":[]}`))
					return
				}
				_, _ = w.Write([]byte(`{"data":` + rows + `}`))
			}))
			defer srv.Close()
			w := &world{t: t, home: t.TempDir(), env: map[string]string{"SLIPWAY_SERVER": srv.URL, "SLIPWAY_TOKEN": "t"}}
			out := w.run("", "ledger", "prj_some").exits(0).out
			require.Contains(t, out, "-1993 minor units XTS")
			require.NotContains(t, out, "19.93")
			empty := w.run("", "ledger", "prj_empty").exits(0).out
			require.Equal(t, strings.Fields(strings.SplitN(out, "\n", 2)[0]), strings.Fields(empty))
		})
	}
}
