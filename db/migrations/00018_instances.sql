-- Instances: servers at a cloud provider that projects have. docs/instance-providers.md explains
-- them.

-- +goose Up
-- The row is written before the provider is asked for anything. account is the provider's account,
-- and the name of this installation in it, when the row was written: in another one nothing of the
-- instance would be found, and it would look as if it were gone. server_id and resources are what
-- the provider has made; they are kept after the end. job_id is the job that makes the instance.
-- enroll_hash and worker_hash are hashes of the one-time token and of the key of the worker;
-- heartbeat_seq only grows. agent_verified_at is when the checksum of the installed agent was read
-- from our side. health_ok and health_logged_at are of the last health check that was logged.
-- server_asks counts the orders for a server since server_asked_at, the time of the last one: the
-- answer may have been lost. absent_looks counts the looks since absent_since in which the provider
-- had no such server. The project is not a foreign key: instances are kept when it is gone.
CREATE TABLE instances (
    id                  text PRIMARY KEY CHECK (id ~ '^inst_[0-9a-z-]{1,60}$'),
    project_id          text NOT NULL,
    name                text NOT NULL CHECK (name <> '' AND char_length(name) <= 63),
    provider            text NOT NULL CHECK (provider <> '' AND char_length(provider) <= 63),
    account             text NOT NULL DEFAULT '' CHECK (char_length(account) <= 128),
    zone                text NOT NULL CHECK (zone <> '' AND char_length(zone) <= 63),
    type                text NOT NULL CHECK (type <> '' AND char_length(type) <= 63),
    image               text NOT NULL CHECK (char_length(image) <= 128),
    model               text NOT NULL CHECK (model <> '' AND char_length(model) <= 200),
    status              text NOT NULL,
    error_code          text NOT NULL DEFAULT '' CHECK (char_length(error_code) <= 64),
    error_message       text NOT NULL DEFAULT '' CHECK (char_length(error_message) <= 4001),
    progress_percent    integer NOT NULL DEFAULT 0 CHECK (progress_percent BETWEEN 0 AND 100),
    reached_percent     integer NOT NULL DEFAULT 0 CHECK (reached_percent BETWEEN 0 AND 100),
    failed_stage        text NOT NULL DEFAULT '',
    job_id              text NOT NULL,
    server_asks         integer NOT NULL DEFAULT 0 CHECK (server_asks >= 0),
    server_asked_at     timestamptz,
    server_id           text NOT NULL DEFAULT '' CHECK (char_length(server_id) <= 128),
    resources           jsonb NOT NULL DEFAULT '[]' CHECK (jsonb_typeof(resources) = 'array' AND octet_length(resources::text) <= 16384),
    ip_address          text NOT NULL DEFAULT '' CHECK (char_length(ip_address) <= 255),
    host_key            text NOT NULL DEFAULT '' CHECK (octet_length(host_key) <= 2048),
    enroll_hash         bytea,
    worker_hash         bytea,
    enrolled_at         timestamptz,
    heartbeat_seq       bigint NOT NULL DEFAULT 0,
    heartbeat_at        timestamptz,
    heartbeat           jsonb NOT NULL DEFAULT '{}' CHECK (octet_length(heartbeat::text) <= 4096),
    agent_checksum      text NOT NULL DEFAULT '' CHECK (agent_checksum ~ '^([0-9a-f]{64})?$'),
    agent_verified_at   timestamptz,
    recoveries          integer NOT NULL DEFAULT 0 CHECK (recoveries >= 0),
    health_ok           boolean,
    health_logged_at    timestamptz,
    health_failed_since timestamptz,
    last_health_check   timestamptz,
    absent_looks        integer NOT NULL DEFAULT 0 CHECK (absent_looks >= 0),
    absent_since        timestamptz,
    deleted_by_provider boolean NOT NULL DEFAULT false,
    drain_seconds       integer NOT NULL DEFAULT 0 CHECK (drain_seconds BETWEEN 0 AND 86400),
    created_by          text NOT NULL CHECK (created_by <> '' AND char_length(created_by) <= 300),
    version             bigint NOT NULL DEFAULT 1,
    created_at          timestamptz NOT NULL DEFAULT now(),
    updated_at          timestamptz NOT NULL DEFAULT now(),
    server_created_at   timestamptz,
    ready_at            timestamptz,
    failed_at           timestamptz,
    terminated_at       timestamptz,
    archived_at         timestamptz,
    CHECK ((absent_looks = 0) = (absent_since IS NULL)),
    CHECK (status <> 'ready' OR ready_at IS NOT NULL),
    CHECK (status NOT IN ('terminated', 'archived') OR terminated_at IS NOT NULL),
    CHECK (status NOT IN ('provisioning_failed', 'startup_failed', 'failed') OR failed_at IS NOT NULL AND error_code <> ''),
    CHECK ((archived_at IS NOT NULL) = (status = 'archived'))
);
CREATE INDEX instances_by_project ON instances (project_id, id);
CREATE INDEX instances_live ON instances (id) WHERE status NOT IN ('terminated', 'archived');
CREATE INDEX instances_ended ON instances (terminated_at) WHERE status = 'terminated';
CREATE UNIQUE INDEX instances_name_unique ON instances (project_id, name) WHERE status NOT IN ('terminated', 'archived');
CREATE UNIQUE INDEX instances_enroll_unique ON instances (enroll_hash) WHERE enroll_hash IS NOT NULL;
CREATE UNIQUE INDEX instances_server_unique ON instances (provider, zone, server_id) WHERE server_id <> '';
CREATE TRIGGER instances_edge_insert BEFORE INSERT ON instances FOR EACH ROW EXECUTE FUNCTION guard_instance();
CREATE TRIGGER instances_edge_update BEFORE UPDATE ON instances FOR EACH ROW EXECUTE FUNCTION guard_instance();
CREATE CONSTRAINT TRIGGER instances_audited_insert AFTER INSERT ON instances DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    EXECUTE FUNCTION guard_audited('instance');
CREATE CONSTRAINT TRIGGER instances_audited_update AFTER UPDATE ON instances DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (OLD.status IS DISTINCT FROM NEW.status) EXECUTE FUNCTION guard_audited('instance');
CREATE TRIGGER instances_no_delete BEFORE DELETE ON instances FOR EACH ROW EXECUTE FUNCTION guard_no_delete();
CREATE TRIGGER instances_usage_insert AFTER INSERT ON instances FOR EACH ROW EXECUTE FUNCTION follow_instance();
CREATE TRIGGER instances_usage_update AFTER UPDATE ON instances FOR EACH ROW
    WHEN (NEW.status <> OLD.status OR NEW.status = 'draining' AND NEW.drain_seconds <> OLD.drain_seconds) EXECUTE FUNCTION follow_instance();
