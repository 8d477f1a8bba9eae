package billing_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	instancedb "github.com/slipway-cloud/slipway/db/instance"
	ledgerdb "github.com/slipway-cloud/slipway/db/ledger"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/intent/billing"
	"github.com/slipway-cloud/slipway/intent/instance"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// gpu is the type of the instances of these tests.
var gpu = ledgerdb.InstanceItem("mock", "MOCK-GPU")

func (s *shop) priceInstances(minor int64) {
	s.Helper()
	dbtest.SetPrices(s, s.dsn, gpu.String(), "USD", dbtest.Rate{From: s.now().Add(-48 * time.Hour), RateMinorPerHour: minor})
}

// instance asks for one, for an operator when limit is nil.
func (s *shop) instance(name, project string, limit *int, drainSeconds int) (i instancedb.Instance, err error) {
	s.Helper()
	err = s.tx(func(tx *db.Tx) (err error) {
		i, _, err = instance.Make(s.Context(), tx, instance.Create{
			ProjectID: project, Limit: limit, Offers: []instance.Offer{{Provider: "mock", Zones: []string{"mock-1"}}},
			InstanceSpec: spec.InstanceSpec{Name: name, Provider: "mock", Zone: "mock-1", Type: "MOCK-GPU", Model: "acme/small", DrainSeconds: drainSeconds},
		}, operator)
		return err
	})
	return i, err
}

// along takes an instance along transitions.
func (s *shop) along(i instancedb.Instance, all ...lifecycle.Transition[lifecycle.InstanceStatus]) instancedb.Instance {
	s.Helper()
	for _, to := range all {
		require.NoError(s, s.tx(func(tx *db.Tx) (err error) {
			i, err = instancedb.MoveTo(s.Context(), tx, i, instancedb.Move{To: to, Actor: db.Actor{Owner: to.Owners[0]}, Stage: lifecycle.StageWaitSSH, Code: map[bool]string{true: "STARTUP_TIMEOUT"}[to.To.Failed()]})
			return err
		}))
	}
	return i
}

// TestInstance_NeedsMoney: one of a type with a price holds back an hour, and is refused to members
// and operators alike when that is not there. One of a type without a price asks for nothing.
func TestInstance_NeedsMoney(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	limit := 9
	_, err := s.instance("free", s.project.ID, &limit, 0)
	require.NoError(t, err, "nothing is charged here")
	s.price(100)
	_, err = s.instance("unpriced", s.project.ID, &limit, 0)
	require.NoError(t, err, "its type has no price")
	require.Zero(t, s.balance().HeldMinor)
	s.priceInstances(3600)
	for _, limit := range []*int{&limit, nil} {
		_, err = s.instance("poor", s.project.ID, limit, 0)
		s.requireRefusal(err, intent.Conflict, "36.00 USD an hour")
	}
	dbtest.Credit(t, s.store, s.account, 7199)
	_, err = s.instance("one", s.project.ID, &limit, 0)
	require.NoError(t, err)
	require.Equal(t, int64(3600), s.balance().HeldMinor)
	_, err = s.instance("two", s.project.ID, &limit, 0)
	s.requireRefusal(err, intent.Conflict, "the available balance does not cover it")
	require.NotContains(t, err.Error(), "35.99", "members may ask for one, and do not read money")
	s.freeNodes(1)
	s.price(3600)
	_, err = s.create(nil)
	s.requireRefusal(err, intent.Conflict, "available")
}

