-- name: InsertSession :one
-- The session, its creation audit row and its event in one statement.
WITH made AS (
    INSERT INTO payment_sessions (id, billing_account_id, project_id, requested_by, idempotency_key, request_hash, status, requested_amount_minor, currency,
        live, success_url, cancel_url, expires_at, next_look_at)
    VALUES (@id, @billing_account_id, @project_id, @requested_by, @idempotency_key, @request_hash, @status, @requested_amount_minor, @currency,
        @live, @success_url, @cancel_url, @expires_at, @next_look_at::timestamptz)
    RETURNING *
), logged AS (
    INSERT INTO audit_log (id, resource_kind, resource_id, kind, name, from_state, to_state, triggered_by, owner, actor_id, comment, metadata,
        workflow_id, version)
    SELECT @audit_id, 'payment_session', m.id, 'transition', 'create', '', m.status, @triggered_by, @owner, @actor_id, @comment, @metadata, @workflow_id,
        m.version
    FROM made m
), told AS (
    INSERT INTO outbox (kind, event_project, event_id, resource_kind, resource_id, type, payload)
    SELECT 'event', m.project_id, @event_id::text, 'payment_session', m.id, @event_type::text, @payload FROM made m
)
SELECT version FROM made;

-- name: MoveSession :one
-- The commit point of a session: guarded update, audit row and event in one statement. A move that does not set a column keeps it.
WITH moved AS (
    UPDATE payment_sessions SET status = @to_state, updated_at = now(), version = version + 1,
        payment_status = CASE WHEN @payment_status::text <> '' THEN @payment_status::text ELSE payment_status END,
        received_minor = coalesce(sqlc.narg('received_minor'), received_minor),
        received_currency = CASE WHEN @received_currency::text <> '' THEN @received_currency::text ELSE received_currency END,
        stripe_payment_intent_id = coalesce(sqlc.narg('stripe_payment_intent_id'), stripe_payment_intent_id),
        credited_amount_minor = coalesce(sqlc.narg('credited_amount_minor'), credited_amount_minor),
        ledger_entry_id = coalesce(sqlc.narg('ledger_entry_id'), ledger_entry_id),
        suspense_entry_id = coalesce(sqlc.narg('suspense_entry_id'), suspense_entry_id),
        failure_code = CASE WHEN @failure_code::text <> '' OR @to_state::text = 'checkout_completed' THEN @failure_code::text ELSE failure_code END,
        failure_message = CASE WHEN @failure_code::text <> '' OR @to_state::text = 'checkout_completed' THEN @failure_message::text ELSE failure_message END,
        resolution = CASE WHEN @resolution::text <> '' THEN @resolution::text ELSE resolution END,
        resolution_reason = CASE WHEN @resolution::text <> '' THEN @resolution_reason::text ELSE resolution_reason END,
        resolved_by = CASE WHEN @resolution::text <> '' THEN @resolved_by::text ELSE resolved_by END,
        resolved_at = CASE WHEN @resolution::text <> '' THEN now() ELSE resolved_at END,
        next_look_at = sqlc.narg('next_look_at')::timestamptz, looks = 0,
        completed_at = CASE WHEN @to_state::text = 'checkout_completed' THEN coalesce(completed_at, now()) ELSE completed_at END,
        credited_at = CASE WHEN @to_state::text = 'credited' THEN now() ELSE credited_at END,
        ended_at = CASE WHEN @to_state::text IN ('credited', 'expired') THEN now() WHEN @to_state::text = 'checkout_completed' THEN NULL ELSE ended_at END,
        last_error = CASE WHEN @to_state::text IN ('checkout_completed', 'credited') THEN '' ELSE last_error END
    WHERE payment_sessions.id = @id AND payment_sessions.status = @from_state::text AND payment_sessions.version = @version
    RETURNING *
), logged AS (
    INSERT INTO audit_log (id, resource_kind, resource_id, kind, name, from_state, to_state, triggered_by, owner, actor_id, comment, metadata,
        workflow_id, version)
    SELECT @audit_id, 'payment_session', m.id, 'transition', @name, @from_state::text, m.status, @triggered_by, @owner, @actor_id, @comment, @metadata,
        @workflow_id, m.version
    FROM moved m
), told AS (
    INSERT INTO outbox (kind, event_project, event_id, resource_kind, resource_id, type, payload)
    SELECT 'event', m.project_id, @event_id::text, 'payment_session', m.id, @event_type::text, @payload FROM moved m
)
SELECT version FROM moved;

-- name: Session :one
SELECT * FROM payment_sessions WHERE id = @id;

-- name: SessionOfProject :one
SELECT * FROM payment_sessions WHERE project_id = @project_id AND id = @id;

-- name: LockSession :one
SELECT * FROM payment_sessions WHERE id = @id FOR NO KEY UPDATE;

-- name: SessionByRequest :one
SELECT * FROM payment_sessions WHERE requested_by = @requested_by AND idempotency_key = @idempotency_key;

