package tenancy_test

import (
	"encoding/csv"
	"encoding/json"
	"math/big"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/rest/tenancy"
	ledgerdb "github.com/slipway-cloud/slipway/db/ledger"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/test/billing/model"
)

// priced is a market whose SKU has a price, with an allocation that has run for 80 minutes and is
// charged.
type priced struct {
	*market
	allocation string
}

// list reads a list as one type of row.
func list[T any](t *testing.T, a answer) []T {
	t.Helper()
	var body struct{ Data []T }
	require.NoError(t, json.Unmarshal(a.want(http.StatusOK).raw, &body), string(a.raw))
	return body.Data
}

func (m *market) adjust(amount int64, project string) answer {
	m.t.Helper()
	return m.do(m.admin, "POST", "/admin/adjustments", map[string]any{
		"billing_account_id": m.account, "project_id": project, "amount_minor": amount, "reason": "paid by invoice 17",
	})
}

func (m *market) setPrice(rate int64) {
	m.t.Helper()
	m.setPriceIn("USD", rate)
}

func newPriced(t *testing.T) *priced {
	t.Helper()
	m := &priced{market: newMarket(t)}
	m.setPrice(1993)
	m.adjust(5000, "").want(http.StatusCreated)
	m.freeNode()
	m.allocation = m.create(nil)
	m.activate(m.allocation)
	// As if all of it had happened 80 minutes earlier.
	m.exec(`SET session_replication_role = replica;
		UPDATE prices SET valid = tstzrange(lower(valid) - interval '80 minutes', NULL);
		UPDATE usage_records SET start_time = start_time - interval '80 minutes';
		UPDATE usage_segments SET started_at = started_at - interval '80 minutes', billed_through = billed_through - interval '80 minutes'`)
	now, err := m.store.Clock(t.Context())
	require.NoError(t, err)
	report, err := ledgerdb.Tick(t.Context(), m.store, ledgerdb.TickInput{Worker: now, Scheduled: now, Boundary: now})
	require.NoError(t, err)
	require.Equal(t, 1, report.Windows, "%+v", report)
	return m
}

// TestBilling_AnswersAgree reads one charge as balance, ledger, usage, days and statement.
func TestBilling_AnswersAgree(t *testing.T) {
	t.Parallel()
	m := newPriced(t)
	at := "/projects/" + m.project
	usage := list[tenancy.UsageSegment](t, m.do(m.owner, "GET", at+"/usage", nil))
	require.Len(t, usage, 1)
	u := usage[0]
	require.Equal(t, m.allocation, u.AllocationID)
	require.Equal(t, int64(1993), u.RateMinorPerHour)
	cost := model.Charge(big.NewInt(1993), u.LastBilledAt.Sub(*u.StartTime)).Int64()
	require.GreaterOrEqual(t, cost, int64(1993*79/60), "80 minutes, of which a tick may have left the last")
	require.Equal(t, cost, u.CostMinor)

	var b tenancy.Balance
	require.NoError(t, json.Unmarshal(m.do(m.owner, "GET", at+"/balance", nil).want(http.StatusOK).raw, &b))
	require.Equal(t, 5000-cost, b.BalanceMinor)
	require.Equal(t, int64(1993), b.HeldMinor, "an hour")
	require.Equal(t, 5000-cost-1993, b.AvailableMinor)
	require.Equal(t, lifecycle.BalanceHealthy, b.State)
	require.Equal(t, tenancy.BalanceThresholds{LowMinor: 1000, DepletedMinor: 0, RearmMinor: 1200}, b.Thresholds)
	require.True(t, b.Charging)
	require.Nil(t, b.GraceEndsAt)

	m.adjust(-7, m.project).want(http.StatusCreated)
	lines := list[tenancy.LedgerLine](t, m.do(m.owner, "GET", at+"/ledger", nil))
	require.Len(t, lines, 2, "the payment belongs to no project")
	require.Equal(t, []int64{-7, -cost}, []int64{lines[0].AmountMinor, lines[1].AmountMinor})
	require.Equal(t, []string{"adjustment", "usage"}, []string{lines[0].Kind, lines[1].Kind})
	all := list[tenancy.AccountLedgerLine](t, m.do(m.admin, "GET", "/admin/billing-accounts/"+m.account+"/ledger", nil))
	require.Len(t, all, 3)
	require.Equal(t, 5000-cost-7, all[0].BalanceAfterMinor)

	days := list[tenancy.UsageDay](t, m.do(m.owner, "GET", at+"/usage/days", nil))
	sum := int64(0)
	for _, d := range days {
		sum += d.CostMinor
	}
	require.Equal(t, cost, sum)

	month := lines[0].PostedAt.Format("2006-01")
	var statement tenancy.Statement
	require.NoError(t, json.Unmarshal(m.do(m.owner, "GET", at+"/statements/"+month, nil).want(http.StatusOK).raw, &statement))
	require.True(t, statement.Complete)
	require.False(t, statement.Final)
	require.Len(t, statement.Lines, 2)
	require.Equal(t, -cost-7, statement.TotalMinor, "the statement is the ledger")
	text := m.do(m.owner, "GET", at+"/statements/"+month+"?format=csv", nil).want(http.StatusOK)
	require.Equal(t, "text/csv; charset=utf-8", text.header.Get("Content-Type"))
	rows, err := csv.NewReader(strings.NewReader(string(text.raw))).ReadAll()
	require.NoError(t, err)
	require.Len(t, rows, 4)
	require.Equal(t, []string{"total", lifecycle.FormatMinor(-cost-7, 2), "USD"}, []string{rows[3][1], rows[3][5], rows[3][6]})
	empty := m.do(m.owner, "GET", at+"/statements/2020-01", nil).want(http.StatusOK)
	require.Contains(t, string(empty.raw), `"final":true`)
	require.Contains(t, string(empty.raw), `"lines":[]`)
}

