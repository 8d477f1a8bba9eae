-- Every edge of every lifecycle, as package lifecycle lists them (AllEdges). The guards refuse a
-- change of status that is not listed here; a test compares this table with the code.

-- +goose Up
CREATE TABLE lifecycle_edges (
    resource   text NOT NULL,
    lifecycle  text NOT NULL,
    name       text NOT NULL,
    from_state text NOT NULL, -- '' for creation
    to_state   text NOT NULL,
    PRIMARY KEY (resource, lifecycle, from_state, to_state)
);
INSERT INTO lifecycle_edges (resource, lifecycle, name, from_state, to_state) VALUES
    ('node', 'maas', 'create', '', 'bootstrap_issued'), ('node', 'maas', 'start_enrolling', 'bootstrap_issued', 'enrolling'),
    ('node', 'maas', 'activate', 'enrolling', 'active'), ('node', 'maas', 'block_onboarding', 'enrolling', 'quarantined'),
    ('node', 'maas', 'go_offline', 'active', 'offline'), ('node', 'maas', 'come_back', 'offline', 'active'),
    ('node', 'maas', 'quarantine', 'active', 'quarantined'), ('node', 'maas', 'quarantine', 'offline', 'quarantined'),
    ('node', 'maas', 'unquarantine', 'quarantined', 'active'), ('node', 'maas', 'drain', 'active', 'draining'),
    ('node', 'maas', 'drain', 'offline', 'draining'), ('node', 'maas', 'drain', 'quarantined', 'draining'),
    ('node', 'maas', 'retire', 'draining', 'retired'), ('node', 'maas', 'drain_fallback', 'draining', 'offline'),
    ('node', 'maas', 'reactivate', 'retired', 'offline'), ('node', 'maas', 'remove', 'retired', 'removing'),
    ('node', 'maas', 'remove_rollback', 'removing', 'retired'), ('node', 'maas', 'delete', 'removing', 'deleted');
INSERT INTO lifecycle_edges (resource, lifecycle, name, from_state, to_state) VALUES
    ('job', '', 'create', '', 'pending'), ('job', '', 'start', 'pending', 'running'), ('job', '', 'continue', 'failed_retryable', 'running'),
    ('job', '', 'continue', 'failed_manual_intervention', 'running'), ('job', '', 'continue', 'compensating', 'running'),
    ('job', '', 'complete', 'running', 'completed'), ('job', '', 'reconcile', 'running', 'reconciled'),
    ('job', '', 'park', 'pending', 'failed_retryable'), ('job', '', 'park', 'running', 'failed_retryable'),
    ('job', '', 'park', 'compensating', 'failed_retryable'), ('job', '', 'park_manual', 'pending', 'failed_manual_intervention'),
    ('job', '', 'park_manual', 'running', 'failed_manual_intervention'),
    ('job', '', 'park_manual', 'failed_retryable', 'failed_manual_intervention'),
    ('job', '', 'park_manual', 'compensating', 'failed_manual_intervention'), ('job', '', 'compensate', 'pending', 'compensating'),
    ('job', '', 'compensate', 'running', 'compensating'), ('job', '', 'compensate', 'failed_retryable', 'compensating'),
    ('job', '', 'compensate', 'failed_manual_intervention', 'compensating'), ('job', '', 'cancel', 'compensating', 'cancelled'),
    ('job', '', 'cancel', 'pending', 'cancelled');
INSERT INTO lifecycle_edges (resource, lifecycle, name, from_state, to_state) VALUES
    ('node_task', '', 'create', '', 'queued'), ('node_task', '', 'dispatch', 'queued', 'dispatched'),
    ('node_task', '', 'requeue', 'dispatched', 'queued'), ('node_task', '', 'requeue', 'uncertain', 'queued'),
    ('node_task', '', 'succeed', 'queued', 'succeeded'), ('node_task', '', 'succeed', 'dispatched', 'succeeded'),
    ('node_task', '', 'succeed', 'uncertain', 'succeeded'), ('node_task', '', 'fail', 'queued', 'failed'),
    ('node_task', '', 'fail', 'dispatched', 'failed'), ('node_task', '', 'fail', 'uncertain', 'failed'),
    ('node_task', '', 'doubt', 'dispatched', 'uncertain'), ('node_task', '', 'expire', 'queued', 'expired'),
    ('node_task', '', 'expire', 'dispatched', 'expired'), ('node_task', '', 'expire', 'uncertain', 'expired');
