-- Every edge of every lifecycle, as package lifecycle lists them (AllEdges). The guards of 00006 refuse any status change that is not here;
-- a test compares this table with the code.

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
    ('node', 'maas', 'create', '', 'bootstrap_issued'),
    ('node', 'maas', 'start_enrolling', 'bootstrap_issued', 'enrolling'),
    ('node', 'maas', 'activate', 'enrolling', 'active'),
    ('node', 'maas', 'block_onboarding', 'enrolling', 'quarantined'),
    ('node', 'maas', 'go_offline', 'active', 'offline'),
    ('node', 'maas', 'come_back', 'offline', 'active'),
    ('node', 'maas', 'quarantine', 'active', 'quarantined'),
    ('node', 'maas', 'quarantine', 'offline', 'quarantined'),
    ('node', 'maas', 'unquarantine', 'quarantined', 'active'),
    ('node', 'maas', 'drain', 'active', 'draining'),
    ('node', 'maas', 'drain', 'offline', 'draining'),
    ('node', 'maas', 'drain', 'quarantined', 'draining'),
    ('node', 'maas', 'retire', 'draining', 'retired'),
    ('node', 'maas', 'drain_fallback', 'draining', 'offline'),
    ('node', 'maas', 'reactivate', 'retired', 'offline'),
    ('node', 'maas', 'remove', 'retired', 'removing'),
    ('node', 'maas', 'remove_rollback', 'removing', 'retired'),
    ('node', 'maas', 'delete', 'removing', 'deleted'),
    ('job', '', 'create', '', 'pending'),
    ('job', '', 'start', 'pending', 'running'),
    ('job', '', 'continue', 'failed_retryable', 'running'),
    ('job', '', 'continue', 'failed_manual_intervention', 'running'),
    ('job', '', 'continue', 'compensating', 'running'),
    ('job', '', 'complete', 'running', 'completed'),
    ('job', '', 'reconcile', 'running', 'reconciled'),
    ('job', '', 'park', 'pending', 'failed_retryable'),
    ('job', '', 'park', 'running', 'failed_retryable'),
    ('job', '', 'park', 'compensating', 'failed_retryable'),
    ('job', '', 'park_manual', 'pending', 'failed_manual_intervention'),
    ('job', '', 'park_manual', 'running', 'failed_manual_intervention'),
    ('job', '', 'park_manual', 'failed_retryable', 'failed_manual_intervention'),
    ('job', '', 'park_manual', 'compensating', 'failed_manual_intervention'),
    ('job', '', 'compensate', 'pending', 'compensating'),
    ('job', '', 'compensate', 'running', 'compensating'),
    ('job', '', 'compensate', 'failed_retryable', 'compensating'),
    ('job', '', 'compensate', 'failed_manual_intervention', 'compensating'),
    ('job', '', 'cancel', 'compensating', 'cancelled'),
    ('job', '', 'cancel', 'pending', 'cancelled');

-- +goose Down
DROP TABLE lifecycle_edges;
