package billing_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	allocationdb "github.com/slipway-cloud/slipway/db/allocation"
	"github.com/slipway-cloud/slipway/db/dbtest"
	ledgerdb "github.com/slipway-cloud/slipway/db/ledger"
	tenancydb "github.com/slipway-cloud/slipway/db/tenancy"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/intent/allocation"
	"github.com/slipway-cloud/slipway/intent/billing"
	"github.com/slipway-cloud/slipway/lifecycle"
)

var (
	customer = db.Actor{Owner: lifecycle.OwnerCustomer, ID: "oidc:ada"}
	operator = db.Actor{Owner: lifecycle.OwnerAdmin, ID: "oidc:op"}
)

// shop is an installation that offers one SKU to one tenant.
type shop struct {
	*testing.T
	dsn     string
	store   *db.Store
	sku     db.SKU
	site    db.Site
	project tenancydb.Project
	account string
	minute  time.Time // at which the test began; one that ends meanwhile would be billed
}

func newShop(t *testing.T) *shop {
	t.Helper()
	dsn := dbtest.Database(t)
	s := &shop{T: t, dsn: dsn, store: dbtest.Open(t, dsn)}
	s.sku, s.site, s.project = dbtest.SKU(t, s.store), dbtest.Site(t, s.store), dbtest.Project(t, s.store)
	s.account = s.project.BillingAccountID
	profile := dbtest.Profile(t, s.store, dbtest.At(s.site.ID))
	require.NoError(t, s.tx(func(tx *db.Tx) error {
		_, err := tenancydb.PutOffer(t.Context(), tx, tenancydb.Offer{SKUID: s.sku.ID, ProfileID: profile.ID, Title: "Eight GPUs", Isolation: "shared_network"})
		if err != nil {
			return err
		}
		_, err = tenancydb.AddMember(t.Context(), tx, s.project.ID, tenancydb.NewMember{Subject: customer.ID, Name: "Ada", Role: lifecycle.RoleProjectOwner})
		return err
	}))
	require.NoError(t, s.store.ForProject(t.Context(), s.project.ID, func(tx *db.ProjectTx) error {
		members, err := tenancydb.ListMembers(t.Context(), tx, "", 1)
		if err != nil {
			return err
		}
		_, err = tenancydb.AddSSHKey(t.Context(), tx, tenancydb.SSHKey{
			MemberID: members[0].ID, Name: "k", Type: "ssh-ed25519", PublicKey: dbtest.Key, Fingerprint: dbtest.KeyFingerprint,
		})
		return err
	}))
	at, err := s.store.Clock(t.Context())
	require.NoError(t, err)
	s.minute = at.Truncate(time.Minute)
	return s
}

func (s *shop) tx(do func(*db.Tx) error) error { s.Helper(); return s.store.Tx(s.Context(), do) }

func (s *shop) now() time.Time { return s.minute }

// price sets a price that is valid for two days already.
func (s *shop) price(minor int64) {
	s.Helper()
	dbtest.SetPrices(s, s.dsn, s.sku.ID, "USD", dbtest.Rate{From: s.now().Add(-48 * time.Hour), RateMinorPerHour: minor})
}

func (s *shop) freeNodes(n int) {
	s.Helper()
	for range n {
		dbtest.FreeNode(s.T, s.store, dbtest.Of(s.sku.ID), dbtest.At(s.site.ID))
	}
}

func (s *shop) create(maxSpend *int64) (a allocation.Accepted, err error) {
	err = s.tx(func(tx *db.Tx) (err error) {
		a, err = allocation.Create(s.Context(), tx, allocation.Request{ProjectID: s.project.ID, SKUID: s.sku.ID, Actor: customer, MaxSpendMinor: maxSpend})
		return err
	})
	return a, err
}

func (s *shop) balance() ledgerdb.Balance {
	s.Helper()
	b, err := ledgerdb.ReadBalance(s.Context(), s.store, s.account)
	require.NoError(s, err)
	return b
}

