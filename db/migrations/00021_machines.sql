-- Machines, plans and runs: the API for automation. docs/machines.md explains them.

-- +goose Up
-- status is the phase. phase_before is the phase in which the active run began. A machine may be
-- linked to a node: its site and its pinned host key are then those of the node, and node_phase is
-- the phase that the state of the node gave last. host_key is the pinned SSH host key of one that
-- is not.
CREATE TABLE machines (
    id            text PRIMARY KEY CHECK (id ~ '^[A-Za-z0-9._-]{1,128}$'),
    project_id    text REFERENCES projects (id) ON DELETE SET NULL,
    node_id       text CONSTRAINT machines_node_unique UNIQUE REFERENCES nodes (id),
    site_id       text REFERENCES sites (id),
    status        text NOT NULL,
    phase_before  text NOT NULL DEFAULT '',
    node_phase    text NOT NULL DEFAULT '',
    labels        jsonb NOT NULL DEFAULT '{}' CHECK (octet_length(labels::text) <= 65536),
    spec          jsonb NOT NULL CHECK (octet_length(spec::text) <= 65536),
    conditions    jsonb NOT NULL DEFAULT '[]' CHECK (jsonb_typeof(conditions) = 'array' AND octet_length(conditions::text) <= 16384),
    host_key      text NOT NULL DEFAULT '' CHECK (octet_length(host_key) <= 2048),
    active_run_id text,
    version       bigint NOT NULL DEFAULT 1,
    created_at    timestamptz NOT NULL DEFAULT now(),
    updated_at    timestamptz NOT NULL DEFAULT now(),
    -- next_probe_at is when a worker probes the machine again. Who moves it on has the probe; a
    -- result counts only while it is as that worker left it.
    next_probe_at timestamptz NOT NULL DEFAULT now(),
    CHECK ((active_run_id IS NULL) = (status <> 'PROVISIONING')),
    CHECK ((phase_before = '') = (status <> 'PROVISIONING'))
);
CREATE INDEX machines_by_project ON machines (project_id, id);
CREATE INDEX machines_by_site ON machines (site_id, id);
CREATE UNIQUE INDEX machines_serial_unique ON machines ((spec ->> 'serial')) WHERE spec ->> 'serial' <> '' AND status <> 'RETIRED';
CREATE INDEX machines_by_probe ON machines (next_probe_at) WHERE node_id IS NULL AND status <> 'RETIRED';
CREATE INDEX machines_held_serial ON machines (upper(spec ->> 'serial')) WHERE project_id IS NOT NULL AND status <> 'RETIRED';
CREATE INDEX machines_held_key ON machines (split_part(host_key, ' ', 2)) WHERE project_id IS NOT NULL AND status <> 'RETIRED';
CREATE INDEX machines_held_ssh ON machines ((spec ->> 'ssh_endpoint')) WHERE project_id IS NOT NULL AND status <> 'RETIRED';
CREATE TRIGGER machines_edge_insert BEFORE INSERT ON machines FOR EACH ROW EXECUTE FUNCTION guard_machine();
CREATE TRIGGER machines_edge_update BEFORE UPDATE ON machines FOR EACH ROW EXECUTE FUNCTION guard_machine();
CREATE CONSTRAINT TRIGGER machines_audited_insert AFTER INSERT ON machines DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    EXECUTE FUNCTION guard_audited('machine');
CREATE CONSTRAINT TRIGGER machines_audited_update AFTER UPDATE ON machines DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (OLD.status IS DISTINCT FROM NEW.status) EXECUTE FUNCTION guard_audited('machine');
CREATE TRIGGER machines_no_delete BEFORE DELETE ON machines FOR EACH ROW EXECUTE FUNCTION guard_no_delete();
-- What identifies a linked machine may change: the link says which node it is.
CREATE TRIGGER machines_left BEFORE UPDATE ON machines FOR EACH ROW
    WHEN (OLD.project_id IS NOT NULL AND OLD.status <> 'RETIRED' AND (NEW.project_id IS DISTINCT FROM OLD.project_id OR NEW.status = 'RETIRED'
        OR NEW.node_id IS DISTINCT FROM OLD.node_id OR NEW.node_id IS NULL AND (NEW.host_key <> OLD.host_key
            OR (NEW.spec -> 'serial', NEW.spec -> 'mac_addresses', NEW.spec -> 'ssh_endpoint') IS DISTINCT FROM
               (OLD.spec -> 'serial', OLD.spec -> 'mac_addresses', OLD.spec -> 'ssh_endpoint'))))
    EXECUTE FUNCTION mark_machine_left();
SELECT isolate_by_project('machines');
CREATE POLICY customer_uses ON machines AS RESTRICTIVE TO slipway_customer USING (may_use_machine(project_id, node_id));

-- The addresses of the network cards of machines that are not retired: each belongs to one machine.
CREATE TABLE machine_macs (
    mac        text NOT NULL CONSTRAINT machine_macs_unique PRIMARY KEY CHECK (mac ~ '^[0-9a-f]{2}(:[0-9a-f]{2}){5}$'),
    machine_id text NOT NULL REFERENCES machines (id)
);
CREATE INDEX machine_macs_by_machine ON machine_macs (machine_id);

