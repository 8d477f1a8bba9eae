-- What an operator configures (sites, profiles, SKUs, RoCE assignments) and what is managed (nodes, their BMCs).

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
    id         text PRIMARY KEY CHECK (id LIKE 'sku\_%'),
    name       text NOT NULL CONSTRAINT skus_name_unique UNIQUE CHECK (name <> ''),
    spec       jsonb NOT NULL,
    version    bigint NOT NULL DEFAULT 1,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now()
);

-- Keyed by site and hostname, never part of a request (04-jobs): the record may exist before the node does.
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

CREATE TABLE nodes (
    id                 text PRIMARY KEY CHECK (id LIKE 'node\_%'),
    lifecycle          text NOT NULL,
    status             text NOT NULL,
    hostname           text NOT NULL CHECK (hostname <> ''),
    site_id            text NOT NULL REFERENCES sites (id),
    sku_id             text REFERENCES skus (id),
    profile_id         text REFERENCES profiles (id),
    serial             text NOT NULL DEFAULT '',
    hardware_uuid      text NOT NULL DEFAULT '',
    macs               text[] NOT NULL DEFAULT '{}',
    maas_system_id     text CHECK (maas_system_id <> ''),
    maas_create_intent text NOT NULL DEFAULT '', -- the job that is about to create the MAAS record: what it finds afterwards is its own
    ssh_host_key       text NOT NULL DEFAULT '',
    ssh_address        text NOT NULL DEFAULT '',
    ip_addresses       text[] NOT NULL DEFAULT '{}',
    simulated          boolean NOT NULL DEFAULT false,
    labels             jsonb NOT NULL DEFAULT '{}',
    allocation_id      text,
    install_attempts   integer NOT NULL DEFAULT 0,
    last_install_error text NOT NULL DEFAULT '',
    state_changed_at   timestamptz NOT NULL DEFAULT now(),
    version            bigint NOT NULL DEFAULT 1,
    created_at         timestamptz NOT NULL DEFAULT now(),
    updated_at         timestamptz NOT NULL DEFAULT now()
);
CREATE UNIQUE INDEX nodes_live_hostname_unique ON nodes (site_id, hostname) WHERE status <> 'deleted';
CREATE UNIQUE INDEX nodes_live_maas_unique ON nodes (site_id, maas_system_id) WHERE status <> 'deleted' AND maas_system_id IS NOT NULL;
CREATE INDEX nodes_by_status ON nodes (status, id);
CREATE INDEX nodes_by_site ON nodes (site_id, id);

CREATE TABLE bmcs (
    id                  text PRIMARY KEY CHECK (id LIKE 'bmc\_%'),
    node_id             text CONSTRAINT bmcs_node_unique UNIQUE REFERENCES nodes (id),
    address             text NOT NULL CHECK (address <> ''),
    protocol            text NOT NULL CHECK (protocol IN ('redfish', 'ipmi')),
    credential_ref      text NOT NULL CHECK (credential_ref <> ''),
    pin_sha256          text NOT NULL DEFAULT '',
    pin_pending         text NOT NULL DEFAULT '', -- seen on the wire, waits for approval
    vendor              text NOT NULL DEFAULT '',
    system_id           text NOT NULL DEFAULT '',
    auth_blocked_at     timestamptz,
    auth_blocked_reason text NOT NULL DEFAULT '',
    version             bigint NOT NULL DEFAULT 1,
    created_at          timestamptz NOT NULL DEFAULT now(),
    updated_at          timestamptz NOT NULL DEFAULT now(),
    CHECK ((auth_blocked_at IS NULL) = (auth_blocked_reason = ''))
);
CREATE INDEX bmcs_by_address ON bmcs (address);

-- +goose Down
DROP TABLE bmcs, nodes, roce_assignments, skus, profiles, sites;
