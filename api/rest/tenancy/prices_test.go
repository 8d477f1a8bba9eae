package tenancy_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/api/rest/tenancy"
	"github.com/slipway-cloud/slipway/db/dbtest"
)

// catalogue reads the one item of the catalogue.
func (m *market) catalogue(bearer, query string) tenancy.CatalogueItem {
	m.t.Helper()
	items := list[tenancy.CatalogueItem](m.t, m.do(bearer, "GET", "/catalogue"+query, nil))
	require.Len(m.t, items, 1)
	return items[0]
}

// addProjectIn makes an account in a currency with a project that the owner of the tenant owns.
func (m *market) addProjectIn(currency string) string {
	m.t.Helper()
	account := m.do(m.admin, "POST", "/admin/billing-accounts", map[string]any{"name": "in-" + currency, "currency": currency}).want(http.StatusCreated).field("id")
	project := m.do(m.admin, "POST", "/admin/projects", map[string]any{
		"billing_account_id": account, "name": "in-" + currency, "owner_email": m.name + "-owner@example.com",
	}).want(http.StatusCreated).field("id")
	m.accept(m.owner)
	return project
}

func (m *market) setPriceIn(currency string, rate int64) {
	m.t.Helper()
	price := map[string]any{"sku_id": m.sku.ID, "currency": currency, "rate_minor_per_hour": rate}
	price["plan_hash"] = m.do(m.admin, "POST", "/admin/prices/plan", price).want(http.StatusOK).field("plan_hash")
	m.do(m.admin, "POST", "/admin/prices", price).want(http.StatusCreated)
}

// TestCatalogue_HasPrices: a customer sees what a node costs in the currencies of his accounts
// before he requests one.
func TestCatalogue_HasPrices(t *testing.T) {
	t.Parallel()
	m := newMarket(t)
	item := m.catalogue(m.owner, "")
	require.False(t, item.Charging)
	require.Empty(t, item.Prices)
	yen := m.addProjectIn("JPY")
	dinar := m.addProjectIn("KWD")
	m.setPrice(1993)
	m.setPriceIn("JPY", 3001)
	m.setPriceIn("EUR", 1800)

	inUSD := tenancy.Rate{Currency: "USD", Exponent: 2, RateMinorPerHour: 1993, MinimumChargeMinor: 332, HoldMinor: 1993}
	inYen := tenancy.Rate{Currency: "JPY", Exponent: 0, RateMinorPerHour: 3001, MinimumChargeMinor: 500, HoldMinor: 3001}
	item = m.catalogue(m.owner, "")
	require.True(t, item.Charging)
	require.Equal(t, []tenancy.Rate{inYen, inUSD}, item.Prices, "of the currencies of his accounts; none has EUR")
	require.Equal(t, []tenancy.Rate{inYen}, m.catalogue(m.owner, "?project_id="+yen).Prices)
	require.Empty(t, m.catalogue(m.owner, "?project_id="+dinar).Prices)
	require.Equal(t, []tenancy.Rate{inUSD}, m.catalogue(m.token, "").Prices, "a token sees those of its project")
	m.do(m.token, "GET", "/catalogue?project_id="+yen, nil).want(http.StatusNotFound)
	viewer, _ := m.addMember(m.tenant, "viewer", "viewer")
	require.Equal(t, []tenancy.Rate{inUSD}, m.catalogue(viewer, "").Prices)
	m.do(viewer, "GET", "/catalogue?project_id="+yen, nil).want(http.StatusNotFound)
	require.Len(t, m.catalogue(m.signIn("newcomer"), "").Prices, 3, "who has no project yet sees all")
	require.Len(t, m.catalogue(m.admin, "").Prices, 3)
	m.do(m.admin, "GET", "/catalogue?project_id="+yen, nil).want(http.StatusUnprocessableEntity) // without a reason
	why := header{"Slipway-Reason": "ticket 4711"}
	require.Contains(t, string(m.do(m.admin, "GET", "/catalogue?project_id="+yen, nil, why).want(http.StatusOK).raw), `"currency":"JPY"`)
	m.do(m.admin, "GET", "/catalogue?project_id=prj_none", nil, why).want(http.StatusNotFound)
}

