-- Machines that their last run has left in MAINTENANCE because it failed. Nothing moves them by
-- itself. The job of the run is named while it is kept.
CREATE OR REPLACE VIEW machine_attention WITH (security_invoker = true) AS
SELECT 'run_failed'::text AS kind, ('run_failed:' || m.id)::text AS id, r.finished_at::timestamptz AS since,
    coalesce(n.site_id, m.site_id, '')::text AS site_id, coalesce(m.node_id, '')::text AS node_id, coalesce(n.hostname, '')::text AS hostname,
    ''::text AS bmc_id, coalesce(j.id, '')::text AS job_id, coalesce(j.kind, '')::text AS job_kind, ''::text AS workflow_id,
    r.status::text AS status, r.current_step::text AS stage, r.failure_class::text AS failure_class,
    ('machine ' || m.id || ' is in MAINTENANCE: run ' || r.id || ' (' || r.type || ') failed: ' || r.message)::text AS message,
    ''::text AS next_step, ''::text AS recommended_action, false AS waiting_outside, false AS workflow_gone
FROM machines m
CROSS JOIN LATERAL (SELECT * FROM runs l WHERE l.machine_id = m.id ORDER BY l.id DESC LIMIT 1) r
LEFT JOIN nodes n ON n.id = m.node_id
LEFT JOIN jobs j ON j.id = r.job_id
WHERE m.status = 'MAINTENANCE' AND r.status = 'FAILED';
