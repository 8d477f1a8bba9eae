package ledgerdb_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	instancedb "github.com/slipway-cloud/slipway/db/instance"
	ledgerdb "github.com/slipway-cloud/slipway/db/ledger"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// gpu is the type of the instances of these tests.
const gpu = "mock/MOCK-GPU"

// instance makes one for the project, which holds back an hour.
func (s *shop) instance(drainSeconds int) instancedb.Instance {
	s.Helper()
	var i instancedb.Instance
	require.NoError(s, s.tx(func(tx *db.Tx) (err error) {
		id, jobID, actor := db.NewID("inst"), db.NewID("job"), db.Actor{Owner: lifecycle.OwnerAdmin, ID: "oidc:op"}
		i, err = instancedb.Create(s.Context(), tx, instancedb.New{
			ID: id, JobID: jobID, ProjectID: s.project.ID, Name: id[len(id)-12:], Provider: "mock", Zone: "mock-1", Type: "MOCK-GPU", Model: "acme/small",
			DrainSeconds: drainSeconds, CreatedBy: "x", Actor: actor,
		})
		if err != nil {
			return err
		}
		job := db.NewJob{ID: jobID, Kind: "instance_create", ResourceKind: instancedb.Resource, ResourceID: id, Input: []byte("{}"), Actor: actor}
		if _, err := tx.CreateJob(s.Context(), job); err != nil {
			return err
		}
		return ledgerdb.PlaceHold(s.Context(), tx, s.project.ID, i.ID, 3600)
	}))
	return i
}

// move takes an instance along transitions, one in each transaction.
func (s *shop) move(i instancedb.Instance, along ...lifecycle.Transition[lifecycle.InstanceStatus]) instancedb.Instance {
	s.Helper()
	for _, to := range along {
		require.NoError(s, s.tx(func(tx *db.Tx) (err error) {
			m := instancedb.Move{To: to, Actor: db.Actor{Owner: to.Owners[0]}}
			if to.To.Failed() {
				m.Code, m.Stage = "CLOUD_QUOTA", lifecycle.StageWaitSSH
			}
			i, err = instancedb.MoveTo(s.Context(), tx, i, m)
			return err
		}))
	}
	return i
}

// ready takes an instance to where it works.
func (s *shop) ready(i instancedb.Instance) instancedb.Instance {
	s.Helper()
	return s.move(i, lifecycle.InstanceBoot, lifecycle.InstanceBecomeReady)
}

// readySince forges an instance that is ready since a moment in the past.
func (s *shop) readySince(start time.Time) instancedb.Instance {
	s.Helper()
	i := s.ready(s.instance(0))
	owner := dbtest.Owner(s, s.dsn)
	tx, err := owner.Begin(s.Context())
	require.NoError(s, err)
	for _, sql := range []string{
		"SET LOCAL session_replication_role = replica",
		"UPDATE usage_segments SET started_at = $2, billed_through = $2, rate_minor_per_hour = rate_at('" + gpu + "', 'USD', $2, $2) WHERE record_id = (SELECT id FROM usage_records WHERE instance_id = $1)",
		"UPDATE usage_records SET start_time = $2 WHERE instance_id = $1",
	} {
		args := []any{i.ID, start}
		if sql[:3] == "SET" {
			args = nil
		}
		_, err := tx.Exec(s.Context(), sql, args...)
		require.NoError(s, err, sql)
	}
	require.NoError(s, tx.Commit(s.Context()))
	return i
}

func (s *shop) usageOf(id string) ledgerdb.Usage {
	s.Helper()
	rows, err := ledgerdb.ListUsage(s.Context(), s.store, s.project.ID, id, ledgerdb.UsagePlace{}, 10)
	require.NoError(s, err)
	require.Len(s, rows, 1)
	return rows[0]
}

// capOf returns in how many seconds the charge of an instance ends at the latest.
func (s *shop) capOf(id string) int64 {
	s.Helper()
	return s.count("SELECT extract(epoch FROM end_cap - now())::bigint FROM usage_records WHERE instance_id = $1", id)
}

