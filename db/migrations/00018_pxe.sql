-- Nodes that no MAAS manages: they boot from the network and report themselves (seed 000).

-- +goose Up
INSERT INTO lifecycle_edges (resource, lifecycle, name, from_state, to_state) VALUES
    ('node', 'pxe', 'create', '', 'discovered'),
    ('node', 'pxe', 'approve', 'discovered', 'pending'),
    ('node', 'pxe', 'start_install', 'pending', 'installing'),
    ('node', 'pxe', 'complete_install', 'installing', 'installed'),
    ('node', 'pxe', 'fail_install', 'installing', 'install_failed'),
    ('node', 'pxe', 'reset_install', 'install_failed', 'pending'),
    ('node', 'pxe', 'verify', 'installed', 'active'),
    ('node', 'pxe', 'reprovision', 'active', 'reprovision'),
    ('node', 'pxe', 'requeue', 'reprovision', 'pending'),
    ('node', 'pxe', 'deprovision', 'active', 'deprovisioning'),
    ('node', 'pxe', 'finish_deprovisioning', 'deprovisioning', 'retired'),
    ('node', 'pxe', 'migrate', 'active', 'migrating'),
    ('node', 'pxe', 'finish_migration', 'migrating', 'active'),
    ('node', 'pxe', 'retire', 'discovered', 'retired'),
    ('node', 'pxe', 'retire', 'pending', 'retired'),
    ('node', 'pxe', 'retire', 'installing', 'retired'),
    ('node', 'pxe', 'retire', 'install_failed', 'retired'),
    ('node', 'pxe', 'retire', 'installed', 'retired'),
    ('node', 'pxe', 'retire', 'active', 'retired'),
    ('node', 'pxe', 'retire', 'reprovision', 'retired'),
    ('node', 'pxe', 'retire', 'migrating', 'retired');

-- A PXE node belongs to no MAAS site: its site_id is empty. The reference is kept on what is not.
ALTER TABLE nodes DROP CONSTRAINT nodes_site_id_fkey;
ALTER TABLE nodes ADD COLUMN site_ref text GENERATED ALWAYS AS (nullif(site_id, '')) STORED CONSTRAINT nodes_site_id_fkey REFERENCES sites (id);
ALTER TABLE nodes ADD CONSTRAINT nodes_site_of_maas CHECK (site_id <> '' OR lifecycle = 'pxe');
ALTER TABLE nodes ADD CONSTRAINT nodes_install_attempts CHECK (install_attempts BETWEEN 0 AND 3);
-- A machine that MAAS has is not discovered a second time.
CREATE INDEX nodes_by_mac ON nodes USING gin (macs) WHERE status <> 'deleted';

CREATE TABLE install_workflows (
    id         text PRIMARY KEY CHECK (id LIKE 'wf\_%'),
    name       text NOT NULL CONSTRAINT install_workflows_name_unique UNIQUE CHECK (name <> ''),
    spec       jsonb NOT NULL,
    version    bigint NOT NULL DEFAULT 1,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now()
);

-- What a PXE node has beside the node record; what changes with every report stands here, so that the node's version does not.
CREATE TABLE pxe_nodes (
    node_id             text PRIMARY KEY REFERENCES nodes (id) ON DELETE CASCADE,
    install_workflow_id text REFERENCES install_workflows (id),
    round               bigint NOT NULL DEFAULT 0, -- how often the node was queued for installation
    started_at          timestamptz, -- when the running attempt was reported as started
    progress            integer NOT NULL DEFAULT 0 CHECK (progress BETWEEN 0 AND 100),
    deadline_at         timestamptz, -- while installing: silent beyond it, the attempt has failed
    facts               jsonb NOT NULL DEFAULT '{}', -- as the node says, believed by nobody
    seen_at             timestamptz NOT NULL DEFAULT now(),
    seen_from           text NOT NULL DEFAULT ''
);
CREATE INDEX pxe_nodes_by_deadline ON pxe_nodes (deadline_at) WHERE deadline_at IS NOT NULL;
CREATE INDEX pxe_nodes_by_workflow ON pxe_nodes (install_workflow_id) WHERE install_workflow_id IS NOT NULL;

-- The addresses of nodes that are not retired: one node an address.
CREATE TABLE pxe_macs (
    mac     text PRIMARY KEY CHECK (mac ~ '^[0-9a-f]{2}(:[0-9a-f]{2}){5}$'),
    node_id text NOT NULL REFERENCES nodes (id) ON DELETE CASCADE
);
CREATE INDEX pxe_macs_by_node ON pxe_macs (node_id);

