package db_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
)

// manyNodes makes nodes with agents past the triggers, a hundredth of them in quarantine.
var manyNodes = []string{
	"SET session_replication_role = replica",
	`INSERT INTO nodes (id, lifecycle, status, hostname, site_id, serial, macs, maas_system_id)
		SELECT 'node_' || lpad(i::text, 5, '0'), 'maas', CASE i % 100 WHEN 7 THEN 'quarantined' ELSE 'active' END, 'rack-' || i, 'site_x', 'SN-' || i,
			ARRAY['52:54:00:00:' || substr(md5(i::text), 1, 2) || ':' || substr(md5(i::text), 3, 2)], 's' || i FROM generate_series(1, 10000) i`,
	`INSERT INTO node_search (node_id, hostname, serial, terms)
		SELECT id, hostname, lower(serial), search_pieces(ARRAY[hostname, lower(serial)]) || ARRAY[':' || id, ':' || maas_system_id, ':' || macs[1]] FROM nodes`,
	`INSERT INTO agent_certificates (node_id, generation, serial, key_hash, cert_pem, not_before, not_after)
		SELECT id, 1, id, sha256(id::bytea), 'PEM', now(), now() + interval '1 day' FROM nodes`,
	"INSERT INTO agent_identities (node_id, generation, renew_at) SELECT node_id, 1, not_after FROM agent_certificates",
	"INSERT INTO heartbeats (node_id, boot_id, agent_version, generation, received_at) SELECT id, 'b', '1', 1, now() FROM nodes",
	"VACUUM ANALYZE",
}

// TestPlans_OfLists holds that lists over many nodes are read by an index. A time would tell of the
// machine; the plan does not.
func TestPlans_OfLists(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Database(t)
	s, conn := dbtest.Open(t, dsn), dbtest.Owner(t, dsn)
	for _, sql := range manyNodes {
		_, err := conn.Exec(t.Context(), sql)
		require.NoError(t, err, sql)
	}
	p := &dbtest.Planner{DBTX: s.DBTX()}
	reads := db.StatementsOn(p, 0)
	nodes := func(f db.NodeFilter) func() (int, error) {
		return func() (int, error) {
			rows, err := reads.ListNodes(t.Context(), f, "", 50)
			return len(rows), err
		}
	}
	attention := func(f db.AttentionFilter) func() (int, error) {
		return func() (int, error) {
			rows, err := reads.Attention(t.Context(), f, db.AttentionPlace{}, 50)
			return len(rows), err
		}
	}
	for name, tc := range map[string]struct {
		read func() (int, error)
		rows int
		uses string
		not  []string
	}{
		"first page":         {nodes(db.NodeFilter{}), 50, "nodes_pkey", []string{"Seq Scan"}},
		"state":              {nodes(db.NodeFilter{Status: "quarantined"}), 50, "nodes_by_status", []string{"Seq Scan"}},
		"hostname":           {nodes(db.NodeFilter{Hostname: "rack-4711"}), 1, "node_search_terms", []string{"Seq Scan"}},
		"part of a hostname": {nodes(db.NodeFilter{Q: "CK-4711"}), 1, "node_search_terms", []string{"Seq Scan"}},
		"part of a serial":   {nodes(db.NodeFilter{Q: "sn-4711"}), 1, "node_search_terms", []string{"Seq Scan"}},
		"MAAS system id":     {nodes(db.NodeFilter{Q: "s4711"}), 1, "node_search_terms", []string{"Seq Scan"}},
		"no hit":             {nodes(db.NodeFilter{Q: "nowhere"}), 0, "node_search_terms", []string{"Seq Scan"}},
		"no hit, short":      {nodes(db.NodeFilter{Q: "zq"}), 0, "node_search_terms", []string{"Seq Scan"}},
		"every hostname":     {nodes(db.NodeFilter{Q: "rack"}), 50, "node_search_pkey", []string{"Seq Scan", "node_search_terms"}},
		"attention": {attention(db.AttentionFilter{}), 50, "nodes_by_status", []string{
			"Seq Scan on nodes", "Seq Scan on agent_identities", "Seq Scan on agent_certificates", "Seq Scan on heartbeats",
		}},
		"attention of a kind": {attention(db.AttentionFilter{Kind: db.AttentionNodeQuarantined}), 50, "nodes_by_status", []string{
			"Seq Scan on nodes", "agent_identities", "drift_findings",
		}},
	} {
		rows, err := tc.read()
		require.NoError(t, err, name)
		require.Equal(t, tc.rows, rows, name)
		require.Contains(t, p.Plan, tc.uses, name)
		for _, not := range tc.not {
			require.NotContains(t, p.Plan, not, "%s:\n%s", name, p.Plan)
		}
	}
}
