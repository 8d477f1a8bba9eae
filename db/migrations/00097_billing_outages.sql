-- Forced releases that stopped after a plain outage resume by themselves. Each tick stores what the next one compares: the clock of the worker's
-- host (its boot, the time since that boot, and its time), and the epoch of the database, which is another one after a restore.

-- +goose Up
ALTER TABLE billing_control
    ADD COLUMN resumes_itself boolean NOT NULL DEFAULT false, -- what stopped the releases was a plain outage
    ADD COLUMN agreed_ticks integer NOT NULL DEFAULT 0 CHECK (agreed_ticks >= 0), -- since then
    ADD COLUMN epoch text NOT NULL DEFAULT '' CHECK (char_length(epoch) <= 100),
    ADD COLUMN worker_boot text NOT NULL DEFAULT '' CHECK (char_length(worker_boot) <= 100),
    ADD COLUMN worker_uptime_ms bigint NOT NULL DEFAULT 0,
    ADD COLUMN worker_at timestamptz;

-- +goose Down
ALTER TABLE billing_control DROP COLUMN resumes_itself, DROP COLUMN agreed_ticks, DROP COLUMN epoch, DROP COLUMN worker_boot,
    DROP COLUMN worker_uptime_ms, DROP COLUMN worker_at;
