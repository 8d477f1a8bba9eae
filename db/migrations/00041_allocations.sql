-- Allocations: which project has which node. docs/allocations.md explains the rules.

-- +goose Up
INSERT INTO lifecycle_edges (resource, lifecycle, name, from_state, to_state) VALUES
    ('allocation', '', 'create', '', 'requested'),
    ('allocation', '', 'claim', 'requested', 'provisioning'),
    ('allocation', '', 'fail', 'requested', 'failed'),
    ('allocation', '', 'fail', 'provisioning', 'failed'),
    ('allocation', '', 'cancel', 'requested', 'released'),
    ('allocation', '', 'activate', 'provisioning', 'active'),
    ('allocation', '', 'abort', 'provisioning', 'releasing'),
    ('allocation', '', 'release', 'active', 'releasing'),
    ('allocation', '', 'finish', 'releasing', 'released'),
    ('allocation', '', 'fail_release', 'releasing', 'release_failed'),
    ('allocation', '', 'retry_release', 'release_failed', 'releasing');

-- An allocation occupies its node until node_released_at, whatever its status says. access_given_at is written before the tenant's keys are sent to the
-- node: without it, no tenant can have been there. The condition is beside the status. Of a connection and an image only the public facts are stored.
CREATE TABLE allocations (
    id                text PRIMARY KEY CHECK (id LIKE 'alc\_%'),
    project_id        text NOT NULL REFERENCES projects (id),
    sku_id            text NOT NULL REFERENCES skus (id),
    site_id           text REFERENCES sites (id),
    name              text NOT NULL DEFAULT '' CHECK (char_length(name) <= 100),
    tags              jsonb NOT NULL DEFAULT '{}' CHECK (octet_length(tags::text) <= 65536),
    status            text NOT NULL CHECK (status IN ('requested', 'provisioning', 'active', 'releasing', 'released', 'failed', 'release_failed')),
    condition         text NOT NULL DEFAULT 'ok'
        CHECK (condition IN ('ok', 'stopped', 'rebooting', 'reinstalling', 'degraded', 'maintenance_required', 'node_lost')),
    condition_reason  text NOT NULL DEFAULT '' CHECK (char_length(condition_reason) <= 500),
    condition_since   timestamptz NOT NULL DEFAULT now(),
    node_id           text REFERENCES nodes (id),
    failure_code      text NOT NULL DEFAULT '',
    failure_message   text NOT NULL DEFAULT '' CHECK (char_length(failure_message) <= 4000),
    outcome           text NOT NULL DEFAULT '' CHECK (outcome IN ('', 'released', 'cancelled', 'assignment_removed')),
    access            text NOT NULL DEFAULT '' CHECK (access IN ('', 'revoked', 'unconfirmed')),
    release_attempts  integer NOT NULL DEFAULT 0 CHECK (release_attempts >= 0),
    release_reason    text NOT NULL DEFAULT '' CHECK (char_length(release_reason) <= 500),
    requested_by      text NOT NULL CHECK (requested_by <> '' AND char_length(requested_by) <= 300),
    image             jsonb CHECK (octet_length(image::text) <= 8192),
    network           jsonb CHECK (octet_length(network::text) <= 8192),
    connection        jsonb CHECK (octet_length(connection::text) <= 16384),
    certificate_id    text REFERENCES certificates (id),
    queue_deadline_at timestamptz,
    expires_at        timestamptz,
    charge_capped_at  timestamptz,
    requested_at      timestamptz NOT NULL DEFAULT now(),
    provisioning_at   timestamptz,
    access_given_at   timestamptz,
    start_time        timestamptz,
    release_requested_at timestamptz,
    releasing_at      timestamptz,
    access_ended_at   timestamptz,
    node_released_at  timestamptz,
    released_at       timestamptz,
    version           bigint NOT NULL DEFAULT 1,
    created_at        timestamptz NOT NULL DEFAULT now(),
    updated_at        timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT allocations_project_unique UNIQUE (project_id, id),
    CHECK (status NOT IN ('provisioning', 'active', 'releasing', 'release_failed') OR node_id IS NOT NULL AND node_released_at IS NULL),
    CHECK (status <> 'requested' OR node_id IS NULL),
    CHECK (status NOT IN ('released', 'failed') OR (node_id IS NULL) = (node_released_at IS NULL)),
    CHECK (status <> 'active' OR start_time IS NOT NULL AND access_given_at IS NOT NULL),
    CHECK (status <> 'failed' OR access_given_at IS NULL AND failure_code <> ''),
    CHECK ((status = 'released') = (outcome <> '')),
    CHECK ((status IN ('released', 'failed')) = (released_at IS NOT NULL)),
    CHECK (connection IS NULL OR status = 'active'),
    CHECK (outcome <> 'released' OR access_given_at IS NULL OR access = 'revoked')
);
CREATE UNIQUE INDEX allocations_one_occupant ON allocations (node_id) WHERE node_id IS NOT NULL AND node_released_at IS NULL;
CREATE INDEX allocations_by_node ON allocations (node_id, id) WHERE node_id IS NOT NULL;
CREATE INDEX allocations_live ON allocations (project_id, sku_id) WHERE status NOT IN ('released', 'failed');
CREATE INDEX allocations_by_status ON allocations (status, id) WHERE status NOT IN ('released', 'failed');
CREATE INDEX allocations_due ON allocations (expires_at) WHERE expires_at IS NOT NULL AND status NOT IN ('released', 'failed');
CREATE INDEX allocations_by_sku ON allocations (sku_id);
SELECT isolate_by_project('allocations');

