package allocationdb_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	allocationdb "github.com/slipway-cloud/slipway/db/allocation"
	"github.com/slipway-cloud/slipway/db/dbtest"
	machinesdb "github.com/slipway-cloud/slipway/db/machines"
	tenancydb "github.com/slipway-cloud/slipway/db/tenancy"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// rush is many clients that claim nodes of one SKU and give them back.
type rush struct {
	clients, nodes, requests int
	hold                     time.Duration // the longest that one keeps a node
	undone                   float64       // the share of claims that are rolled back

	store    *db.Store
	sku      db.SKU
	projects []tenancydb.Project

	mu      sync.Mutex
	clock   int               // counts events, so that no clock of the machine matters
	holders map[string]string // who has a node
	idle    map[string][]idle // when each node was free for certain
	refused []refusal         // claims that found none
	claims  map[string]int    // how often each node was claimed
	granted int
	doubles []string
}

type period struct{ from, to int }

type refusal struct {
	period
	nodes []string // as the database saw them in the claim's transaction
}

// idle is a time in which a node was free for certain: after the commit that freed it, and before
// the claim that took it began.
type idle struct {
	period
	open bool
}

func newRush(t testing.TB, r *rush) *rush {
	t.Helper()
	r.store, r.holders, r.claims, r.idle = dbtest.Store(t), map[string]string{}, map[string]int{}, map[string][]idle{}
	r.sku = dbtest.SKU(t, r.store)
	site := dbtest.Site(t, r.store)
	for range r.nodes {
		n := dbtest.FreeNode(t, r.store, dbtest.Of(r.sku.ID), dbtest.At(site.ID))
		r.idle[n.ID] = []idle{{open: true}}
	}
	for range r.clients {
		r.projects = append(r.projects, dbtest.Project(t, r.store))
	}
	return r
}

var errUndone = errors.New("undone")

// run has the clients make all requests and returns how long it took.
func (r *rush) run(ctx context.Context) (time.Duration, error) {
	var wg sync.WaitGroup
	errs := make([]error, r.clients)
	begun := time.Now()
	for c := range r.clients {
		wg.Go(func() {
			for range r.requests / r.clients {
				if err := r.request(ctx, r.projects[c].ID); err != nil {
					errs[c] = err
					return
				}
			}
		})
	}
	wg.Wait()
	return time.Since(begun), errors.Join(errs...)
}

// request claims a node, keeps it and gives it back.
func (r *rush) request(ctx context.Context, projectID string) error {
	var a allocationdb.Allocation
	var found bool
	var nodes []string
	begun := r.now()
	undo := rand.Float64() < r.undone
	err := r.store.Tx(ctx, func(tx *db.Tx) error {
		var err error
		if a, err = allocationdb.Create(ctx, tx, allocationdb.New{ProjectID: projectID, SKUID: r.sku.ID, RequestedBy: "rush", Actor: by(lifecycle.OwnerCustomer)}); err != nil {
			return err
		}
		a, found, err = allocationdb.Claim(ctx, tx, a.ID, by(lifecycle.OwnerCustomer))
		if err == nil && undo {
			<-time.After(rand.N(r.hold + 1))
			err = errUndone
		}
		if err == nil && !found {
			nodes, err = r.look(ctx, tx)
		}
		return err
	})
	if errors.Is(err, errUndone) {
		return nil
	}
	if err != nil {
		return err
	}
	r.claimed(a, found, begun, nodes)
	if !found {
		return nil
	}
	<-time.After(rand.N(r.hold + 1))
	claims := r.leaves(a)
	err = r.store.Tx(ctx, func(tx *db.Tx) error {
		if _, err := allocationdb.MoveTo(ctx, tx, allocationdb.Move{ID: a.ID, To: lifecycle.AllocationAbort, Actor: by(lifecycle.OwnerJob)}); err != nil {
			return err
		}
		_, err := allocationdb.Free(ctx, tx, a.ID, lifecycle.OutcomeReleased, "", by(lifecycle.OwnerJob))
		return err
	})
	if err == nil {
		r.freed(*a.NodeID, claims)
	}
	return err
}

// freed notes that a node is free from now on, unless another has claimed it since the commit.
func (r *rush) freed(id string, claims int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.claims[id] == claims {
		r.clock++
		r.idle[id] = append(r.idle[id], idle{period{from: r.clock}, true})
	}
}