INSERT INTO lifecycle_edges (resource, lifecycle, name, from_state, to_state) VALUES
    ('node', 'pxe', 'create', '', 'discovered'), ('node', 'pxe', 'approve', 'discovered', 'pending'),
    ('node', 'pxe', 'start_install', 'pending', 'installing'), ('node', 'pxe', 'complete_install', 'installing', 'installed'),
    ('node', 'pxe', 'fail_install', 'installing', 'install_failed'), ('node', 'pxe', 'reset_install', 'install_failed', 'pending'),
    ('node', 'pxe', 'verify', 'installed', 'active'), ('node', 'pxe', 'reprovision', 'active', 'reprovision'),
    ('node', 'pxe', 'requeue', 'reprovision', 'pending'), ('node', 'pxe', 'deprovision', 'active', 'deprovisioning'),
    ('node', 'pxe', 'finish_deprovisioning', 'deprovisioning', 'retired'), ('node', 'pxe', 'migrate', 'active', 'migrating'),
    ('node', 'pxe', 'finish_migration', 'migrating', 'active'), ('node', 'pxe', 'retire', 'discovered', 'retired'),
    ('node', 'pxe', 'retire', 'pending', 'retired'), ('node', 'pxe', 'retire', 'installing', 'retired'),
    ('node', 'pxe', 'retire', 'install_failed', 'retired'), ('node', 'pxe', 'retire', 'installed', 'retired'),
    ('node', 'pxe', 'retire', 'active', 'retired'), ('node', 'pxe', 'retire', 'reprovision', 'retired'),
    ('node', 'pxe', 'retire', 'migrating', 'retired');
INSERT INTO lifecycle_edges (resource, lifecycle, name, from_state, to_state) VALUES
    ('bmc_rotation', '', 'create', '', 'prepared'), ('bmc_rotation', '', 'send', 'prepared', 'applying'),
    ('bmc_rotation', '', 'accept', 'applying', 'applied'), ('bmc_rotation', '', 'refuse', 'applying', 'prepared'),
    ('bmc_rotation', '', 'refuse', 'applied', 'prepared'), ('bmc_rotation', '', 'verify', 'applied', 'verified'),
    ('bmc_rotation', '', 'commit', 'verified', 'rotated'), ('bmc_rotation', '', 'drop', 'prepared', 'undone');
INSERT INTO lifecycle_edges (resource, lifecycle, name, from_state, to_state) VALUES
    ('drift_finding', '', 'create', '', 'open'), ('drift_finding', '', 'ignore', 'open', 'ignored'),
    ('drift_finding', '', 'reopen', 'ignored', 'open'), ('drift_finding', '', 'close', 'open', 'closed'),
    ('drift_finding', '', 'close', 'ignored', 'closed');
INSERT INTO lifecycle_edges (resource, lifecycle, name, from_state, to_state) VALUES
    ('project', '', 'create', '', 'active'), ('project', '', 'close', 'active', 'closing'), ('project', '', 'finish', 'closing', 'closed');
INSERT INTO lifecycle_edges (resource, lifecycle, name, from_state, to_state) VALUES
    ('invitation', '', 'create', '', 'pending'), ('invitation', '', 'accept', 'pending', 'accepted'),
    ('invitation', '', 'revoke', 'pending', 'revoked'), ('invitation', '', 'expire', 'pending', 'expired');
INSERT INTO lifecycle_edges (resource, lifecycle, name, from_state, to_state) VALUES
    ('allocation', '', 'create', '', 'requested'), ('allocation', '', 'claim', 'requested', 'provisioning'),
    ('allocation', '', 'fail', 'requested', 'failed'), ('allocation', '', 'fail', 'provisioning', 'failed'),
    ('allocation', '', 'cancel', 'requested', 'released'), ('allocation', '', 'activate', 'provisioning', 'active'),
    ('allocation', '', 'abort', 'provisioning', 'releasing'), ('allocation', '', 'release', 'active', 'releasing'),
    ('allocation', '', 'finish', 'releasing', 'released'), ('allocation', '', 'fail_release', 'releasing', 'release_failed'),
    ('allocation', '', 'retry_release', 'release_failed', 'releasing');
