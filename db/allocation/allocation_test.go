package allocationdb_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	allocationdb "github.com/slipway-cloud/slipway/db/allocation"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
)

func by(o lifecycle.Owner) db.Actor { return db.Actor{Owner: o, ID: "test"} }

// in runs a transaction that has to succeed and returns its result.
func in[T any](t testing.TB, s *db.Store, do func(*db.Tx) (T, error)) (out T) {
	t.Helper()
	require.NoError(t, s.Tx(t.Context(), func(tx *db.Tx) (err error) {
		out, err = do(tx)
		return err
	}))
	return out
}

// request writes a requested allocation of a SKU.
func request(t testing.TB, s *db.Store, projectID, skuID string) allocationdb.Allocation {
	t.Helper()
	return in(t, s, func(tx *db.Tx) (allocationdb.Allocation, error) {
		return allocationdb.Create(t.Context(), tx, allocationdb.New{
			ProjectID: projectID, SKUID: skuID, Name: "train", Tags: map[string]string{"Team": "a"}, RequestedBy: "oidc:ada", Actor: by(lifecycle.OwnerCustomer),
			Keys: []allocationdb.PublicKey{{Fingerprint: dbtest.KeyFingerprint, PublicKey: dbtest.Key}},
		})
	})
}

func claim(t testing.TB, s *db.Store, id string) (a allocationdb.Allocation, found bool) {
	t.Helper()
	a = in(t, s, func(tx *db.Tx) (a allocationdb.Allocation, err error) {
		a, found, err = allocationdb.Claim(t.Context(), tx, id, by(lifecycle.OwnerJob))
		return a, err
	})
	return a, found
}

func move(t testing.TB, s *db.Store, id string, to allocationdb.Transition, owner lifecycle.Owner) allocationdb.Allocation {
	t.Helper()
	return in(t, s, func(tx *db.Tx) (allocationdb.Allocation, error) {
		return allocationdb.MoveTo(t.Context(), tx, allocationdb.Move{ID: id, To: to, Reason: "because", Actor: by(owner)})
	})
}

// TestMachine_DatabaseAllowsExactlyItsEdges tries every pair of states by SQL.
func TestMachine_DatabaseAllowsExactlyItsEdges(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Database(t)
	s, owner := dbtest.Open(t, dsn), dbtest.Owner(t, dsn)
	a, n := request(t, s, dbtest.Project(t, s).ID, dbtest.SKU(t, s).ID), dbtest.Node(t, s)
	on := "node_id = '" + n.ID + "'"
	columns := map[lifecycle.AllocationStatus]string{ // what the schema requires of a row in the state
		lifecycle.AllocationRequested: "name = ''", lifecycle.AllocationProvisioning: on, lifecycle.AllocationReleasing: on, lifecycle.AllocationReleaseFailed: on,
		lifecycle.AllocationActive:   on + ", start_time = now(), access_given_at = now()",
		lifecycle.AllocationReleased: "outcome = 'cancelled', released_at = now()", lifecycle.AllocationFailed: "failure_code = 'x', released_at = now()",
	}
	refused := func(from, to lifecycle.AllocationStatus) bool {
		tx, err := owner.Begin(t.Context())
		require.NoError(t, err)
		defer func() { require.NoError(t, tx.Rollback(t.Context())) }()
		for _, sql := range []string{
			"SET LOCAL session_replication_role = replica", "UPDATE allocations SET status = '" + string(from) + "', " + columns[from] + " WHERE id = '" + a.ID + "'",
			"SET LOCAL session_replication_role = origin",
		} {
			_, err = tx.Exec(t.Context(), sql)
			require.NoError(t, err)
		}
		_, err = tx.Exec(t.Context(), "UPDATE allocations SET version = version + 1, status = $2 WHERE id = $1", a.ID, to)
		var pg *pgconn.PgError
		return errors.As(err, &pg) && pg.Code == "SW001"
	}
	edges := lifecycle.Allocation.Edges()
	for _, from := range lifecycle.Allocation.States {
		for _, to := range lifecycle.Allocation.States {
			if from.State != to.State {
				legal := slices.ContainsFunc(edges, func(e lifecycle.Edge) bool { return e.From == string(from.State) && e.To == string(to.State) })
				require.Equal(t, legal, !refused(from.State, to.State), "%s to %s", from.State, to.State)
			}
		}
	}
}

