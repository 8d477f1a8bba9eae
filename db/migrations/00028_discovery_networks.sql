-- A machine that awaits approval counts for the network that it was discovered from. The list of
-- these machines is shared fairly among the networks, and a boot token that goes there is kept.

-- +goose Up
ALTER TABLE pxe_nodes ADD COLUMN source_network text NOT NULL DEFAULT '';
UPDATE pxe_nodes SET source_network = seen_from;