func (s *shop) tick() ledgerdb.TickReport {
	s.Helper()
	r, err := ledgerdb.Tick(s.Context(), s.store, ledgerdb.TickInput{Boundary: s.now()})
	require.NoError(s, err)
	return r
}

func (s *shop) enforce() billing.Report {
	s.Helper()
	r, err := billing.Enforce(s.Context(), s.store, "example.com")
	require.NoError(s, err)
	return r
}

func (s *shop) requireRefusal(err error, kind intent.Kind, text string) {
	s.Helper()
	r := intent.AsRefusal(err)
	require.NotNil(s, r, "%v", err)
	require.Equal(s, kind, r.Kind, err)
	require.ErrorContains(s, err, text)
}

// runSince forges an active allocation without a job.
func (s *shop) runSince(projectID string, start time.Time) string {
	s.Helper()
	node := dbtest.Node(s.T, s.store, dbtest.Active(), dbtest.Of(s.sku.ID), dbtest.At(s.site.ID))
	return dbtest.RunOn(s.T, s.dsn, projectID, s.sku.ID, node.ID, start)
}

// TestCreate_ParallelWithMoneyForThree requests 40 nodes at once, of which the balance covers
// three.
func TestCreate_ParallelWithMoneyForThree(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.price(500)
	s.freeNodes(6)
	dbtest.Credit(t, s.store, s.account, 1999)
	var granted sync.Map
	var wait sync.WaitGroup
	errs := make(chan error, 40)
	for range cap(errs) {
		wait.Go(func() {
			a, err := s.create(nil)
			if err == nil {
				granted.Store(a.Allocation.ID, true)
			}
			errs <- err
		})
	}
	wait.Wait()
	n := 0
	granted.Range(func(any, any) bool { n++; return true })
	require.Equal(t, 3, n)
	for range cap(errs) {
		if err := <-errs; err != nil {
			s.requireRefusal(err, intent.Conflict, "the available balance does not cover it")
		}
	}
	b := s.balance()
	require.Equal(t, []int64{1999, 1500, 499}, []int64{b.BalanceMinor, b.HeldMinor, b.AvailableMinor()})
}

// TestCreate_NeedsAPrice: an installation without prices charges nothing. From the first price on a
// SKU needs one in the currency of the account.
func TestCreate_NeedsAPrice(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.freeNodes(3)
	a, err := s.create(nil)
	require.NoError(t, err)
	require.Zero(t, s.balance().HeldMinor)
	require.False(t, s.balance().Charging)
	other := dbtest.SKU(t, s.store)
	dbtest.SetPrices(t, s.dsn, other.ID, "USD", dbtest.Rate{From: s.now().Add(-time.Hour), RateMinorPerHour: 100})
	_, err = s.create(nil)
	s.requireRefusal(err, intent.Conflict, "has no price in USD")
	s.requireRefusal(s.tx(func(tx *db.Tx) error {
		_, err := allocation.Create(t.Context(), tx, allocation.Request{ProjectID: s.project.ID, SKUID: other.ID, Actor: customer})
		return err
	}), intent.Invalid, "is not offered")
	dbtest.SetPrices(t, s.dsn, s.sku.ID, "EUR", dbtest.Rate{From: s.now().Add(-time.Hour), RateMinorPerHour: 100})
	_, err = s.create(nil)
	s.requireRefusal(err, intent.Conflict, "has no price in USD")
	s.price(0)
	_, err = s.create(nil)
	require.NoError(t, err, "a price of zero needs no money")
	s.price(100)
	_, err = s.create(nil)
	s.requireRefusal(err, intent.Conflict, "the available balance does not cover it")
	dbtest.Credit(t, s.store, s.account, 5000)
	low := int64(99)
	_, err = s.create(&low)
	s.requireRefusal(err, intent.Invalid, "1.00 USD")
	require.NoError(t, s.tx(func(tx *db.Tx) error {
		_, err := allocation.Release(t.Context(), tx, a.Allocation.ID, "x", customer)
		return err
	}))
}

