-- name: Currencies :many
SELECT code, exponent FROM currencies ORDER BY code;

-- name: LockAccountOf :one
-- What is posted to an account is posted one after the other. The lock is that of the account itself.
SELECT id, currency FROM billing_accounts WHERE id = @id FOR NO KEY UPDATE;

-- name: TransactionByKey :one
SELECT * FROM ledger_transactions WHERE key = @key;

-- name: OpenLedgerAccounts :exec
INSERT INTO ledger_accounts (billing_account_id, code, currency)
SELECT b.id, c.code, b.currency FROM billing_accounts b, unnest(@codes::text[]) AS c (code) WHERE b.id = @billing_account_id::text
ON CONFLICT DO NOTHING;

-- name: InsertTransaction :one
INSERT INTO ledger_transactions (key, kind, billing_account_id, currency, of_project, of_allocation, effective_at, reason, actor, request_hash)
VALUES (@key, @kind, @billing_account_id, @currency, sqlc.narg('of_project'), sqlc.narg('of_allocation'), now(), @reason, @actor, @request_hash)
RETURNING *;

-- name: InsertEntries :exec
-- One line for each account: code and amount at the same place of the lists.
INSERT INTO ledger_entries (transaction_id, line, ledger_account_id, currency, amount_minor, account_seq, balance_after_minor)
SELECT @transaction_id::bigint, i.line, a.id, a.currency, (@amounts::bigint[])[i.line], a.last_seq + 1, a.balance_minor + (@amounts::bigint[])[i.line]
FROM generate_subscripts(@codes::text[], 1) AS i (line)
JOIN ledger_accounts a ON a.billing_account_id = @billing_account_id::text AND a.code = (@codes::text[])[i.line];

-- name: LedgerAccounts :many
SELECT * FROM ledger_accounts WHERE billing_account_id = @billing_account_id ORDER BY code;

-- name: VerifyLedger :one
SELECT coalesce(ledger_verify(a.id), 0)::bigint AS first_broken FROM ledger_accounts a WHERE a.billing_account_id = @billing_account_id AND a.code = @code;

-- name: ListLedger :many
-- The lines of prepaid, newest first: what the customer's balance is made of.
SELECT e.account_seq, e.amount_minor, e.balance_after_minor, e.currency, t.id AS transaction_id, t.key, t.kind, t.of_project, t.of_allocation, t.effective_at,
    t.posted_at, t.reason, t.actor
FROM ledger_accounts a JOIN ledger_entries e ON e.ledger_account_id = a.id JOIN ledger_transactions t ON t.id = e.transaction_id
WHERE a.billing_account_id = @billing_account_id AND a.code = 'prepaid' AND (@before_seq::bigint = 0 OR e.account_seq < @before_seq::bigint)
  AND (@of_project::text = '' OR t.of_project = @of_project::text)
ORDER BY e.account_seq DESC LIMIT @max_rows;

-- name: StatementLines :many
-- What a project was charged and credited in a time, by subject and kind, where a subject is an allocation or an instance: it is summed from the ledger, and a debit for usage from its windows, of which
-- it is the sum.
SELECT x.subject::text AS subject, x.kind, x.currency, min(x.at)::timestamptz AS first_at, max(x.at)::timestamptz AS last_at,
    count(*) AS transactions, sum(x.amount_minor)::bigint AS amount_minor
FROM (
    SELECT coalesce(t.of_allocation, '')::text AS subject, t.kind, t.currency, t.effective_at AS at, e.amount_minor
    FROM ledger_transactions t JOIN ledger_entries e ON e.transaction_id = t.id JOIN ledger_accounts a ON a.id = e.ledger_account_id AND a.code = 'prepaid'
    WHERE t.of_project = @of_project::text AND t.posted_at >= @since::timestamptz AND t.posted_at < @until::timestamptz AND t.kind <> 'usage'
    UNION ALL
    SELECT usage_subject(w.record_id), t.kind, t.currency, w.window_end, -w.amount_minor
    FROM ledger_transactions t JOIN usage_windows w ON w.transaction_id = t.id
    WHERE t.of_project = @of_project::text AND t.posted_at >= @since::timestamptz AND t.posted_at < @until::timestamptz AND t.kind = 'usage'
) x
WHERE (x.subject, x.kind) > (@after_subject::text, @after_kind::text)
GROUP BY 1, 2, 3 ORDER BY 1, 2 LIMIT @max_rows;
