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

-- name: LastVerdict :one
SELECT verdict, issued_at FROM certificates WHERE node_id = @node_id ORDER BY sequence DESC LIMIT 1;

-- name: LastServed :one
-- When the node last became active; the epoch where it never did.
SELECT coalesce(max(at), 'epoch')::timestamptz FROM audit_log
WHERE resource_kind = 'node' AND resource_id = @node_id AND kind = 'transition' AND to_state = 'active';

-- name: ErasedSince :one
-- Whether an agent began to erase the node after a time.
SELECT EXISTS (SELECT 1 FROM node_tasks WHERE node_id = @node_id AND kind = @kind AND dispatched_at > @since::timestamptz);

-- name: LastNodeMove :one
SELECT from_state, to_state FROM audit_log
WHERE resource_kind = 'node' AND resource_id = @node_id AND kind = 'transition' ORDER BY seq DESC LIMIT 1;
