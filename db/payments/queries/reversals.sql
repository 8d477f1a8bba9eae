-- name: InsertRefund :one
INSERT INTO payment_refunds (id, session_id, origin, source, idempotency_key, amount_minor, currency, state, stripe_refund_id, reason, requested_by,
    accepted_at, ended_at, next_look_at)
VALUES (@id, @session_id, @origin, @source, @idempotency_key, @amount_minor, @currency, @state::text, sqlc.narg('stripe_refund_id'), @reason, @requested_by,
    CASE WHEN @state::text IN ('pending', 'succeeded') THEN now() END, CASE WHEN @state::text IN ('succeeded', 'failed') THEN now() END, now())
RETURNING *;

-- name: Refund :one
SELECT * FROM payment_refunds WHERE id = @id;

-- name: LockRefund :one
SELECT * FROM payment_refunds WHERE id = @id FOR NO KEY UPDATE;

-- name: RefundByKey :one
SELECT * FROM payment_refunds WHERE session_id = @session_id AND idempotency_key = @idempotency_key;

-- name: RefundsOf :many
SELECT * FROM payment_refunds WHERE session_id = @session_id ORDER BY id;

-- name: MoveRefund :exec
UPDATE payment_refunds SET state = @state::text, stripe_refund_id = coalesce(stripe_refund_id, sqlc.narg('stripe_refund_id')),
    accepted_at = CASE WHEN @state::text IN ('pending', 'succeeded') THEN coalesce(accepted_at, now()) ELSE accepted_at END,
    ended_at = CASE WHEN @state::text IN ('succeeded', 'failed') THEN coalesce(ended_at, now()) END,
    last_error = @last_error, next_look_at = sqlc.narg('next_look_at')::timestamptz, updated_at = now()
WHERE id = @id;

-- name: PostponeRefund :exec
UPDATE payment_refunds SET attempts = attempts + 1, last_error = @last_error, next_look_at = @next_look_at::timestamptz, updated_at = now() WHERE id = @id;

-- name: RefundsDue :many
SELECT id FROM payment_refunds WHERE next_look_at <= now() ORDER BY next_look_at LIMIT @max_rows;

-- name: InsertDispute :execrows
INSERT INTO payment_disputes (id, session_id, billing_account_id, source, amount_minor, currency, state, next_look_at)
VALUES (@id, @session_id, @billing_account_id, @source, @amount_minor, @currency, 'open', now() + interval '6 hours')
ON CONFLICT (id) DO NOTHING;

-- name: LockDispute :one
SELECT * FROM payment_disputes WHERE id = @id FOR NO KEY UPDATE;

-- name: DisputesOf :many
SELECT * FROM payment_disputes WHERE session_id = @session_id ORDER BY opened_at, id;

-- name: CloseDispute :exec
-- How a dispute was decided, for the first time or again. Nobody has let the account go on after a loss that was not known.
UPDATE payment_disputes SET state = @state::text, closed_at = now(), closings = closings + 1, next_look_at = now() + interval '6 hours',
    cleared_at = CASE WHEN @state::text = 'won' THEN cleared_at END, cleared_by = CASE WHEN @state::text = 'won' THEN cleared_by ELSE '' END,
    cleared_reason = CASE WHEN @state::text = 'won' THEN cleared_reason ELSE '' END
WHERE id = @id AND state <> @state::text;

-- name: PostponeDispute :exec
-- An open dispute is looked at again and again, one that was decided once more.
UPDATE payment_disputes SET next_look_at = CASE WHEN state = 'open' OR @is_failed::boolean THEN now() + interval '6 hours' WHEN next_look_at > now() THEN next_look_at END
WHERE id = @id;

-- name: ClearDispute :execrows
UPDATE payment_disputes SET cleared_at = now(), cleared_by = @cleared_by, cleared_reason = @reason WHERE id = @id AND state IN ('open', 'lost') AND cleared_at IS NULL;

-- name: DisputesDue :many
SELECT id FROM payment_disputes WHERE next_look_at <= now() ORDER BY next_look_at LIMIT @max_rows;

-- name: FreezingDisputes :one
SELECT count(*) FROM payment_disputes WHERE billing_account_id = @billing_account_id AND state <> 'won' AND cleared_at IS NULL;
