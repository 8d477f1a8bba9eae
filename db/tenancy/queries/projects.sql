-- name: InsertProject :one
WITH inserted AS (
    INSERT INTO projects (id, billing_account_id, name, tags) VALUES (@id, @billing_account_id, @name, @tags) RETURNING *
), audit AS (
    INSERT INTO audit_log (id, resource_kind, resource_id, kind, name, from_state, to_state, triggered_by, owner, actor_id, comment, metadata, version)
    SELECT @audit_id, 'project', p.id, 'transition', 'create', '', p.status, @triggered_by, @owner, sqlc.narg(actor_id), sqlc.narg(comment), @metadata, p.version
    FROM inserted p
)
SELECT * FROM inserted;
