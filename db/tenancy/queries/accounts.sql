-- name: InsertAccount :one
INSERT INTO billing_accounts (id, name, currency, max_projects) VALUES (@id, @name, @currency, @max_projects) RETURNING *;

-- name: Account :one
SELECT * FROM billing_accounts WHERE id = @id;

-- name: AccountByName :one
SELECT * FROM billing_accounts WHERE name = @name;

-- name: LockAccount :one
SELECT * FROM billing_accounts WHERE id = @id FOR NO KEY UPDATE;

-- name: ListAccounts :many
SELECT * FROM billing_accounts WHERE id > @after::text ORDER BY id LIMIT @max_rows;

-- name: UpdateAccount :one
UPDATE billing_accounts SET name = @name, max_projects = @max_projects, version = version + 1, updated_at = now()
WHERE id = @id AND version = @version RETURNING *;

-- name: DeleteAccount :execrows
DELETE FROM billing_accounts WHERE id = @id AND version = @version;

-- name: InsertAccountGroup :one
-- The group of the account, also where it was that before. It is no row where the group belongs to another account.
INSERT INTO billing_account_groups (group_name, billing_account_id) VALUES (@group_name, @billing_account_id)
ON CONFLICT (group_name) DO UPDATE SET billing_account_id = excluded.billing_account_id
WHERE billing_account_groups.billing_account_id = excluded.billing_account_id RETURNING *;

-- name: AccountGroup :one
SELECT * FROM billing_account_groups WHERE group_name = @group_name;

-- name: ListAccountGroups :many
SELECT * FROM billing_account_groups WHERE billing_account_id = @billing_account_id AND group_name > @after::text ORDER BY group_name LIMIT @max_rows;

-- name: DeleteAccountGroup :execrows
DELETE FROM billing_account_groups WHERE group_name = @group_name AND billing_account_id = @billing_account_id;

-- name: DeleteRolesOfGroup :many
-- A group that comes back to an account has no roles of before.
DELETE FROM project_group_roles g USING projects p
WHERE p.id = g.project_id AND p.billing_account_id = @billing_account_id AND g.group_name = @group_name RETURNING g.project_id;