// TestMoves_WithoutAuditAreRefused requires an audit row for a status, a version for a move, and
// the facts that may not be taken back.
func TestMoves_WithoutAuditAreRefused(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	n := dbtest.FreeNode(t, s)
	a := dbtest.Occupy(t, s, n.ID)
	other := dbtest.Node(t, s)
	for sql, code := range map[string]string{
		"UPDATE allocations SET status = 'releasing', connection = NULL, version = version + 1": "SW002",
		"UPDATE allocations SET status = 'releasing', connection = NULL":                        "SW001",
		"UPDATE allocations SET sku_id = 'sku_x'":                                               "SW001",
		"UPDATE allocations SET node_id = '" + other.ID + "'":                                   "SW001",
		"UPDATE allocations SET access_given_at = now() + interval '1 day'":                     "SW001",
		"UPDATE allocations SET node_released_at = now()":                                       "23514",
		"DELETE FROM allocations":                                                               "42501",
		"UPDATE nodes SET allocation_id = 'alc_none' WHERE allocation_id IS NOT NULL":           "23503",
	} {
		_, err := s.DBTX().Exec(t.Context(), sql)
		var pg *pgconn.PgError
		require.ErrorAs(t, err, &pg, sql)
		require.Equal(t, code, pg.Code, sql)
	}
	got, err := allocationdb.Get(t.Context(), s, a.ID)
	require.NoError(t, err)
	require.Equal(t, a, got)
}

// TestEdges_AreTakenByTheFunctions walks every edge by the functions of the package and compares
// what it walked with the machine.
func TestEdges_AreTakenByTheFunctions(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	sku, project := dbtest.SKU(t, s), dbtest.Project(t, s)
	ctx := t.Context()
	newNode := func() { dbtest.FreeNode(t, s, dbtest.Of(sku.ID)) }
	job, customer := by(lifecycle.OwnerJob), by(lifecycle.OwnerCustomer)
	ask := func() string { return request(t, s, project.ID, sku.ID).ID }

	cancelled := in(t, s, func(tx *db.Tx) (allocationdb.Allocation, error) {
		return allocationdb.Cancel(ctx, tx, ask(), "not wanted", customer)
	})
	require.Equal(t, []string{"cancelled", "not wanted"}, []string{cancelled.Outcome, cancelled.ReleaseReason})
	waited := in(t, s, func(tx *db.Tx) (allocationdb.Allocation, error) {
		return allocationdb.Fail(ctx, tx, ask(), lifecycle.FailureNoCapacity, "none came", job)
	})
	require.Equal(t, "none came", waited.FailureMessage)

	newNode()
	failed, found := claim(t, s, ask())
	require.True(t, found)
	in(t, s, func(tx *db.Tx) (allocationdb.Allocation, error) {
		return allocationdb.Fail(ctx, tx, failed.ID, lifecycle.FailureProvision, "x", job)
	})
	aborted, found := claim(t, s, ask())
	require.True(t, found, "the node of an allocation that failed is free again")
	require.Equal(t, *failed.NodeID, *aborted.NodeID)
	move(t, s, aborted.ID, lifecycle.AllocationAbort, lifecycle.OwnerJob)
	in(t, s, func(tx *db.Tx) (allocationdb.Allocation, error) {
		return allocationdb.Free(ctx, tx, aborted.ID, lifecycle.OutcomeReleased, "", job)
	})
	used, found := claim(t, s, ask())
	require.True(t, found, "nobody had access to the node of a provisioning that was aborted")
	used = in(t, s, func(tx *db.Tx) (allocationdb.Allocation, error) {
		return allocationdb.Activate(ctx, tx, used.ID, allocationdb.Connection{Host: "127.0.0.1", Port: 22}, allocationdb.Image{ID: "i"}, job)
	})
	require.NotNil(t, used.StartTime)
	require.Equal(t, "127.0.0.1", used.Connection.Host)
	released := move(t, s, used.ID, lifecycle.AllocationRelease, lifecycle.OwnerCustomer)
	require.Nil(t, released.Connection, "nobody is told where to log in any more")
	require.Equal(t, "because", released.ReleaseReason)
	failing := move(t, s, used.ID, lifecycle.AllocationFailRelease, lifecycle.OwnerJob)
	require.NotNil(t, failing.ChargeCappedAt)
	move(t, s, used.ID, lifecycle.AllocationRetryRelease, lifecycle.OwnerCustomer)
	dbtest.EndTenancy(t, s, used.ID)

	rows, err := s.DBTX().Query(ctx, "SELECT DISTINCT from_state || '>' || to_state FROM audit_log WHERE resource_kind = 'allocation'")
	require.NoError(t, err)
	walked, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	var all []string
	for _, e := range lifecycle.Allocation.Edges() {
		all = append(all, e.From+">"+e.To)
	}
	require.ElementsMatch(t, all, walked)
	rows, err = s.DBTX().Query(ctx, "SELECT type FROM outbox WHERE kind = 'event' AND event_project = $1 AND resource_id = $2 ORDER BY id", project.ID, used.ID)
	require.NoError(t, err)
	told, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Equal(t, []string{
		"allocation.requested", "allocation.provisioning", "allocation.active", "allocation.releasing.requested", "allocation.release_failed",
		"allocation.releasing.requested", "allocation.released",
	}, told)
	_, err = s.VerifyAudit(ctx, lifecycle.Allocation.Resource, used.ID)
	require.NoError(t, err)
}