// TestStatement_IsFinalAfterItsLastTransaction: what began in a month and is committed in the next
// one has a time in the first.
func TestStatement_IsFinalAfterItsLastTransaction(t *testing.T) {
	t.Parallel()
	end := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	for after, want := range map[time.Duration]bool{-time.Second: false, 0: false, 9 * time.Minute: false, 10 * time.Minute: true} {
		require.Equal(t, want, tenancy.IsFinal(end, end.Add(after)), after)
	}
}

// TestBilling_Roles reads money in each role: billing and owner may, member and viewer may not.
func TestBilling_Roles(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.newTenant("alpha")
	for role, status := range map[string]int{"billing": http.StatusOK, "member": http.StatusForbidden, "viewer": http.StatusForbidden} {
		bearer, _ := w.addMember(v, role, role)
		for _, path := range []string{"/balance", "/ledger", "/usage", "/usage/days", "/statements/2026-03", "/statements/2026-03?format=csv"} {
			w.do(bearer, "GET", "/projects/"+v.project+path, nil).want(status)
		}
	}
	for _, wrong := range []string{"/statements/2026-13", "/statements/march", "/usage/days?from=2026-02-30", "/usage/days?from=2026-01-01&to=2026-12-31", "/usage?cursor=eA"} {
		w.do(v.owner, "GET", "/projects/"+v.project+wrong, nil).want(http.StatusUnprocessableEntity)
	}
}

// TestAdjustments_AreBookedOnce repeats adjustments and sends bad ones.
func TestAdjustments_AreBookedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v, other := w.newTenant("alpha"), w.newTenant("beta")
	body := func(amount int64) map[string]any {
		return map[string]any{"billing_account_id": v.account, "amount_minor": amount, "reason": "paid by invoice 17"}
	}
	key := header{"Idempotency-Key": "invoice-17"}
	first := w.do(w.admin, "POST", "/admin/adjustments", body(700), key).want(http.StatusCreated)
	require.Equal(t, string(first.raw), string(w.do(w.admin, "POST", "/admin/adjustments", body(700), key).want(http.StatusCreated).raw))
	w.do(w.admin, "POST", "/admin/adjustments", body(701), key).want(http.StatusUnprocessableEntity)
	w.exec("DELETE FROM idempotency_records") // as its records end one day
	w.do(w.admin, "POST", "/admin/adjustments", body(700), key).want(http.StatusCreated)
	w.exec("DELETE FROM idempotency_records")
	w.do(w.admin, "POST", "/admin/adjustments", body(701), key).want(http.StatusConflict)
	require.Contains(t, string(w.do(w.admin, "GET", "/admin/billing-accounts/"+v.account+"/balance", nil).want(http.StatusOK).raw), `"balance_minor":700,`)
	w.do(w.admin, "POST", "/admin/adjustments", body(0)).want(http.StatusUnprocessableEntity)
	foreign := body(1)
	foreign["project_id"] = other.project
	require.Contains(t, string(w.do(w.admin, "POST", "/admin/adjustments", foreign).want(http.StatusUnprocessableEntity).raw), "project_id")
	w.do(v.owner, "POST", "/admin/adjustments", body(1)).want(http.StatusForbidden)
	log := string(w.do(w.admin, "GET", "/admin/audit?resource_kind=billing_account&resource_id="+v.account, nil).want(http.StatusOK).raw)
	require.Equal(t, 1, strings.Count(log, `"adjust_balance"`))
	require.Contains(t, log, "paid by invoice 17")
}

