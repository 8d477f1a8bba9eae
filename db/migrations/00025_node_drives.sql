-- The drives of a node as they were recorded before a tenant could have changed them. A scrub erases no drive that is not in its node's record.

-- +goose Up
CREATE TABLE node_drives (
    node_id     text PRIMARY KEY REFERENCES nodes (id) ON DELETE CASCADE,
    drives      jsonb NOT NULL CHECK (jsonb_typeof(drives) = 'array' AND jsonb_array_length(drives) BETWEEN 1 AND 256),
    source      text NOT NULL CHECK (source IN ('maas_commissioning', 'boot_report', 'agent_report', 'accepted')),
    recorded_at timestamptz NOT NULL DEFAULT now()
);

-- +goose Down
DROP TABLE node_drives;
