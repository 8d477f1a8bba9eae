-- name: NodeCounts :many
-- Nodes that are not deleted, by site, lifecycle and state. fresh are those whose agent was heard within five minutes.
SELECT n.site_id, n.lifecycle, n.status, count(*)::bigint AS nodes,
    (count(*) FILTER (WHERE h.received_at > now() - interval '5 minutes'))::bigint AS fresh
FROM nodes n LEFT JOIN heartbeats h ON h.node_id = n.id
WHERE n.status <> 'deleted'
GROUP BY n.site_id, n.lifecycle, n.status ORDER BY n.site_id, n.lifecycle, n.status;

-- name: NodeStatusCounts :many
SELECT status, count(*)::bigint AS nodes FROM nodes GROUP BY status ORDER BY status;

-- name: CountNodesByStatus :many
SELECT lifecycle, status, count(*)::bigint AS nodes FROM nodes WHERE status <> 'deleted' GROUP BY lifecycle, status ORDER BY lifecycle, status;

-- name: NodeMoves :many
-- How many nodes entered and left each state in each bucket of time since a moment.
SELECT floor(extract(epoch FROM m.at) / @bucket_seconds::bigint)::bigint AS bucket, m.state::text AS state, sum(m.delta)::bigint AS delta
FROM (
    SELECT a.at, a.to_state AS state, 1 AS delta FROM audit_log a WHERE a.resource_kind = 'node' AND a.kind = 'transition' AND a.at >= @since
    UNION ALL
    SELECT a.at, a.from_state, -1 FROM audit_log a WHERE a.resource_kind = 'node' AND a.kind = 'transition' AND a.at >= @since
) AS m
WHERE m.state <> '' GROUP BY 1, 2 ORDER BY 1, 2;

-- name: StageDurations :many
-- How long each stage took in the newest jobs of each kind that succeeded since a moment.
SELECT k.kind::text AS kind, s.name, min(s.ordinal)::integer AS ordinal, count(*)::bigint AS jobs,
    (percentile_cont(0.5) WITHIN GROUP (ORDER BY CASE WHEN s.worked_ms > 0 THEN s.worked_ms / 1000.0
        ELSE coalesce(extract(epoch FROM s.finished_at - s.started_at), 0) END))::double precision AS p50,
    (percentile_cont(0.9) WITHIN GROUP (ORDER BY CASE WHEN s.worked_ms > 0 THEN s.worked_ms / 1000.0
        ELSE coalesce(extract(epoch FROM s.finished_at - s.started_at), 0) END))::double precision AS p90
FROM unnest(@kinds::text[]) AS k (kind)
CROSS JOIN LATERAL (
    SELECT j.id FROM jobs j WHERE j.kind = k.kind AND j.status IN ('completed', 'reconciled') AND j.finished_at >= @since
    ORDER BY j.finished_at DESC LIMIT @max_jobs::integer
) AS recent
JOIN job_stages s ON s.job_id = recent.id AND s.state = 'succeeded'
GROUP BY k.kind, s.name ORDER BY k.kind, ordinal, s.name;

-- name: SearchAudit :many
-- Newest first. The caller sets plan_cache_mode, so that each search is planned for the filters that it has. What customers do
-- in their projects is not among it: an operator reads that in the project, with a reason.
SELECT * FROM audit_log
WHERE triggered_by <> 'customer' AND at >= @since AND at < @until AND (at, pos) < (@before_at::timestamptz, @before_pos::bigint)
  AND (@resource_kind::text = '' OR resource_kind = @resource_kind::text)
  AND (@resource_id::text = '' OR resource_id = @resource_id::text)
  AND (@node_id::text = '' OR node_id = @node_id::text)
  AND (@actor_id::text = '' OR actor_id = @actor_id::text)
  AND (@kind::text = '' OR kind = @kind::text)
  AND (@name::text = '' OR name = @name::text)
ORDER BY at DESC, pos DESC LIMIT @max_rows;
