-- Allocations: which project has which node. docs/allocations.md explains the rules.

-- +goose Up
-- An allocation occupies its node until node_released_at, whatever its status says. access_given_at
-- is written before the tenant's keys are sent to the node: without it, no tenant can have been
-- there. The condition is beside the status. Of a connection and an image only the public facts are
-- stored.
CREATE TABLE allocations (
    id                   text PRIMARY KEY CHECK (id LIKE 'alc\_%'),
    project_id           text NOT NULL REFERENCES projects (id),
    sku_id               text NOT NULL REFERENCES skus (id),
    site_id              text REFERENCES sites (id),
    name                 text NOT NULL DEFAULT '' CHECK (char_length(name) <= 100),
    tags                 jsonb NOT NULL DEFAULT '{}' CHECK (octet_length(tags::text) <= 65536),
    status               text NOT NULL CHECK (status IN ('requested', 'provisioning', 'active', 'releasing', 'released', 'failed', 'release_failed')),
    condition            text NOT NULL DEFAULT 'ok' CHECK (condition IN ('ok', 'stopped', 'rebooting', 'reinstalling', 'degraded', 'maintenance_required', 'node_lost')),
    condition_reason     text NOT NULL DEFAULT '' CHECK (char_length(condition_reason) <= 500),
    condition_since      timestamptz NOT NULL DEFAULT now(),
    node_id              text REFERENCES nodes (id),
    failure_code         text NOT NULL DEFAULT '',
    failure_message      text NOT NULL DEFAULT '' CHECK (char_length(failure_message) <= 4000),
    outcome              text NOT NULL DEFAULT '' CHECK (outcome IN ('', 'released', 'cancelled', 'assignment_removed')),
    access               text NOT NULL DEFAULT '' CHECK (access IN ('', 'revoked', 'unconfirmed')),
    release_attempts     integer NOT NULL DEFAULT 0 CHECK (release_attempts >= 0),
    release_reason       text NOT NULL DEFAULT '' CHECK (char_length(release_reason) <= 500),
    requested_by         text NOT NULL CHECK (requested_by <> '' AND char_length(requested_by) <= 300),
    image                jsonb CHECK (octet_length(image::text) <= 8192),
    network              jsonb CHECK (octet_length(network::text) <= 8192),
    connection           jsonb CHECK (octet_length(connection::text) <= 16384),
    certificate_id       text REFERENCES certificates (id),
    queue_deadline_at    timestamptz,
    expires_at           timestamptz,
    charge_capped_at     timestamptz,
    requested_at         timestamptz NOT NULL DEFAULT now(),
    provisioning_at      timestamptz,
    access_given_at      timestamptz,
    start_time           timestamptz,
    release_requested_at timestamptz,
    releasing_at         timestamptz,
    access_ended_at      timestamptz,
    node_released_at     timestamptz,
    released_at          timestamptz,
    version              bigint NOT NULL DEFAULT 1,
    created_at           timestamptz NOT NULL DEFAULT now(),
    updated_at           timestamptz NOT NULL DEFAULT now(),
    -- The row itself stays: usage, the ledger, certificates and the history of the node refer to
    -- it. What the customer wrote in it, and his keys, are gone.
    pruned_at            timestamptz,
    CONSTRAINT allocations_project_unique UNIQUE (project_id, id),
    CHECK (status NOT IN ('provisioning', 'active', 'releasing', 'release_failed') OR node_id IS NOT NULL AND node_released_at IS NULL),
    CHECK (status <> 'requested' OR node_id IS NULL),
    CHECK (status NOT IN ('released', 'failed') OR (node_id IS NULL) = (node_released_at IS NULL)),
    CHECK (status <> 'active' OR start_time IS NOT NULL AND access_given_at IS NOT NULL),
    CHECK (status <> 'failed' OR access_given_at IS NULL AND failure_code <> ''),
    CHECK ((status = 'released') = (outcome <> '')),
    CHECK ((status IN ('released', 'failed')) = (released_at IS NOT NULL)),
    CHECK (connection IS NULL OR status = 'active'),
    CHECK (outcome <> 'released' OR access_given_at IS NULL OR access = 'revoked'),
    CHECK (pruned_at IS NULL OR released_at IS NOT NULL)
);
CREATE UNIQUE INDEX allocations_one_occupant ON allocations (node_id) WHERE node_id IS NOT NULL AND node_released_at IS NULL;
CREATE INDEX allocations_by_node ON allocations (node_id, id) WHERE node_id IS NOT NULL;
CREATE INDEX allocations_live ON allocations (project_id, sku_id) WHERE status NOT IN ('released', 'failed');
CREATE INDEX allocations_by_status ON allocations (status, id) WHERE status NOT IN ('released', 'failed');
CREATE INDEX allocations_due ON allocations (expires_at) WHERE expires_at IS NOT NULL AND status NOT IN ('released', 'failed');
CREATE INDEX allocations_by_sku ON allocations (sku_id);
CREATE INDEX allocations_to_prune ON allocations (released_at) WHERE released_at IS NOT NULL AND pruned_at IS NULL;
-- What an account starts and gives back is counted under its lock with each request: never by all
-- that it ever had.
CREATE INDEX allocations_by_request ON allocations (project_id, requested_at);
CREATE INDEX allocations_releasing ON allocations (project_id) WHERE status IN ('releasing', 'release_failed');
CREATE TRIGGER allocations_edge_insert BEFORE INSERT ON allocations FOR EACH ROW EXECUTE FUNCTION guard_allocation();
CREATE TRIGGER allocations_edge_update BEFORE UPDATE ON allocations FOR EACH ROW EXECUTE FUNCTION guard_allocation();
CREATE CONSTRAINT TRIGGER allocations_audited_insert AFTER INSERT ON allocations DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    EXECUTE FUNCTION guard_audited('allocation');
CREATE CONSTRAINT TRIGGER allocations_audited_update AFTER UPDATE ON allocations DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (OLD.status IS DISTINCT FROM NEW.status) EXECUTE FUNCTION guard_audited('allocation');
CREATE TRIGGER allocations_no_delete BEFORE DELETE ON allocations FOR EACH ROW EXECUTE FUNCTION guard_no_delete();
CREATE TRIGGER allocations_usage_insert AFTER INSERT ON allocations FOR EACH ROW EXECUTE FUNCTION follow_allocation();
CREATE TRIGGER allocations_usage_update AFTER UPDATE ON allocations FOR EACH ROW EXECUTE FUNCTION follow_allocation();
SELECT isolate_by_project('allocations');

