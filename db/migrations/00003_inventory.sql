-- The inventory that operators configure: sites, profiles, SKUs with their reserves, RoCE
-- assignments, and sealed secrets with what each may be used for.

-- +goose Up
CREATE TABLE sites (
    id         text PRIMARY KEY CHECK (id LIKE 'site\_%'),
    name       text NOT NULL CONSTRAINT sites_name_unique UNIQUE CHECK (name <> ''),
    spec       jsonb NOT NULL,
    version    bigint NOT NULL DEFAULT 1,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE profiles (
    id         text PRIMARY KEY CHECK (id LIKE 'prof\_%'),
    site_id    text NOT NULL REFERENCES sites (id),
    name       text NOT NULL CHECK (name <> ''),
    spec       jsonb NOT NULL,
    version    bigint NOT NULL DEFAULT 1,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT profiles_name_unique UNIQUE (site_id, name)
);

CREATE TABLE skus (
    id          text PRIMARY KEY CHECK (id LIKE 'sku\_%'),
    name        text NOT NULL CONSTRAINT skus_name_unique UNIQUE CHECK (name <> ''),
    spec        jsonb NOT NULL,
    version     bigint NOT NULL DEFAULT 1,
    created_at  timestamptz NOT NULL DEFAULT now(),
    updated_at  timestamptz NOT NULL DEFAULT now(),
    tenant_root boolean NOT NULL DEFAULT true -- A tenant is root on the node unless this is false.
);

-- How many claimable nodes of a SKU stay free at a site, for repairs.
CREATE TABLE sku_reserves (
    sku_id     text NOT NULL REFERENCES skus (id) ON DELETE CASCADE,
    site_id    text NOT NULL REFERENCES sites (id),
    nodes      integer NOT NULL CHECK (nodes BETWEEN 1 AND 10000),
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (sku_id, site_id)
);

-- Keyed by site and hostname, never part of a request: the record may exist before the
-- node does.
CREATE TABLE roce_assignments (
    id         text PRIMARY KEY CHECK (id LIKE 'roce\_%'),
    site_id    text NOT NULL REFERENCES sites (id),
    hostname   text NOT NULL CHECK (hostname <> ''),
    spec       jsonb NOT NULL,
    version    bigint NOT NULL DEFAULT 1,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT roce_assignments_host_unique UNIQUE (site_id, hostname)
);

CREATE TABLE secret_versions (
    name        text NOT NULL CHECK (name <> ''),
    version     integer NOT NULL CHECK (version > 0),
    keeper_url  text NOT NULL,
    ciphertext  bytea NOT NULL,
    fingerprint bytea NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (name, version)
);

CREATE TABLE secret_uses (
    name       text PRIMARY KEY CHECK (name <> ''),
    use        jsonb NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT now()
);
