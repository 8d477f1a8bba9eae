-- Machines, plans and runs: the API for automation. docs/machines.md explains them.

-- +goose Up
INSERT INTO lifecycle_edges (resource, lifecycle, name, from_state, to_state) VALUES
    ('machine', '', 'create', '', 'FACTORY_READY'),
    ('machine', '', 'create', '', 'READY'),
    ('machine', '', 'start_run', 'FACTORY_READY', 'PROVISIONING'),
    ('machine', '', 'start_run', 'READY', 'PROVISIONING'),
    ('machine', '', 'start_run', 'IN_SERVICE', 'PROVISIONING'),
    ('machine', '', 'start_run', 'MAINTENANCE', 'PROVISIONING'),
    ('machine', '', 'start_run', 'RMA', 'PROVISIONING'),
    ('machine', '', 'fail_run', 'PROVISIONING', 'MAINTENANCE'),
    ('machine', '', 'finish_factory_ready', 'PROVISIONING', 'FACTORY_READY'),
    ('machine', '', 'finish_ready', 'PROVISIONING', 'READY'),
    ('machine', '', 'finish_in_service', 'PROVISIONING', 'IN_SERVICE'),
    ('machine', '', 'finish_rma', 'PROVISIONING', 'RMA'),
    ('machine', '', 'set_factory_ready', 'READY', 'FACTORY_READY'),
    ('machine', '', 'set_factory_ready', 'IN_SERVICE', 'FACTORY_READY'),
    ('machine', '', 'set_factory_ready', 'MAINTENANCE', 'FACTORY_READY'),
    ('machine', '', 'set_factory_ready', 'RMA', 'FACTORY_READY'),
    ('machine', '', 'set_ready', 'FACTORY_READY', 'READY'),
    ('machine', '', 'set_ready', 'IN_SERVICE', 'READY'),
    ('machine', '', 'set_ready', 'MAINTENANCE', 'READY'),
    ('machine', '', 'set_ready', 'RMA', 'READY'),
    ('machine', '', 'set_in_service', 'FACTORY_READY', 'IN_SERVICE'),
    ('machine', '', 'set_in_service', 'READY', 'IN_SERVICE'),
    ('machine', '', 'set_in_service', 'MAINTENANCE', 'IN_SERVICE'),
    ('machine', '', 'set_maintenance', 'FACTORY_READY', 'MAINTENANCE'),
    ('machine', '', 'set_maintenance', 'READY', 'MAINTENANCE'),
    ('machine', '', 'set_maintenance', 'IN_SERVICE', 'MAINTENANCE'),
    ('machine', '', 'set_maintenance', 'RMA', 'MAINTENANCE'),
    ('machine', '', 'set_rma', 'FACTORY_READY', 'RMA'),
    ('machine', '', 'set_rma', 'READY', 'RMA'),
    ('machine', '', 'set_rma', 'IN_SERVICE', 'RMA'),
    ('machine', '', 'set_rma', 'MAINTENANCE', 'RMA'),
    ('machine', '', 'retire', 'FACTORY_READY', 'RETIRED'),
    ('machine', '', 'retire', 'READY', 'RETIRED'),
    ('machine', '', 'retire', 'IN_SERVICE', 'RETIRED'),
    ('machine', '', 'retire', 'MAINTENANCE', 'RETIRED'),
    ('machine', '', 'retire', 'RMA', 'RETIRED'),
    ('run', '', 'create', '', 'PENDING'),
    ('run', '', 'start', 'PENDING', 'RUNNING'),
    ('run', '', 'finish', 'RUNNING', 'SUCCEEDED'),
    ('run', '', 'fail', 'RUNNING', 'FAILED'),
    ('run', '', 'cancel', 'PENDING', 'CANCELED'),
    ('run', '', 'cancel', 'RUNNING', 'CANCELED');

-- status is the phase. phase_before is the phase in which the active run began. A machine may be linked to a node: its site and its pinned host key are then
-- those of the node, and node_phase is the phase that the state of the node gave last. host_key is the pinned SSH host key of one that is not.
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
    CHECK ((active_run_id IS NULL) = (status <> 'PROVISIONING')),
    CHECK ((phase_before = '') = (status <> 'PROVISIONING'))
);
CREATE INDEX machines_by_project ON machines (project_id, id);
CREATE INDEX machines_by_site ON machines (site_id, id);
CREATE UNIQUE INDEX machines_serial_unique ON machines ((spec ->> 'serial')) WHERE spec ->> 'serial' <> '' AND status <> 'RETIRED';
SELECT isolate_by_project('machines');

