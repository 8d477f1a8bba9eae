-- A payment is reconciled by a job. A session that waits for an operator goes on when its job does.

-- +goose Up
INSERT INTO lifecycle_edges (resource, lifecycle, name, from_state, to_state) VALUES
    ('payment_session', '', 'retry', 'failed_reconcile', 'checkout_completed');
