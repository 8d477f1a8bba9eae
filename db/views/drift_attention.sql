-- The open drift findings and failed passes, in the columns of the view attention.
CREATE OR REPLACE VIEW drift_attention AS
SELECT 'drift'::text AS kind, ('drift:' || f.id)::text AS id, f.first_seen_at::timestamptz AS since, f.site_id::text AS site_id,
    coalesce(f.node_id, '')::text AS node_id, coalesce(n.hostname, '')::text AS hostname, f.bmc_id::text AS bmc_id, ''::text AS job_id,
    ''::text AS job_kind, ''::text AS workflow_id, coalesce(n.status, '')::text AS status, f.detector::text AS stage, ''::text AS failure_class,
    f.message::text AS message, ''::text AS next_step, ''::text AS recommended_action, false AS waiting_outside, false AS workflow_gone
FROM drift_findings f LEFT JOIN nodes n ON n.id = f.node_id
WHERE f.status = 'open' AND f.severity = 'critical'
UNION ALL
-- Sites whose passes do not come to their end.
SELECT 'reconcile', 'reconcile:' || s.id, coalesce(p.finished_at, s.created_at), s.id, '', '', '', '', '', '', '', '', '', coalesce(p.problem, ''), '', '',
    false, false
FROM sites s LEFT JOIN drift_passes p ON p.site_id = s.id
WHERE coalesce(p.finished_at, s.created_at) < now() - make_interval(secs => coalesce(p.due_seconds, 900))
UNION ALL
-- Nodes without a site whose pass does not come to its end. It is due from when the first of them went into service.
SELECT 'reconcile', 'reconcile:', coalesce(p.finished_at, n.since), '', '', '', '', '', '', '', '', '', '', coalesce(p.problem, ''), '', '', false, false
FROM (SELECT min(x.state_changed_at) AS since FROM nodes x WHERE x.site_id = '' AND x.status = 'active') n LEFT JOIN drift_passes p ON p.site_id = ''
WHERE n.since IS NOT NULL AND coalesce(p.finished_at, n.since) < now() - make_interval(secs => coalesce(p.due_seconds, 900));
