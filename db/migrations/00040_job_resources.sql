-- A job can be about a resource that is no node, and an operator can keep nodes of a SKU back from claims.

-- +goose Up
-- A job of a resource that touches a node sets node_id too, so that jobs_one_live_per_node stays the lock of a node.
ALTER TABLE jobs ADD COLUMN resource_kind text NOT NULL DEFAULT '', ADD COLUMN resource_id text NOT NULL DEFAULT '',
    ADD CHECK ((resource_kind = '') = (resource_id = ''));
-- The same states as lifecycle.JobStatus.Live.
CREATE UNIQUE INDEX jobs_one_live_per_resource ON jobs (resource_kind, resource_id)
    WHERE resource_kind <> '' AND status IN ('pending', 'running', 'failed_retryable', 'failed_manual_intervention', 'compensating');
CREATE INDEX jobs_by_resource ON jobs (resource_kind, resource_id, id) WHERE resource_kind <> '';

-- A tenant is root on the node unless this is false.
ALTER TABLE skus ADD COLUMN tenant_root boolean NOT NULL DEFAULT true;

-- How many claimable nodes of a SKU stay free at a site, for repairs.
CREATE TABLE sku_reserves (
    sku_id     text NOT NULL REFERENCES skus (id) ON DELETE CASCADE,
    site_id    text NOT NULL REFERENCES sites (id),
    nodes      integer NOT NULL CHECK (nodes BETWEEN 1 AND 10000),
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (sku_id, site_id)
);

-- +goose Down
DROP TABLE sku_reserves;
ALTER TABLE skus DROP COLUMN tenant_root;
DROP INDEX jobs_by_resource, jobs_one_live_per_resource;
ALTER TABLE jobs DROP COLUMN resource_kind, DROP COLUMN resource_id;