// now returns the number of an event that comes after all before it.
func (r *rush) now() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clock++
	return r.clock
}

// look describes the nodes as the transaction of a refused claim sees them, with its locks.
func (r *rush) look(ctx context.Context, tx *db.Tx) ([]string, error) {
	rows, err := tx.DBTX().Query(ctx, `SELECT concat_ws(' ', n.id, 'ctid', n.ctid, 'xmin', n.xmin, 'xmax', n.xmax, 'allocation', coalesce(n.allocation_id, '-'),
		'claimable', n.id IN (SELECT id FROM claimable_nodes), 'heartbeat', now() - h.received_at, 'snapshot', pg_current_snapshot())
		FROM nodes n JOIN heartbeats h ON h.node_id = n.id WHERE n.sku_id = $1`, r.sku.ID)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

func (r *rush) claimed(a allocationdb.Allocation, found bool, begun int, nodes []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !found {
		r.clock++
		r.refused = append(r.refused, refusal{period{begun, r.clock}, nodes})
		return
	}
	r.granted++
	id := *a.NodeID
	if other := r.holders[id]; other != "" {
		r.doubles = append(r.doubles, id+" by "+other+" and "+a.ID)
	}
	r.holders[id] = a.ID
	r.claims[id]++
	if last := len(r.idle[id]) - 1; last >= 0 && r.idle[id][last].open {
		r.idle[id][last].to, r.idle[id][last].open = begun, false
	}
}

// leaves notes that an allocation gives its node back, and returns how often the node was claimed.
func (r *rush) leaves(a allocationdb.Allocation) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.holders, *a.NodeID)
	return r.claims[*a.NodeID]
}

// falseRefusals lists the refusals during the whole of which some node was free, one node each.
func (r *rush) falseRefusals() []string {
	var out []string
	for _, p := range r.refused {
		for id, times := range r.idle {
			i := slices.IndexFunc(times, func(v idle) bool { return v.from <= p.from && (v.open || v.to >= p.to) })
			if i >= 0 {
				out = append(out, fmt.Sprintf("refused in events %d to %d, while %s was free in %+v; the nodes: %q", p.from, p.to, id, times[i], p.nodes))
				break
			}
		}
	}
	return out
}

func (r *rush) requireSound(t testing.TB) {
	t.Helper()
	require.Empty(t, r.doubles, "two had a node at a time")
	require.Empty(t, r.falseRefusals(), "of %d refusals", len(r.refused))
	wrong, err := allocationdb.ListMismatches(t.Context(), r.store, "", 0)
	require.NoError(t, err)
	require.Empty(t, wrong)
	free, err := allocationdb.CountClaimable(t.Context(), r.store, r.sku.ID, "")
	require.NoError(t, err)
	total := 0
	for _, n := range free {
		total += n
	}
	require.Equal(t, r.nodes, total, "every node is free again")
	var deadlocks int64
	require.NoError(t, r.store.DBTX().QueryRow(t.Context(), "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()").Scan(&deadlocks))
	require.Zero(t, deadlocks)
}

// TestClaim_ManyClients has more clients than nodes, some of whose claims are rolled back, so that
// nodes run out and locked ones come back.
func TestClaim_ManyClients(t *testing.T) {
	t.Parallel()
	r := newRush(t, &rush{clients: 8, nodes: 4, requests: 160, hold: 5 * time.Millisecond, undone: 0.2})
	_, err := r.run(t.Context())
	require.NoError(t, err)
	r.requireSound(t)
	require.NotZero(t, r.granted)
	t.Logf("%d granted, %d refused", r.granted, len(r.refused))
}

// TestFalseRefusals_AreCounted checks the measure itself.
func TestFalseRefusals_AreCounted(t *testing.T) {
	t.Parallel()
	r := rush{refused: []refusal{{period: period{10, 20}}}}
	for want, v := range map[int][]idle{
		1: {{period{5, 25}, false}},
		0: {{period{11, 25}, false}, {period{1, 19}, false}},
	} {
		r.idle = map[string][]idle{"n": v}
		require.Len(t, r.falseRefusals(), want)
	}
}

