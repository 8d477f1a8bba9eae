-- A part of the ledger is a chain: ACCOUNT/CODE/ANCHOR, where the anchor is the number of the entry
-- before its first, with leading zeros.
CREATE OR REPLACE VIEW audit_chains AS
SELECT resource_kind, resource_id FROM audit_heads
UNION ALL
SELECT 'ledger'::text, a.billing_account_id || '/' || a.code || '/' || lpad(p.seq::text, 15, '0')
FROM ledger_accounts a CROSS JOIN LATERAL (SELECT 0 AS seq UNION ALL SELECT n.seq FROM ledger_anchors n WHERE n.ledger_account_id = a.id) p;
