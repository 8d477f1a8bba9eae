-- balance_thresholds are the thresholds of each account in minor units.
CREATE OR REPLACE VIEW balance_thresholds WITH (security_invoker = true) AS
SELECT b.id AS billing_account_id, b.currency, c.exponent, coalesce(s.low_minor, 10 * (10 ^ c.exponent)::bigint)::bigint AS low_minor,
    coalesce(s.depleted_minor, 0)::bigint AS depleted_minor, coalesce(s.rearm_minor, 12 * (10 ^ c.exponent)::bigint)::bigint AS rearm_minor
FROM billing_accounts b JOIN currencies c ON c.code = b.currency JOIN account_balances s ON s.billing_account_id = b.id;