// BenchmarkClaims is the experiment of the design: 32 clients, 120 nodes, 1,280 requests, each held
// for at most 50 ms. It reports claims a second without holding, as a ratio to the bare statement.
func BenchmarkClaims(b *testing.B) {
	for b.Loop() {
		whole := newRush(b, &rush{clients: 32, nodes: 120, requests: 1280, hold: 50 * time.Millisecond})
		took, err := whole.run(b.Context())
		require.NoError(b, err)
		whole.requireSound(b)
		require.Equal(b, 1280, whole.granted, "120 nodes are enough for 32 clients")
		b.ReportMetric(took.Seconds(), "held-s")
		fast := newRush(b, &rush{clients: 32, nodes: 120, requests: 1280})
		took, err = fast.run(b.Context())
		require.NoError(b, err)
		fast.requireSound(b)
		bare := newRush(b, &rush{clients: 32, nodes: 120, requests: 1280})
		bareTook, err := bare.runBare(b.Context())
		require.NoError(b, err)
		b.ReportMetric(1280/took.Seconds(), "claims/s")
		b.ReportMetric(1280/bareTook.Seconds(), "bare/s")
		b.ReportMetric(bareTook.Seconds()/took.Seconds(), "ratio")
	}
}

const (
	bareClaim = `UPDATE nodes SET allocation_id = $1 WHERE id = (SELECT id FROM nodes WHERE sku_id = $2 AND status = 'active' AND allocation_id IS NULL
		AND tenant_left_at IS NULL ORDER BY id LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED)`
	bareFree = "UPDATE nodes SET allocation_id = NULL WHERE allocation_id = $1"
)

// runBare claims and frees by the statement alone.
func (r *rush) runBare(ctx context.Context) (time.Duration, error) {
	var wg sync.WaitGroup
	errs := make([]error, r.clients)
	ids := make([]string, r.clients)
	for c := range ids {
		err := r.store.Tx(ctx, func(tx *db.Tx) error {
			a, err := allocationdb.Create(ctx, tx, allocationdb.New{ProjectID: r.projects[c].ID, SKUID: r.sku.ID, RequestedBy: "rush", Actor: by(lifecycle.OwnerCustomer)})
			ids[c] = a.ID
			return err
		})
		if err != nil {
			return 0, err
		}
	}
	begun := time.Now()
	for c := range r.clients {
		wg.Go(func() {
			for range r.requests / r.clients {
				if _, err := r.store.DBTX().Exec(ctx, bareClaim, ids[c], r.sku.ID); err != nil {
					errs[c] = err
					return
				}
				if _, err := r.store.DBTX().Exec(ctx, bareFree, ids[c]); err != nil {
					errs[c] = err
					return
				}
			}
		})
	}
	wg.Wait()
	return time.Since(begun), errors.Join(errs...)
}

// TestClaim_TakesOnlyWhatItMay offers nodes that each lack one thing.
func TestClaim_TakesOnlyWhatItMay(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	ctx := t.Context()
	sku, project := dbtest.SKU(t, s), dbtest.Project(t, s)
	node := func() db.Node { return dbtest.FreeNode(t, s, dbtest.Of(sku.ID)) }
	exec := func(sql string, args ...any) {
		_, err := s.DBTX().Exec(ctx, sql, args...)
		require.NoError(t, err)
	}
	dbtest.FreeNode(t, s) // of another SKU
	dbtest.Node(t, s, dbtest.Of(sku.ID), dbtest.Active())
	for _, status := range []lifecycle.NodeStatus{lifecycle.NodeQuarantined, lifecycle.NodeOffline, lifecycle.NodeRetired} { // whose health is good
		dbtest.MoveNode(t, s, node().ID, status)
	}
	dbtest.EndTenancy(t, s, dbtest.Occupy(t, s, node().ID).ID)
	dbtest.Occupy(t, s, node().ID)
	dbtest.Job(t, s, dbtest.On(node().ID), dbtest.Kind("bmc_rotation"))
	exec("UPDATE heartbeats SET unhealthy = '{gpu}' WHERE node_id = $1", node().ID)
	exec("UPDATE heartbeats SET received_at = now() - interval '1 hour' WHERE node_id = $1", node().ID)
	exec("UPDATE heartbeats SET boot_id = 'another' WHERE node_id = $1", node().ID)
	require.NoError(t, s.Tx(ctx, func(tx *db.Tx) error { // in a customer's cluster
		m, err := machinesdb.Create(ctx, tx, machinesdb.New{ID: "m-1", Phase: lifecycle.MachineReady, Actor: db.Actor{Owner: lifecycle.OwnerAdmin}})
		if err == nil {
			id := node().ID
			m.NodeID = &id
			_, err = machinesdb.SetAccess(ctx, tx, m)
		}
		return err
	}))
	exec(`INSERT INTO clusters (ref, spec) VALUES ('c-1', '{}')`)
	exec(`INSERT INTO machine_clusters (machine_id, cluster_ref, node_name, system_uuid, joined_at) VALUES ('m-1', 'c-1', 'n', '00000000-0000-0000-0000-000000000001', now())`)
	exec("DELETE FROM clusters WHERE ref = 'c-1'") // which takes the machine out of nothing
	dangling := dbtest.Occupy(t, s, node().ID)
	exec("UPDATE nodes SET allocation_id = NULL WHERE id = $1", *dangling.NodeID)
	a := request(t, s, project.ID, sku.ID)
	_, found := claim(t, s, a.ID)
	require.False(t, found)
	wrong, err := allocationdb.ListMismatches(ctx, s, "", 0)
	require.NoError(t, err)
	require.Len(t, wrong, 1)
	require.Equal(t, []string{*dangling.NodeID, "", dangling.ID}, []string{wrong[0].NodeID, wrong[0].Pointer, wrong[0].Occupant})
	good := node()
	a, found = claim(t, s, a.ID)
	require.True(t, found)
	require.Equal(t, good.ID, *a.NodeID)
}