// TestActivate_ChargesFromTheKeys: what is charged begins when the keys went in, also where the
// proof of them was held up.
func TestActivate_ChargesFromTheKeys(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	ctx := t.Context()
	sku, project := dbtest.SKU(t, s), dbtest.Project(t, s)
	dbtest.FreeNode(t, s, dbtest.Of(sku.ID))
	a, found := claim(t, s, request(t, s, project.ID, sku.ID).ID)
	require.True(t, found)
	require.NoError(t, allocationdb.GiveAccess(ctx, s, a.ID))
	given, err := allocationdb.Get(ctx, s, a.ID)
	require.NoError(t, err)
	active := in(t, s, func(tx *db.Tx) (allocationdb.Allocation, error) {
		return allocationdb.Activate(ctx, tx, a.ID, allocationdb.Connection{Host: "127.0.0.1", Port: 22, User: "t-1"}, allocationdb.Image{ID: "image"}, by(lifecycle.OwnerJob))
	})
	require.Equal(t, given.AccessGivenAt, active.StartTime)
}

// TestFree_MarksTheNodeUnlessACertificateProvesItClean frees nodes with every kind of certificate.
func TestFree_MarksTheNodeUnlessACertificateProvesItClean(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	ctx := t.Context()
	free := func(certify func(nodeID string) string) (db.Node, allocationdb.Allocation) {
		n := dbtest.FreeNode(t, s)
		a := dbtest.Occupy(t, s, n.ID)
		move(t, s, a.ID, lifecycle.AllocationRelease, lifecycle.OwnerCustomer)
		require.NoError(t, allocationdb.EndAccess(ctx, s, a.ID, lifecycle.AccessRevoked))
		certificate := certify(n.ID)
		a = in(t, s, func(tx *db.Tx) (allocationdb.Allocation, error) {
			return allocationdb.Free(ctx, tx, a.ID, lifecycle.OutcomeReleased, certificate, by(lifecycle.OwnerJob))
		})
		n, err := s.Node(ctx, n.ID)
		require.NoError(t, err)
		require.Nil(t, n.AllocationID)
		return n, a
	}
	later := time.Now().Add(time.Minute)
	clean, a := free(func(id string) string { return dbtest.Certificate(t, s, id, "clean", later) })
	require.Nil(t, clean.TenantLeftAt)
	require.NotNil(t, a.CertificateID)
	kept, _ := free(func(id string) string { return dbtest.Certificate(t, s, id, "not_verified", later, later) })
	require.Nil(t, kept.TenantLeftAt, "a scrub of the system that stays")
	other := dbtest.Node(t, s)
	for name, certify := range map[string]func(string) string{
		"none":         func(string) string { return "" },
		"not verified": func(id string) string { return dbtest.Certificate(t, s, id, "not_verified", later) },
		"scrub of before": func(id string) string {
			return dbtest.Certificate(t, s, id, "not_verified", later, time.Now().Add(-time.Hour))
		},
		"of before":      func(id string) string { return dbtest.Certificate(t, s, id, "clean", time.Now().Add(-time.Hour)) },
		"of another one": func(string) string { return dbtest.Certificate(t, s, other.ID, "clean", later) },
	} {
		n, _ := free(certify)
		require.NotNil(t, n.TenantLeftAt, name)
		history, err := allocationdb.ListOccupancies(ctx, s, n.ID, 0, 10)
		require.NoError(t, err)
		require.Equal(t, lifecycle.OccupancyMaintenance, history[0].State, name)
	}
	history, err := allocationdb.ListOccupancies(ctx, s, clean.ID, 0, 10)
	require.NoError(t, err)
	var states []lifecycle.Occupancy
	for _, h := range history {
		states = append(states, h.State)
	}
	require.Equal(t, []lifecycle.Occupancy{lifecycle.OccupancyFree, lifecycle.OccupancyReleasing, lifecycle.OccupancyAllocated}, states)
	require.Nil(t, history[0].Until)
	require.NotNil(t, history[1].Until)
}

