-- Reversals of payments that were written off, disputes that are decided again, and payments that are turned off.

-- +goose Up
-- What was written off is paid back from there.
ALTER TABLE payment_refunds DROP CONSTRAINT payment_refunds_source_check,
    ADD CONSTRAINT payment_refunds_source_check CHECK (source IN ('prepaid', 'suspense', 'write_off'));
ALTER TABLE payment_disputes DROP CONSTRAINT payment_disputes_source_check,
    ADD CONSTRAINT payment_disputes_source_check CHECK (source IN ('prepaid', 'suspense', 'write_off'));

-- closings counts how often a dispute was decided: a bank may decide again. One that was decided is looked at once more.
ALTER TABLE payment_disputes ADD COLUMN closings integer NOT NULL DEFAULT 0;
UPDATE payment_disputes SET closings = 1 WHERE state <> 'open';

ALTER TABLE payment_sessions DROP CONSTRAINT payment_sessions_failure_code_check, ADD CONSTRAINT payment_sessions_failure_code_check
    CHECK (failure_code IN ('', 'create_failed', 'other_mode', 'payments_off', 'payment_mismatch', 'credit_failed'));
CREATE INDEX payment_sessions_asked ON payment_sessions (billing_account_id, created_at);

-- payment_intent_id tells the movements of refunds and disputes of sessions that are not ours. is_converted says that the payment provider has changed the
-- amount into another currency.
ALTER TABLE payment_foreign_sessions ADD COLUMN payment_intent_id text NOT NULL DEFAULT '' CHECK (char_length(payment_intent_id) <= 255);
CREATE INDEX payment_foreign_sessions_by_intent ON payment_foreign_sessions (payment_intent_id) WHERE payment_intent_id <> '';
ALTER TABLE payment_movements ADD COLUMN payment_intent_id text NOT NULL DEFAULT '' CHECK (char_length(payment_intent_id) <= 255),
    ADD COLUMN is_converted boolean NOT NULL DEFAULT false;

-- Events go at their age, whatever became of them.
DROP INDEX stripe_events_old;
CREATE INDEX stripe_events_old ON stripe_events (received_at);

-- The sessions that are not ours are listed once more, with their payments.
UPDATE payment_control SET sessions_from = 'epoch', sessions_until = NULL, sessions_page = '';

-- What the payer's bank has taken by a dispute is not in suspense.
CREATE OR REPLACE VIEW payment_stuck WITH (security_invoker = true) AS
SELECT s.id FROM payment_sessions s
WHERE s.status = 'initiated' AND s.created_at < now() - interval '1 hour'
   OR s.status = 'failed_reconcile' AND (s.resolution = '' OR s.resolution = 'refund' AND s.refunded_minor
    + (SELECT coalesce(sum(o.amount_minor), 0) FROM payment_disputes o WHERE o.session_id = s.id AND o.state <> 'won') < s.received_minor)
   OR s.status = 'checkout_completed' AND s.payment_status = 'paid' AND s.completed_at < now() - interval '1 hour';

CREATE OR REPLACE VIEW payment_attention WITH (security_invoker = true) AS
SELECT 'payment_mismatch'::text AS kind, ('payment_mismatch:' || s.id)::text AS id, coalesce(s.completed_at, s.created_at)::timestamptz AS since,
    ''::text AS site_id, ''::text AS node_id, ''::text AS hostname, ''::text AS bmc_id, ''::text AS job_id, ''::text AS job_kind, ''::text AS workflow_id,
    s.status::text AS status, ''::text AS stage, 'payment_mismatch'::text AS failure_class,
    ('payment session ' || s.id || ' of billing account ' || s.billing_account_id || ': ' || s.failure_message
        || CASE s.resolution WHEN '' THEN '' ELSE '; its refund failed' END)::text AS message, ''::text AS next_step,
    ''::text AS recommended_action, false AS waiting_outside, false AS workflow_gone
FROM payment_sessions s WHERE s.status = 'failed_reconcile' AND (s.resolution = '' OR s.resolution = 'refund' AND s.refunded_minor
    + (SELECT coalesce(sum(o.amount_minor), 0) FROM payment_disputes o WHERE o.session_id = s.id AND o.state <> 'won') < s.received_minor)