-- The keys as they were when the allocation was requested, written again: no options and no
-- comment.
CREATE TABLE allocation_keys (
    project_id       text NOT NULL,
    allocation_id    text NOT NULL,
    fingerprint      text NOT NULL CHECK (fingerprint LIKE 'SHA256:%'),
    public_key       text NOT NULL CHECK (public_key !~ '[\n\r]' AND octet_length(public_key) <= 8192),
    accepted_at      timestamptz,
    refused_at       timestamptz,
    -- A key of an allocation ends when its SSH key of the project does, or when a member replaces
    -- the keys. Its row stays: nothing but refused_at says that the node does not accept it any
    -- more. withdrawn_member is the member whose key it was, "" where nobody knows. added_at is set
    -- for keys that a member put in after the request. tried_at is when a job was last created for
    -- the key.
    added_at         timestamptz,
    withdrawn_at     timestamptz,
    withdrawn_member text NOT NULL DEFAULT '',
    tried_at         timestamptz,
    PRIMARY KEY (project_id, allocation_id, fingerprint),
    FOREIGN KEY (project_id, allocation_id) REFERENCES allocations (project_id, id)
);
CREATE INDEX allocation_keys_in_force ON allocation_keys (project_id, fingerprint) WHERE withdrawn_at IS NULL;
CREATE INDEX allocation_keys_unproven ON allocation_keys (project_id, allocation_id)
    WHERE withdrawn_at IS NOT NULL AND refused_at IS NULL OR withdrawn_at IS NULL AND added_at IS NOT NULL AND accepted_at IS NULL;
CREATE TRIGGER allocation_keys_customer BEFORE UPDATE ON allocation_keys FOR EACH ROW WHEN (current_user = 'slipway_customer')
    EXECUTE FUNCTION guard_key_withdrawal();
SELECT isolate_by_project('allocation_keys');

-- The history of a node: what it was used for, one row after the other. The firmware snapshot of
-- the claim stands here, since it is no business of the tenant's.
CREATE TABLE node_occupancies (
    id                bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    node_id           text NOT NULL REFERENCES nodes (id),
    state             text NOT NULL CHECK (state IN ('allocated', 'releasing', 'sanitizing', 'clean', 'free', 'maintenance')),
    allocation_id     text,
    certificate_id    text REFERENCES certificates (id),
    firmware_snapshot jsonb CHECK (octet_length(firmware_snapshot::text) <= 262144),
    since             timestamptz NOT NULL DEFAULT clock_timestamp(),
    until             timestamptz
);
CREATE UNIQUE INDEX node_occupancies_one_open ON node_occupancies (node_id) WHERE until IS NULL;
CREATE INDEX node_occupancies_by_node ON node_occupancies (node_id, id);
CREATE INDEX node_occupancies_by_allocation ON node_occupancies (allocation_id, id) WHERE allocation_id IS NOT NULL;

-- A node and its allocation refer to each other.
ALTER TABLE nodes ADD CONSTRAINT nodes_allocation_known FOREIGN KEY (allocation_id) REFERENCES allocations (id) DEFERRABLE INITIALLY DEFERRED;