// TestCurrencies_SayTheirDigits: clients write amounts without a table of their own.
func TestCurrencies_SayTheirDigits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.newTenant("alpha")
	for _, bearer := range []string{v.owner, v.token, w.admin} {
		digits := map[string]int{}
		for _, c := range list[tenancy.Currency](t, w.do(bearer, "GET", "/currencies", nil)) {
			digits[c.Code] = c.Exponent
		}
		require.Equal(t, []int{2, 0, 3}, []int{digits["USD"], digits["JPY"], digits["KWD"]})
	}
}

// TestAllocationPlan_SaysWhatARequestCosts: the dry run has price, hold and the balance after, all
// reasons for a refusal, and leaves nothing behind.
func TestAllocationPlan_SaysWhatARequestCosts(t *testing.T) {
	t.Parallel()
	m := newMarket(t)
	member, _ := m.addMember(m.tenant, "member", "member")
	viewer, _ := m.addMember(m.tenant, "viewer", "viewer")
	ask := func(bearer string, more map[string]any) (p tenancy.AllocationPlan) {
		t.Helper()
		m.do(bearer, "POST", m.base+"/plan", m.request(more)).want(http.StatusOK).at(t, &p)
		return p
	}
	p := ask(m.owner, nil)
	require.False(t, p.Charging)
	require.Nil(t, p.Price)
	require.Len(t, p.Refusals, 1)
	require.Contains(t, p.Refusals[0].Type, "no-capacity")

	m.setPrice(1993)
	p = ask(m.owner, nil)
	require.Equal(t, &tenancy.Rate{Currency: "USD", Exponent: 2, RateMinorPerHour: 1993, MinimumChargeMinor: 332, HoldMinor: 1993}, p.Price)
	require.Equal(t, &tenancy.AllocationBalance{BalanceMinor: 0, AvailableMinor: 0, AvailableAfterMinor: -1993}, p.Balance)
	require.Len(t, p.Refusals, 2)
	require.Contains(t, p.Refusals[0].Detail, "19.93 USD is missing")
	require.Equal(t, &problem.Shortfall{MissingMinor: 1993, RateMinorPerHour: 1993, HoldMinor: 1993, Currency: "USD", Exponent: 2}, p.Refusals[0].Shortfall)
	forMember := ask(member, nil)
	require.Equal(t, p.Price, forMember.Price, "who may request a node sees what it costs")
	require.Nil(t, forMember.Balance, "and not the balance")
	require.Nil(t, forMember.Refusals[0].Shortfall)
	m.do(viewer, "POST", m.base+"/plan", m.request(nil)).want(http.StatusForbidden)

	m.adjust(5000, "").want(http.StatusCreated)
	m.freeNode()
	p = ask(m.owner, nil)
	require.True(t, p.NodeFree)
	require.Empty(t, p.Refusals)
	require.Equal(t, &tenancy.AllocationBalance{BalanceMinor: 5000, AvailableMinor: 5000, AvailableAfterMinor: 3007}, p.Balance)
	require.Equal(t, m.project, p.ProjectID)
	require.Equal(t, "h100x8", p.SKU)
	require.Empty(t, list[tenancy.Allocation](t, m.do(m.owner, "GET", m.base, nil)), "nothing was requested")
	var own tenancy.AllocationPlan
	m.do(m.token, "POST", "/allocations/plan", m.request(nil)).want(http.StatusOK).at(t, &own)
	require.Equal(t, p, own)
	for field, body := range map[string]map[string]any{
		"max_spend_minor": {"max_spend_minor": 1992}, "sku_id": {"sku_id": "sku_none"}, "ssh_key_ids": {"ssh_key_ids": []string{"key_none"}}, "expires_at": {"expires_at": "2020-01-01T00:00:00Z"},
	} {
		for _, path := range []string{m.base + "/plan", m.base} {
			require.Contains(t, string(m.do(m.owner, "POST", path, m.request(body)).want(http.StatusUnprocessableEntity).raw), "body."+field, "the dry run refuses as the request does")
		}
	}
	m.create(nil)
	require.Equal(t, &tenancy.AllocationBalance{BalanceMinor: 5000, AvailableMinor: 3007, AvailableAfterMinor: 1014}, ask(m.owner, nil).Balance)
}

