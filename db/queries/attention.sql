-- name: Attention :many
-- Everything that needs an operator, oldest first; ids break ties, so that the pair is a cursor. What is read for each row of the page only stands
-- outside: the hostname, and the comment of a quarantine.
SELECT p.kind, p.id, p.since, p.site_id, p.node_id, coalesce(n.hostname, '')::text AS hostname, p.bmc_id, p.job_id, p.job_kind, p.workflow_id,
    p.status, p.stage, p.failure_class, (CASE p.kind WHEN 'node_quarantined' THEN coalesce((SELECT l.comment FROM audit_log l
        WHERE l.resource_kind = 'node' AND l.resource_id = p.node_id AND l.kind = 'transition' ORDER BY l.seq DESC LIMIT 1), '')
        ELSE p.message END)::text AS message, p.next_step, p.recommended_action, p.waiting_outside, p.workflow_gone
FROM (SELECT a.kind, a.id, a.since, a.site_id, a.node_id, a.bmc_id, a.job_id, a.job_kind, a.workflow_id, a.status, a.stage, a.failure_class, a.message,
        a.next_step, a.recommended_action, a.waiting_outside, a.workflow_gone
    FROM (SELECT * FROM attention_raised UNION ALL SELECT * FROM drift_attention UNION ALL SELECT * FROM pxe_attention UNION ALL SELECT * FROM tenant_attention UNION ALL SELECT * FROM event_attention UNION ALL SELECT * FROM agent_attention UNION ALL SELECT * FROM audit_attention UNION ALL SELECT * FROM restore_attention UNION ALL SELECT * FROM billing_attention UNION ALL SELECT * FROM key_attention UNION ALL SELECT * FROM payment_attention UNION ALL SELECT * FROM instance_attention UNION ALL SELECT * FROM campaign_attention UNION ALL SELECT * FROM machine_attention) a
    WHERE (@kind::text = '' OR a.kind = @kind::text)
      AND (@site_id::text = '' OR a.site_id = @site_id::text)
      AND (sqlc.narg('after_since')::timestamptz IS NULL OR (a.since, a.id) > (sqlc.narg('after_since')::timestamptz, @after_id::text))
    ORDER BY a.since, a.id LIMIT @max_rows) p
LEFT JOIN nodes n ON n.id = p.node_id
ORDER BY p.since, p.id;

-- name: CountAttention :many
SELECT a.kind, count(*) AS items FROM (SELECT * FROM attention_raised UNION ALL SELECT * FROM drift_attention UNION ALL SELECT * FROM pxe_attention UNION ALL SELECT * FROM tenant_attention UNION ALL SELECT * FROM event_attention UNION ALL SELECT * FROM agent_attention UNION ALL SELECT * FROM audit_attention UNION ALL SELECT * FROM restore_attention UNION ALL SELECT * FROM billing_attention UNION ALL SELECT * FROM key_attention UNION ALL SELECT * FROM payment_attention UNION ALL SELECT * FROM instance_attention UNION ALL SELECT * FROM campaign_attention UNION ALL SELECT * FROM machine_attention) a GROUP BY a.kind ORDER BY a.kind;

-- name: CountParked :many
SELECT j.failure_class::text AS failure_class, count(*) AS jobs FROM jobs j
WHERE j.status IN ('failed_retryable', 'failed_manual_intervention') GROUP BY 1 ORDER BY 1;

-- name: CountPastDeadline :one
SELECT count(*) FROM jobs WHERE status IN ('pending', 'running', 'compensating') AND stage_deadline_at < now();
