-- The nodes that a request may claim: in service, with a healthy report of this boot and of late,
-- occupied by nobody, not to be sanitized, without a live job, and not the hardware of a machine of a
-- project.
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
      AND NOT EXISTS (SELECT FROM certificates e WHERE e.node_id = n.id AND e.verdict = 'clean' AND coalesce(e.sanitized_since, e.issued_at) > c.joined_at))
  AND NOT EXISTS (SELECT FROM holders_of_node(n.id, n.site_id, n.serial, n.macs, n.ssh_host_key, n.ssh_address));
