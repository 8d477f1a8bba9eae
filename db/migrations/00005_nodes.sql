-- Nodes, the index that searches them, their recorded drives, the restores of the database, and the
-- nodes that became free while requests waited. A scrub erases no drive that is not in its node's
-- record. After a restore no node is claimed until MAAS and its agent have said who is on it.
-- docs/allocations.md and docs/allocation-jobs.md explain the rules.

-- +goose Up
CREATE TABLE nodes (
    id                 text PRIMARY KEY CHECK (id LIKE 'node\_%'),
    lifecycle          text NOT NULL,
    status             text NOT NULL,
    hostname           text NOT NULL CHECK (hostname <> ''),
    site_id            text NOT NULL,
    sku_id             text REFERENCES skus (id),
    profile_id         text REFERENCES profiles (id),
    serial             text NOT NULL DEFAULT '',
    hardware_uuid      text NOT NULL DEFAULT '',
    macs               text[] NOT NULL DEFAULT '{}',
    maas_system_id     text CHECK (maas_system_id <> ''),
    -- the job that is about to create the MAAS record: what it finds afterwards is its own
    maas_create_intent text NOT NULL DEFAULT '',
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
    updated_at         timestamptz NOT NULL DEFAULT now(),
    site_ref           text GENERATED ALWAYS AS (nullif(site_id, '')) STORED CONSTRAINT nodes_site_id_fkey REFERENCES sites (id),
    -- Set in the statement that ends the allocation; cleared in the transaction that stores a
    -- certificate which proves the node clean, when a PXE node gets other disks, and when the node
    -- is deleted. While it is set and nobody is on the node, a node of lifecycle maas does not
    -- become active.
    tenant_left_at     timestamptz,
    -- The node was marked as one that a tenant left because of a machine of a project: no allocation gave
    -- anybody access, so nothing was kept of the BMC.
    left_by_machine    boolean NOT NULL DEFAULT false,
    CONSTRAINT nodes_site_of_maas CHECK (site_id <> '' OR lifecycle = 'pxe'),
    CONSTRAINT nodes_install_attempts CHECK (install_attempts BETWEEN 0 AND 3)
);
CREATE UNIQUE INDEX nodes_live_hostname_unique ON nodes (site_id, hostname) WHERE status <> 'deleted';
CREATE UNIQUE INDEX nodes_live_maas_unique ON nodes (site_id, maas_system_id) WHERE status <> 'deleted' AND maas_system_id IS NOT NULL;
CREATE INDEX nodes_by_status ON nodes (status, id);
CREATE INDEX nodes_by_site ON nodes (site_id, id);
-- Whether a machine that enlists again was a node that is deleted.
CREATE INDEX nodes_deleted_by_mac ON nodes USING gin (macs) WHERE status = 'deleted';
-- A machine that MAAS has is not discovered a second time.
CREATE INDEX nodes_by_mac ON nodes USING gin (macs) WHERE status <> 'deleted';
CREATE INDEX nodes_tenant_left ON nodes (id) WHERE tenant_left_at IS NOT NULL;
CREATE INDEX nodes_by_allocation ON nodes (allocation_id) WHERE allocation_id IS NOT NULL;
CREATE INDEX nodes_claimable ON nodes (sku_id, id) WHERE status = 'active' AND allocation_id IS NULL AND tenant_left_at IS NULL;
-- The nodes of a site in an order by chance, which a probe of the network draws from without
-- sorting the site.
CREATE INDEX nodes_by_chance ON nodes (site_id, md5(id)) WHERE status <> 'deleted';
-- Which node in service a machine of a project is.
CREATE INDEX nodes_active_serial ON nodes (upper(serial)) WHERE status = 'active' AND serial <> '';
CREATE INDEX nodes_active_host_key ON nodes (split_part(ssh_host_key, ' ', 2)) WHERE status = 'active' AND ssh_host_key <> '';
CREATE INDEX nodes_active_ssh ON nodes (site_id, ssh_address) WHERE status = 'active' AND ssh_address <> '';
-- Nodes without a site, for the pass over them.
CREATE INDEX nodes_without_site ON nodes (id) WHERE site_id = '' AND status <> 'deleted';
CREATE TRIGGER nodes_edge_insert BEFORE INSERT ON nodes FOR EACH ROW EXECUTE FUNCTION guard_node_status();
CREATE TRIGGER nodes_edge_update BEFORE UPDATE ON nodes FOR EACH ROW
    WHEN (OLD.status IS DISTINCT FROM NEW.status OR OLD.lifecycle IS DISTINCT FROM NEW.lifecycle) EXECUTE FUNCTION guard_node_status();
