-- Deprovisioning and migrating a PXE node are jobs: what boots a node from the network for a job, and the hardware that is to take a node's place.

-- +goose Up
ALTER TABLE pxe_nodes
    ADD COLUMN erase_workflow_id   text REFERENCES install_workflows (id),
    -- While a job has armed a netboot, the boot script gives this workflow, whatever the state of the node.
    ADD COLUMN netboot_workflow_id text REFERENCES install_workflows (id),
    ADD COLUMN netboot_purpose     text NOT NULL DEFAULT '' CHECK (netboot_purpose IN ('', 'install', 'erase')),
    ADD COLUMN netboot_job_id      text,
    ADD COLUMN netboot_done_at     timestamptz, -- the installer said that it is complete
    ADD COLUMN planned_hardware    jsonb,
    ADD CONSTRAINT pxe_nodes_netboot CHECK ((netboot_purpose <> '') = (netboot_workflow_id IS NOT NULL) AND (netboot_purpose <> '') = (netboot_job_id IS NOT NULL)
        AND (netboot_purpose <> '' OR netboot_done_at IS NULL));
CREATE INDEX pxe_nodes_by_erase_workflow ON pxe_nodes (erase_workflow_id) WHERE erase_workflow_id IS NOT NULL;
CREATE INDEX pxe_nodes_by_netboot_workflow ON pxe_nodes (netboot_workflow_id) WHERE netboot_workflow_id IS NOT NULL;
ALTER TABLE device_groups ADD COLUMN erase_workflow_id text REFERENCES install_workflows (id);

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
WHERE n.status = 'migrating' AND p.planned_hardware IS NULL
UNION ALL
-- No state of a PXE node says that its agent went silent, as offline does for one of MAAS.
SELECT 'agent_silent', 'agent_silent:' || n.id, h.received_at, n.site_id, n.id, n.hostname, '', '', '', '', n.status, '', '',
    'the node is in service and its agent was last heard ' || to_char(h.received_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
    '', '', false, false
FROM nodes n JOIN heartbeats h ON h.node_id = n.id JOIN agent_identities i ON i.node_id = n.id AND i.locked_at IS NULL
WHERE n.lifecycle = 'pxe' AND n.status = 'active' AND h.received_at < now() - interval '10 minutes';

-- +goose Down
CREATE OR REPLACE VIEW pxe_attention AS
SELECT 'install_failed'::text AS kind, ('install_failed:' || n.id)::text AS id, n.state_changed_at::timestamptz AS since, n.site_id::text AS site_id,
    n.id::text AS node_id, n.hostname::text AS hostname, ''::text AS bmc_id, ''::text AS job_id, ''::text AS job_kind, ''::text AS workflow_id,
    n.status::text AS status, ''::text AS stage, ''::text AS failure_class, n.last_install_error::text AS message, ''::text AS next_step,
    ''::text AS recommended_action, false AS waiting_outside, false AS workflow_gone
FROM nodes n WHERE n.status = 'install_failed'
UNION ALL
SELECT 'discovery_full', 'discovery_full:', d.since, '', '', '', '', '', '', '', '', '', '', d.nodes || ' nodes await approval', '', '', false, false
FROM (SELECT count(*) AS nodes, max(created_at) AS since FROM nodes WHERE status = 'discovered') d WHERE d.nodes >= 900;
ALTER TABLE device_groups DROP COLUMN erase_workflow_id;
ALTER TABLE pxe_nodes DROP COLUMN planned_hardware, DROP COLUMN netboot_done_at, DROP COLUMN netboot_job_id, DROP COLUMN netboot_purpose,
    DROP COLUMN netboot_workflow_id, DROP COLUMN erase_workflow_id;
