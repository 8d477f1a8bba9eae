-- Campaigns: the same plan over many machines. docs/machines.md explains them.

-- +goose Up
-- The project is that of a customer who created the campaign. It is no foreign key: without one the
-- campaign would act for the platform when its project is gone. failures counts since the last
-- resume of a campaign that was stopped. next_look_at is when a worker looks at the campaign; NULL
-- when nothing can happen in it by itself. restore_id is the last restore of the database that the
-- campaign knows of: after another one it is paused, since runs that the backup does not have may
-- have taken place.
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
CREATE TRIGGER run_campaigns_edge_insert BEFORE INSERT ON run_campaigns FOR EACH ROW EXECUTE FUNCTION guard_run_campaign();
CREATE TRIGGER run_campaigns_edge_update BEFORE UPDATE ON run_campaigns FOR EACH ROW EXECUTE FUNCTION guard_run_campaign();
CREATE CONSTRAINT TRIGGER run_campaigns_audited_insert AFTER INSERT ON run_campaigns DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    EXECUTE FUNCTION guard_audited('run_campaign');
CREATE CONSTRAINT TRIGGER run_campaigns_audited_update AFTER UPDATE ON run_campaigns DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (OLD.status IS DISTINCT FROM NEW.status) EXECUTE FUNCTION guard_audited('run_campaign');
CREATE TRIGGER run_campaigns_no_delete BEFORE DELETE ON run_campaigns FOR EACH ROW EXECUTE FUNCTION guard_no_delete();
SELECT isolate_by_project('run_campaigns');

-- The machines of a campaign, as its filter selected them once. attempt counts the runs that a
-- machine is given; next_try_at puts off one that is busy.
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
CREATE TRIGGER run_campaign_members_edge_insert BEFORE INSERT ON run_campaign_members FOR EACH ROW EXECUTE FUNCTION guard_run_campaign_member();
CREATE TRIGGER run_campaign_members_edge_update BEFORE UPDATE ON run_campaign_members FOR EACH ROW EXECUTE FUNCTION guard_run_campaign_member();
CREATE TRIGGER run_campaign_members_no_delete BEFORE DELETE ON run_campaign_members FOR EACH ROW EXECUTE FUNCTION guard_no_delete();