CREATE CONSTRAINT TRIGGER nodes_audited_insert AFTER INSERT ON nodes DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION guard_audited('node');
CREATE CONSTRAINT TRIGGER nodes_audited_update AFTER UPDATE ON nodes DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (OLD.status IS DISTINCT FROM NEW.status) EXECUTE FUNCTION guard_audited('node');
CREATE CONSTRAINT TRIGGER nodes_owned AFTER UPDATE ON nodes DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (OLD.status IS DISTINCT FROM NEW.status AND NEW.status IN ('draining', 'removing')) EXECUTE FUNCTION guard_owned();
CREATE TRIGGER nodes_no_delete BEFORE DELETE ON nodes FOR EACH ROW EXECUTE FUNCTION guard_node_delete();
CREATE TRIGGER nodes_search_insert AFTER INSERT ON nodes FOR EACH ROW EXECUTE FUNCTION index_node();
CREATE TRIGGER nodes_search_update AFTER UPDATE ON nodes FOR EACH ROW
    WHEN ((OLD.hostname, OLD.serial, OLD.maas_system_id, OLD.macs) IS DISTINCT FROM (NEW.hostname, NEW.serial, NEW.maas_system_id, NEW.macs))
    EXECUTE FUNCTION index_node();
CREATE TRIGGER nodes_note_free AFTER UPDATE OF status, allocation_id, tenant_left_at ON nodes FOR EACH ROW
    WHEN (NEW.status = 'active' AND NEW.allocation_id IS NULL AND NEW.tenant_left_at IS NULL
        AND (OLD.status <> 'active' OR OLD.allocation_id IS NOT NULL OR OLD.tenant_left_at IS NOT NULL))
    EXECUTE FUNCTION note_free_node();

CREATE TABLE node_search (
    node_id  text PRIMARY KEY REFERENCES nodes (id) ON DELETE CASCADE,
    hostname text NOT NULL, -- both in lower case
    serial   text NOT NULL,
    terms    text[] NOT NULL
);
CREATE INDEX node_search_terms ON node_search USING gin (terms);

CREATE TABLE node_drives (
    node_id     text PRIMARY KEY REFERENCES nodes (id) ON DELETE CASCADE,
    drives      jsonb NOT NULL CHECK (jsonb_typeof(drives) = 'array' AND jsonb_array_length(drives) BETWEEN 1 AND 256),
    source      text NOT NULL CHECK (source IN ('maas_commissioning', 'boot_report', 'agent_report', 'accepted')),
    recorded_at timestamptz NOT NULL DEFAULT now()
);

-- Each restore of the database from a backup. The highest id is the one that counts.
CREATE TABLE restores (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    began_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- The restore after which a node was last seen to agree with the database about who is on it.
CREATE TABLE node_agreements (
    node_id    text PRIMARY KEY REFERENCES nodes (id) ON DELETE CASCADE,
    restore_id bigint NOT NULL REFERENCES restores (id),
    agreed_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- The nodes that became free while requests waited, and which request was told of each. It is a
-- hint: a request that nobody tells looks again by itself.
CREATE TABLE claim_wakes (
    node_id       text PRIMARY KEY REFERENCES nodes (id) ON DELETE CASCADE,
    freed_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    allocation_id text,
    woken_at      timestamptz
);
CREATE INDEX claim_wakes_due ON claim_wakes (freed_at) WHERE woken_at IS NULL;