-- name: SessionByStripe :one
SELECT * FROM payment_sessions WHERE stripe_checkout_session_id = @stripe_id::text;

-- name: SessionByIntent :one
SELECT * FROM payment_sessions WHERE stripe_payment_intent_id = @intent_id::text;

-- name: ListSessions :many
SELECT s.* FROM payment_sessions s
WHERE (@after::text = '' OR s.id < @after::text)
  AND (@project_id::text = '' OR s.project_id = @project_id::text)
  AND (@billing_account_id::text = '' OR s.billing_account_id = @billing_account_id::text)
  AND (cardinality(@statuses::text[]) = 0 OR s.status = ANY (@statuses::text[]))
  AND (NOT @stuck::boolean OR s.id IN (SELECT k.id FROM payment_stuck k))
ORDER BY s.id DESC LIMIT @max_rows;

-- name: CountRequested :one
-- How many sessions somebody has asked for since a time.
SELECT count(*) FROM payment_sessions WHERE requested_by = @requested_by AND created_at > @since::timestamptz;

-- name: CountOfAccount :one
SELECT count(*) FROM payment_sessions WHERE billing_account_id = @billing_account_id AND created_at > @since::timestamptz;

-- name: StorePage :execrows
-- The page that the payment provider has made. Another one of the same session is refused by the guard.
UPDATE payment_sessions SET stripe_checkout_session_id = @stripe_id::text, url = @url, last_error = '', next_look_at = @next_look_at::timestamptz,
    version = version + 1, updated_at = now()
WHERE id = @id AND (stripe_checkout_session_id IS NULL OR stripe_checkout_session_id = @stripe_id::text AND url <> @url);

-- name: NextAttempt :execrows
-- Another key for the payment provider: the one before will never make a page.
UPDATE payment_sessions SET attempt = attempt + 1, attempt_at = now(), version = version + 1, updated_at = now()
WHERE id = @id AND attempt = @attempt AND stripe_checkout_session_id IS NULL AND status = 'initiated';

-- name: StorePaid :exec
-- What is known of the money, without a change of the status.
UPDATE payment_sessions SET payment_status = @payment_status, received_minor = @received_minor, received_currency = @received_currency,
    stripe_payment_intent_id = coalesce(stripe_payment_intent_id, sqlc.narg('stripe_payment_intent_id')), version = version + 1, updated_at = now()
WHERE id = @id;

-- name: StoreAsyncFailed :exec
UPDATE payment_sessions SET payment_status = 'async_failed', version = version + 1, updated_at = now()
WHERE id = @id AND status = 'checkout_completed' AND payment_status = 'unpaid';

-- name: CountCreditAttempt :exec
UPDATE payment_sessions SET credit_attempts = credit_attempts + 1, last_error = @last_error, version = version + 1, updated_at = now()
WHERE id = @id AND status = 'checkout_completed';

-- name: ScheduleLook :exec
-- When a session is looked at again; looks counts those that changed nothing.
UPDATE payment_sessions SET next_look_at = sqlc.narg('next_look_at')::timestamptz, looks = looks + 1, last_error = @last_error WHERE id = @id;

-- name: SessionsDue :many
SELECT id FROM payment_sessions WHERE next_look_at <= now() ORDER BY next_look_at LIMIT @max_rows;

-- name: SessionsLeft :many
SELECT id FROM payment_sessions WHERE status = 'initiated' AND expires_at < @before::timestamptz ORDER BY created_at LIMIT @max_rows;

-- name: StoreSuspense :exec
UPDATE payment_sessions SET suspense_entry_id = @transaction_id::bigint, version = version + 1, updated_at = now() WHERE id = @id;

-- name: StoreResolution :execrows
UPDATE payment_sessions SET resolution = @resolution, resolution_reason = @reason, resolved_by = @resolved_by, resolved_at = now(), next_look_at = NULL,
    version = version + 1, updated_at = now()
WHERE id = @id AND status = 'failed_reconcile' AND resolution IN ('', 'refund');

-- name: AddRefunded :exec
UPDATE payment_sessions SET refunded_minor = refunded_minor + @amount_minor::bigint, version = version + 1, updated_at = now() WHERE id = @id;

-- name: TakeLook :execrows
-- Whoever waits for a payment asks often; the payment provider is asked for it every few seconds at most.
UPDATE payment_sessions SET looked_at = now() WHERE id = @id AND (looked_at IS NULL OR looked_at < now() - make_interval(secs => @every_seconds::float8));

-- name: SettledJobs :many
-- Parked jobs of sessions that were settled meanwhile. A job that an operator froze stays frozen.
SELECT j.id, j.kind, j.seq FROM jobs j JOIN payment_sessions s ON s.id = j.resource_id
WHERE j.resource_kind = 'payment_session' AND j.status IN ('failed_retryable', 'failed_manual_intervention') AND NOT j.frozen
  AND (s.status = 'credited' OR s.status = 'failed_reconcile' AND s.resolution <> '')
ORDER BY j.id LIMIT @max_rows;