// TestEnforce_ReleasesWhatIsDepleted: everything of the account is released, its projects are told
// once, and a payment inside the grace keeps it.
func TestEnforce_ReleasesWhatIsDepleted(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.price(6000)
	s.freeNodes(1)
	dbtest.Credit(t, s.store, s.account, 6100)
	waits, err := s.create(nil)
	require.NoError(t, err)
	require.Equal(t, lifecycle.AllocationProvisioning, waits.Allocation.Status)
	other := dbtest.Project(t, s.store)
	fine := s.runSince(other.ID, s.now().Add(-time.Minute))
	dbtest.Credit(t, s.store, other.BillingAccountID, 100000)
	running := s.runSince(s.project.ID, s.now().Add(-61*time.Minute))
	b := s.balance()
	require.NoError(t, s.tx(func(tx *db.Tx) error {
		return ledgerdb.SetThresholds(t.Context(), tx, s.account, b.Version, ledgerdb.Thresholds{GraceSeconds: 3600})
	}))
	require.Empty(t, s.tick().EnforcementStopped)
	require.Equal(t, string(lifecycle.BalanceDepleted), s.balance().State)
	require.Zero(t, s.balance().BalanceMinor)
	r := s.enforce()
	require.Empty(t, r.Released, "the grace runs")
	require.Equal(t, 1, r.Told)
	dbtest.Credit(t, s.store, s.account, 50)
	require.Nil(t, s.balance().GraceEndsAt())
	dbtest.Credit(t, s.store, s.account, -50)
	_, err = dbtest.Owner(t, s.dsn).Exec(t.Context(), "UPDATE account_balances SET since = since - interval '2 hours'")
	require.NoError(t, err)
	require.Empty(t, s.enforce().Released, "depleted again since the last tick, which has not looked yet")
	s.tick()
	r = s.enforce()
	require.ElementsMatch(t, []string{waits.Allocation.ID, running}, r.Released)
	a, err := allocationdb.Get(t.Context(), s.store, running)
	require.NoError(t, err)
	require.Equal(t, lifecycle.AllocationReleasing, a.Status)
	require.Equal(t, lifecycle.ReleaseBalanceDepleted, a.ReleaseReason)
	a, err = allocationdb.Get(t.Context(), s.store, fine)
	require.NoError(t, err)
	require.Equal(t, lifecycle.AllocationActive, a.Status)
	require.Empty(t, s.enforce().Released, "again it changes nothing")
	var notices int
	require.NoError(t, s.store.DBTX().QueryRow(t.Context(), "SELECT count(*) FROM notices WHERE project_id = $1 AND kind = 'depleted'", s.project.ID).Scan(&notices))
	require.Equal(t, 1, notices)
	_, err = s.create(nil)
	s.requireRefusal(err, intent.Conflict, "the available balance does not cover it")
}

