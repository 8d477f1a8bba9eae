-- Campaigns: the same plan over many machines. docs/machines.md explains them.

-- +goose Up
INSERT INTO lifecycle_edges (resource, lifecycle, name, from_state, to_state) VALUES
    ('run_campaign', '', 'create', '', 'RUNNING'),
    ('run_campaign', '', 'pause', 'RUNNING', 'PAUSED'),
    ('run_campaign', '', 'resume', 'PAUSED', 'RUNNING'),
    ('run_campaign', '', 'resume', 'STOPPED', 'RUNNING'),
    ('run_campaign', '', 'stop', 'RUNNING', 'STOPPED'),
    ('run_campaign', '', 'stop', 'PAUSED', 'STOPPED'),
    ('run_campaign', '', 'complete', 'RUNNING', 'COMPLETED'),
    ('run_campaign', '', 'complete', 'PAUSED', 'COMPLETED'),
    ('run_campaign', '', 'complete', 'STOPPED', 'COMPLETED'),
    ('run_campaign', '', 'cancel', 'RUNNING', 'CANCELED'),
    ('run_campaign', '', 'cancel', 'PAUSED', 'CANCELED'),
    ('run_campaign', '', 'cancel', 'STOPPED', 'CANCELED'),
    ('run_campaign', '', 'retry', 'COMPLETED', 'RUNNING'),
    ('run_campaign_member', '', 'create', '', 'WAITING'),
    ('run_campaign_member', '', 'start', 'WAITING', 'RUNNING'),
    ('run_campaign_member', '', 'finish', 'RUNNING', 'SUCCEEDED'),
    ('run_campaign_member', '', 'fail', 'RUNNING', 'FAILED'),
    ('run_campaign_member', '', 'cancel', 'WAITING', 'CANCELED'),
    ('run_campaign_member', '', 'cancel', 'RUNNING', 'CANCELED'),
    ('run_campaign_member', '', 'skip', 'WAITING', 'SKIPPED'),
    ('run_campaign_member', '', 'retry', 'FAILED', 'WAITING'),
    ('run_campaign_member', '', 'retry', 'CANCELED', 'WAITING'),
    ('run_campaign_member', '', 'retry', 'SKIPPED', 'WAITING');

-- The project is that of a customer who created the campaign. It is no foreign key: without one the campaign would act for the platform when its project is
-- gone. failures counts since the last resume of a campaign that was stopped. next_look_at is when a worker looks at the campaign; NULL when nothing can
-- happen in it by itself. restore_id is the last restore of the database that the campaign knows of: after another one it is paused, since runs that the
-- backup does not have may have taken place.
CREATE TABLE run_campaigns (
    id             text CONSTRAINT run_campaigns_pkey PRIMARY KEY CHECK (id LIKE 'campaign\_%'),
    project_id     text,
    request_id     text NOT NULL CHECK (request_id <> '' AND char_length(request_id) <= 128),
    display_name   text NOT NULL CHECK (char_length(display_name) <= 128),
    type           text NOT NULL CHECK (type IN ('REPAVE', 'RMA', 'REBOOT', 'UPGRADE', 'NET_RECONFIG')),
    plan_id        text NOT NULL CHECK (plan_id <> '' AND char_length(plan_id) <= 128),
    filter         text NOT NULL CHECK (filter <> '' AND octet_length(filter) <= 2048),
    selection_hash text NOT NULL,
    max_parallel   integer NOT NULL CHECK (max_parallel BETWEEN 1 AND 100),
    stop_after     integer NOT NULL CHECK (stop_after BETWEEN 1 AND 500),
    skip_canary    boolean NOT NULL,
    accept_risk    boolean NOT NULL,
    status         text NOT NULL,
    failures       integer NOT NULL DEFAULT 0 CHECK (failures >= 0),
    message        text NOT NULL DEFAULT '' CHECK (char_length(message) <= 4000),
    restore_id     bigint NOT NULL,
    next_look_at   timestamptz DEFAULT now(),
    created_by     text NOT NULL,
    version        bigint NOT NULL DEFAULT 1,
    created_at     timestamptz NOT NULL DEFAULT now(),
    updated_at     timestamptz NOT NULL DEFAULT now(),
    finished_at    timestamptz,
    CONSTRAINT run_campaigns_request_unique UNIQUE NULLS NOT DISTINCT (project_id, request_id),
    CHECK (NOT accept_risk OR project_id IS NULL),
    CHECK ((finished_at IS NOT NULL) = (status IN ('COMPLETED', 'CANCELED')))
);
CREATE INDEX run_campaigns_by_look ON run_campaigns (next_look_at) WHERE next_look_at IS NOT NULL;
CREATE INDEX run_campaigns_stopped ON run_campaigns (updated_at) WHERE status = 'STOPPED';
SELECT isolate_by_project('run_campaigns');