// TestUsage_FollowsTheInstance moves an instance as the product does: it is charged from ready
// until it is terminating, without a least time, and holds back an hour from its request on.
func TestUsage_FollowsTheInstance(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	dbtest.SetPrices(t, s.dsn, gpu, "USD", dbtest.Rate{From: s.now().Add(-48 * time.Hour), RateMinorPerHour: 3600})
	i := s.instance(600)
	require.Equal(t, i.ID, s.usageOf(i.ID).InstanceID)
	require.Equal(t, gpu, s.usageOf(i.ID).InstanceType)
	require.Equal(t, int64(3600), s.balance().HeldMinor)
	i = s.move(i, lifecycle.InstanceBoot, lifecycle.InstanceFailStartup, lifecycle.InstanceRecover)
	require.Nil(t, s.usageOf(i.ID).StartTime, "a startup is free, also one that fails")
	i = s.move(i, lifecycle.InstanceBecomeReady)
	require.True(t, s.usageOf(i.ID).StartTime.Equal(*i.ReadyAt))
	require.Equal(t, int64(3600), s.usageOf(i.ID).RateMinorPerHour)
	i = s.move(i, lifecycle.InstanceDrain)
	require.Nil(t, s.usageOf(i.ID).EndTime, "it has work, and the server")
	require.InDelta(t, 900, s.capOf(i.ID), 30, "its drain and five minutes")
	require.Equal(t, int64(3600), s.balance().HeldMinor)
	require.NoError(t, s.tx(func(tx *db.Tx) error { return instancedb.EndDrain(t.Context(), tx, i.ID) }))
	require.InDelta(t, 300, s.capOf(i.ID), 30, "nobody waits any longer")
	i, err := instancedb.Get(t.Context(), s.store, i.ID)
	require.NoError(t, err)
	s.move(i, lifecycle.InstanceTerminate, lifecycle.InstanceFailTermination, lifecycle.InstanceTerminate, lifecycle.InstanceFinish)
	end := s.usageOf(i.ID).EndTime
	require.NotNil(t, end)
	require.WithinDuration(t, *i.ReadyAt, *end, time.Minute, "not ten minutes")
	require.Zero(t, s.balance().HeldMinor)
	s.requireWhole()
}

// TestUsage_InstanceThatNeverWasReady costs nothing and holds back nothing any more.
func TestUsage_InstanceThatNeverWasReady(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	for _, along := range [][]lifecycle.Transition[lifecycle.InstanceStatus]{
		{lifecycle.InstanceFailProvisioning}, {lifecycle.InstanceTerminate}, {lifecycle.InstanceBoot, lifecycle.InstanceTerminate},
		{lifecycle.InstanceBoot, lifecycle.InstanceMarkDeleted}, {lifecycle.InstanceBoot, lifecycle.InstanceFail},
	} {
		i := s.move(s.instance(0), along...)
		u := s.usageOf(i.ID)
		require.NotNil(t, u.ClosedAt, i.Status)
		require.Nil(t, u.StartTime)
		require.Zero(t, s.balance().HeldMinor, i.Status)
	}
	require.Zero(t, s.tick(s.now()).Windows)
}

