-- What the payer's bank has taken by a dispute is not in suspense.
CREATE OR REPLACE VIEW payment_stuck WITH (security_invoker = true) AS
SELECT s.id FROM payment_sessions s
WHERE s.status = 'initiated' AND s.created_at < now() - interval '1 hour'
   OR s.status = 'failed_reconcile' AND (s.resolution = '' OR s.resolution = 'refund' AND s.refunded_minor
    + (SELECT coalesce(sum(o.amount_minor), 0) FROM payment_disputes o WHERE o.session_id = s.id AND o.state <> 'won') < s.received_minor)
   OR s.status = 'checkout_completed' AND s.payment_status = 'paid' AND s.completed_at < now() - interval '1 hour';