UNION ALL
SELECT 'payment_difference', 'payment_difference:' || d.kind || ':' || d.subject, d.found_at, '', '', '', '', '', '', '', '', '', 'payment_mismatch',
    d.message, '', '', false, false
FROM payment_differences d WHERE d.acknowledged_at IS NULL AND (d.kind <> 'total' OR d.streak >= 2)
UNION ALL
-- What was tried for hours and still fails.
SELECT 'payment_difference', 'payment_difference:event:' || e.id, e.received_at, '', '', '', '', '', '', '', e.state, '', 'payment_mismatch',
    'event ' || e.id || ' of the payment provider cannot be processed: ' || e.last_error, '', '', false, false
FROM stripe_events e WHERE e.state = 'pending' AND e.attempts >= 13
UNION ALL
SELECT 'payment_difference', 'payment_difference:refund:' || r.id, r.created_at, '', '', '', '', '', '', '', r.state, '', 'payments_unavailable',
    'refund ' || r.id || ' of payment session ' || r.session_id || ' was not sent: ' || r.last_error, '', '', false, false
FROM payment_refunds r WHERE r.state = 'requested' AND r.attempts >= 8
UNION ALL
SELECT 'payment_dispute', 'payment_dispute:' || d.id, d.opened_at, '', '', '', '', '', '', '', d.state, '', '',
    'dispute ' || d.id || ' of payment session ' || d.session_id || ' is ' || d.state || '; billing account ' || d.billing_account_id || ' gets no new allocation',
    '', '', false, false
FROM payment_disputes d WHERE d.state <> 'won' AND d.cleared_at IS NULL
UNION ALL
-- Something waits for the payment provider and no pass has come to its end for an hour. A pass ends so too while payments are off: problem says it.
SELECT 'payments_silent', 'payments_silent:', coalesce(c.problem_since, c.passed_at, w.since), '', '', '', '', '', '', '', '', '', 'payments_unavailable',
    CASE c.problem WHEN '' THEN 'payments were not compared with the payment provider for an hour' ELSE c.problem END, '', '', false, false
FROM payment_control c CROSS JOIN (SELECT least(
    (SELECT min(s.created_at) FROM payment_sessions s WHERE s.status = 'initiated'
        OR s.status = 'checkout_completed' AND (s.payment_status = 'paid' OR s.next_look_at IS NOT NULL)),
    (SELECT min(r.created_at) FROM payment_refunds r WHERE r.state IN ('requested', 'pending')),
    (SELECT min(d.opened_at) FROM payment_disputes d WHERE d.state = 'open'),
    (SELECT min(e.received_at) FROM stripe_events e WHERE e.state = 'pending')) AS since) w
WHERE w.since < now() - interval '1 hour' AND coalesce(c.passed_at, w.since) < now() - interval '1 hour';

-- +goose Down
CREATE OR REPLACE VIEW payment_stuck WITH (security_invoker = true) AS
SELECT s.id FROM payment_sessions s
WHERE s.status = 'initiated' AND s.created_at < now() - interval '1 hour'
   OR s.status = 'failed_reconcile' AND (s.resolution = '' OR s.resolution = 'refund' AND s.refunded_minor < s.received_minor)
   OR s.status = 'checkout_completed' AND s.payment_status = 'paid' AND s.completed_at < now() - interval '1 hour';
CREATE OR REPLACE VIEW payment_attention WITH (security_invoker = true) AS
SELECT 'payment_mismatch'::text AS kind, ('payment_mismatch:' || s.id)::text AS id, coalesce(s.completed_at, s.created_at)::timestamptz AS since,
    ''::text AS site_id, ''::text AS node_id, ''::text AS hostname, ''::text AS bmc_id, ''::text AS job_id, ''::text AS job_kind, ''::text AS workflow_id,
    s.status::text AS status, ''::text AS stage, 'payment_mismatch'::text AS failure_class,
    ('payment session ' || s.id || ' of billing account ' || s.billing_account_id || ': ' || s.failure_message
        || CASE s.resolution WHEN '' THEN '' ELSE '; its refund failed' END)::text AS message, ''::text AS next_step,
    ''::text AS recommended_action, false AS waiting_outside, false AS workflow_gone