// TestEnforce_EndsChargedInstances: when the balance is used up, the instances that are charged end
// without a drain, in whatever state they are, and those of others stay.
func TestEnforce_EndsChargedInstances(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	dbtest.Credit(t, s.store, s.account, 1_000_000)
	s.priceInstances(3600)
	make := func(name, project string, drain int, all ...lifecycle.Transition[lifecycle.InstanceStatus]) instancedb.Instance {
		t.Helper()
		i, err := s.instance(name, project, nil, drain)
		require.NoError(t, err)
		return s.along(i, all...)
	}
	rich := dbtest.Project(t, s.store)
	dbtest.Credit(t, s.store, rich.BillingAccountID, 1_000_000)
	stays := make("rich", rich.ID, 0, lifecycle.InstanceBoot, lifecycle.InstanceBecomeReady)
	ready := []lifecycle.Transition[lifecycle.InstanceStatus]{lifecycle.InstanceBoot, lifecycle.InstanceBecomeReady}
	want := map[string]lifecycle.InstanceStatus{
		make("provisioning", s.project.ID, 0).ID:                                                          lifecycle.InstanceTerminating,
		make("booting", s.project.ID, 0, lifecycle.InstanceBoot).ID:                                       lifecycle.InstanceTerminating,
		make("startup-failed", s.project.ID, 0, lifecycle.InstanceBoot, lifecycle.InstanceFailStartup).ID: lifecycle.InstanceTerminating,
		make("ready", s.project.ID, 86400, ready...).ID:                                                   lifecycle.InstanceDraining,
		make("draining", s.project.ID, 86400, append(ready[:2:2], lifecycle.InstanceDrain)...).ID:         lifecycle.InstanceDraining,
	}
	failed := make("failed", s.project.ID, 0, lifecycle.InstanceBoot, lifecycle.InstanceFail)
	require.Empty(t, s.enforce().Terminated, "there is a balance")
	dbtest.Credit(t, s.store, s.account, -1_000_001)
	require.Empty(t, s.enforce().Terminated, "no tick has looked at it yet")
	s.tick()
	r := s.enforce()
	require.Empty(t, r.Released)
	require.Len(t, r.Terminated, len(want))
	for id, status := range want {
		require.Contains(t, r.Terminated, id)
		i, err := instancedb.Get(t.Context(), s.store, id)
		require.NoError(t, err)
		require.Equal(t, status, i.Status)
		if status == lifecycle.InstanceDraining {
			require.Zero(t, i.DrainSeconds, "nothing pays for its work")
		}
	}
	require.Empty(t, s.enforce().Terminated, "again it changes nothing")
	for _, i := range []instancedb.Instance{stays, failed} {
		now, err := instancedb.Get(t.Context(), s.store, i.ID)
		require.NoError(t, err)
		require.Equal(t, i.Status, now.Status, "not charged, or of another account")
	}
	_, err := s.instance("again", s.project.ID, nil, 0)
	s.requireRefusal(err, intent.Conflict, "available")
}

// TestEnforce_UnpricedInstancesStay: an account whose balance is used up by nodes keeps the
// instances that cost its project nothing, and a payment in time keeps the others.
func TestEnforce_UnpricedInstancesStay(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.price(100)
	i, err := s.instance("free", s.project.ID, nil, 0)
	require.NoError(t, err)
	dbtest.Credit(t, s.store, s.account, -1)
	s.tick()
	require.Empty(t, s.enforce().Terminated)
	s.priceInstances(60)
	require.NoError(t, s.tx(func(tx *db.Tx) error {
		if _, err := instancedb.Lock(t.Context(), tx, i.ID); err != nil {
			return err
		}
		due, err := ledgerdb.IsInstanceStillDue(t.Context(), tx, i.ID)
		require.True(t, due)
		return err
	}))
	dbtest.Credit(t, s.store, s.account, 100)
	require.Empty(t, s.enforce().Terminated, "it was paid")
	require.NoError(t, s.tx(func(tx *db.Tx) error {
		due, err := ledgerdb.IsInstanceStillDue(t.Context(), tx, i.ID)
		require.False(t, due, "read again under the lock")
		return err
	}))
}