SELECT isolate_by_project('instances');

-- What is at a provider with our tag and is billed, and belongs to no live instance. Nothing
-- deletes it by itself.
CREATE TABLE instance_orphans (
    provider     text NOT NULL CHECK (char_length(provider) <= 63),
    zone         text NOT NULL CHECK (char_length(zone) <= 63),
    kind         text NOT NULL CHECK (kind IN ('server', 'volume', 'snapshot', 'address', 'security_group')),
    resource_id  text NOT NULL CHECK (resource_id <> '' AND char_length(resource_id) <= 128),
    name         text NOT NULL DEFAULT '' CHECK (char_length(name) <= 255),
    instance_id  text NOT NULL DEFAULT '' CHECK (char_length(instance_id) <= 128),
    hourly_micro bigint NOT NULL DEFAULT 0 CHECK (hourly_micro >= 0),
    currency     text NOT NULL DEFAULT '' CHECK (currency ~ '^([A-Z]{3})?$'),
    found_at     timestamptz NOT NULL DEFAULT now(),
    seen_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (provider, zone, kind, resource_id)
);

-- How the last look at each zone of each provider went. problem says why nothing was decided in it.
CREATE TABLE instance_looks (
    provider      text NOT NULL CHECK (char_length(provider) <= 63),
    zone          text NOT NULL CHECK (char_length(zone) <= 63),
    problem       text NOT NULL DEFAULT '' CHECK (char_length(problem) <= 4001),
    problem_since timestamptz,
    looked_at     timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (provider, zone),
    CHECK ((problem = '') = (problem_since IS NULL))
);
