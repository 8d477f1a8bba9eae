-- The BMC of a machine that is linked to no node.

-- +goose Up
ALTER TABLE machines ADD COLUMN bmc_id text REFERENCES bmcs (id);
ALTER TABLE machines ADD CONSTRAINT machines_bmc_or_node CHECK (bmc_id IS NULL OR node_id IS NULL);
CREATE INDEX machines_bmc ON machines (bmc_id) WHERE bmc_id IS NOT NULL;