-- What a boot script handed out. A token speaks for one attempt of one round and ends with it.
CREATE TABLE pxe_tokens (
    token_hash bytea PRIMARY KEY CHECK (octet_length(token_hash) = 32),
    node_id    text NOT NULL REFERENCES nodes (id) ON DELETE CASCADE,
    round      bigint NOT NULL,
    attempt    integer NOT NULL CHECK (attempt > 0),
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL,
    used_at    timestamptz
);
CREATE INDEX pxe_tokens_by_node ON pxe_tokens (node_id, created_at);

-- Nodes that carry the label device-group with this name.
CREATE TABLE device_groups (
    name         text PRIMARY KEY CHECK (name <> ''),
    auto_promote boolean NOT NULL DEFAULT false, -- installed becomes active without a person
    version      bigint NOT NULL DEFAULT 1,
    created_at   timestamptz NOT NULL DEFAULT now(),
    updated_at   timestamptz NOT NULL DEFAULT now()
);

-- A node row stays for ever, but for one that was only ever discovered: anybody on the boot network can make those, so an admin may purge them. The
-- audit row of the purge is written first, by the same transaction, and stays with the others.
DROP TRIGGER nodes_no_delete ON nodes;
-- +goose StatementBegin
CREATE FUNCTION guard_node_delete() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.lifecycle = 'pxe' AND OLD.status = 'discovered' THEN
        PERFORM 1 FROM audit_log l
            WHERE l.resource_kind = 'node' AND l.resource_id = OLD.id AND l.kind = 'action' AND l.name = 'purge' AND l.at = now()
              AND l.txid = pg_current_xact_id()::text::bigint;
        IF FOUND THEN
            RETURN OLD;
        END IF;
    END IF;
    RAISE EXCEPTION 'rows of nodes are never deleted: move them to their terminal state; only a discovered node can be purged, with an audit row'
        USING ERRCODE = 'SW001';
END $$;
-- +goose StatementEnd
CREATE TRIGGER nodes_no_delete BEFORE DELETE ON nodes FOR EACH ROW EXECUTE FUNCTION guard_node_delete();

-- What of it needs a person, in the columns of the view attention; all are read together.
CREATE VIEW pxe_attention AS
SELECT 'install_failed'::text AS kind, ('install_failed:' || n.id)::text AS id, n.state_changed_at::timestamptz AS since, n.site_id::text AS site_id,
    n.id::text AS node_id, n.hostname::text AS hostname, ''::text AS bmc_id, ''::text AS job_id, ''::text AS job_kind, ''::text AS workflow_id,
    n.status::text AS status, ''::text AS stage, ''::text AS failure_class, n.last_install_error::text AS message, ''::text AS next_step,
    ''::text AS recommended_action, false AS waiting_outside, false AS workflow_gone
FROM nodes n WHERE n.status = 'install_failed'
UNION ALL
-- The list of discovered nodes is nearly at its end (db.MaxDiscovered): soon no new machine is registered.
SELECT 'discovery_full', 'discovery_full:', d.since, '', '', '', '', '', '', '', '', '', '', d.nodes || ' nodes await approval', '', '', false, false
FROM (SELECT count(*) AS nodes, max(created_at) AS since FROM nodes WHERE status = 'discovered') d WHERE d.nodes >= 900;

-- +goose Down
DROP VIEW pxe_attention;
DROP TRIGGER nodes_no_delete ON nodes;
CREATE TRIGGER nodes_no_delete BEFORE DELETE ON nodes FOR EACH ROW EXECUTE FUNCTION guard_no_delete();
DROP FUNCTION guard_node_delete;
DROP TABLE device_groups, pxe_tokens, pxe_macs, pxe_nodes, install_workflows;
DROP INDEX nodes_by_mac;
ALTER TABLE nodes DROP CONSTRAINT nodes_install_attempts;
ALTER TABLE nodes DROP CONSTRAINT nodes_site_of_maas;
ALTER TABLE nodes DROP COLUMN site_ref;
ALTER TABLE nodes ADD CONSTRAINT nodes_site_id_fkey FOREIGN KEY (site_id) REFERENCES sites (id);
DELETE FROM lifecycle_edges WHERE resource = 'node' AND lifecycle = 'pxe';