-- Plans that administrators made. Nothing changes a plan. The default plans are part of the
-- program.
CREATE TABLE plans (
    id           text CONSTRAINT plans_unique PRIMARY KEY CHECK (id ~ '^[A-Za-z0-9._-]{1,128}$'),
    display_name text NOT NULL CHECK (char_length(display_name) <= 128),
    startable_by text NOT NULL CHECK (startable_by IN ('operator', 'customer')),
    steps        jsonb NOT NULL CHECK (jsonb_typeof(steps) = 'array' AND jsonb_array_length(steps) BETWEEN 1 AND 32 AND octet_length(steps::text) <= 8388608),
    size         integer NOT NULL GENERATED ALWAYS AS (octet_length(steps::text)) STORED,
    created_by   text NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now()
);

-- What a run does is a copy of its plan. stages is how far each step is, as the last projection of
-- the job said: the run is kept when its job is pruned.
CREATE TABLE runs (
    id                 text PRIMARY KEY CHECK (id LIKE 'run\_%'),
    machine_id         text NOT NULL REFERENCES machines (id),
    project_id         text REFERENCES projects (id) ON DELETE SET NULL,
    request_id         text NOT NULL CHECK (request_id <> '' AND char_length(request_id) <= 128),
    type               text NOT NULL CHECK (type IN ('REPAVE', 'RMA', 'REBOOT', 'UPGRADE', 'NET_RECONFIG')),
    plan_id            text NOT NULL,
    steps              jsonb NOT NULL CHECK (jsonb_typeof(steps) = 'array'),
    stages             jsonb NOT NULL DEFAULT '[]' CHECK (jsonb_typeof(stages) = 'array'),
    current_step       text NOT NULL DEFAULT '',
    status             text NOT NULL,
    needs_intervention boolean NOT NULL DEFAULT false,
    accept_risk        boolean NOT NULL DEFAULT false,
    job_id             text NOT NULL CONSTRAINT runs_job_unique UNIQUE,
    failure_class      text NOT NULL DEFAULT '',
    message            text NOT NULL DEFAULT '' CHECK (char_length(message) <= 4000),
    created_by         text NOT NULL,
    version            bigint NOT NULL DEFAULT 1,
    created_at         timestamptz NOT NULL DEFAULT now(),
    started_at         timestamptz,
    finished_at        timestamptz,
    retry_of           text REFERENCES runs (id),
    CONSTRAINT runs_request_unique UNIQUE (machine_id, request_id),
    CHECK ((finished_at IS NOT NULL) = (status IN ('SUCCEEDED', 'FAILED', 'CANCELED'))),
    CHECK ((failure_class <> '') = (status = 'FAILED'))
);
CREATE UNIQUE INDEX runs_one_active ON runs (machine_id) WHERE status IN ('PENDING', 'RUNNING');
CREATE INDEX runs_by_project ON runs (project_id, id);
CREATE TRIGGER runs_edge_insert BEFORE INSERT ON runs FOR EACH ROW EXECUTE FUNCTION guard_run();
CREATE TRIGGER runs_edge_update BEFORE UPDATE ON runs FOR EACH ROW EXECUTE FUNCTION guard_run();
CREATE CONSTRAINT TRIGGER runs_audited_insert AFTER INSERT ON runs DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION guard_audited('run');
CREATE CONSTRAINT TRIGGER runs_audited_update AFTER UPDATE ON runs DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (OLD.status IS DISTINCT FROM NEW.status) EXECUTE FUNCTION guard_audited('run');
CREATE TRIGGER runs_no_delete BEFORE DELETE ON runs FOR EACH ROW EXECUTE FUNCTION guard_no_delete();
CREATE TRIGGER runs_wake AFTER UPDATE OF finished_at ON runs FOR EACH ROW WHEN (NEW.finished_at IS NOT NULL) EXECUTE FUNCTION wake_run_heads();
CREATE TRIGGER runs_retry_update BEFORE UPDATE ON runs FOR EACH ROW WHEN (OLD.retry_of IS DISTINCT FROM NEW.retry_of) EXECUTE FUNCTION guard_run_retry();
SELECT isolate_by_project('runs');

-- How much output of a run was stored. The lock of its row orders the chunks: who has read one has
-- missed none before it. pruned is the last chunk that was deleted for its age. bytes is how much
-- of each step is stored; it is too much after a deletion, until it is counted again.
CREATE TABLE run_log_heads (
    run_id text PRIMARY KEY REFERENCES runs (id),
    seq    bigint NOT NULL DEFAULT 0,
    pruned bigint NOT NULL DEFAULT 0,
    bytes  jsonb NOT NULL DEFAULT '{}'
);

-- The output of steps. next is where the stream of the machine goes on after the chunk, which is
-- not the length of what is stored: secrets are hidden in it. gap is how many bytes before the
-- chunk were dropped, since a step has stored too much.
CREATE TABLE run_logs (
    run_id  text NOT NULL REFERENCES runs (id),
    seq     bigint NOT NULL,
    step    text NOT NULL,
    attempt integer NOT NULL CHECK (attempt >= 1),
    stream  text NOT NULL CHECK (stream IN ('stdout', 'stderr')),
    next    bigint NOT NULL CHECK (next >= 0),
    gap     bigint NOT NULL DEFAULT 0 CHECK (gap >= 0),
    data    bytea NOT NULL CHECK (octet_length(data) <= 1048576),
    at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (run_id, seq),
    CONSTRAINT run_logs_place_unique UNIQUE (run_id, step, attempt, stream, next)
);
CREATE INDEX run_logs_old ON run_logs (at);
CREATE TRIGGER run_logs_wake AFTER INSERT ON run_logs FOR EACH ROW EXECUTE FUNCTION wake_run_logs();
