-- name: InsertSSHKey :one
INSERT INTO project_ssh_keys (project_id, id, member_id, name, type, public_key, fingerprint)
VALUES (@project_id, @id, @member_id, @name, @type, @public_key, @fingerprint) RETURNING *;

-- name: SSHKey :one
SELECT * FROM project_ssh_keys WHERE project_id = @project_id AND id = @id;

-- name: ListSSHKeys :many
SELECT * FROM project_ssh_keys WHERE project_id = @project_id AND id > @after::text ORDER BY id LIMIT @max_rows;

-- name: CountSSHKeys :one
SELECT count(*) FROM project_ssh_keys WHERE project_id = @project_id;

-- name: DeleteSSHKey :execrows
DELETE FROM project_ssh_keys WHERE project_id = @project_id AND id = @id;

-- name: DeleteMemberKeys :exec
DELETE FROM project_ssh_keys WHERE project_id = @project_id AND member_id = @member_id;

-- name: DeleteMemberTokens :exec
DELETE FROM project_tokens WHERE project_id = @project_id AND member_id = @member_id AND role <> ALL (@kept::text[]);

-- name: InsertToken :one
INSERT INTO project_tokens (project_id, id, member_id, name, hash, role, expires_at)
VALUES (@project_id, @id, @member_id, @name, @hash, @role, @expires_at)
RETURNING project_id, id, member_id, name, role, created_at, expires_at, last_used_at;

-- name: Token :one
SELECT project_id, id, member_id, name, role, created_at, expires_at, last_used_at FROM project_tokens WHERE project_id = @project_id AND id = @id;

-- name: ListTokens :many
SELECT project_id, id, member_id, name, role, created_at, expires_at, last_used_at FROM project_tokens
WHERE project_id = @project_id AND id > @after::text AND (@member_id::text = '' OR member_id = @member_id::text) ORDER BY id LIMIT @max_rows;

-- name: CountTokens :one
SELECT count(*) FROM project_tokens WHERE project_id = @project_id AND expires_at > now();

-- name: PruneTokens :exec
DELETE FROM project_tokens WHERE project_id = @project_id AND expires_at <= now();

-- name: DeleteToken :execrows
DELETE FROM project_tokens WHERE project_id = @project_id AND id = @id;

-- name: TokenByHash :one
-- The token and the present role of the member that it belongs to, also when it has expired.
SELECT t.project_id, t.id, t.member_id, t.name, t.role, m.role AS member_role, m.subject, t.expires_at, (t.expires_at <= now())::boolean AS expired, t.last_used_at
FROM project_tokens t JOIN project_members m ON m.project_id = t.project_id AND m.id = t.member_id
WHERE t.hash = @hash;
