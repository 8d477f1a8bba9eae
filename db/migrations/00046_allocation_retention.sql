-- What a customer wrote in an allocation is deleted some time after its end.

-- +goose Up
-- The row itself stays: usage, the ledger, certificates and the history of the node refer to it. What the customer wrote in it, and his keys, are gone.
ALTER TABLE allocations ADD COLUMN pruned_at timestamptz CHECK (pruned_at IS NULL OR released_at IS NOT NULL);
CREATE INDEX allocations_to_prune ON allocations (released_at) WHERE released_at IS NOT NULL AND pruned_at IS NULL;

-- +goose Down
DROP INDEX allocations_to_prune;
ALTER TABLE allocations DROP COLUMN pruned_at;
