-- What BMCs and agents report about the parts of machines: their health, an inventory, and the
-- entries of the logs of BMCs. Switch trays and power shelves of a rack are BMCs with health and
-- firmware that nobody can claim.

-- +goose Up
-- One row for each BMC: the last reading of its parts. Probes and parts are bounded documents, so
-- that a BMC that lies fills one row.
CREATE TABLE bmc_surveys (
    bmc_id    text PRIMARY KEY REFERENCES bmcs (id) ON DELETE CASCADE,
    read_at   timestamptz NOT NULL,
    health    text NOT NULL CHECK (health IN ('OK', 'Warning', 'Critical', 'Unknown')),
    probes    jsonb NOT NULL DEFAULT '[]' CHECK (jsonb_typeof(probes) = 'array' AND jsonb_array_length(probes) <= 512),
    left_out  integer NOT NULL DEFAULT 0,
    inventory jsonb NOT NULL DEFAULT '{}' CHECK (octet_length(inventory::text) <= 8388608),
    digest    text NOT NULL DEFAULT '', -- of the parts, "" before any was read
    modes     text[] NOT NULL DEFAULT '{}', -- of DPUs, as id=mode
    partial   text[] NOT NULL DEFAULT '{}' CHECK (cardinality(partial) <= 64)
);

-- One row for each node: the parts that its agent reports.
CREATE TABLE agent_inventories (
    node_id   text PRIMARY KEY REFERENCES nodes (id) ON DELETE CASCADE,
    read_at   timestamptz NOT NULL,
    inventory jsonb NOT NULL CHECK (octet_length(inventory::text) <= 8388608),
    digest    text NOT NULL DEFAULT ''
);

-- Entries of BMCs' logs. A log that was cleared gives the ids of its entries again; the digest
-- tells them apart.
CREATE TABLE bmc_log_entries (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    bmc_id      text NOT NULL REFERENCES bmcs (id) ON DELETE CASCADE,
    service     text NOT NULL CHECK (octet_length(service) <= 200),
    entry_id    text NOT NULL CHECK (octet_length(entry_id) <= 200),
    digest      text NOT NULL CHECK (octet_length(digest) = 32),
    severity    text NOT NULL CHECK (severity IN ('OK', 'Warning', 'Critical', 'Unknown')),
    message_id  text NOT NULL CHECK (octet_length(message_id) <= 200),
    message     text NOT NULL CHECK (octet_length(message) <= 1024),
    at          timestamptz NOT NULL, -- by the BMC's clock where that can be right
    recorded_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT bmc_log_entries_once UNIQUE (bmc_id, digest)
);
CREATE INDEX bmc_log_entries_by_bmc ON bmc_log_entries (bmc_id, id);
CREATE INDEX bmc_log_entries_by_age ON bmc_log_entries (recorded_at);

-- How the last reading of a BMC's logs went. Of a severity that was full, entries made until the
-- floor are not copied again.
CREATE TABLE bmc_log_reads (
    bmc_id  text PRIMARY KEY REFERENCES bmcs (id) ON DELETE CASCADE,
    read_at timestamptz NOT NULL,
    partial text[] NOT NULL DEFAULT '{}' CHECK (cardinality(partial) <= 64),
    dropped bigint NOT NULL DEFAULT 0,
    -- where a log is read on, by its service the first 8 bytes of the digests of entries that gave
    -- way last
    gone    bytea NOT NULL DEFAULT '' CHECK (octet_length(gone) <= 65536),
    cursors jsonb NOT NULL DEFAULT '{}' CHECK (octet_length(cursors::text) <= 4096)
);

-- Who named the serial number of a node: a certificate says so. It is of the serial number beside
-- it and of no other.
CREATE TABLE node_serial_sources (
    node_id text PRIMARY KEY REFERENCES nodes (id) ON DELETE CASCADE,
    serial  text NOT NULL,
    source  text NOT NULL CHECK (source <> '' AND octet_length(source) <= 200)
);

CREATE TABLE rack_devices (
    id         text PRIMARY KEY CHECK (id LIKE 'rackdev\_%'),
    site_id    text NOT NULL REFERENCES sites (id),
    kind       text NOT NULL CHECK (kind IN ('switch_tray', 'power_shelf')),
    name       text NOT NULL CHECK (name <> '' AND octet_length(name) <= 200),
    rack       text NOT NULL DEFAULT '' CHECK (octet_length(rack) <= 200),
    bmc_id     text NOT NULL CONSTRAINT rack_devices_bmc_unique UNIQUE REFERENCES bmcs (id) ON DELETE CASCADE,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT rack_devices_name_unique UNIQUE (site_id, name)
);
CREATE TRIGGER rack_device_has_no_node BEFORE INSERT OR UPDATE ON rack_devices FOR EACH ROW EXECUTE FUNCTION rack_device_has_no_node();
