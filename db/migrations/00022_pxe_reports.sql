-- PXE nodes: reports count once, an attempt that only repeats itself ends, and the identity of a system that is replaced is shut out.

-- +goose Up
ALTER TABLE pxe_nodes
    -- What the firmware said without a token while the node migrates: which machine stands where the planned one is to stand.
    ADD COLUMN firmware  jsonb NOT NULL DEFAULT '{}',
    -- Of the round that a job boots: the errors that counted, the newest failure, and how old the token is of the boot that began last.
    ADD COLUMN warned    text[] NOT NULL DEFAULT '{}',
    ADD COLUMN warned_at timestamptz,
    ADD COLUMN begun_by  timestamptz,
    -- When the attempt that runs last got further, and whether its deadline is that of one that gets no further.
    ADD COLUMN grown_at  timestamptz,
    ADD COLUMN stalled   boolean NOT NULL DEFAULT false;
-- Locked because the node installs another system, and not because a certificate of the past was shown: nobody has to look.
ALTER TABLE agent_identities ADD COLUMN replaced boolean NOT NULL DEFAULT false;
CREATE VIEW attention_raised AS
SELECT t.* FROM attention t
WHERE t.kind <> 'agent_locked' OR NOT EXISTS (SELECT 1 FROM agent_identities i WHERE i.node_id = t.node_id AND i.replaced);

-- +goose Down
DROP VIEW attention_raised;
ALTER TABLE agent_identities DROP COLUMN replaced;
ALTER TABLE pxe_nodes DROP COLUMN stalled, DROP COLUMN grown_at, DROP COLUMN begun_by, DROP COLUMN warned_at, DROP COLUMN warned, DROP COLUMN firmware;
