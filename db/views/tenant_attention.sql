CREATE OR REPLACE VIEW tenant_attention AS
-- Nodes that a tenant left, that nothing proves clean, and that no job works on. A retired one is out of service, and waits for nobody.
SELECT 'tenant_left'::text AS kind, ('tenant_left:' || n.id)::text AS id, n.tenant_left_at::timestamptz AS since, n.site_id::text AS site_id,
    n.id::text AS node_id, n.hostname::text AS hostname, ''::text AS bmc_id, ''::text AS job_id, ''::text AS job_kind, ''::text AS workflow_id,
    n.status::text AS status, ''::text AS stage, ''::text AS failure_class, ''::text AS message, ''::text AS next_step,
    ''::text AS recommended_action, false AS waiting_outside, false AS workflow_gone
FROM nodes n
WHERE n.lifecycle = 'maas' AND n.tenant_left_at IS NOT NULL AND n.allocation_id IS NULL AND n.status IN ('active', 'offline', 'quarantined')
  AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.node_id = n.id
      AND j.status IN ('pending', 'running', 'failed_retryable', 'failed_manual_intervention', 'compensating'));