// TestEnforce_TypoReleasesNobody raises a price a hundred times. An operator is asked; who runs
// keeps the old rate for a week; and if all of it fails, too many depleted accounts stop the
// releases.
func TestEnforce_TypoReleasesNobody(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.price(100)
	start := s.now().Add(-30 * time.Hour)
	for range 12 {
		p := dbtest.Project(t, s.store)
		dbtest.Credit(t, s.store, p.BillingAccountID, 10_000)
		s.runSince(p.ID, start)
	}
	ask := billing.PriceRequest{Item: ledgerdb.Item{SKUID: s.sku.ID}, Currency: "USD", RateMinorPerHour: 10_000, Actor: operator}
	err := s.tx(func(tx *db.Tx) error {
		plan, err := billing.PlanPrice(t.Context(), tx, ask)
		if err != nil {
			return err
		}
		require.Len(t, plan.Affected, 12)
		require.InDelta(t, 100, plan.Factor, 0.001)
		ask.PlanHash = plan.Hash
		_, err = billing.SetPrice(t.Context(), tx, ask)
		return err
	})
	s.requireRefusal(err, intent.Invalid, "100 times the one before")
	dbtest.SetPrices(t, s.dsn, s.sku.ID, "USD", dbtest.Rate{From: s.now().Add(-48 * time.Hour), RateMinorPerHour: 100},
		dbtest.Rate{From: s.now().Add(-24 * time.Hour), RateMinorPerHour: 10_000})
	s.tickAt(start.Add(30 * time.Hour))
	require.Empty(t, s.enforce().Released)
	var charged int64
	const sum = "SELECT coalesce(sum(charged_minor), 0) FROM usage_segments"
	require.NoError(t, s.store.DBTX().QueryRow(t.Context(), sum).Scan(&charged))
	require.Equal(t, int64(12*3000), charged, "at the old rate")

	worst := newShop(t)
	worst.price(10_000)
	var last, lastID, lastAccount string
	for range 6 {
		p := dbtest.Project(t, worst.store)
		dbtest.Credit(t, worst.store, p.BillingAccountID, 10_000)
		last, lastID, lastAccount = p.ID, worst.runSince(p.ID, start), p.BillingAccountID
	}
	require.NotEmpty(t, worst.tick().EnforcementStopped)
	limit := int64(1)
	require.NoError(t, worst.tx(func(tx *db.Tx) error { return ledgerdb.SetMaxSpend(t.Context(), tx, last, lastID, &limit) }))
	r := worst.enforce()
	require.Empty(t, r.Released, "nor what has reached its max_spend")
	require.Zero(t, r.Told, "nobody is told of a release that does not come")
	require.NotEmpty(t, r.Stopped)
	worst.tick()
	require.Empty(t, worst.enforce().Released, "it stays stopped")
	require.NoError(t, worst.tx(func(tx *db.Tx) error { return ledgerdb.ResumeEnforcement(t.Context(), tx, operator) }))
	dbtest.Credit(t, worst.store, lastAccount, 1_000_000)
	require.NoError(t, worst.tx(func(tx *db.Tx) error { return ledgerdb.SetMaxSpend(t.Context(), tx, last, lastID, nil) }))
	r = worst.enforce()
	require.Len(t, r.Released, 5, "one was given its money back")
	require.Equal(t, 5, r.Told, "and is not told that it has none")
}

// TestEnforce_MaxSpendAndBudget releases an allocation that costs what it may, and tells its
// project of the budget.
func TestEnforce_MaxSpendAndBudget(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.price(6000)
	dbtest.Credit(t, s.store, s.account, 1_000_000)
	id := s.runSince(s.project.ID, s.now().Add(-10*time.Minute))
	limit := int64(1001)
	require.NoError(t, s.tx(func(tx *db.Tx) error { return ledgerdb.SetMaxSpend(t.Context(), tx, s.project.ID, id, &limit) }))
	_, err := ledgerdb.PutBudget(t.Context(), s.store, s.project.ID, 1250, 80)
	require.NoError(t, err)
	s.tick()
	r := s.enforce()
	require.Empty(t, r.Released)
	require.Equal(t, 1, r.Budgets, "80 %")
	require.Zero(t, s.enforce().Budgets, "once")
	limit = 1000
	require.NoError(t, s.tx(func(tx *db.Tx) error { return ledgerdb.SetMaxSpend(t.Context(), tx, s.project.ID, id, &limit) }))
	require.Equal(t, []string{id}, s.enforce().Released)
	_, err = ledgerdb.PutBudget(t.Context(), s.store, s.project.ID, 1000, 80)
	require.NoError(t, err)
	require.Equal(t, 1, s.enforce().Budgets, "another budget is told again")
	require.NoError(t, ledgerdb.DeleteBudget(t.Context(), s.store, s.project.ID))
	require.ErrorIs(t, ledgerdb.DeleteBudget(t.Context(), s.store, s.project.ID), db.ErrNotFound)
}

// TestEnforce_WaitsAfterARestore: a restored database lacks the last payments, so that nothing is
// released until an operator has booked them.
func TestEnforce_WaitsAfterARestore(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.price(6000)
	id := s.runSince(s.project.ID, s.now().Add(-time.Hour))
	plan, err := s.store.PlanEndOfAccess(t.Context())
	require.NoError(t, err)
	_, err = s.store.EndRestoredAccess(t.Context(), plan.Hash)
	require.NoError(t, err)
	s.tick()
	require.Equal(t, string(lifecycle.BalanceDepleted), s.balance().State)
	r := s.enforce()
	require.Empty(t, r.Released)
	require.Contains(t, r.Stopped, "restored from a backup")
	require.NoError(t, s.tx(func(tx *db.Tx) error { return ledgerdb.ResumeEnforcement(t.Context(), tx, operator) }))
	require.Equal(t, []string{id}, s.enforce().Released)
}