// TestFree_WithoutProofOfTheEndIsRefused never calls an access revoked that is not.
func TestFree_WithoutProofOfTheEndIsRefused(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	ctx := t.Context()
	a := dbtest.Occupy(t, s, dbtest.FreeNode(t, s).ID)
	free := func(outcome string) error {
		return s.Tx(ctx, func(tx *db.Tx) error {
			_, err := allocationdb.Free(ctx, tx, a.ID, outcome, "", by(lifecycle.OwnerJob))
			return err
		})
	}
	fail := func() error {
		return s.Tx(ctx, func(tx *db.Tx) error {
			_, err := allocationdb.Fail(ctx, tx, a.ID, "x", "x", by(lifecycle.OwnerJob))
			return err
		})
	}
	require.ErrorIs(t, fail(), lifecycle.ErrIllegalTransition, "the tenant had access")
	require.ErrorIs(t, allocationdb.EndAccess(ctx, s, a.ID, lifecycle.AccessRevoked), db.ErrStale, "it is not being released")
	move(t, s, a.ID, lifecycle.AllocationRelease, lifecycle.OwnerCustomer)
	require.ErrorIs(t, free(lifecycle.OutcomeReleased), lifecycle.ErrIllegalTransition)
	require.NoError(t, allocationdb.EndAccess(ctx, s, a.ID, lifecycle.AccessUnconfirmed))
	require.ErrorIs(t, free(lifecycle.OutcomeReleased), lifecycle.ErrIllegalTransition)
	require.NoError(t, allocationdb.EndAccess(ctx, s, a.ID, lifecycle.AccessRevoked))
	require.NoError(t, allocationdb.EndAccess(ctx, s, a.ID, lifecycle.AccessUnconfirmed))
	got, err := allocationdb.Get(ctx, s, a.ID)
	require.NoError(t, err)
	require.Equal(t, lifecycle.AccessRevoked, got.Access, "what was proven stays")
	require.NoError(t, free(lifecycle.OutcomeReleased))
	require.NoError(t, free(lifecycle.OutcomeReleased), "repeatable")
}

