package bench_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db/dbtest"
)

// inventoryEnd is a time that the newest fifty or so of the entries of attention are after.
var inventoryEnd = time.Date(2026, 1, 1, 5, 32, 20, 0, time.UTC)

// inventorySQL gives the nodes of makeFleet serials, MACs and states, and makes 20,000 entries of
// attention: every tenth node is quarantined, and every tenth has a parked job. Each has three rows
// in the audit log. Every thousandth node is of another site.
var inventorySQL = []string{
	`INSERT INTO sites (id, name, spec) SELECT 'site_rare', 'rare', spec FROM sites LIMIT 1`,
	`UPDATE nodes SET state_changed_at = '2026-01-01'::timestamptz + substr(id, 12)::int * interval '0.2 second',
		status = CASE substr(id, 12)::int % 10 WHEN 3 THEN 'quarantined' ELSE status END,
		site_id = CASE substr(id, 12)::int % 1000 WHEN 13 THEN 'site_rare' ELSE site_id END,
		serial = 'SN-' || lpad(substr(id, 12), 8, '0'), maas_system_id = 's' || substr(id, 12),
		macs = ARRAY['52:54:00' || regexp_replace(lpad(to_hex(substr(id, 12)::int), 6, '0'), '(..)', ':\1', 'g')]
	WHERE id LIKE 'node\_fleet-%'`,
	`INSERT INTO jobs (id, kind, node_id, site_id, status, workflow_id, failure_class, message, stage, state_changed_at)
		SELECT 'job_' || id, 'onboarding', id, site_id, 'failed_retryable', 'onboarding/' || id, 'maas_unavailable', 'the region does not answer',
			'deploy_via_maas', state_changed_at FROM nodes WHERE id LIKE 'node\_fleet-%4'`,
	`INSERT INTO audit_log (id, resource_kind, resource_id, seq, node_id, kind, name, to_state, triggered_by, owner, comment, txid, prev_hash, hash)
		SELECT 'evt_' || kind || id || n, kind, id, n, node_id, 'transition', 'x', status, 'workflow', 'job', 'it looks broken', 0, '', ''
		FROM (SELECT 'job' AS kind, id, node_id, status FROM jobs UNION ALL SELECT 'node', id, id, status FROM nodes WHERE status = 'quarantined') r,
			generate_series(1, 3) n`,
	`INSERT INTO node_search (node_id, hostname, serial, terms)
		SELECT id, hostname, lower(serial), search_pieces(ARRAY[hostname, lower(serial)]) || ARRAY[':' || id, ':' || maas_system_id, ':' || macs[1]]
		FROM nodes WHERE id LIKE 'node\_fleet-%'`,
	`VACUUM ANALYZE`,
}

// makeInventory makes the database of BenchmarkLists, past the triggers as makeFleet does.
func makeInventory(b *testing.B, dsn string) {
	b.Helper()
	makeFleet(b, dsn, fleet, make([]byte, 32))
	conn := dbtest.Owner(b, dsn)
	for _, sql := range append([]string{"SET session_replication_role = replica"}, inventorySQL...) {
		_, err := conn.Exec(b.Context(), sql)
		require.NoError(b, err, sql)
	}
	var entries int
	require.NoError(b, conn.QueryRow(b.Context(), "SELECT count(*) FROM attention WHERE kind IN ('parked_job', 'node_quarantined')").Scan(&entries))
	require.Equal(b, attention, entries)
}
