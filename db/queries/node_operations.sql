-- name: KeepNodePlan :exec
INSERT INTO node_plans (node_id, hash, mode, plan) VALUES (@node_id, @hash, @mode, @plan)
ON CONFLICT (node_id, hash) DO UPDATE SET made_at = now(), plan = excluded.plan;

-- name: DropNodePlans :exec
-- Those of the node that are older than a day and that no job was started with.
DELETE FROM node_plans WHERE node_id = @node_id AND job_id IS NULL AND made_at < now() - interval '1 day';

-- name: NodePlan :one
SELECT * FROM node_plans WHERE node_id = @node_id AND hash = @hash;

-- name: UseNodePlan :execrows
UPDATE node_plans SET job_id = @job_id WHERE node_id = @node_id AND hash = @hash;

-- name: LastTaskOfJob :one
SELECT * FROM node_tasks WHERE job_id = @job_id::text AND kind = @kind ORDER BY id DESC LIMIT 1;

-- name: UninstalledSince :one
-- Whether the agent said that it has removed itself since the certificate was issued.
SELECT EXISTS (SELECT 1 FROM node_tasks t JOIN agent_identities i ON i.node_id = t.node_id
    JOIN agent_certificates c ON c.node_id = i.node_id AND c.generation = i.generation
    WHERE t.node_id = @node_id AND t.kind = @kind AND t.status = 'succeeded' AND t.finished_at > c.issued_at);

-- name: KnownClean :one
-- When the node last became active, or a certificate last said that it is clean; the epoch where neither is so.
SELECT greatest('epoch'::timestamptz,
    (SELECT max(a.at) FROM audit_log a WHERE a.resource_kind = 'node' AND a.resource_id = @node_id::text AND a.kind = 'transition' AND a.to_state = 'active'),
    (SELECT max(c.issued_at) FROM certificates c WHERE c.node_id = @node_id::text AND c.verdict = 'clean'))::timestamptz AS at;

-- name: UnprovenErasure :one
-- The last erasure that an agent began on the node after a time, unless the job that asked for it came to its good end.
SELECT t.id, coalesce(t.job_id, '')::text AS job_id, t.dispatched_at::timestamptz AS dispatched_at FROM node_tasks t LEFT JOIN jobs j ON j.id = t.job_id
WHERE t.node_id = @node_id AND t.kind = @kind AND t.dispatched_at > @since::timestamptz
  AND t.id = (SELECT max(l.id) FROM node_tasks l WHERE l.node_id = t.node_id AND l.kind = t.kind AND l.dispatched_at IS NOT NULL)
  AND coalesce(j.status, '') NOT IN ('completed', 'reconciled');

-- name: LastNodeMove :one
SELECT from_state, to_state FROM audit_log
WHERE resource_kind = 'node' AND resource_id = @node_id AND kind = 'transition' ORDER BY seq DESC LIMIT 1;