// TestTick_TellsWhoseBalanceIsShort: an account is told once when the hour that is held back is all
// that is left, and again after it had more.
func TestTick_TellsWhoseBalanceIsShort(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.price(6000)
	at := s.now()
	id := s.runSince(s.project.ID, at.Add(-time.Hour))
	require.NoError(t, s.tx(func(tx *db.Tx) error { return ledgerdb.PlaceHold(t.Context(), tx, s.project.ID, id, 6000) }))
	told := func() (n int) {
		t.Helper()
		_, err := ledgerdb.Tick(t.Context(), s.store, ledgerdb.TickInput{Boundary: at})
		require.NoError(t, err)
		s.enforce()
		require.NoError(t, s.store.DBTX().QueryRow(t.Context(), "SELECT count(*) FROM notices WHERE kind = 'balance_short'").Scan(&n))
		return n
	}
	dbtest.Credit(t, s.store, s.account, 6000+6000+300) // the hour that ran, the one that is held, and three minutes
	require.Zero(t, told(), "three minutes are what a tick and a release take")
	dbtest.Credit(t, s.store, s.account, -1)
	require.Equal(t, string(lifecycle.BalanceHealthy), s.balance().State)
	require.Equal(t, 1, told())
	dbtest.Credit(t, s.store, s.account, 2)
	require.Equal(t, 1, told(), "not twice as much yet")
	dbtest.Credit(t, s.store, s.account, 1000)
	require.Equal(t, 1, told())
	dbtest.Credit(t, s.store, s.account, -1100)
	require.Equal(t, 2, told(), "short again")
}

// TestSetPrice_Rules walks the rules of a price.
func TestSetPrice_Rules(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	set := func(r billing.PriceRequest, edit func(*billing.PriceRequest)) (p ledgerdb.Price, err error) {
		r.Actor = operator
		if r.Item == (ledgerdb.Item{}) {
			r.SKUID = s.sku.ID
		}
		if r.Currency == "" {
			r.Currency = "USD"
		}
		err = s.tx(func(tx *db.Tx) error {
			plan, err := billing.PlanPrice(t.Context(), tx, r)
			if err != nil {
				return err
			}
			r.PlanHash = plan.Hash
			if edit != nil {
				edit(&r)
			}
			p, err = billing.SetPrice(t.Context(), tx, r)
			return err
		})
		return p, err
	}
	now := s.now()
	_, err := set(billing.PriceRequest{RateMinorPerHour: -1}, nil)
	s.requireRefusal(err, intent.Invalid, "must be 0 to")
	_, err = set(billing.PriceRequest{RateMinorPerHour: 1, Currency: "XXX"}, nil)
	s.requireRefusal(err, intent.Invalid, "currencies")
	_, err = set(billing.PriceRequest{RateMinorPerHour: 1, Item: ledgerdb.Item{SKUID: "sku_none"}}, nil)
	s.requireRefusal(err, intent.Invalid, "no such SKU")
	_, err = set(billing.PriceRequest{RateMinorPerHour: 1, ValidFrom: now.Add(-time.Minute)}, nil)
	s.requireRefusal(err, intent.Invalid, "past")
	_, err = set(billing.PriceRequest{RateMinorPerHour: 0}, nil)
	s.requireRefusal(err, intent.Invalid, "price is zero")
	_, err = set(billing.PriceRequest{RateMinorPerHour: 100}, func(r *billing.PriceRequest) { r.PlanHash = "" })
	s.requireRefusal(err, intent.PlanMissing, "dry run")
	_, err = set(billing.PriceRequest{RateMinorPerHour: 100}, func(r *billing.PriceRequest) { r.RateMinorPerHour = 101 })
	s.requireRefusal(err, intent.PlanStale, "dry run")
	first, err := set(billing.PriceRequest{RateMinorPerHour: 100}, nil)
	require.NoError(t, err, "the first price starts at once")
	_, err = set(billing.PriceRequest{RateMinorPerHour: 120, ValidFrom: now.Add(59 * time.Minute)}, nil)
	s.requireRefusal(err, intent.Invalid, "an hour ahead")
	for _, rate := range []int64{49, 201} {
		_, err = set(billing.PriceRequest{RateMinorPerHour: rate}, nil)
		s.requireRefusal(err, intent.Invalid, "times the one before")
	}
	second, err := set(billing.PriceRequest{RateMinorPerHour: 201, Confirm: true, ValidFrom: now.Add(3 * time.Hour)}, nil)
	require.NoError(t, err)
	_, err = set(billing.PriceRequest{RateMinorPerHour: 200, ValidFrom: now.Add(2 * time.Hour)}, nil)
	s.requireRefusal(err, intent.Invalid, "must be after")
	prices, err := ledgerdb.ListPrices(t.Context(), s.store, ledgerdb.PriceFilter{Item: ledgerdb.Item{SKUID: s.sku.ID}}, "", 10)
	require.NoError(t, err)
	require.Len(t, prices, 2)
	require.Equal(t, []string{first.ID, second.ID}, []string{prices[0].ID, prices[1].ID})
	require.True(t, prices[0].ValidUntil.Equal(second.ValidFrom))
	require.Nil(t, prices[1].ValidUntil)
	for _, sql := range []string{
		"INSERT INTO prices (id, sku_id, currency, rate_minor_per_hour, valid, set_by) SELECT 'prc_x', sku_id, currency, 1, tstzrange(now() + interval '2 hours', NULL), 'x' FROM prices LIMIT 1",
		"UPDATE prices SET rate_minor_per_hour = 1", "DELETE FROM prices",
		"UPDATE prices SET valid = tstzrange(lower(valid), now()) WHERE upper_inf(valid)",
	} {
		_, err := s.store.DBTX().Exec(t.Context(), sql)
		require.Error(t, err, sql)
	}
}