INSERT INTO lifecycle_edges (resource, lifecycle, name, from_state, to_state) VALUES
    ('payment_session', '', 'create', '', 'initiated'), ('payment_session', '', 'complete', 'initiated', 'checkout_completed'),
    ('payment_session', '', 'complete', 'expired', 'checkout_completed'), ('payment_session', '', 'credit', 'checkout_completed', 'credited'),
    ('payment_session', '', 'fail', 'checkout_completed', 'failed_reconcile'), ('payment_session', '', 'resolve', 'failed_reconcile', 'credited'),
    ('payment_session', '', 'expire', 'initiated', 'expired');
INSERT INTO lifecycle_edges (resource, lifecycle, name, from_state, to_state) VALUES
    ('machine', '', 'create', '', 'FACTORY_READY'), ('machine', '', 'create', '', 'READY'),
    ('machine', '', 'start_run', 'FACTORY_READY', 'PROVISIONING'), ('machine', '', 'start_run', 'READY', 'PROVISIONING'),
    ('machine', '', 'start_run', 'IN_SERVICE', 'PROVISIONING'), ('machine', '', 'start_run', 'MAINTENANCE', 'PROVISIONING'),
    ('machine', '', 'start_run', 'RMA', 'PROVISIONING'), ('machine', '', 'fail_run', 'PROVISIONING', 'MAINTENANCE'),
    ('machine', '', 'finish_factory_ready', 'PROVISIONING', 'FACTORY_READY'), ('machine', '', 'finish_ready', 'PROVISIONING', 'READY'),
    ('machine', '', 'finish_in_service', 'PROVISIONING', 'IN_SERVICE'), ('machine', '', 'finish_rma', 'PROVISIONING', 'RMA'),
    ('machine', '', 'set_factory_ready', 'READY', 'FACTORY_READY'), ('machine', '', 'set_factory_ready', 'IN_SERVICE', 'FACTORY_READY'),
    ('machine', '', 'set_factory_ready', 'MAINTENANCE', 'FACTORY_READY'), ('machine', '', 'set_factory_ready', 'RMA', 'FACTORY_READY'),
    ('machine', '', 'set_ready', 'FACTORY_READY', 'READY'), ('machine', '', 'set_ready', 'IN_SERVICE', 'READY'),
    ('machine', '', 'set_ready', 'MAINTENANCE', 'READY'), ('machine', '', 'set_ready', 'RMA', 'READY'),
    ('machine', '', 'set_in_service', 'FACTORY_READY', 'IN_SERVICE'), ('machine', '', 'set_in_service', 'READY', 'IN_SERVICE'),
    ('machine', '', 'set_in_service', 'MAINTENANCE', 'IN_SERVICE'), ('machine', '', 'set_maintenance', 'FACTORY_READY', 'MAINTENANCE'),
    ('machine', '', 'set_maintenance', 'READY', 'MAINTENANCE'), ('machine', '', 'set_maintenance', 'IN_SERVICE', 'MAINTENANCE'),
    ('machine', '', 'set_maintenance', 'RMA', 'MAINTENANCE'), ('machine', '', 'set_rma', 'FACTORY_READY', 'RMA'),
    ('machine', '', 'set_rma', 'READY', 'RMA'), ('machine', '', 'set_rma', 'IN_SERVICE', 'RMA'), ('machine', '', 'set_rma', 'MAINTENANCE', 'RMA'),
    ('machine', '', 'retire', 'FACTORY_READY', 'RETIRED'), ('machine', '', 'retire', 'READY', 'RETIRED'),
    ('machine', '', 'retire', 'IN_SERVICE', 'RETIRED'), ('machine', '', 'retire', 'MAINTENANCE', 'RETIRED'),
    ('machine', '', 'retire', 'RMA', 'RETIRED');