-- The addresses of the network cards of machines that are not retired: each belongs to one machine.
CREATE TABLE machine_macs (
    mac        text NOT NULL CONSTRAINT machine_macs_unique PRIMARY KEY CHECK (mac ~ '^[0-9a-f]{2}(:[0-9a-f]{2}){5}$'),
    machine_id text NOT NULL REFERENCES machines (id)
);
CREATE INDEX machine_macs_by_machine ON machine_macs (machine_id);

-- +goose StatementBegin
CREATE FUNCTION guard_machine() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        PERFORM guard_edge('machine', '', '', NEW.status);
        RETURN NEW;
    END IF;
    IF NEW.status <> OLD.status THEN
        IF NEW.version <= OLD.version THEN
            RAISE EXCEPTION 'a change of the phase of machine % must raise its version', OLD.id USING ERRCODE = 'SW001';
        END IF;
        PERFORM guard_edge('machine', '', OLD.status, NEW.status);
    ELSIF NEW.active_run_id IS DISTINCT FROM OLD.active_run_id THEN
        RAISE EXCEPTION 'the active run of machine % changes with its phase', OLD.id USING ERRCODE = 'SW001';
    END IF;
    IF OLD.active_run_id IS NOT NULL AND NEW.active_run_id IS NOT NULL AND (NEW.node_id, NEW.site_id, NEW.host_key, NEW.spec ->> 'ssh_endpoint',
        NEW.spec ->> 'bmc_endpoint', NEW.spec ->> 'provider', NEW.spec -> 'mac_addresses', NEW.spec ->> 'serial') IS DISTINCT FROM
        (OLD.node_id, OLD.site_id, OLD.host_key, OLD.spec ->> 'ssh_endpoint', OLD.spec ->> 'bmc_endpoint', OLD.spec ->> 'provider',
        OLD.spec -> 'mac_addresses', OLD.spec ->> 'serial') THEN
        RAISE EXCEPTION 'how machine % is reached cannot change while a run is active', OLD.id USING ERRCODE = 'SW001';
    END IF;
    RETURN NEW;
END $$;
-- +goose StatementEnd
CREATE TRIGGER machines_edge_insert BEFORE INSERT ON machines FOR EACH ROW EXECUTE FUNCTION guard_machine();
CREATE TRIGGER machines_edge_update BEFORE UPDATE ON machines FOR EACH ROW EXECUTE FUNCTION guard_machine();
CREATE CONSTRAINT TRIGGER machines_audited_insert AFTER INSERT ON machines DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    EXECUTE FUNCTION guard_audited('machine');
CREATE CONSTRAINT TRIGGER machines_audited_update AFTER UPDATE ON machines DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (OLD.status IS DISTINCT FROM NEW.status) EXECUTE FUNCTION guard_audited('machine');
CREATE TRIGGER machines_no_delete BEFORE DELETE ON machines FOR EACH ROW EXECUTE FUNCTION guard_no_delete();

-- Plans that administrators made. Nothing changes a plan. The default plans are part of the program.
CREATE TABLE plans (
    id           text CONSTRAINT plans_unique PRIMARY KEY CHECK (id ~ '^[A-Za-z0-9._-]{1,128}$'),
    display_name text NOT NULL CHECK (char_length(display_name) <= 128),
    startable_by text NOT NULL CHECK (startable_by IN ('operator', 'customer')),
    steps        jsonb NOT NULL CHECK (jsonb_typeof(steps) = 'array' AND jsonb_array_length(steps) BETWEEN 1 AND 32 AND octet_length(steps::text) <= 8388608),
    size         integer NOT NULL GENERATED ALWAYS AS (octet_length(steps::text)) STORED,
    created_by   text NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now()
);

-- What a run does is a copy of its plan. stages is how far each step is, as the last projection of the job said: the run is kept when its job is pruned.
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
    CONSTRAINT runs_request_unique UNIQUE (machine_id, request_id),
    CHECK ((finished_at IS NOT NULL) = (status IN ('SUCCEEDED', 'FAILED', 'CANCELED'))),
    CHECK ((failure_class <> '') = (status = 'FAILED'))
);
CREATE UNIQUE INDEX runs_one_active ON runs (machine_id) WHERE status IN ('PENDING', 'RUNNING');
CREATE INDEX runs_by_project ON runs (project_id, id);
SELECT isolate_by_project('runs');