// TestMutations_CanBeRepeated calls each function that a job repeats twice.
func TestMutations_CanBeRepeated(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	ctx := t.Context()
	sku := dbtest.SKU(t, s)
	n := dbtest.FreeNode(t, s, dbtest.Of(sku.ID))
	a := request(t, s, dbtest.Project(t, s).ID, sku.ID)
	snapshot := func() (out allocationdb.Allocation) {
		out, err := allocationdb.Get(ctx, s, a.ID)
		require.NoError(t, err)
		out.UpdatedAt = time.Time{}
		return out
	}
	twice := func(name string, do func(tx *db.Tx) error) {
		require.NoError(t, s.Tx(ctx, do), name)
		first := snapshot()
		history, err := allocationdb.ListOccupancies(ctx, s, n.ID, 0, 10)
		require.NoError(t, err)
		require.NoError(t, s.Tx(ctx, do), "%s again", name)
		require.Equal(t, first, snapshot(), name)
		again, err := allocationdb.ListOccupancies(ctx, s, n.ID, 0, 10)
		require.NoError(t, err)
		require.Equal(t, history, again, name)
	}
	twice("claim", func(tx *db.Tx) error {
		_, found, err := allocationdb.Claim(ctx, tx, a.ID, by(lifecycle.OwnerJob))
		require.True(t, found)
		return err
	})
	twice("firmware", func(tx *db.Tx) error { return allocationdb.SetFirmwareSnapshot(ctx, tx, a.ID, []byte(`{"bios": "1"}`)) })
	twice("network", func(tx *db.Tx) error {
		return allocationdb.SetNetwork(ctx, tx, a.ID, allocationdb.Network{ID: "n", Kind: "shared"})
	})
	twice("give access", func(tx *db.Tx) error { return allocationdb.GiveAccess(ctx, tx, a.ID) })
	twice("accepted", func(tx *db.Tx) error { return allocationdb.RecordKey(ctx, tx, a.ID, dbtest.KeyFingerprint, true) })
	twice("activate", func(tx *db.Tx) error {
		_, err := allocationdb.Activate(ctx, tx, a.ID, allocationdb.Connection{Host: "127.0.0.1"}, allocationdb.Image{ID: "i"}, by(lifecycle.OwnerJob))
		return err
	})
	twice("condition", func(tx *db.Tx) error {
		return allocationdb.SetCondition(ctx, tx, a.ID, lifecycle.ConditionDegraded, "a fan")
	})
	twice("connection", func(tx *db.Tx) error {
		_, err := allocationdb.ChangeConnection(ctx, tx, a.ID, allocationdb.Connection{Host: "127.0.0.2"}, nil)
		return err
	})
	move(t, s, a.ID, lifecycle.AllocationRelease, lifecycle.OwnerCustomer)
	twice("refused", func(tx *db.Tx) error { return allocationdb.RecordKey(ctx, tx, a.ID, dbtest.KeyFingerprint, false) })
	twice("end access", func(tx *db.Tx) error { return allocationdb.EndAccess(ctx, tx, a.ID, lifecycle.AccessRevoked) })
	twice("attempts", func(tx *db.Tx) error { return allocationdb.SetReleaseAttempts(ctx, tx, a.ID, 2) })
	require.NoError(t, allocationdb.SetReleaseAttempts(ctx, s, a.ID, 1))
	require.Equal(t, 2, snapshot().ReleaseAttempts, "the number never falls")
	twice("sanitizing", func(tx *db.Tx) error {
		return allocationdb.EnterOccupancy(ctx, tx, n.ID, lifecycle.OccupancySanitizing, a.ID, "")
	})
	twice("free", func(tx *db.Tx) error {
		_, err := allocationdb.Free(ctx, tx, a.ID, lifecycle.OutcomeReleased, "", by(lifecycle.OwnerJob))
		return err
	})
	bios, err := allocationdb.FirmwareSnapshot(ctx, s, a.ID)
	require.NoError(t, err)
	require.JSONEq(t, `{"bios": "1"}`, string(bios))
	require.ErrorIs(t, allocationdb.RecordKey(ctx, s, a.ID, "SHA256:none", true), db.ErrNotFound)
}

// TestProjects_SeeTheirOwn reads as customers of two projects.
func TestProjects_SeeTheirOwn(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	sku := dbtest.SKU(t, s)
	own, other := request(t, s, dbtest.Project(t, s).ID, sku.ID), request(t, s, dbtest.Project(t, s).ID, sku.ID)
	require.ErrorContains(t, s.ForProject(t.Context(), own.ProjectID, func(tx *db.ProjectTx) error {
		list, err := allocationdb.List(t.Context(), tx, allocationdb.Filter{Tags: map[string]string{"Team": "a"}}, "", 0)
		require.NoError(t, err)
		require.Equal(t, []allocationdb.Allocation{own}, list)
		_, err = allocationdb.Get(t.Context(), tx, other.ID)
		require.ErrorIs(t, err, db.ErrNotFound)
		keys, err := allocationdb.ListKeys(t.Context(), tx, other.ID)
		require.NoError(t, err)
		require.Empty(t, keys)
		none, err := allocationdb.List(t.Context(), tx, allocationdb.Filter{Tags: map[string]string{"team": "a"}}, "", 0)
		require.NoError(t, err)
		require.Empty(t, none, "keys of tags keep their case")
		_, err = tx.DBTX().Exec(t.Context(), "UPDATE allocations SET name = 'mine'")
		return err
	}), "permission denied")
}

