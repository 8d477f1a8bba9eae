-- A serial number or UUID that identifies nothing is stored no more. What is stored already is blanked as lifecycle/spec/identity.go does it; a test compares
-- the two. A node that has a key in common with another record is given to nobody until an operator decides: it is one machine with two records, or two
-- machines with one key.

-- +goose Up
UPDATE nodes n SET serial = '' FROM (SELECT id, regexp_replace(lower(serial), '[^a-z0-9]', '', 'g') AS bare FROM nodes WHERE serial <> '') s
WHERE n.id = s.id AND (s.bare IN ('',
        'na', 'notavailable', 'nil', 'empty', 'blank', 'invalid', 'undefined', 'unspecified', 'default', 'notset', 'notsettable',
        'notpresent', 'notprovided', 'tbd', 'tobefilled', 'tobefilledbyoem', 'tobefilledbyoemserialnumber', 'filledbyoem', 'serial',
        'serialnumber', 'noserialnumber', 'systemserialnumber', 'productserialnumber', 'baseboardserialnumber', 'boardserialnumber',
        'mbserialnumber', 'chassisserialnumber', 'none', 'unknown', 'notspecified', 'notapplicable', 'null', 'oem', 'defaultstring',
        '01234567890123456789')
    OR s.bare ~ '^(.)\1*$'
    OR s.bare ~ '^[0-9]{5,}$' AND strpos(repeat('0123456789', length(s.bare) / 10 + 2), s.bare) > 0);
UPDATE nodes SET hardware_uuid = CASE
    WHEN lower(btrim(hardware_uuid)) !~ '^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$'
        OR replace(lower(btrim(hardware_uuid)), '-', '') ~ '^(..)\1*$'
        OR lower(btrim(hardware_uuid)) LIKE '%-ffff-ffff-ffff-ffffffffffff'
        OR lower(btrim(hardware_uuid)) IN (
        '03000200-0400-0500-0006-000700080009', '00020003-0004-0005-0006-000700080009',
        '12345678-1234-5678-90ab-cddeefaabbcc', '78563412-3412-7856-90ab-cddeefaabbcc',
        '07090201-0103-0301-0807-060504030201', '01020907-0301-0103-0807-060504030201',
        '11111111-2222-3333-4444-555555555555', '11111111-2222-3333-4444-555555555555',
        '4c4c4544-0000-2010-8020-80c04f202020', '44454c4c-0000-1020-8020-80c04f202020',
        '890e2d14-cacd-45d1-ae66-bc80e8bfeb0f', '142d0e89-cdca-d145-ae66-bc80e8bfeb0f',
        '8e275844-178f-44a8-aceb-a7d7e5178c63', '4458278e-8f17-a844-aceb-a7d7e5178c63',
        'dc698397-fa54-4cf2-82c8-b1b5307a6a7f', '978369dc-54fa-f24c-82c8-b1b5307a6a7f') THEN ''
    ELSE lower(btrim(hardware_uuid)) END
WHERE hardware_uuid <> '';
CREATE OR REPLACE VIEW claimable_nodes WITH (security_invoker = true) AS
SELECT n.id, n.sku_id, n.site_id FROM nodes n JOIN heartbeats h ON h.node_id = n.id
WHERE n.lifecycle = 'maas' AND n.status = 'active' AND n.allocation_id IS NULL AND n.tenant_left_at IS NULL
  AND h.report IS NOT NULL AND h.report_boot_id = h.boot_id AND h.unhealthy = '{}' AND h.received_at > now() - interval '5 minutes'
  AND coalesce(h.allocation, '') = ''
  AND NOT EXISTS (SELECT FROM jobs j WHERE j.node_id = n.id
      AND j.status IN ('pending', 'running', 'failed_retryable', 'failed_manual_intervention', 'compensating'))
  AND NOT EXISTS (SELECT FROM allocations a WHERE a.node_id = n.id AND a.node_released_at IS NULL)
  AND coalesce((SELECT max(r.id) FROM restores r), 0) <= coalesce((SELECT g.restore_id FROM node_agreements g WHERE g.node_id = n.id), 0)
  -- An operator who ignores the finding lets the node be claimed.
  AND NOT EXISTS (SELECT FROM drift_findings f WHERE f.site_id = n.site_id AND f.detector IN ('network_open', 'identity_conflict') AND f.subject = n.id AND f.status = 'open')
  AND NOT EXISTS (SELECT FROM machines m JOIN machine_clusters c ON c.machine_id = m.id WHERE m.node_id = n.id AND c.joined_at IS NOT NULL
      AND NOT EXISTS (SELECT FROM certificates e WHERE e.node_id = n.id AND e.verdict = 'clean' AND e.issued_at > c.joined_at));

-- +goose Down
CREATE OR REPLACE VIEW claimable_nodes WITH (security_invoker = true) AS
SELECT n.id, n.sku_id, n.site_id FROM nodes n JOIN heartbeats h ON h.node_id = n.id
WHERE n.lifecycle = 'maas' AND n.status = 'active' AND n.allocation_id IS NULL AND n.tenant_left_at IS NULL
  AND h.report IS NOT NULL AND h.report_boot_id = h.boot_id AND h.unhealthy = '{}' AND h.received_at > now() - interval '5 minutes'
  AND coalesce(h.allocation, '') = ''
  AND NOT EXISTS (SELECT FROM jobs j WHERE j.node_id = n.id
      AND j.status IN ('pending', 'running', 'failed_retryable', 'failed_manual_intervention', 'compensating'))
  AND NOT EXISTS (SELECT FROM allocations a WHERE a.node_id = n.id AND a.node_released_at IS NULL)
  AND coalesce((SELECT max(r.id) FROM restores r), 0) <= coalesce((SELECT g.restore_id FROM node_agreements g WHERE g.node_id = n.id), 0)
  -- An operator who ignores the finding lets the node be claimed.
  AND NOT EXISTS (SELECT FROM drift_findings f WHERE f.site_id = n.site_id AND f.detector = 'network_open' AND f.subject = n.id AND f.status = 'open')
  AND NOT EXISTS (SELECT FROM machines m JOIN machine_clusters c ON c.machine_id = m.id WHERE m.node_id = n.id AND c.joined_at IS NOT NULL
      AND NOT EXISTS (SELECT FROM certificates e WHERE e.node_id = n.id AND e.verdict = 'clean' AND e.issued_at > c.joined_at));