-- The keys as they were when the allocation was requested, written again: no options and no comment.
CREATE TABLE allocation_keys (
    project_id    text NOT NULL,
    allocation_id text NOT NULL,
    fingerprint   text NOT NULL CHECK (fingerprint LIKE 'SHA256:%'),
    public_key    text NOT NULL CHECK (public_key !~ '[\n\r]' AND octet_length(public_key) <= 8192),
    accepted_at   timestamptz,
    refused_at    timestamptz,
    PRIMARY KEY (project_id, allocation_id, fingerprint),
    FOREIGN KEY (project_id, allocation_id) REFERENCES allocations (project_id, id)
);
SELECT isolate_by_project('allocation_keys');

-- The history of a node: what it was used for, one row after the other. The firmware snapshot of the claim stands here, since it is no business of the
-- tenant's.
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

-- The pointer is the qualifier of a claim: it is checked again under the row's lock, which a sub-query is not. Pointers of before this migration are not
-- checked: a node with such a one is occupied until an operator ends that. The check is deferred: a claim takes the node before the allocation is written.
ALTER TABLE nodes ADD CONSTRAINT nodes_allocation_known FOREIGN KEY (allocation_id) REFERENCES allocations (id)
    DEFERRABLE INITIALLY DEFERRED NOT VALID;
CREATE INDEX nodes_by_allocation ON nodes (allocation_id) WHERE allocation_id IS NOT NULL;
CREATE INDEX nodes_claimable ON nodes (sku_id, id) WHERE status = 'active' AND allocation_id IS NULL AND tenant_left_at IS NULL;

-- What a claim may take: in service, with a healthy report of this boot and of late, occupied by nobody, not to be sanitized, and without a live job.
CREATE VIEW claimable_nodes WITH (security_invoker = true) AS
SELECT n.id, n.sku_id, n.site_id FROM nodes n JOIN heartbeats h ON h.node_id = n.id
WHERE n.lifecycle = 'maas' AND n.status = 'active' AND n.allocation_id IS NULL AND n.tenant_left_at IS NULL
  AND h.report IS NOT NULL AND h.report_boot_id = h.boot_id AND h.unhealthy = '{}' AND h.received_at > now() - interval '5 minutes'
  AND NOT EXISTS (SELECT FROM jobs j WHERE j.node_id = n.id
      AND j.status IN ('pending', 'running', 'failed_retryable', 'failed_manual_intervention', 'compensating'))
  AND NOT EXISTS (SELECT FROM allocations a WHERE a.node_id = n.id AND a.node_released_at IS NULL);

-- +goose StatementBegin
CREATE FUNCTION guard_allocation() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        PERFORM guard_edge('allocation', '', '', NEW.status);
        RETURN NEW;
    END IF;
    IF (NEW.project_id, NEW.sku_id, NEW.requested_at) IS DISTINCT FROM (OLD.project_id, OLD.sku_id, OLD.requested_at) THEN
        RAISE EXCEPTION 'the project and the SKU of allocation % cannot change', OLD.id USING ERRCODE = 'SW001';
    END IF;
    IF NEW.status <> OLD.status THEN
        IF NEW.version <= OLD.version THEN
            RAISE EXCEPTION 'a status change of allocation % must raise its version', OLD.id USING ERRCODE = 'SW001';
        END IF;
        PERFORM guard_edge('allocation', '', OLD.status, NEW.status);
    END IF;
    IF OLD.node_released_at IS NOT NULL AND (NEW.node_id, NEW.node_released_at) IS DISTINCT FROM (OLD.node_id, OLD.node_released_at)
        OR OLD.node_id IS NOT NULL AND NEW.node_id IS DISTINCT FROM OLD.node_id THEN
        RAISE EXCEPTION 'allocation % keeps the node that it had', OLD.id USING ERRCODE = 'SW001';
    END IF;
    IF OLD.access_given_at IS NOT NULL AND NEW.access_given_at IS DISTINCT FROM OLD.access_given_at OR OLD.access = 'revoked' AND NEW.access <> 'revoked' THEN
        RAISE EXCEPTION 'what is known of the access of allocation % cannot be taken back', OLD.id USING ERRCODE = 'SW001';
    END IF;
    RETURN NEW;
END $$;
-- +goose StatementEnd
CREATE TRIGGER allocations_edge_insert BEFORE INSERT ON allocations FOR EACH ROW EXECUTE FUNCTION guard_allocation();
CREATE TRIGGER allocations_edge_update BEFORE UPDATE ON allocations FOR EACH ROW EXECUTE FUNCTION guard_allocation();
CREATE CONSTRAINT TRIGGER allocations_audited_insert AFTER INSERT ON allocations DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    EXECUTE FUNCTION guard_audited('allocation');
CREATE CONSTRAINT TRIGGER allocations_audited_update AFTER UPDATE ON allocations DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (OLD.status IS DISTINCT FROM NEW.status) EXECUTE FUNCTION guard_audited('allocation');
CREATE TRIGGER allocations_no_delete BEFORE DELETE ON allocations FOR EACH ROW EXECUTE FUNCTION guard_no_delete();

-- +goose Down
DROP VIEW claimable_nodes;
DROP INDEX nodes_claimable, nodes_by_allocation;
ALTER TABLE nodes DROP CONSTRAINT nodes_allocation_known;
DROP TABLE node_occupancies, allocation_keys, allocations;
DROP FUNCTION guard_allocation;
DELETE FROM lifecycle_edges WHERE resource = 'allocation';
