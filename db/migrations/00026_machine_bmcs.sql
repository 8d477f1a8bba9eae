-- The BMC of a machine that is linked to no node.

-- +goose Up
ALTER TABLE machines ADD COLUMN bmc_id text CONSTRAINT machines_bmc_unique UNIQUE REFERENCES bmcs (id);
ALTER TABLE machines ADD CONSTRAINT machines_bmc_or_node CHECK (bmc_id IS NULL OR node_id IS NULL);
