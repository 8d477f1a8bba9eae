-- name: Attention :many
-- Everything that needs an operator, oldest first; ids break ties, so that the pair is a cursor.
SELECT a.* FROM (SELECT * FROM attention_raised UNION ALL SELECT * FROM drift_attention UNION ALL SELECT * FROM pxe_attention UNION ALL SELECT * FROM tenant_attention UNION ALL SELECT * FROM event_attention UNION ALL SELECT * FROM agent_attention) a
WHERE (@kind::text = '' OR a.kind = @kind::text)
  AND (@site_id::text = '' OR a.site_id = @site_id::text)
  AND (sqlc.narg('after_since')::timestamptz IS NULL OR (a.since, a.id) > (sqlc.narg('after_since')::timestamptz, @after_id::text))
ORDER BY a.since, a.id LIMIT @max_rows;

-- name: CountAttention :many
SELECT a.kind, count(*) AS items FROM (SELECT * FROM attention_raised UNION ALL SELECT * FROM drift_attention UNION ALL SELECT * FROM pxe_attention UNION ALL SELECT * FROM tenant_attention UNION ALL SELECT * FROM event_attention UNION ALL SELECT * FROM agent_attention) a GROUP BY a.kind ORDER BY a.kind;

-- name: CountParked :many
SELECT j.failure_class::text AS failure_class, count(*) AS jobs FROM jobs j
WHERE j.status IN ('failed_retryable', 'failed_manual_intervention') GROUP BY 1 ORDER BY 1;

-- name: CountPastDeadline :one
SELECT count(*) FROM jobs WHERE status IN ('pending', 'running', 'compensating') AND stage_deadline_at < now();