-- +goose StatementBegin
CREATE FUNCTION guard_run() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        PERFORM guard_edge('run', '', '', NEW.status);
        RETURN NEW;
    END IF;
    IF (NEW.machine_id, NEW.request_id, NEW.type, NEW.plan_id, NEW.steps, NEW.job_id, NEW.created_by, NEW.created_at, NEW.accept_risk) IS DISTINCT FROM
        (OLD.machine_id, OLD.request_id, OLD.type, OLD.plan_id, OLD.steps, OLD.job_id, OLD.created_by, OLD.created_at, OLD.accept_risk) THEN
        RAISE EXCEPTION 'what run % does cannot change', OLD.id USING ERRCODE = 'SW001';
    END IF;
    IF OLD.finished_at IS NOT NULL AND to_jsonb(NEW) - 'project_id' IS DISTINCT FROM to_jsonb(OLD) - 'project_id' THEN
        RAISE EXCEPTION 'run % has ended; it cannot change', OLD.id USING ERRCODE = 'SW001';
    END IF;
    IF NEW.status <> OLD.status THEN
        IF NEW.version <= OLD.version THEN
            RAISE EXCEPTION 'a change of the phase of run % must raise its version', OLD.id USING ERRCODE = 'SW001';
        END IF;
        PERFORM guard_edge('run', '', OLD.status, NEW.status);
    END IF;
    RETURN NEW;
END $$;
-- +goose StatementEnd
CREATE TRIGGER runs_edge_insert BEFORE INSERT ON runs FOR EACH ROW EXECUTE FUNCTION guard_run();
CREATE TRIGGER runs_edge_update BEFORE UPDATE ON runs FOR EACH ROW EXECUTE FUNCTION guard_run();
CREATE CONSTRAINT TRIGGER runs_audited_insert AFTER INSERT ON runs DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION guard_audited('run');
CREATE CONSTRAINT TRIGGER runs_audited_update AFTER UPDATE ON runs DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (OLD.status IS DISTINCT FROM NEW.status) EXECUTE FUNCTION guard_audited('run');
CREATE TRIGGER runs_no_delete BEFORE DELETE ON runs FOR EACH ROW EXECUTE FUNCTION guard_no_delete();

-- How much output of a run was stored. The lock of its row orders the chunks: who has read one has missed none before it. pruned is the last chunk that was
-- deleted for its age. bytes is how much of each step is stored; it is too much after a deletion, until it is counted again.
CREATE TABLE run_log_heads (
    run_id text PRIMARY KEY REFERENCES runs (id),
    seq    bigint NOT NULL DEFAULT 0,
    pruned bigint NOT NULL DEFAULT 0,
    bytes  jsonb NOT NULL DEFAULT '{}'
);

-- The output of steps. next is where the stream of the machine goes on after the chunk, which is not the length of what is stored: secrets are hidden in it.
-- gap is how many bytes before the chunk were dropped, since a step has stored too much.
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

-- +goose StatementBegin
CREATE FUNCTION wake_run_logs() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    PERFORM pg_notify('slipway_run_logs', NEW.run_id);
    RETURN NULL;
END $$;
-- +goose StatementEnd
-- The end of a run ends the reading of its output.
-- +goose StatementBegin
CREATE FUNCTION wake_run_heads() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    PERFORM pg_notify('slipway_run_logs', NEW.id);
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER run_logs_wake AFTER INSERT ON run_logs FOR EACH ROW EXECUTE FUNCTION wake_run_logs();
CREATE TRIGGER runs_wake AFTER UPDATE OF finished_at ON runs FOR EACH ROW WHEN (NEW.finished_at IS NOT NULL) EXECUTE FUNCTION wake_run_heads();

-- +goose Down
DROP TABLE run_logs, run_log_heads, runs, plans, machine_macs, machines;
DROP FUNCTION wake_run_logs, wake_run_heads, guard_run, guard_machine;
DELETE FROM lifecycle_edges WHERE resource IN ('machine', 'run');
