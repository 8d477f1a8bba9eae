-- What of payments needs an operator. A page that nobody has paid is no such thing: most are left. A
-- session with a live job is in the list as that job.
CREATE OR REPLACE VIEW payment_attention WITH (security_invoker = true) AS
SELECT 'payment_mismatch'::text AS kind, ('payment_mismatch:' || s.id)::text AS id, coalesce(s.completed_at, s.created_at)::timestamptz AS since,
    ''::text AS site_id, ''::text AS node_id, ''::text AS hostname, ''::text AS bmc_id, ''::text AS job_id, ''::text AS job_kind, ''::text AS workflow_id,
    s.status::text AS status, ''::text AS stage, 'payment_mismatch'::text AS failure_class,
    ('payment session ' || s.id || ' of billing account ' || s.billing_account_id || ': ' || s.failure_message
        || CASE s.resolution WHEN '' THEN '' ELSE '; its refund failed' END)::text AS message, ''::text AS next_step,
    ''::text AS recommended_action, false AS waiting_outside, false AS workflow_gone
FROM payment_sessions s WHERE s.status = 'failed_reconcile' AND (s.resolution = '' OR s.resolution = 'refund' AND s.refunded_minor
    + (SELECT coalesce(sum(o.amount_minor), 0) FROM payment_disputes o WHERE o.session_id = s.id AND o.state <> 'won') < s.received_minor)
  AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.resource_kind = 'payment_session' AND j.resource_id = s.id
      AND j.status IN ('pending', 'running', 'failed_retryable', 'failed_manual_intervention', 'compensating'))
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
