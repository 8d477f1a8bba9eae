package billing_test

import (
	"context"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	tenancydb "github.com/slipway-cloud/slipway/db/tenancy"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/test/billing/model"
)

const (
	accounts = 3
	skus     = 3
	items    = skus + 1 // the last one is a type of instances
	nodes    = 12
	currency = "USD"
	// chargeCap is how long a release that nothing confirms is charged.
	chargeCap = 5 * time.Minute
	// drainTime is how long an instance drains.
	drainTime = 10 * time.Minute
)

// market is a database of its own whose clock the test sets, with nodes for allocations.
type market struct {
	t     testing.TB
	dsn   string
	store *db.Store
	owner *pgx.Conn // the schema, the clock and the allocations
	app   *pgx.Conn // ticks, with the rights of a serving process
	nodes []string
}

// clockSQL gives the functions that read the time a clock that the test sets. Their use of the time
// is unchanged.
const clockSQL = `
CREATE TABLE public.test_clock (at timestamptz NOT NULL);
INSERT INTO public.test_clock VALUES (pg_catalog.now());
CREATE FUNCTION public.now() RETURNS timestamptz LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
    AS 'SELECT at FROM public.test_clock';
GRANT EXECUTE ON FUNCTION public.now() TO PUBLIC;
ALTER FUNCTION follow_instance() SET search_path = public, pg_catalog, pg_temp;
ALTER FUNCTION follow_allocation() SET search_path = public, pg_catalog, pg_temp;
ALTER FUNCTION guard_price() SET search_path = public, pg_catalog, pg_temp;
-- The tests of db/allocation and lifecycle prove the edges; here an allocation or instance moves by one statement.
ALTER TABLE instances DISABLE TRIGGER instances_edge_insert, DISABLE TRIGGER instances_edge_update,
    DISABLE TRIGGER instances_audited_insert, DISABLE TRIGGER instances_audited_update;
ALTER TABLE allocations DISABLE TRIGGER allocations_edge_insert, DISABLE TRIGGER allocations_edge_update,
    DISABLE TRIGGER allocations_audited_insert, DISABLE TRIGGER allocations_audited_update`

func newMarket(t testing.TB) *market {
	t.Helper()
	m := &market{t: t, dsn: dbtest.FreshDatabase(t)}
	m.store = dbtest.Open(t, m.dsn)
	m.owner = dbtest.Owner(t, m.dsn)
	m.app = m.connect(t.Context())
	_, err := m.owner.Exec(t.Context(), clockSQL)
	require.NoError(t, err)
	for range nodes {
		m.nodes = append(m.nodes, dbtest.Node(t, m.store, dbtest.Active()).ID)
	}
	return m
}

func (m *market) connect(ctx context.Context) *pgx.Conn {
	m.t.Helper()
	conn, err := pgx.Connect(ctx, m.dsn)
	require.NoError(m.t, err)
	m.t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(ctx)) })
	return conn
}

// allocation is an allocation, or an instance, with the times that end its charge. An instance has
// no node; cap is when its charge ends at the latest.
type allocation struct {
	id, node                                    string
	account, sku                                int
	start, released, accessEnded, failed, freed time.Time
	through                                     time.Time // up to which ticks have charged it
	isInstance                                  bool
	cap                                         time.Time
}

// end returns when its charge ends, by what has happened up to now.
func (a *allocation) end() (time.Time, bool) {
	if a.isInstance {
		return model.End(time.Time{}, 0, a.cap, a.freed)
	}
	end, ended := model.End(a.released, chargeCap, a.accessEnded, a.failed, a.freed)
	return model.NotBefore(a.start, end), ended
}

// payer is a billing account with what the model knows of it.
type payer struct {
	id, project string
	*model.Account
	last adjustment
}

// adjustment is one that was sent, to be sent again.
type adjustment struct {
	key    string
	amount int64
}

// walk is one plan that runs: the state of the model beside that of the database.
type walk struct {
	*market
	ctx         context.Context
	clock       time.Time
	payers      []*payer
	skuIDs      []string // and the type of instances, as provider/type
	prices      [][]model.Price
	allocations []*allocation
	edits       int // of tamper
}

var operator = db.Actor{Owner: lifecycle.OwnerAdmin, ID: "test"}

func (m *market) newWalk(ctx context.Context) (*walk, error) {
	w := &walk{market: m, ctx: ctx, clock: time.Date(2026, 3, 1, 9, 30, 0, 123456000, time.UTC)}
	if _, err := m.owner.Exec(ctx, "UPDATE allocations SET node_released_at = now(), released_at = now(), status = 'released', outcome = 'assignment_removed', charge_capped_at = coalesce(charge_capped_at, now()) WHERE node_released_at IS NULL"); err != nil {
		return nil, fmt.Errorf("free the nodes of the walk before: %w", err)
	}
	if err := w.setClock(); err != nil {
		return nil, err
	}
	thresholds := model.Thresholds{Low: big.NewInt(1000), Depleted: big.NewInt(0), Rearm: big.NewInt(1200)}
	return w, m.store.Tx(ctx, func(tx *db.Tx) error {
		for range accounts {
			a, err := tenancydb.CreateAccount(ctx, tx, db.NewID("account"), 10)
			if err != nil {
				return err
			}
			p, err := tenancydb.CreateProject(ctx, tx, a.ID, "project", nil, operator)
			if err != nil {
				return err
			}
			w.payers = append(w.payers, &payer{id: a.ID, project: p.ID, Account: model.NewAccount(thresholds)})
		}
		for i := range items {
			sku, err := tx.CreateSKU(ctx, db.NewID("sku"), spec.SKUSpec{})
			if err != nil {
				return err
			}
			if i == skus {
				sku.ID = "mock/" + db.NewID("gpu")
			}
			w.skuIDs = append(w.skuIDs, sku.ID)
			w.prices = append(w.prices, nil)
			if err := w.setPrice(tx.DBTX().Exec, i, w.clock, []int64{1993, 250_00, 7, 787}[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

func (w *walk) setClock() error {
	_, err := w.owner.Exec(w.ctx, "UPDATE test_clock SET at = $1", w.clock)
	return err
}

// rows runs a statement and returns what scan reads of each row.
func rows[T any](ctx context.Context, conn *pgx.Conn, sql string, args ...any) ([]T, error) {
	r, err := conn.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(r, pgx.RowToStructByPos[T])
}

// functionOf returns the definition of a function.
func (m *market) functionOf(name string) string {
	m.t.Helper()
	var text string
	require.NoError(m.t, m.owner.QueryRow(m.t.Context(), "SELECT pg_get_functiondef(oid) FROM pg_proc WHERE proname = $1 AND pronamespace = 'public'::regnamespace", name).Scan(&text))
	return text
}

// mutate changes a part of a function until the returned function is called.
func (m *market) mutate(name, part, instead string) (restore func()) {
	m.t.Helper()
	before := m.functionOf(name)
	require.Contains(m.t, before, part, "the mutant no longer fits: %s has changed", name)
	m.define(strings.ReplaceAll(before, part, instead))
	return func() { m.define(before) }
}

func (m *market) define(text string) {
	m.t.Helper()
	_, err := m.owner.Exec(m.t.Context(), text)
	require.NoError(m.t, err)
}
