-- name: Control :one
SELECT * FROM payment_control;

-- name: StoreEventsPlace :exec
UPDATE payment_control SET events_from = @events_from, events_until = sqlc.narg('events_until')::timestamptz, events_page = @events_page, events_at = now();

-- name: StoreSessionsPlace :exec
UPDATE payment_control SET sessions_from = @sessions_from, sessions_until = sqlc.narg('sessions_until')::timestamptz, sessions_page = @sessions_page;

-- name: StoreMovementsPlace :exec
UPDATE payment_control SET movements_from = @movements_from, movements_until = sqlc.narg('movements_until')::timestamptz, movements_page = @movements_page;

-- name: StoreTotalsTime :exec
UPDATE payment_control SET totals_at = now();

-- name: StorePass :exec
UPDATE payment_control SET problem = @problem::text, problem_since = CASE WHEN @problem::text = '' THEN NULL ELSE coalesce(problem_since, now()) END,
    passed_at = CASE WHEN @problem::text = '' THEN now() ELSE passed_at END;

-- name: PutForeign :exec
INSERT INTO payment_foreign_sessions (id, installation, reference, amount_minor, currency, paid, created_at, payment_intent_id)
VALUES (@id, @installation, @reference, @amount_minor, @currency, @paid, @created_at, @payment_intent_id)
ON CONFLICT (id) DO UPDATE SET paid = excluded.paid OR payment_foreign_sessions.paid, amount_minor = excluded.amount_minor,
    payment_intent_id = CASE WHEN excluded.payment_intent_id <> '' THEN excluded.payment_intent_id ELSE payment_foreign_sessions.payment_intent_id END;

-- name: IsForeignIntent :one
SELECT EXISTS (SELECT FROM payment_foreign_sessions WHERE payment_intent_id <> '' AND payment_intent_id = @payment_intent_id::text);

-- name: ListForeign :many
SELECT * FROM payment_foreign_sessions WHERE (@after::text = '' OR id > @after::text) ORDER BY id LIMIT @max_rows;

-- name: InsertMovement :execrows
INSERT INTO payment_movements (id, category, source, amount_minor, fee_minor, currency, moved_at, payment_intent_id, is_converted)
VALUES (@id, @category, @source, @amount_minor, @fee_minor, @currency, @moved_at, @payment_intent_id, @is_converted)
ON CONFLICT (id) DO NOTHING;

-- name: Totals :many
-- By currency: what moved at the payment provider, less what is not ours, and what the ledger says is there. They are equal when nothing is under way. What
-- the payment provider has converted is in the currency of another total and in none here; converted counts it over all currencies, but for what is not ours.
SELECT c.currency::text AS currency,
    coalesce((SELECT sum(m.amount_minor) FROM payment_movements m WHERE m.currency = c.currency AND NOT m.is_converted), 0)::bigint AS moved_minor,
    (coalesce((SELECT sum(f.amount_minor) FROM payment_foreign_sessions f WHERE f.currency = c.currency AND f.paid), 0)
        + coalesce((SELECT sum(m.amount_minor) FROM payment_movements m WHERE m.currency = c.currency AND NOT m.is_converted AND m.payment_intent_id <> ''
            AND EXISTS (SELECT FROM payment_foreign_sessions o WHERE o.payment_intent_id = m.payment_intent_id)), 0))::bigint AS foreign_minor,
    coalesce((SELECT -sum(a.balance_minor) FROM ledger_accounts a WHERE a.currency = c.currency AND a.code IN ('clearing', 'dispute_hold')), 0)::bigint
        AS booked_minor,
    (SELECT count(*) FROM payment_movements m WHERE m.is_converted
        AND NOT EXISTS (SELECT FROM payment_foreign_sessions o WHERE m.payment_intent_id <> '' AND o.payment_intent_id = m.payment_intent_id)) AS converted
FROM (SELECT m.currency FROM payment_movements m UNION SELECT a.currency FROM ledger_accounts a WHERE a.code = 'clearing') c ORDER BY 1;

-- name: CreditedInTestMode :many
-- By billing account: what was credited by payments of test mode and not refunded. No money came.
SELECT s.billing_account_id, s.currency, count(*) AS sessions, sum(s.credited_amount_minor - s.refunded_minor)::bigint AS amount_minor
FROM payment_sessions s WHERE s.status = 'credited' AND NOT s.live AND s.credited_amount_minor > s.refunded_minor GROUP BY 1, 2 ORDER BY 1, 2;

-- name: PutDifference :exec
-- The streak counts the comparisons that found it: one that agrees deletes the row. Another amount is told again.
INSERT INTO payment_differences (kind, subject, message, amount_minor) VALUES (@kind, @subject, @message, @amount_minor)
ON CONFLICT (kind, subject) DO UPDATE SET checked_at = now(), message = excluded.message, amount_minor = excluded.amount_minor,
    streak = payment_differences.streak + 1,
    acknowledged_at = CASE WHEN payment_differences.amount_minor = excluded.amount_minor THEN payment_differences.acknowledged_at END,
    acknowledged_by = CASE WHEN payment_differences.amount_minor = excluded.amount_minor THEN payment_differences.acknowledged_by ELSE '' END,
    reason = CASE WHEN payment_differences.amount_minor = excluded.amount_minor THEN payment_differences.reason ELSE '' END;

-- name: DropDifference :execrows
DELETE FROM payment_differences WHERE kind = @kind AND subject = @subject;

-- name: ListDifferences :many
SELECT * FROM payment_differences WHERE (kind, subject) > (@after_kind::text, @after_subject::text) ORDER BY kind, subject LIMIT @max_rows;

-- name: AcknowledgeDifference :execrows
UPDATE payment_differences SET acknowledged_at = now(), acknowledged_by = @acknowledged_by, reason = @reason WHERE kind = @kind AND subject = @subject;