// TestPrices_AreTriedBeforeTheyAreSet sets prices with and without a dry run and a confirmation.
func TestPrices_AreTriedBeforeTheyAreSet(t *testing.T) {
	t.Parallel()
	m := newPriced(t)
	price := map[string]any{"sku_id": m.sku.ID, "currency": "USD", "rate_minor_per_hour": 199_300}
	var plan tenancy.PricePlan
	require.NoError(t, json.Unmarshal(m.do(m.admin, "POST", "/admin/prices/plan", price).want(http.StatusOK).raw, &plan))
	require.InDelta(t, 100, plan.Factor, 0)
	require.NotEmpty(t, plan.NeedsConfirmation)
	require.Equal(t, int64(1993), plan.Before.RateMinorPerHour)
	require.Equal(t, []int{2, 2}, []int{plan.Exponent, plan.Before.Exponent})
	inYen := map[string]any{"sku_id": m.sku.ID, "currency": "JPY", "rate_minor_per_hour": 3000}
	require.Contains(t, string(m.do(m.admin, "POST", "/admin/prices/plan", inYen).want(http.StatusOK).raw), `"exponent":0`)
	require.Len(t, plan.Affected, 1)
	require.Equal(t, m.allocation, plan.Affected[0].AllocationID)
	m.do(m.admin, "POST", "/admin/prices", price).want(http.StatusPreconditionRequired)
	price["plan_hash"] = strings.Repeat("0", 64)
	m.do(m.admin, "POST", "/admin/prices", price).want(http.StatusPreconditionFailed)
	price["plan_hash"] = plan.PlanHash
	require.Contains(t, string(m.do(m.admin, "POST", "/admin/prices", price).want(http.StatusUnprocessableEntity).raw), "body.confirm")
	prices := list[tenancy.Price](t, m.do(m.admin, "GET", "/admin/prices", nil))
	require.Len(t, prices, 1, "nothing was set")
	require.Equal(t, 2, prices[0].Exponent)
	price["confirm"] = true
	m.do(m.admin, "POST", "/admin/prices", price).want(http.StatusCreated)
	soon := map[string]any{"sku_id": m.sku.ID, "currency": "USD", "rate_minor_per_hour": 1993, "valid_from": time.Now().Add(59 * time.Minute)}
	require.Contains(t, string(m.do(m.admin, "POST", "/admin/prices/plan", soon).want(http.StatusUnprocessableEntity).raw), "an hour ahead")
	require.Len(t, list[tenancy.Price](t, m.do(m.admin, "GET", "/admin/prices?sku_id="+m.sku.ID, nil)), 2)
	m.do(m.owner, "GET", "/admin/prices", nil).want(http.StatusForbidden)

	set := list[tenancy.Price](t, m.do(m.admin, "GET", "/admin/prices?sku_id="+m.sku.ID, nil))
	began, future := set[0], set[1]
	withdraw := func(actor, id, reason string) answer {
		return m.do(actor, "POST", "/admin/prices/"+id+"/withdraw", map[string]any{"reason": reason})
	}
	withdraw(m.owner, future.ID, "it is a typo").want(http.StatusForbidden)
	withdraw(m.admin, future.ID, "").want(http.StatusUnprocessableEntity)
	require.Contains(t, string(withdraw(m.admin, began.ID, "it is a typo").want(http.StatusConflict).raw), "has begun")
	require.Contains(t, string(withdraw(m.admin, future.ID, "it is a typo").want(http.StatusOK).raw), `"rate_minor_per_hour":199300`)
	withdraw(m.admin, future.ID, "it is a typo").want(http.StatusNotFound)
	set = list[tenancy.Price](t, m.do(m.admin, "GET", "/admin/prices?sku_id="+m.sku.ID, nil))
	require.Len(t, set, 1)
	require.Nil(t, set[0].ValidUntil)
}