INSERT INTO lifecycle_edges (resource, lifecycle, name, from_state, to_state) VALUES
    ('run', '', 'create', '', 'PENDING'), ('run', '', 'start', 'PENDING', 'RUNNING'), ('run', '', 'finish', 'RUNNING', 'SUCCEEDED'),
    ('run', '', 'fail', 'RUNNING', 'FAILED'), ('run', '', 'cancel', 'PENDING', 'CANCELED'), ('run', '', 'cancel', 'RUNNING', 'CANCELED');
INSERT INTO lifecycle_edges (resource, lifecycle, name, from_state, to_state) VALUES
    ('instance', '', 'create', '', 'provisioning'), ('instance', '', 'provisioning_to_booting', 'provisioning', 'booting'),
    ('instance', '', 'provisioning_to_provisioning_failed', 'provisioning', 'provisioning_failed'),
    ('instance', '', 'booting_to_ready', 'booting', 'ready'), ('instance', '', 'booting_to_startup_failed', 'booting', 'startup_failed'),
    ('instance', '', 'startup_failed_to_booting', 'startup_failed', 'booting'), ('instance', '', 'fail', 'booting', 'failed'),
    ('instance', '', 'fail', 'ready', 'failed'), ('instance', '', 'ready_to_draining', 'ready', 'draining'),
    ('instance', '', 'terminate', 'provisioning', 'terminating'), ('instance', '', 'terminate', 'booting', 'terminating'),
    ('instance', '', 'terminate', 'startup_failed', 'terminating'), ('instance', '', 'terminate', 'draining', 'terminating'),
    ('instance', '', 'terminate', 'provisioning_failed', 'terminating'), ('instance', '', 'terminate', 'failed', 'terminating'),
    ('instance', '', 'terminating_to_terminated', 'terminating', 'terminated'), ('instance', '', 'terminating_to_failed', 'terminating', 'failed'),
    ('instance', '', 'mark_provider_deleted', 'booting', 'terminated'), ('instance', '', 'mark_provider_deleted', 'ready', 'terminated'),
    ('instance', '', 'mark_provider_deleted', 'draining', 'terminated'), ('instance', '', 'terminated_to_archived', 'terminated', 'archived');
INSERT INTO lifecycle_edges (resource, lifecycle, name, from_state, to_state) VALUES
    ('run_campaign', '', 'create', '', 'RUNNING'), ('run_campaign', '', 'pause', 'RUNNING', 'PAUSED'),
    ('run_campaign', '', 'resume', 'PAUSED', 'RUNNING'), ('run_campaign', '', 'resume', 'STOPPED', 'RUNNING'),
    ('run_campaign', '', 'stop', 'RUNNING', 'STOPPED'), ('run_campaign', '', 'stop', 'PAUSED', 'STOPPED'),
    ('run_campaign', '', 'complete', 'RUNNING', 'COMPLETED'), ('run_campaign', '', 'complete', 'PAUSED', 'COMPLETED'),
    ('run_campaign', '', 'complete', 'STOPPED', 'COMPLETED'), ('run_campaign', '', 'cancel', 'RUNNING', 'CANCELED'),
    ('run_campaign', '', 'cancel', 'PAUSED', 'CANCELED'), ('run_campaign', '', 'cancel', 'STOPPED', 'CANCELED'),
    ('run_campaign', '', 'retry', 'COMPLETED', 'RUNNING');
INSERT INTO lifecycle_edges (resource, lifecycle, name, from_state, to_state) VALUES
    ('run_campaign_member', '', 'create', '', 'WAITING'), ('run_campaign_member', '', 'start', 'WAITING', 'RUNNING'),
    ('run_campaign_member', '', 'finish', 'RUNNING', 'SUCCEEDED'), ('run_campaign_member', '', 'fail', 'RUNNING', 'FAILED'),
    ('run_campaign_member', '', 'cancel', 'WAITING', 'CANCELED'), ('run_campaign_member', '', 'cancel', 'RUNNING', 'CANCELED'),
    ('run_campaign_member', '', 'skip', 'WAITING', 'SKIPPED'), ('run_campaign_member', '', 'retry', 'FAILED', 'WAITING'),
    ('run_campaign_member', '', 'retry', 'CANCELED', 'WAITING'), ('run_campaign_member', '', 'retry', 'SKIPPED', 'WAITING');
