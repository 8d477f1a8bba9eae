package drift_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	driftdb "github.com/slipway-cloud/slipway/db/drift"
)

// planned is a connection whose plans are kept.
type planned struct {
	db.Conn
	p *dbtest.Planner
}

func (c planned) DBTX() db.DBTX { return c.p }

// siteOfNodes makes nodes of one site past the triggers, each with a BMC and an address.
var siteOfNodes = []string{
	"SET session_replication_role = replica",
	`INSERT INTO nodes (id, lifecycle, status, hostname, site_id, ip_addresses)
		SELECT 'node_' || lpad(i::text, 5, '0'), 'maas', CASE i % 100 WHEN 7 THEN 'deleted' ELSE 'active' END, 'rack-' || i, 'site_x', ARRAY['10.0.' || i / 250 || '.' || i % 250]
		FROM generate_series(0, 1999) i`,
	`INSERT INTO bmcs (id, node_id, address, protocol, credential_ref) SELECT 'bmc_' || substr(id, 6), id, 'https://' || id, 'redfish', 'x' FROM nodes`,
	"UPDATE nodes SET ip_addresses = ARRAY['10.0.0.0'] WHERE id = 'node_00001'",
	"VACUUM ANALYZE",
}

// TestProbeAddresses_DrawsFromTheWholeSite: each probe draws others, the node's own BMC is among
// them, every node has its turn about as often as the others, and none reads the whole site.
func TestProbeAddresses_DrawsFromTheWholeSite(t *testing.T) {
	t.Parallel()
	const each, probes, asked = 16, 1500, "node_00000"
	dsn := dbtest.Database(t)
	s, conn := dbtest.Open(t, dsn), dbtest.Owner(t, dsn)
	for _, sql := range siteOfNodes {
		_, err := conn.Exec(t.Context(), sql)
		require.NoError(t, err, sql)
	}
	draw := func(c db.Conn, seed string) map[string][]string {
		rows, err := driftdb.ProbeAddresses(t.Context(), c, "site_x", asked, seed, each)
		require.NoError(t, err)
		out, seen := map[string][]string{}, map[string]bool{}
		for _, r := range rows {
			require.False(t, seen[r.Kind+r.ID], "twice in one probe: %s", r.ID)
			out[r.Kind], seen[r.Kind+r.ID] = append(out[r.Kind], r.ID), true
		}
		return out
	}
	p := &dbtest.Planner{DBTX: s.DBTX()}
	draw(planned{s, p}, "pass-of-the-plan")
	require.Contains(t, p.Plan, "nodes_by_chance")
	for _, not := range []string{"Seq Scan on nodes", "Seq Scan on bmcs", "Sort"} {
		require.NotContains(t, p.Plan, not, p.Plan)
	}

	drawn := map[string]int{}
	for i := range probes {
		seed := fmt.Sprintf("drift_%d", i)
		got := draw(s, seed)
		require.Len(t, got["bmc"], each)
		require.Len(t, got["node"], each)
		require.Equal(t, "bmc_00000", got["bmc"][0], "its own is always tried")
		require.NotContains(t, got["node"], asked)
		require.NotContains(t, got["node"], "node_00001", "it is behind the same address")
		for _, id := range append(got["node"], got["bmc"][1:]...) {
			drawn[id]++
		}
		if i == 0 {
			require.Equal(t, got, draw(s, seed), "a try that is repeated asks for the same")
		}
	}
	require.Len(t, drawn, 1980-2+1980-1, "each has its turn, and no deleted one")
	mean := probes * each / 1980
	for id, n := range drawn {
		require.Less(t, n, 4*mean, id)
	}
}