-- The machines of a campaign, as its filter selected them once. attempt counts the runs that a machine is given; next_try_at puts off one that is busy.
CREATE TABLE run_campaign_members (
    campaign_id text NOT NULL REFERENCES run_campaigns (id),
    ordinal     integer NOT NULL CHECK (ordinal BETWEEN 1 AND 500),
    machine_id  text NOT NULL REFERENCES machines (id),
    status      text NOT NULL,
    attempt     integer NOT NULL DEFAULT 1 CHECK (attempt >= 1),
    run_id      text REFERENCES runs (id),
    message     text NOT NULL DEFAULT '' CHECK (char_length(message) <= 4000),
    next_try_at timestamptz NOT NULL DEFAULT now(),
    updated_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (campaign_id, ordinal),
    CONSTRAINT run_campaign_members_machine_unique UNIQUE (campaign_id, machine_id),
    CHECK (status NOT IN ('RUNNING', 'SUCCEEDED', 'FAILED') OR run_id IS NOT NULL)
);
CREATE UNIQUE INDEX run_campaign_members_run_unique ON run_campaign_members (run_id) WHERE run_id IS NOT NULL;

-- +goose StatementBegin
CREATE FUNCTION guard_run_campaign() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        PERFORM guard_edge('run_campaign', '', '', NEW.status);
        RETURN NEW;
    END IF;
    IF (NEW.project_id, NEW.request_id, NEW.type, NEW.plan_id, NEW.filter, NEW.selection_hash, NEW.max_parallel, NEW.stop_after, NEW.skip_canary,
        NEW.accept_risk, NEW.created_by, NEW.created_at) IS DISTINCT FROM (OLD.project_id, OLD.request_id, OLD.type, OLD.plan_id, OLD.filter,
        OLD.selection_hash, OLD.max_parallel, OLD.stop_after, OLD.skip_canary, OLD.accept_risk, OLD.created_by, OLD.created_at) THEN
        RAISE EXCEPTION 'what campaign % does cannot change', OLD.id USING ERRCODE = 'SW001';
    END IF;
    IF NEW.status <> OLD.status THEN
        IF NEW.version <= OLD.version THEN
            RAISE EXCEPTION 'a change of the state of campaign % must raise its version', OLD.id USING ERRCODE = 'SW001';
        END IF;
        PERFORM guard_edge('run_campaign', '', OLD.status, NEW.status);
    END IF;
    RETURN NEW;
END $$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE FUNCTION guard_run_campaign_member() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        PERFORM guard_edge('run_campaign_member', '', '', NEW.status);
        RETURN NEW;
    END IF;
    IF (NEW.campaign_id, NEW.ordinal, NEW.machine_id) IS DISTINCT FROM (OLD.campaign_id, OLD.ordinal, OLD.machine_id) THEN
        RAISE EXCEPTION 'the machines of campaign % cannot change', OLD.campaign_id USING ERRCODE = 'SW001';
    END IF;
    IF NEW.status <> OLD.status THEN
        PERFORM guard_edge('run_campaign_member', '', OLD.status, NEW.status);
    END IF;
    RETURN NEW;
END $$;
-- +goose StatementEnd
CREATE TRIGGER run_campaigns_edge_insert BEFORE INSERT ON run_campaigns FOR EACH ROW EXECUTE FUNCTION guard_run_campaign();
CREATE TRIGGER run_campaigns_edge_update BEFORE UPDATE ON run_campaigns FOR EACH ROW EXECUTE FUNCTION guard_run_campaign();
CREATE CONSTRAINT TRIGGER run_campaigns_audited_insert AFTER INSERT ON run_campaigns DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    EXECUTE FUNCTION guard_audited('run_campaign');
CREATE CONSTRAINT TRIGGER run_campaigns_audited_update AFTER UPDATE ON run_campaigns DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (OLD.status IS DISTINCT FROM NEW.status) EXECUTE FUNCTION guard_audited('run_campaign');
CREATE TRIGGER run_campaigns_no_delete BEFORE DELETE ON run_campaigns FOR EACH ROW EXECUTE FUNCTION guard_no_delete();
CREATE TRIGGER run_campaign_members_edge_insert BEFORE INSERT ON run_campaign_members FOR EACH ROW EXECUTE FUNCTION guard_run_campaign_member();
CREATE TRIGGER run_campaign_members_edge_update BEFORE UPDATE ON run_campaign_members FOR EACH ROW EXECUTE FUNCTION guard_run_campaign_member();
CREATE TRIGGER run_campaign_members_no_delete BEFORE DELETE ON run_campaign_members FOR EACH ROW EXECUTE FUNCTION guard_no_delete();

-- A campaign of the platform that has stopped at its failures waits for an operator. Those of projects wait for their members.
CREATE VIEW campaign_attention WITH (security_invoker = true) AS
SELECT 'campaign_stopped'::text AS kind, ('campaign_stopped:' || c.id)::text AS id, c.updated_at::timestamptz AS since,
    ''::text AS site_id, ''::text AS node_id, ''::text AS hostname, ''::text AS bmc_id, ''::text AS job_id, ''::text AS job_kind, ''::text AS workflow_id,
    c.status::text AS status, ''::text AS stage, ''::text AS failure_class,
    ('campaign ' || c.id || CASE WHEN c.display_name = '' THEN '' ELSE ' (' || c.display_name || ')' END || ': ' || c.message)::text AS message,
    'look at its machines; resume or cancel it'::text AS next_step, ''::text AS recommended_action, false AS waiting_outside, false AS workflow_gone
FROM run_campaigns c WHERE c.status = 'STOPPED' AND c.project_id IS NULL;

-- +goose Down
DROP VIEW campaign_attention;
DROP TABLE run_campaign_members, run_campaigns;
DROP FUNCTION guard_run_campaign, guard_run_campaign_member;
DELETE FROM lifecycle_edges WHERE resource IN ('run_campaign', 'run_campaign_member');
