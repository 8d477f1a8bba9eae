-- The troubles of nodes that boot from the network, in the columns of the view attention.
CREATE OR REPLACE VIEW pxe_attention AS
SELECT 'install_failed'::text AS kind, ('install_failed:' || n.id)::text AS id, n.state_changed_at::timestamptz AS since, n.site_id::text AS site_id,
    n.id::text AS node_id, n.hostname::text AS hostname, ''::text AS bmc_id, ''::text AS job_id, ''::text AS job_kind, ''::text AS workflow_id,
    n.status::text AS status, ''::text AS stage, ''::text AS failure_class, n.last_install_error::text AS message, ''::text AS next_step,
    ''::text AS recommended_action, false AS waiting_outside, false AS workflow_gone
FROM nodes n WHERE n.status = 'install_failed'
UNION ALL
-- The list of discovered nodes is nearly at its end (db.MaxDiscovered): soon no new machine is registered.
SELECT 'discovery_full', 'discovery_full:', d.since, '', '', '', '', '', '', '', '', '', '', d.nodes || ' nodes await approval', '', '', false, false
FROM (SELECT count(*) AS nodes, max(created_at) AS since FROM nodes WHERE status = 'discovered') d WHERE d.nodes >= 900
UNION ALL
-- Nodes whose erasure or migration nobody works on: the job was cancelled, and no state leads back.
SELECT 'node_stuck', 'node_stuck:' || n.id, n.state_changed_at, n.site_id, n.id, n.hostname, '', '', '', '', n.status, '', '',
    CASE n.status WHEN 'deprovisioning' THEN 'no job erases the node' ELSE 'no job replaces the hardware of the node' END,
    CASE n.status WHEN 'deprovisioning' THEN 'begin again with "slipway node deprovision ' || n.hostname || '"; if it is erased already, set it retired'
        ELSE 'begin again with "slipway node migrate ' || n.hostname || '"; if its hardware is in place already, set it active' END,
    '', false, false
FROM nodes n
WHERE n.status IN ('deprovisioning', 'migrating') AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.node_id = n.id
    AND j.status IN ('pending', 'running', 'failed_retryable', 'failed_manual_intervention', 'compensating'))
UNION ALL
-- What a job boots has failed and was not begun again: the job waits for it until its deadline.
SELECT 'install_failed', 'install_failed:' || n.id, p.seen_at, n.site_id, n.id, n.hostname, '', p.netboot_job_id, '', '', n.status, '', '',
    n.last_install_error, '', '', false, false
FROM nodes n JOIN pxe_nodes p ON p.node_id = n.id
WHERE n.status IN ('deprovisioning', 'migrating') AND p.netboot_purpose <> '' AND n.last_install_error <> '' AND p.started_at IS NULL
UNION ALL
-- A migration that waits for somebody to name the new hardware.
SELECT 'hardware_wanted', 'hardware_wanted:' || n.id, j.updated_at, n.site_id, n.id, n.hostname, '', j.id, j.kind, '', n.status, j.stage, '',
    'the migration waits for the new hardware to be named', '', '', false, false
FROM nodes n JOIN pxe_nodes p ON p.node_id = n.id JOIN jobs j ON j.node_id = n.id AND j.status = 'running' AND j.stage = 'replace_hardware'
WHERE n.status = 'migrating' AND p.planned_hardware IS NULL;