// TestClaim_KeepsTheReserve lets many claim at once and keeps one node of one site.
func TestClaim_KeepsTheReserve(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	ctx := t.Context()
	sku, site, project := dbtest.SKU(t, s), dbtest.Site(t, s), dbtest.Project(t, s)
	for range 4 {
		dbtest.FreeNode(t, s, dbtest.Of(sku.ID), dbtest.At(site.ID))
	}
	require.NoError(t, s.Tx(ctx, func(tx *db.Tx) error { return allocationdb.PutReserve(ctx, tx, sku.ID, site.ID, 1) }))
	granted := make(chan bool, 6)
	var wg sync.WaitGroup
	for range cap(granted) {
		a := request(t, s, project.ID, sku.ID)
		wg.Go(func() {
			_ = s.Tx(ctx, func(tx *db.Tx) error {
				_, found, err := allocationdb.Claim(ctx, tx, a.ID, by(lifecycle.OwnerJob))
				if found {
					granted <- true
				}
				return err
			})
		})
	}
	wg.Wait()
	require.Len(t, granted, 3)
	require.NoError(t, s.Tx(ctx, func(tx *db.Tx) error { return allocationdb.PutReserve(ctx, tx, sku.ID, site.ID, 0) }))
	_, found := claim(t, s, request(t, s, project.ID, sku.ID).ID)
	require.True(t, found)
}

// TestTakeNode_OneLiveJob gives a node to a job only while no other one has it.
func TestTakeNode_OneLiveJob(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	ctx := t.Context()
	n := dbtest.FreeNode(t, s)
	a := dbtest.Occupy(t, s, n.ID)
	other := dbtest.Job(t, s, dbtest.On(n.ID), dbtest.Kind("bmc_rotation"), dbtest.JobStatus(lifecycle.JobRunning))
	newJob := func() (db.Job, error) {
		var j db.Job
		err := s.Tx(ctx, func(tx *db.Tx) (err error) {
			j, err = tx.CreateJob(ctx, db.NewJob{Kind: "allocation_release", ResourceKind: allocationdb.Resource, ResourceID: a.ID, Actor: by(lifecycle.OwnerCustomer)})
			return err
		})
		return j, err
	}
	job, err := newJob()
	require.NoError(t, err)
	_, err = newJob()
	var conflict *db.ConflictError
	require.ErrorAs(t, err, &conflict, "one live job of an allocation")
	require.Equal(t, job.ID, conflict.Existing)
	take := func() bool {
		return in(t, s, func(tx *db.Tx) (bool, error) { return allocationdb.TakeNode(ctx, tx, job.ID, n.ID, n.SiteID) })
	}
	require.False(t, take())
	in(t, s, func(tx *db.Tx) (db.Job, error) {
		return tx.TransitionJob(ctx, other.ID, lifecycle.JobComplete, nil, by(lifecycle.OwnerSystem))
	})
	require.True(t, take())
	require.True(t, take(), "repeatable")
	found, err := s.LiveJobOfNode(ctx, n.ID)
	require.NoError(t, err)
	require.Equal(t, job.ID, found.ID)
}