// TestSetPrice_OfInstanceTypes: a type has prices by the rules of a SKU, and the dry run names the
// instances that are concerned.
func TestSetPrice_OfInstanceTypes(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	i, err := s.instance("one", s.project.ID, nil, 0)
	require.NoError(t, err)
	set := func(item ledgerdb.Item, rate int64) (p ledgerdb.Price, affected []ledgerdb.Affected, err error) {
		err = s.tx(func(tx *db.Tx) error {
			r := billing.PriceRequest{Item: item, Currency: "USD", RateMinorPerHour: rate, Actor: operator}
			plan, err := billing.PlanPrice(t.Context(), tx, r)
			if err != nil {
				return err
			}
			r.PlanHash, affected = plan.Hash, plan.Affected
			p, err = billing.SetPrice(t.Context(), tx, r)
			return err
		})
		return p, affected, err
	}
	for _, wrong := range []ledgerdb.Item{{}, {SKUID: s.sku.ID, InstanceType: gpu.InstanceType}, {InstanceType: "MOCK-GPU"}, {InstanceType: "scaleway/MOCK-GPU"}} {
		_, _, err = set(wrong, 100)
		s.requireRefusal(err, intent.Invalid, "type")
	}
	first, affected, err := set(gpu, 100)
	require.NoError(t, err)
	require.Equal(t, []string{i.ID}, []string{affected[0].InstanceID})
	second, _, err := set(gpu, 120)
	require.NoError(t, err)
	require.GreaterOrEqual(t, second.ValidFrom.Sub(first.ValidFrom), time.Hour)
	all, err := ledgerdb.ListPrices(t.Context(), s.store, ledgerdb.PriceFilter{Item: gpu}, "", 10)
	require.NoError(t, err)
	require.Len(t, all, 2)
	require.Equal(t, gpu, all[0].Item)
	require.NoError(t, s.tx(func(tx *db.Tx) error {
		_, err := billing.WithdrawPrice(t.Context(), tx, second.ID, operator)
		return err
	}))
	all, err = ledgerdb.ListPrices(t.Context(), s.store, ledgerdb.PriceFilter{Item: gpu}, "", 10)
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.Nil(t, all[0].ValidUntil, "the one before goes on")
}

// TestSetPrice_EndsFreeInstances: the dry run of a first price names the instances that it would
// end, since their account is depleted, and such a price needs a confirmation.
func TestSetPrice_EndsFreeInstances(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	rich := dbtest.Project(t, s.store)
	dbtest.Credit(t, s.store, rich.BillingAccountID, 1_000_000)
	ready := []lifecycle.Transition[lifecycle.InstanceStatus]{lifecycle.InstanceBoot, lifecycle.InstanceBecomeReady}
	stays, err := s.instance("rich", rich.ID, nil, 0)
	require.NoError(t, err)
	stays = s.along(stays, ready...)
	ends, err := s.instance("poor", s.project.ID, nil, 0)
	require.NoError(t, err)
	ends = s.along(ends, ready...)
	dbtest.Credit(t, s.store, s.account, -1)
	s.tick()
	require.Empty(t, s.enforce().Terminated, "it is free")

	r := billing.PriceRequest{Item: gpu, Currency: "USD", RateMinorPerHour: 100, Actor: operator}
	var plan billing.PricePlan
	require.NoError(t, s.tx(func(tx *db.Tx) (err error) { plan, err = billing.PlanPrice(t.Context(), tx, r); return err }))
	require.Equal(t, 1, plan.Ends)
	require.Equal(t, []string{ends.ID, stays.ID}, []string{plan.Affected[0].InstanceID, plan.Affected[1].InstanceID}, "what ends comes first")
	require.Equal(t, []bool{true, false}, []bool{plan.Affected[0].Ends, plan.Affected[1].Ends})
	require.Contains(t, plan.NeedsConfirmation, "depleted")
	r.PlanHash = plan.Hash
	set := func() error {
		return s.tx(func(tx *db.Tx) error { _, err := billing.SetPrice(t.Context(), tx, r); return err })
	}
	s.requireRefusal(set(), intent.Invalid, "ends instances of accounts that are depleted")
	r.Confirm = true
	require.NoError(t, set())
	require.Equal(t, []string{ends.ID}, s.enforce().Terminated)
}
