-- +goose Up
-- The worst health of every part behind a BMC, as the reconciler read it last, and the parts that are not well.
ALTER TABLE drift_bmcs
    ADD COLUMN health text NOT NULL DEFAULT '' CHECK (health IN ('', 'OK', 'Warning', 'Critical', 'Unknown')),
    ADD COLUMN health_problems text[] NOT NULL DEFAULT '{}',
    ADD COLUMN health_at timestamptz;

-- +goose Down
ALTER TABLE drift_bmcs DROP COLUMN health, DROP COLUMN health_problems, DROP COLUMN health_at;