// TestTick_ChargesInstances charges an instance and an allocation of one project: one debit a tick,
// which names neither, and the usage, the days and the statement say what each cost.
func TestTick_ChargesInstances(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	now := s.now()
	s.prices(dbtest.Rate{From: now.Add(-48 * time.Hour), RateMinorPerHour: 1993})
	dbtest.SetPrices(t, s.dsn, gpu, "USD", dbtest.Rate{From: now.Add(-48 * time.Hour), RateMinorPerHour: 71})
	i := s.readySince(now.Add(-3*time.Hour - 17*time.Second))
	require.Equal(t, 1, s.tick(now.Add(-time.Hour)).Windows)
	const named = "SELECT count(*) FROM ledger_transactions WHERE kind = 'usage' AND of_allocation IS NOT NULL"
	require.Zero(t, s.count(named), "a debit of an instance names no allocation")
	node := dbtest.RunSince(t, s.dsn, s.project.ID, s.sku.ID, now.Add(-30*time.Minute))
	require.Equal(t, 2, s.tick(now).Windows)
	require.Equal(t, int64(2), s.count("SELECT count(*) FROM ledger_transactions WHERE kind = 'usage' AND of_project = $1", s.project.ID))
	wants := map[string]int64{i.ID: cost(71, 3*time.Hour+17*time.Second), node: cost(1993, 30*time.Minute)}
	require.Equal(t, -wants[i.ID]-wants[node], s.balance().BalanceMinor)
	require.Equal(t, wants[i.ID], s.usageOf(i.ID).CostMinor)
	lines, err := ledgerdb.ListStatement(t.Context(), s.store, s.project.ID, now.Add(-time.Hour), now.Add(time.Hour), ledgerdb.StatementPlace{}, 10)
	require.NoError(t, err)
	require.Len(t, lines, 2)
	for _, l := range lines {
		require.Equal(t, -wants[l.Subject], l.AmountMinor, l.Subject)
	}
	page, err := ledgerdb.ListStatement(t.Context(), s.store, s.project.ID, now.Add(-time.Hour), now.Add(time.Hour),
		ledgerdb.StatementPlace{Subject: lines[0].Subject, Kind: lines[0].Kind}, 10)
	require.NoError(t, err)
	require.Equal(t, lines[1:], page)
	days, err := ledgerdb.ListDayUsage(t.Context(), s.store, s.project.ID, now.Add(-48*time.Hour).Truncate(24*time.Hour), now.Add(24*time.Hour).Truncate(24*time.Hour), 10)
	require.NoError(t, err)
	for _, d := range days {
		wants[d.AllocationID+d.InstanceID] -= d.AmountMinor
	}
	require.Equal(t, map[string]int64{i.ID: 0, node: 0}, wants)
	all, err := ledgerdb.ListUsage(t.Context(), s.store, s.project.ID, "", ledgerdb.UsagePlace{}, 1)
	require.NoError(t, err)
	require.Equal(t, node, all[0].AllocationID, "the newest record first, of either kind")
	all, err = ledgerdb.ListUsage(t.Context(), s.store, s.project.ID, "", ledgerdb.UsagePlace{RecordID: all[0].ID, Segment: all[0].Segment}, 2)
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.Equal(t, i.ID, all[0].InstanceID)
	s.move(i, lifecycle.InstanceDrain, lifecycle.InstanceTerminate)
	require.NotNil(t, s.usageOf(i.ID).EndTime)
	s.requireWhole()
}

// TestTick_InstancePriceChange: a lower price of a type counts at once and a higher one after a
// week, as one of a SKU does, and the price of another type is not taken.
func TestTick_InstancePriceChange(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	now := s.now()
	day := func(n int) time.Time { return now.Add(-time.Duration(30-n) * 24 * time.Hour) }
	dbtest.SetPrices(t, s.dsn, gpu, "USD", dbtest.Rate{From: day(0), RateMinorPerHour: 1000}, dbtest.Rate{From: day(3), RateMinorPerHour: 700},
		dbtest.Rate{From: day(5), RateMinorPerHour: 1501})
	dbtest.SetPrices(t, s.dsn, "scaleway/L4-1-24G", "USD", dbtest.Rate{From: day(0), RateMinorPerHour: 1})
	s.readySince(day(1))
	s.tick(now)
	require.Equal(t, -(cost(1000, 48*time.Hour) + cost(700, 9*24*time.Hour) + cost(1501, 18*24*time.Hour)), s.balance().BalanceMinor)
	s.requireWhole()
}

// TestTick_InstanceThatNobodyEnds: the control plane is down after a termination was accepted, and
// the charge ends five minutes after the drain.
func TestTick_InstanceThatNobodyEnds(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	now := s.now()
	dbtest.SetPrices(t, s.dsn, gpu, "USD", dbtest.Rate{From: now.Add(-48 * time.Hour), RateMinorPerHour: 3600})
	i := s.readySince(now.Add(-5 * time.Hour))
	s.move(i, lifecycle.InstanceDrain)
	_, err := dbtest.Owner(t, s.dsn).Exec(t.Context(), "UPDATE usage_records SET end_cap = $2 WHERE instance_id = $1", i.ID, now.Add(-2*time.Hour))
	require.NoError(t, err)
	s.tick(now)
	require.Equal(t, -cost(3600, 3*time.Hour), s.balance().BalanceMinor)
	require.Zero(t, s.balance().HeldMinor)
	require.NotNil(t, s.usageOf(i.ID).ClosedAt)
	long := s.move(s.ready(s.instance(86400)), lifecycle.InstanceDrain)
	s.tick(now)
	require.Greater(t, s.capOf(long.ID), int64(86000), "a drain is as long as was asked for")
}

