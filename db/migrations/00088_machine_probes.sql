-- Machines that are linked to no node are probed: whether their SSH server and their BMC answer. docs/machines.md explains it.

-- +goose Up
-- next_probe_at is when a worker probes the machine again. Who moves it on has the probe; a result counts only while it is as that worker left it.
ALTER TABLE machines ADD COLUMN next_probe_at timestamptz NOT NULL DEFAULT now();
CREATE INDEX machines_by_probe ON machines (next_probe_at) WHERE node_id IS NULL AND status <> 'RETIRED';

-- +goose Down
ALTER TABLE machines DROP COLUMN next_probe_at;