FROM payment_sessions s WHERE s.status = 'failed_reconcile' AND (s.resolution = '' OR s.resolution = 'refund' AND s.refunded_minor < s.received_minor)
UNION ALL
SELECT 'payment_difference', 'payment_difference:' || d.kind || ':' || d.subject, d.found_at, '', '', '', '', '', '', '', '', '', 'payment_mismatch',
    d.message, '', '', false, false
FROM payment_differences d WHERE d.acknowledged_at IS NULL AND (d.kind <> 'total' OR d.streak >= 2)
UNION ALL
-- What was tried for hours and still fails.
SELECT 'payment_difference', 'payment_difference:event:' || e.id, e.received_at, '', '', '', '', '', '', '', e.state, '', 'payment_mismatch',
    'event ' || e.id || ' of the payment provider cannot be processed: ' || e.last_error, '', '', false, false
FROM stripe_events e WHERE e.state = 'pending' AND e.attempts >= 13
UNION ALL
SELECT 'payment_difference', 'payment_difference:refund:' || r.id, r.created_at, '', '', '', '', '', '', '', r.state, '', 'payments_unavailable',
    'refund ' || r.id || ' of payment session ' || r.session_id || ' was not sent: ' || r.last_error, '', '', false, false
FROM payment_refunds r WHERE r.state = 'requested' AND r.attempts >= 8
UNION ALL
SELECT 'payment_dispute', 'payment_dispute:' || d.id, d.opened_at, '', '', '', '', '', '', '', d.state, '', '',
    'dispute ' || d.id || ' of payment session ' || d.session_id || ' is ' || d.state || '; billing account ' || d.billing_account_id || ' gets no new allocation',
    '', '', false, false
FROM payment_disputes d WHERE d.state <> 'won' AND d.cleared_at IS NULL
UNION ALL
-- Something waits for the payment provider and no pass has come to its end for an hour.
SELECT 'payments_silent', 'payments_silent:', coalesce(c.problem_since, c.passed_at, w.since), '', '', '', '', '', '', '', '', '', 'payments_unavailable',
    CASE c.problem WHEN '' THEN 'payments were not compared with the payment provider for an hour' ELSE c.problem END, '', '', false, false
FROM payment_control c CROSS JOIN (SELECT min(s.created_at) AS since FROM payment_sessions s WHERE s.status IN ('initiated', 'checkout_completed')) w
WHERE w.since < now() - interval '1 hour' AND coalesce(c.passed_at, w.since) < now() - interval '1 hour';

DROP INDEX payment_foreign_sessions_by_intent, payment_sessions_asked, stripe_events_old;
CREATE INDEX stripe_events_old ON stripe_events (processed_at) WHERE processed_at IS NOT NULL;
ALTER TABLE payment_movements DROP COLUMN payment_intent_id, DROP COLUMN is_converted;
ALTER TABLE payment_foreign_sessions DROP COLUMN payment_intent_id;
UPDATE payment_sessions SET failure_code = 'create_failed' WHERE failure_code = 'payments_off';
UPDATE payment_disputes SET source = 'suspense' WHERE source = 'write_off';
UPDATE payment_refunds SET source = 'suspense' WHERE source = 'write_off';
ALTER TABLE payment_sessions DROP CONSTRAINT payment_sessions_failure_code_check, ADD CONSTRAINT payment_sessions_failure_code_check
    CHECK (failure_code IN ('', 'create_failed', 'other_mode', 'payment_mismatch', 'credit_failed'));
ALTER TABLE payment_disputes DROP COLUMN closings, DROP CONSTRAINT payment_disputes_source_check,
    ADD CONSTRAINT payment_disputes_source_check CHECK (source IN ('prepaid', 'suspense'));
ALTER TABLE payment_refunds DROP CONSTRAINT payment_refunds_source_check,
    ADD CONSTRAINT payment_refunds_source_check CHECK (source IN ('prepaid', 'suspense'));