// TestUsage_OneSubject: a record is of an allocation or of an instance, and neither is taken back.
func TestUsage_OneSubject(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	i := s.ready(s.instance(0))
	owner := dbtest.Owner(t, s.dsn)
	for sql, want := range map[string]string{
		"UPDATE usage_records SET instance_type = 'mock/OTHER' WHERE instance_id = $1":             "cannot be taken back",
		"UPDATE usage_records SET instance_id = NULL, instance_type = NULL WHERE instance_id = $1": "cannot be taken back",
		"UPDATE usage_records SET start_time = now() WHERE instance_id = $1":                       "cannot be taken back",
		"UPDATE balance_holds SET instance_id = NULL WHERE instance_id = $1":                       "balance_holds_one_subject",
		"INSERT INTO usage_records (project_id, instance_id, id, billing_account_id, sku_id, currency) SELECT project_id, $1, 'usg_x', billing_account_id, 'sku_x', currency FROM usage_records WHERE instance_id = $1": "usage_records_one_subject",
		"INSERT INTO prices (id, sku_id, instance_type, currency, rate_minor_per_hour, valid, set_by) SELECT 'prc_x', NULL, NULL, 'USD', 1, tstzrange(now(), NULL), $1":                                                 "null value",
	} {
		_, err := owner.Exec(t.Context(), sql, i.ID)
		require.ErrorContains(t, err, want, sql)
	}
}

// TestTick_FreeInstancesPayForNobody: accounts that have only instances without a price are no
// charged ones, so that they raise no bound of how many may be depleted at once.
func TestTick_FreeInstancesPayForNobody(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	now := s.now()
	s.prices(dbtest.Rate{From: now.Add(-48 * time.Hour), RateMinorPerHour: 600})
	const charged, free = 6, 400 // 2 % of all of them are 8
	start := now.Add(-24 * time.Hour).UTC().Format(time.RFC3339)
	_, err := dbtest.Owner(t, s.dsn).Exec(t.Context(), fmt.Sprintf(`
BEGIN; SET LOCAL session_replication_role = replica;
INSERT INTO billing_accounts (id, name) SELECT 'acc_' || i, 'a' || i FROM generate_series(1, %[1]d) i;
INSERT INTO account_balances (billing_account_id) SELECT 'acc_' || i FROM generate_series(1, %[1]d) i;
INSERT INTO usage_records (project_id, allocation_id, instance_id, id, billing_account_id, sku_id, instance_type, currency, start_time)
    SELECT 'prj_' || i, CASE WHEN i <= %[2]d THEN 'alc_' || i END, CASE WHEN i > %[2]d THEN 'inst_' || i END,
    'usg_' || i || CASE WHEN i > %[2]d THEN '-i' ELSE '' END, 'acc_' || i, CASE WHEN i <= %[2]d THEN '%[3]s' END, CASE WHEN i > %[2]d THEN '%[4]s' END,
    'USD', '%[5]s' FROM generate_series(1, %[1]d) i;
INSERT INTO usage_segments (project_id, record_id, segment, billing_account_id, currency, rate_minor_per_hour, started_at, billed_through)
    SELECT r.project_id, r.id, 0, r.billing_account_id, 'USD', CASE WHEN r.instance_id IS NULL THEN 600 ELSE 0 END, '%[5]s', '%[5]s' FROM usage_records r;
COMMIT`, charged+free, charged, s.sku.ID, gpu, start))
	require.NoError(t, err)
	require.Contains(t, s.tick(now).EnforcementStopped, "6 of 6 charged accounts are depleted")
}
