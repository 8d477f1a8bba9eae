-- A failed instance may be billed: after three days somebody has to decide.
CREATE OR REPLACE VIEW instance_attention WITH (security_invoker = true) AS
SELECT 'instance_failed'::text AS kind, ('instance_failed:' || i.id)::text AS id, i.failed_at::timestamptz AS since,
    ''::text AS site_id, ''::text AS node_id, ''::text AS hostname, ''::text AS bmc_id, ''::text AS job_id, ''::text AS job_kind, ''::text AS workflow_id,
    i.status::text AS status, i.failed_stage::text AS stage, ''::text AS failure_class,
    ('instance ' || i.id || ' of project ' || i.project_id || ' is ' || i.status || ' (' || i.error_code || '), and may be billed by ' || i.provider)::text AS message,
    'terminate it, or have it started again'::text AS next_step, ''::text AS recommended_action, false AS waiting_outside, false AS workflow_gone
FROM instances i WHERE i.status IN ('provisioning_failed', 'startup_failed', 'failed') AND i.failed_at < now() - interval '72 hours'
UNION ALL
SELECT 'instance_failed', 'instance_failed:' || i.id, i.health_failed_since, '', '', '', '', '', '', '', i.status, '', '',
    'instance ' || i.id || ' of project ' || i.project_id || ' is ready, and its checks fail; it is billed by ' || i.provider,
    'read its health checks with slipway instance actions; terminate it where the worker does not come back', '', false, false
FROM instances i WHERE i.status = 'ready' AND i.health_failed_since < now() - interval '10 minutes'
UNION ALL
SELECT 'instance_orphan', 'instance_orphan:' || o.provider || ':' || o.zone || ':' || o.kind || ':' || o.resource_id, o.found_at, '', '', '', '', '', '', '', '', '', '',
    o.kind || ' ' || o.resource_id || ' at ' || o.provider || ' in ' || o.zone || ' has our tag and belongs to no live instance'
        || CASE WHEN o.hourly_micro > 0 THEN '; it costs ' || o.currency || ' ' || trim_scale(o.hourly_micro / 1000000.0) || ' an hour' ELSE '' END,
    'find out whose it is, then delete it', '', false, false
FROM instance_orphans o
UNION ALL
SELECT 'instance_provider', 'instance_provider:' || l.provider || ':' || l.zone, coalesce(l.problem_since, l.looked_at), '', '', '', '', '', '', '', '', '',
    'cloud_unavailable', 'instances of ' || l.provider || ' in ' || l.zone || ' are not compared with the provider: '
        || CASE WHEN l.looked_at < now() - interval '30 minutes' THEN 'no pass has looked for half an hour; see the Schedule instances/ in Temporal and its worker'
            ELSE l.problem END, '', '', false, false
FROM instance_looks l WHERE l.problem <> '' OR l.looked_at < now() - interval '30 minutes';