// TestAllocations_ShowWhatTheyCost: rate and cost so far for those who may read money, the rate for
// all members, and nothing where there is no usage record.
func TestAllocations_ShowWhatTheyCost(t *testing.T) {
	t.Parallel()
	m := newPriced(t)
	m.setPriceIn("JPY", 5)
	usage := list[tenancy.UsageSegment](t, m.do(m.owner, "GET", "/projects/"+m.project+"/usage", nil))[0]
	require.Positive(t, usage.CostMinor)
	rate := int64(1993)
	cost := func(bearer, id string) *tenancy.AllocationCost {
		t.Helper()
		var a tenancy.Allocation
		m.do(bearer, "GET", m.base+"/"+id, nil).want(http.StatusOK).at(t, &a)
		return a.Cost
	}
	want := &tenancy.AllocationCost{Currency: "USD", Exponent: 2, RateMinorPerHour: &rate, CostMinor: &usage.CostMinor}
	require.Equal(t, want, cost(m.owner, m.allocation))
	require.Equal(t, want, list[tenancy.Allocation](t, m.do(m.owner, "GET", m.base, nil))[0].Cost)
	viewer, _ := m.addMember(m.tenant, "viewer", "viewer")
	require.Equal(t, &tenancy.AllocationCost{Currency: "USD", Exponent: 2, RateMinorPerHour: &rate}, cost(viewer, m.allocation))
	m.adjust(5000, "").want(http.StatusCreated)
	waiting := m.create(map[string]any{"wait_seconds": 60})
	zero := int64(0)
	require.Equal(t, &tenancy.AllocationCost{Currency: "USD", Exponent: 2, RateMinorPerHour: &rate, CostMinor: &zero}, cost(m.owner, waiting), "the price that is in force")
	m.exec("SET session_replication_role = replica; DELETE FROM balance_holds; DELETE FROM usage_records WHERE allocation_id = '" + waiting + "'")
	require.Nil(t, cost(m.owner, waiting))
	require.NotContains(t, string(m.do(m.owner, "GET", m.base+"/"+waiting, nil).want(http.StatusOK).raw), "cost_minor")
}

// TestAllocations_RefusalSaysWhatIsMissing: the refusal of a request has the amount for those who
// may read it.
func TestAllocations_RefusalSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	m := newMarket(t)
	m.setPrice(1993)
	m.adjust(700, "").want(http.StatusCreated)
	dbtest.FreeNode(t, m.store, dbtest.Of(m.sku.ID), dbtest.At(m.site.ID))
	var p problem.Problem
	m.do(m.owner, "POST", m.base, m.request(nil)).want(http.StatusConflict).at(t, &p)
	require.Equal(t, &problem.Shortfall{MissingMinor: 1293, RateMinorPerHour: 1993, HoldMinor: 1993, Currency: "USD", Exponent: 2}, p.Shortfall)
	require.Contains(t, p.Detail, "12.93 USD is missing")
	member, _ := m.addMember(m.tenant, "member", "member")
	refused := m.do(member, "POST", m.base, m.request(nil)).want(http.StatusConflict)
	require.Contains(t, string(refused.raw), "19.93 USD an hour")
	require.NotContains(t, string(refused.raw), "12.93")
	require.NotContains(t, string(refused.raw), "shortfall")
}

// TestAdjustments_AboveThePolicyAmount: without the confirmation nothing is booked, and a
// repetition may leave the confirmation out.
func TestAdjustments_AboveThePolicyAmount(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.newTenant("alpha")
	body := map[string]any{"billing_account_id": v.account, "amount_minor": 100_001, "reason": "paid by invoice 17"}
	key := header{"Idempotency-Key": "invoice-17"}
	book := func(status int) string {
		t.Helper()
		return string(w.do(w.admin, "POST", "/admin/adjustments", body, key).want(status).raw)
	}
	refused := book(http.StatusUnprocessableEntity)
	require.Contains(t, refused, "body.confirm")
	require.Contains(t, refused, "above 1000.00 USD")
	body["confirm"] = true
	first := book(http.StatusCreated)
	require.Contains(t, first, `"exponent":2`)
	delete(body, "confirm")
	require.Equal(t, first, book(http.StatusCreated))
	w.exec("DELETE FROM idempotency_records") // as its records end one day
	require.Contains(t, book(http.StatusCreated), `"amount_minor":100001`)
	require.Contains(t, string(w.do(w.admin, "GET", "/admin/billing-accounts/"+v.account+"/balance", nil).want(http.StatusOK).raw), `"balance_minor":100001,`)
}
