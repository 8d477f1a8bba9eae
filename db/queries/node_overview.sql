-- name: NodeOverviews :many
-- Nodes with their live job, their occupant, their BMC and the last heartbeat of their agent: what GET shows of one, in one query.
SELECT sqlc.embed(n), coalesce(b.id, '')::text AS bmc_id,
    coalesce((SELECT j.id FROM jobs j WHERE j.node_id = n.id
        AND j.status IN ('pending', 'running', 'failed_retryable', 'failed_manual_intervention', 'compensating')), '')::text AS live_job_id,
    coalesce((SELECT a.id FROM allocations a WHERE a.node_id = n.id AND a.node_released_at IS NULL), '')::text AS allocation_id,
    (h.node_id IS NOT NULL)::boolean AS heard, coalesce(h.boot_id, '')::text AS boot_id, coalesce(h.agent_version, '')::text AS agent_version,
    coalesce(h.address, '')::text AS address, coalesce(h.received_at, n.created_at)::timestamptz AS received_at, h.report, h.reported_at,
    coalesce(h.unhealthy, '{}')::text[] AS unhealthy
FROM nodes n
LEFT JOIN bmcs b ON b.node_id = n.id
LEFT JOIN heartbeats h ON h.node_id = n.id
WHERE n.id = ANY (@ids::text[]);
