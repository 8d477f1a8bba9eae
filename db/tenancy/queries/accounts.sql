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
