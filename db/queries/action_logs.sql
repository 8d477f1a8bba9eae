-- name: ListActionLogs :many
-- One of job and node is given.
SELECT * FROM action_logs
WHERE (@job_id::text = '' OR job_id = @job_id::text) AND (@node_id::text = '' OR node_id = @node_id::text)
  AND (@after::text = '' OR id < @after::text)
  AND (@status::text = '' OR status = @status::text)
  AND (@action_type::text = '' OR action_type = @action_type::text)
  AND (@component::text = '' OR component = @component::text)
ORDER BY id DESC LIMIT @max_rows;

-- name: PruneActionLogs :execrows
DELETE FROM action_logs WHERE id = ANY (ARRAY(SELECT a.id FROM action_logs a WHERE a.finished_at < @before::timestamptz LIMIT @max_rows));

-- name: StageTimes :many
-- How long the stages of jobs have worked up to now, and what tells which past jobs are comparable.
SELECT s.job_id, s.name, s.state,
    (CASE WHEN s.worked_ms = 0 AND s.finished_at > s.started_at THEN extract(epoch FROM s.finished_at - s.started_at) ELSE s.worked_ms / 1000.0 END
        + greatest(0, coalesce(extract(epoch FROM now() - coalesce(a.started_at, CASE WHEN s.state = 'running' THEN s.started_at END)), 0))
    )::double precision AS seconds,
    j.kind, coalesce(j.input ->> 'mode', j.input ->> 'manual', '')::text AS path, coalesce(n.sku_id, '')::text AS sku_id
FROM jobs j JOIN job_stages s ON s.job_id = j.id
LEFT JOIN nodes n ON n.id = j.node_id
LEFT JOIN action_logs a ON a.job_id = s.job_id AND a.stage = s.name AND a.status = 'in_progress'
WHERE j.id = ANY(@job_ids::text[])
ORDER BY s.job_id, s.ordinal;

-- name: PastStageTimes :many
-- How long the stages of the latest jobs of a kind and path took that succeeded, those of the SKU alone where there are enough of them. A stage
-- that was skipped took no time.
WITH recent AS (
    SELECT j.id, j.finished_at, coalesce(n.sku_id, '') = @sku_id::text AS same_sku
    FROM jobs j LEFT JOIN nodes n ON n.id = j.node_id
    WHERE j.kind = @kind AND j.status IN ('completed', 'reconciled') AND coalesce(j.input ->> 'mode', j.input ->> 'manual', '') = @path::text
    ORDER BY j.finished_at DESC LIMIT @looked_at
), chosen AS (
    SELECT r.id FROM recent r
    WHERE r.same_sku OR (SELECT count(*) FROM recent c WHERE c.same_sku) < @enough::bigint
    ORDER BY r.finished_at DESC LIMIT @max_jobs
)
SELECT s.job_id, s.name, (CASE WHEN s.state <> 'succeeded' THEN 0 WHEN s.worked_ms > 0 THEN s.worked_ms / 1000.0
    ELSE coalesce(extract(epoch FROM s.finished_at - s.started_at), 0) END)::double precision AS seconds
FROM chosen c JOIN job_stages s ON s.job_id = c.id ORDER BY s.job_id, s.ordinal;
