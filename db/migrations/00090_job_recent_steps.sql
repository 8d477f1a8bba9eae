-- The last steps of a job's run, each as NUMBER:FINGERPRINT. A workflow task that is lost after it stored several steps runs again, and stores them
-- again: by this it is told that they are stored.

-- +goose Up
ALTER TABLE jobs ADD COLUMN recent_steps text[] NOT NULL DEFAULT '{}';

-- +goose Down
ALTER TABLE jobs DROP COLUMN recent_steps;
