-- name: InsertMember :one
INSERT INTO project_members (project_id, id, subject, name, email, role) VALUES (@project_id, @id, @subject, @name, @email, @role) RETURNING *;

-- name: Member :one
SELECT * FROM project_members WHERE project_id = @project_id AND id = @id;

-- name: MemberBySubject :one
SELECT * FROM project_members WHERE project_id = @project_id AND subject = @subject;

-- name: ListMembers :many
SELECT * FROM project_members WHERE project_id = @project_id AND id > @after::text ORDER BY id LIMIT @max_rows;

-- name: UpdateMember :one
UPDATE project_members SET role = @role, version = version + 1, updated_at = now()
WHERE project_id = @project_id AND id = @id AND version = @version RETURNING *;

-- name: DeleteMember :execrows
DELETE FROM project_members WHERE project_id = @project_id AND id = @id AND version = @version;

-- name: RolesIn :many
-- The roles of an identity in a project, its own first. A group that does not belong to the billing account of the project has none.
SELECT m.id AS member_id, m.role, m.email FROM project_members m WHERE m.project_id = @project_id AND m.subject = @subject
UNION ALL
SELECT '', g.role, '' FROM project_group_roles g JOIN projects p ON p.id = g.project_id
    JOIN billing_account_groups b ON b.group_name = g.group_name AND b.billing_account_id = p.billing_account_id
WHERE g.project_id = @project_id AND g.group_name = ANY (@groups::text[]);

-- name: SetMemberEmail :exec
UPDATE project_members SET email = @email WHERE project_id = @project_id AND id = @id;

-- name: ListGroupRoles :many
SELECT * FROM project_group_roles WHERE project_id = @project_id ORDER BY group_name;

-- name: PutGroupRole :one
INSERT INTO project_group_roles (project_id, group_name, role) VALUES (@project_id, @group_name, @role)
ON CONFLICT (project_id, group_name) DO UPDATE SET role = excluded.role RETURNING *;

-- name: DeleteGroupRole :execrows
DELETE FROM project_group_roles WHERE project_id = @project_id AND group_name = @group_name;

-- name: InsertInvitation :one
INSERT INTO project_invitations (project_id, id, email, subject, role, invited_by, expires_at)
VALUES (@project_id, @id, @email, @subject, @role, @invited_by, @expires_at) RETURNING *;

-- name: Invitation :one
SELECT * FROM project_invitations WHERE project_id = @project_id AND id = @id;

-- name: LockInvitation :one
SELECT * FROM project_invitations WHERE id = @id FOR NO KEY UPDATE;

-- name: ListInvitations :many
SELECT * FROM project_invitations WHERE project_id = @project_id AND id > @after::text ORDER BY id LIMIT @max_rows;

-- name: InvitationsFor :many
-- What an identity can accept, with the name of each project.
SELECT sqlc.embed(i), p.name AS project_name FROM project_invitations i JOIN projects p ON p.id = i.project_id
WHERE i.status = 'pending' AND i.expires_at > now() AND p.status = 'active'
    AND (i.subject = @subject OR (@email::text <> '' AND i.email = @email::text))
ORDER BY i.id LIMIT @max_rows;

-- name: CountPending :one
SELECT count(*) FROM project_invitations WHERE project_id = @project_id AND status = 'pending';

-- name: ExpireInvitations :execrows
UPDATE project_invitations SET status = 'expired', version = version + 1, ended_at = now()
WHERE project_id = @project_id AND status = 'pending' AND expires_at <= now();

-- name: RevokeInvitation :execrows
UPDATE project_invitations SET status = 'revoked', version = version + 1, ended_at = now()
WHERE project_id = @project_id AND id = @id AND status = 'pending';

-- name: RevokeInvitationsOf :exec
-- Those that an identity made, and those that it could accept: by its subject, by its address, or by an address at which it accepted one before.
UPDATE project_invitations i SET status = 'revoked', version = i.version + 1, ended_at = now()
WHERE i.project_id = @project_id AND i.status = 'pending' AND (i.subject = @subject::text OR i.invited_by = @subject::text
    OR i.email <> '' AND i.email = @email::text OR i.email <> '' AND i.email IN (
    SELECT a.email FROM project_invitations a WHERE a.project_id = @project_id AND a.status = 'accepted' AND a.accepted_by = @subject::text));

-- name: PruneInvitations :execrows
-- What a present member has accepted stays: by its address a way back is found when the member is removed.
DELETE FROM project_invitations d USING (
    SELECT i.project_id, i.id FROM project_invitations i
    WHERE coalesce(i.ended_at, i.expires_at) < @before::timestamptz
        AND (i.status <> 'accepted' OR NOT EXISTS (SELECT FROM project_members m WHERE m.project_id = i.project_id AND m.subject = i.accepted_by))
    LIMIT @max_rows) old
WHERE d.project_id = old.project_id AND d.id = old.id;

-- name: AcceptInvitation :execrows
UPDATE project_invitations SET status = 'accepted', accepted_by = @accepted_by, version = version + 1, ended_at = now()
WHERE id = @id AND status = 'pending' AND expires_at > now();