// TestPrune_BMCSettings: what the BMC was at a claim is deleted with the allocation, unless its
// node is still to be compared with it.
func TestPrune_BMCSettings(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	kept := map[bool]string{}
	for _, dirty := range []bool{true, false} {
		node := dbtest.Node(t, s)
		a := dbtest.Occupy(t, s, node.ID)
		require.NoError(t, allocationdb.SetFirmwareSnapshot(t.Context(), s, a.ID, []byte(`{"values": []}`)))
		dbtest.EndTenancy(t, s, a.ID)
		if !dirty {
			require.NoError(t, s.Tx(t.Context(), func(tx *db.Tx) error { return tx.MarkSanitized(t.Context(), node.ID, time.Now().Add(time.Minute)) }))
		}
		kept[dirty] = a.ID
	}
	n, err := allocationdb.Prune(t.Context(), s, time.Now().Add(time.Minute))
	require.NoError(t, err)
	require.EqualValues(t, 2, n)
	_, err = allocationdb.FirmwareSnapshot(t.Context(), s, kept[true])
	require.NoError(t, err)
	_, err = allocationdb.FirmwareSnapshot(t.Context(), s, kept[false])
	require.ErrorIs(t, err, db.ErrNotFound)
}

// TestCountChurn_HasIndexes: what is counted under the lock of an account has indexes without the
// allocations that ended, and by the time of the request.
func TestCountChurn_HasIndexes(t *testing.T) {
	t.Parallel()
	rows, err := dbtest.Store(t).DBTX().Query(t.Context(), "SELECT indexdef FROM pg_indexes WHERE tablename = 'allocations'")
	require.NoError(t, err)
	defs, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	all := strings.Join(defs, "\n")
	require.Contains(t, all, "(project_id, requested_at)")
	require.Regexp(t, `\(project_id\) WHERE .*'releasing'.*'release_failed'`, all)
}

// TestOccupancies_ShowMaintenance takes a node out of service and back: its history has the time in
// between, and a node that only lost contact has none.
func TestOccupancies_ShowMaintenance(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	n := dbtest.Node(t, s, dbtest.Active())
	states := func() (out []lifecycle.Occupancy) {
		rows, err := allocationdb.ListOccupancies(t.Context(), s, n.ID, 0, 10)
		require.NoError(t, err)
		for i, r := range rows {
			require.Equal(t, i == 0, r.Until == nil, "one row lasts")
			out = append(out, r.State)
		}
		return out
	}
	moveTo := func(to lifecycle.NodeStatus) {
		t.Helper()
		require.NoError(t, s.Tx(t.Context(), func(tx *db.Tx) error {
			now, err := tx.Node(t.Context(), n.ID)
			if err != nil {
				return err
			}
			by, err := lifecycle.NodeMAAS.Between(now.Status, to)
			if err != nil {
				return err
			}
			_, err = tx.TransitionNode(t.Context(), n.ID, by, by.Needs, db.Actor{Owner: by.Owners[0], ID: "test"})
			return err
		}))
	}
	require.Empty(t, states())
	moveTo(lifecycle.NodeOffline)
	moveTo(lifecycle.NodeActive)
	require.Empty(t, states(), "it only lost contact")
	moveTo(lifecycle.NodeQuarantined)
	require.Equal(t, []lifecycle.Occupancy{lifecycle.OccupancyMaintenance}, states())
	moveTo(lifecycle.NodeActive)
	require.Equal(t, []lifecycle.Occupancy{lifecycle.OccupancyFree, lifecycle.OccupancyMaintenance}, states())
	moveTo(lifecycle.NodeOffline)
	moveTo(lifecycle.NodeQuarantined)
	require.Equal(t, []lifecycle.Occupancy{lifecycle.OccupancyMaintenance, lifecycle.OccupancyFree, lifecycle.OccupancyMaintenance}, states())
}
