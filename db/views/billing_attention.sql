-- What of money needs an operator.
CREATE OR REPLACE VIEW billing_attention AS
SELECT 'clock_disagrees'::text AS kind, 'clock_disagrees:'::text AS id, b.clock_disagrees_since::timestamptz AS since, ''::text AS site_id,
    ''::text AS node_id, ''::text AS hostname, ''::text AS bmc_id, ''::text AS job_id, ''::text AS job_kind, ''::text AS workflow_id, ''::text AS status,
    ''::text AS stage, ''::text AS failure_class, b.clock_disagrees::text AS message, ''::text AS next_step, ''::text AS recommended_action,
    false AS waiting_outside, false AS workflow_gone
FROM billing_control b WHERE b.clock_disagrees_since IS NOT NULL
UNION ALL
SELECT 'enforcement_stopped', 'enforcement_stopped:', b.enforcement_stopped_at, '', '', '', '', '', '', '', '', '', '', b.enforcement_stopped, '', '', false, false
FROM billing_control b WHERE b.enforcement_stopped_at IS NOT NULL
UNION ALL
SELECT 'account_set_aside', 'account_set_aside:' || a.billing_account_id, a.set_aside_at, '', '', '', '', '', '', '', '', '', '',
    'billing account ' || a.billing_account_id || ' is not charged: ' || a.set_aside_reason, '', '', false, false
FROM account_balances a WHERE a.set_aside_at IS NOT NULL
UNION ALL
-- Something is to be charged and no tick was finished for ten minutes, or none at all since the first price was set.
SELECT 'billing_silent', 'billing_silent:', coalesce(b.ticked_at, p.first_at), '', '', '', '', '', '', '', '', '', '',
    'no allocation was charged for ten minutes; the next tick charges the whole time', '', '', false, false
FROM billing_control b CROSS JOIN (SELECT min(created_at) AS first_at FROM prices) p
WHERE p.first_at IS NOT NULL AND coalesce(b.ticked_at, p.first_at) < now() - interval '10 minutes';
