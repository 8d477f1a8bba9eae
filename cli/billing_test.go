package cli_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/cli"
	"github.com/slipway-cloud/slipway/db/dbtest"
)

// TestBilling sets a price, pays in, reads what a project is told, and changes what an account may
// do.
func TestBilling(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	sku := dbtest.SKU(t, w.store, dbtest.Named("h100x8"))
	w.run(w.token("admin")+"\n", "login", "--server", w.url, "--token-stdin", "--name", "dev").exits(0)
	read := func(into any, args ...string) {
		t.Helper()
		require.NoError(t, json.Unmarshal([]byte(w.run("", append([]string{"-o", "json"}, args...)...).exits(0).out), into))
	}
	var account, project struct{ ID string }
	read(&account, "billing-account", "create", "acme")
	read(&project, "project", "create", "training", "--billing-account", account.ID, "--owner-email", "ada@example.com")
	told := func(args ...string) string {
		t.Helper()
		return w.run("", append(args, "--reason", "ticket 4711")...).exits(0).out
	}
	require.Contains(t, told("balance", project.ID), "nothing is charged")

	var plan struct {
		Hash string `json:"plan_hash"`
	}
	read(&plan, "price", "try", sku.Name, "19.93")
	require.Contains(t, w.run("", "price", "create", sku.Name, "19.94", "--plan-hash", plan.Hash).exits(cli.ExitRefused).err, "dry run")
	w.run("", "price", "create", sku.Name, "19.93 USD", "--plan-hash", plan.Hash).exits(0)
	prices := w.run("", "price", "list").exits(0).out
	require.Regexp(t, `RATE PER HOUR`, prices)
	require.Contains(t, prices, "19.93 USD")
	read(&plan, "price", "try", sku.Name, "21")
	var raised struct {
		ID string `json:"id"`
	}
	read(&raised, "price", "create", sku.Name, "21.00", "--plan-hash", plan.Hash)
	require.Contains(t, w.run("", "price", "list").exits(0).out, "21.00")
	w.run("", "price", "withdraw", raised.ID, "--reason", "the offer is not made").exits(0)
	require.NotContains(t, w.run("", "price", "list").exits(0).out, "21.00")
	require.Contains(t, w.run("", "price", "withdraw", raised.ID, "--reason", "once more").exits(cli.ExitNotFound).err, "Price "+raised.ID+" was not found")

	require.Contains(t, w.run("", "adjustment", "create", "acme", "19.933", "--reason", "x y z").exits(cli.ExitUsage).err, "at most 2 digits after the point")
	require.Contains(t, w.run("", "adjustment", "create", "acme", "19.93", "--currency", "EUR", "--reason", "x y z").exits(cli.ExitUsage).err, "is in USD")
	w.run("", "adjustment", "create", "acme", "500", "--project", project.ID, "--reason", "invoice 17 is paid").exits(0)
	require.Contains(t, told("balance", project.ID), "500.00 USD")
	ledger := told("ledger", project.ID)
	require.Regexp(t, `500\.00 USD.*invoice 17 is paid`, ledger)
	require.NotContains(t, ledger, "50000")
	require.Contains(t, told("ledger", project.ID, "-o", "json"), `"amount_minor": 50000`, "programs read minor units")
	told("usage", project.ID)
	told("usage", project.ID, "--days", "--from", "2026-01-01", "--to", "2026-01-31")
	require.Contains(t, told("statement", project.ID, "2026-01"), `"complete":true`)
	csv := told("statement", project.ID, "2026-01", "--csv")
	require.Len(t, strings.Split(strings.TrimSpace(csv), "\n"), 2, "the header and the total")

	require.Contains(t, told("budget", "set", project.ID, "900.00", "--warn-percent", "70"), "70")
	require.Contains(t, told("budget", "show", project.ID), "900.00 USD")
	told("budget", "delete", project.ID)
	w.run("", "budget", "show", project.ID, "--reason", "ticket 4711").exits(cli.ExitNotFound)

	line := []string{"billing-account", "thresholds", "acme", "--depleted", "-1000", "--grace", "10m", "--reason", "contract 4"}
	require.Contains(t, w.run("", line...).exits(0).out, "600")
	require.Contains(t, told("balance", project.ID), "-1000.00 USD")
	w.run("", "billing-account", "thresholds", "acme", "--low", "5.00 USD", "--reason", "contract 5").exits(0)
	var after struct {
		Thresholds   map[string]int64
		GraceSeconds int64 `json:"grace_seconds"`
	}
	read(&after, "balance", project.ID, "--reason", "ticket 4711")
	require.Equal(t, map[string]int64{"low_minor": 500, "depleted_minor": -100_000, "rearm_minor": 1200}, after.Thresholds, "what no flag names stays")
	require.Equal(t, int64(600), after.GraceSeconds)
	w.run("", "billing-account", "thresholds", "acme", "--grace", "0s", "--reason", "contract 6").exits(0)
	read(&after, "balance", project.ID, "--reason", "ticket 4711")
	require.Equal(t, int64(-100_000), after.Thresholds["depleted_minor"])
	require.Zero(t, after.GraceSeconds)
	require.Contains(t, w.run("", "billing-account", "thresholds", "acme", "--low", "-1000.01", "--reason", "contract 4").exits(cli.ExitUsage).err, "--low: must be at least")
	w.run("", "billing", "resume", "--reason", "nothing is stopped").exits(cli.ExitRefused)
}
