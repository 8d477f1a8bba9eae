-- name: InsertProject :one
-- The project, its creation audit row and its event in one statement.
WITH made AS (
    INSERT INTO projects (id, billing_account_id, name, tags) VALUES (@id, @billing_account_id, @name, @tags) RETURNING *
), logged AS (
    INSERT INTO audit_log (id, resource_kind, resource_id, kind, name, from_state, to_state, triggered_by, owner, actor_id, comment, metadata, version)
    SELECT @audit_id, 'project', p.id, 'transition', 'create', '', p.status, @triggered_by, @owner, @actor_id, @comment, @metadata, p.version FROM made p
), told AS (
    INSERT INTO outbox (kind, resource_kind, resource_id, type, payload) SELECT 'event', 'project', p.id, 'project.' || p.status, @payload FROM made p
)
SELECT version FROM made;

-- name: MoveProject :one
-- The commit point of a project: guarded update, audit row and event in one statement.
WITH moved AS (
    UPDATE projects SET status = @to_state, updated_at = now(), version = version + 1,
        closed_at = CASE WHEN @to_state::text = 'closed' THEN now() END
    WHERE projects.id = @id AND projects.status = @from_state::text AND projects.version = @version
    RETURNING *
), logged AS (
    INSERT INTO audit_log (id, resource_kind, resource_id, kind, name, from_state, to_state, triggered_by, owner, actor_id, comment, metadata, version)
    SELECT @audit_id, 'project', p.id, 'transition', @name, @from_state::text, p.status, @triggered_by, @owner, @actor_id, @comment, @metadata, p.version
    FROM moved p
), told AS (
    INSERT INTO outbox (kind, resource_kind, resource_id, type, payload) SELECT 'event', 'project', p.id, 'project.' || p.status, @payload FROM moved p
)
SELECT version FROM moved;

-- name: Project :one
SELECT * FROM projects WHERE id = @id;

-- name: LockProject :one
SELECT * FROM projects WHERE id = @id FOR NO KEY UPDATE;

-- name: ListProjects :many
SELECT * FROM projects WHERE id > @after::text AND (@billing_account_id::text = '' OR billing_account_id = @billing_account_id::text)
ORDER BY id LIMIT @max_rows;

-- name: ListProjectsOf :many
-- The projects in which an identity has a role.
SELECT p.* FROM projects p WHERE p.id > @after::text AND p.id IN (
    SELECT m.project_id FROM project_members m WHERE m.subject = @subject
    UNION ALL SELECT g.project_id FROM project_group_roles g JOIN projects q ON q.id = g.project_id
        JOIN billing_account_groups b ON b.group_name = g.group_name AND b.billing_account_id = q.billing_account_id
    WHERE g.group_name = ANY (@groups::text[]))
ORDER BY p.id LIMIT @max_rows;

-- name: OwnsProjectIn :one
SELECT EXISTS (SELECT FROM projects p JOIN project_members m ON m.project_id = p.id
    WHERE p.billing_account_id = @billing_account_id AND m.subject = @subject AND m.role = 'owner' AND p.status = 'active');

-- name: CountProjectsOf :one
SELECT count(*) FROM projects WHERE billing_account_id = @billing_account_id AND status <> 'closed';

-- name: UpdateProject :one
UPDATE projects SET name = @name, tags = @tags, version = version + 1, updated_at = now() WHERE id = @id AND version = @version RETURNING *;

-- name: DeleteProject :execrows
DELETE FROM projects WHERE id = @id AND version = @version;

-- name: ProjectContents :many
-- What is in a project besides what goes with it, as kind and name.
SELECT kind::text AS kind, name::text AS name FROM (
    SELECT 'ssh_key' AS kind, k.name FROM project_ssh_keys k WHERE k.project_id = @project_id
    UNION ALL SELECT 'allocation', a.id FROM allocations a WHERE a.project_id = @project_id
    UNION ALL SELECT 'instance', i.id FROM instances i WHERE i.project_id = @project_id AND i.status NOT IN ('terminated', 'archived')
    UNION ALL SELECT 'cluster', c.ref FROM clusters c WHERE c.project_id = @project_id
    UNION ALL SELECT 'webhook', w.name FROM webhooks w WHERE w.project_id = @project_id
    UNION ALL SELECT 'token', t.name FROM project_tokens t WHERE t.project_id = @project_id
    UNION ALL SELECT 'invitation', i.email || i.subject FROM project_invitations i
        WHERE i.project_id = @project_id AND i.status = 'pending' AND i.expires_at > now()
    UNION ALL SELECT 'member', m.name FROM project_members m WHERE m.project_id = @project_id AND m.role <> 'owner') AS contents (kind, name)
ORDER BY kind, name LIMIT 100;

-- name: EndKeys :exec
DELETE FROM project_ssh_keys WHERE project_id = @project_id;

-- name: EndTokens :exec
DELETE FROM project_tokens WHERE project_id = @project_id;

-- name: EndInvitations :exec
UPDATE project_invitations SET status = 'revoked', version = version + 1, ended_at = now() WHERE project_id = @project_id AND status = 'pending';

-- name: AppendProjectAudit :exec
SELECT project_audit_append(@id, @name, @triggered_by, @owner, sqlc.narg(actor_id), sqlc.narg(comment), @metadata::jsonb);

-- name: ProjectAudit :many
SELECT project_audit(@before::bigint, @max_rows::integer)::jsonb AS entry;

-- name: CurrenciesOf :many
-- The currencies of the billing accounts that pay for a project, or without one for those in which an identity has a role.
SELECT DISTINCT b.currency FROM projects p JOIN billing_accounts b ON b.id = p.billing_account_id
WHERE p.id = @project_id::text OR @project_id::text = '' AND p.id IN (
    SELECT m.project_id FROM project_members m WHERE m.subject = @subject::text
    UNION ALL SELECT g.project_id FROM project_group_roles g JOIN projects q ON q.id = g.project_id
        JOIN billing_account_groups a ON a.group_name = g.group_name AND a.billing_account_id = q.billing_account_id
    WHERE g.group_name = ANY (@groups::text[]))
ORDER BY b.currency;