func TestAdjust_IsIdempotentAndNeedsAReason(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	other := dbtest.Project(t, s.store)
	adjust := func(a billing.Adjustment) (isNew bool, err error) {
		a.Actor = operator
		a.BillingAccountID = s.account
		err = s.tx(func(tx *db.Tx) error {
			_, isNew, err = billing.Adjust(t.Context(), tx, a)
			return err
		})
		return isNew, err
	}
	for _, a := range []billing.Adjustment{
		{AmountMinor: 5, Key: "k"}, {AmountMinor: 0, Reason: "r", Key: "k"}, {AmountMinor: 5, Reason: "r"}, {AmountMinor: billing.MaxAdjustMinor + 1, Reason: "r", Key: "k"},
		{AmountMinor: 5, Reason: "r", Key: "k", ProjectID: other.ID}, {AmountMinor: 5, Reason: "r", Key: "k", ProjectID: "prj_none"},
	} {
		_, err := adjust(a)
		s.requireRefusal(err, intent.Invalid, "")
	}
	credit := billing.Adjustment{AmountMinor: 500, Reason: "credit note", Key: "k", ProjectID: s.project.ID}
	isNew, err := adjust(credit)
	require.NoError(t, err)
	require.True(t, isNew)
	isNew, err = adjust(credit)
	require.NoError(t, err)
	require.False(t, isNew)
	credit.AmountMinor = 501
	_, err = adjust(credit)
	s.requireRefusal(err, intent.Conflict, "has this key")
	require.Equal(t, int64(500), s.balance().BalanceMinor)
	broken, err := s.store.VerifyAudit(t.Context(), "billing_account", s.account)
	require.NoError(t, err)
	require.Zero(t, broken)
	var audited int
	require.NoError(t, s.store.DBTX().QueryRow(t.Context(), "SELECT count(*) FROM audit_log WHERE name = 'adjust_balance'").Scan(&audited))
	require.Equal(t, 1, audited, "one for the first, none for its repetition")
}