// TestThresholds_NeedAnOrderAndTheVersion replaces the thresholds of an account.
func TestThresholds_NeedAnOrderAndTheVersion(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.newTenant("alpha")
	at := "/admin/billing-accounts/" + v.account
	tag := w.do(w.admin, "GET", at+"/balance", nil).want(http.StatusOK).header.Get("ETag")
	body := map[string]any{"low_minor": 5000, "rearm_minor": 6000, "grace_seconds": 600, "reason": "contract 4"}
	changed := w.do(w.admin, "PUT", at+"/thresholds", body, header{"If-Match": tag}).want(http.StatusOK)
	require.Contains(t, string(changed.raw), `"low_minor":5000`)
	require.Contains(t, string(changed.raw), `"version":`+strings.Trim(changed.header.Get("ETag"), `"`))
	w.do(w.admin, "PUT", at+"/thresholds", body, header{"If-Match": tag}).want(http.StatusPreconditionFailed)
	body["low_minor"] = 7000
	require.Contains(t, string(w.do(w.admin, "PUT", at+"/thresholds", body).want(http.StatusUnprocessableEntity).raw), "low_minor")
	w.do(w.admin, "POST", "/admin/billing/resume", map[string]any{"reason": "prices are right"}).want(http.StatusPreconditionFailed)
}

// TestBudget_CountsTheMonth sets, reads and removes a budget. The amount spent is of this month.
func TestBudget_CountsTheMonth(t *testing.T) {
	t.Parallel()
	m := newPriced(t)
	at := "/projects/" + m.project + "/budget"
	m.do(m.owner, "DELETE", at, nil).want(http.StatusNoContent) // that of the tenant
	m.do(m.owner, "GET", at, nil).want(http.StatusNotFound)
	m.do(m.owner, "PUT", at, map[string]any{"limit_minor": 0}).want(http.StatusUnprocessableEntity)
	u := list[tenancy.UsageSegment](t, m.do(m.owner, "GET", "/projects/"+m.project+"/usage", nil))[0]
	rate := big.NewInt(1993)
	year, month, _ := u.LastBilledAt.Date()
	begin := time.Date(year, month, 1, 0, 0, 0, 0, time.UTC)
	want := model.Charge(rate, u.LastBilledAt.Sub(*u.StartTime)).Int64() - model.Charge(rate, begin.Sub(*u.StartTime)).Int64()
	var b tenancy.Budget
	require.NoError(t, json.Unmarshal(m.do(m.owner, "PUT", at, map[string]any{"limit_minor": 90_000}).want(http.StatusOK).raw, &b))
	require.Equal(t, []int64{90_000, 80, want}, []int64{b.LimitMinor, int64(b.WarnPercent), b.SpentMinor})
	require.Equal(t, begin.Format("2006-01"), b.Month)
	raw := m.do(m.owner, "PUT", at, map[string]any{"limit_minor": 90_000, "warn_percent": 80}).want(http.StatusOK).raw
	require.Contains(t, string(raw), b.UpdatedAt.Format(time.RFC3339Nano), "the same budget is not another one, whose warnings are given again")
	member, _ := m.addMember(m.tenant, "member", "member")
	m.do(member, "GET", at, nil).want(http.StatusForbidden)
	m.do(m.owner, "DELETE", at, nil).want(http.StatusNoContent)
	m.do(m.owner, "DELETE", at, nil).want(http.StatusNotFound)
}

// TestAllocations_MaxSpend: an allocation may cost an hour at least, and its usage shows the limit.
func TestAllocations_MaxSpend(t *testing.T) {
	t.Parallel()
	m := newPriced(t)
	m.freeNode()
	m.adjust(10_000, "").want(http.StatusCreated)
	short := m.do(m.owner, "POST", m.base, m.request(map[string]any{"max_spend_minor": 1992})).want(http.StatusUnprocessableEntity)
	require.Contains(t, string(short.raw), "19.93 USD")
	id := m.create(map[string]any{"max_spend_minor": 1993})
	rows := list[tenancy.UsageSegment](t, m.do(m.owner, "GET", "/projects/"+m.project+"/usage?allocation_id="+id, nil))
	require.Len(t, rows, 1)
	require.Equal(t, int64(1993), *rows[0].MaxSpendMinor)
}
