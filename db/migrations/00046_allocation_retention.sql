-- What a customer wrote in an allocation is deleted some time after its end.

-- +goose Up
-- The row itself stays: usage, the ledger, certificates and the history of the node refer to it. What the customer wrote in it, and his keys, are gone.
ALTER TABLE allocations ADD COLUMN pruned_at timestamptz CHECK (pruned_at IS NULL OR released_at IS NOT NULL);
CREATE INDEX allocations_to_prune ON allocations (released_at) WHERE released_at IS NOT NULL AND pruned_at IS NULL;

-- What an account starts and gives back is counted under its lock with each request: never by all that it ever had.
CREATE INDEX allocations_by_request ON allocations (project_id, requested_at);
CREATE INDEX allocations_releasing ON allocations (project_id) WHERE status IN ('releasing', 'release_failed');

-- +goose Down
DROP INDEX allocations_releasing;
DROP INDEX allocations_by_request;
DROP INDEX allocations_to_prune;
ALTER TABLE allocations DROP COLUMN pruned_at;
