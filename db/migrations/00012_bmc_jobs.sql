-- Jobs about a BMC: one at a time for a BMC, also for one that no node has.

-- +goose Up
ALTER TABLE jobs ADD COLUMN bmc_id text REFERENCES bmcs (id);
-- The same states as lifecycle.JobStatus.Live.
CREATE UNIQUE INDEX jobs_one_live_per_bmc ON jobs (bmc_id)
    WHERE bmc_id IS NOT NULL AND status IN ('pending', 'running', 'failed_retryable', 'failed_manual_intervention', 'compensating');
CREATE INDEX jobs_by_bmc ON jobs (bmc_id, id) WHERE bmc_id IS NOT NULL;

-- +goose Down
ALTER TABLE jobs DROP COLUMN bmc_id;
