-- Intent that leaves the database (outbox), what readers follow (events), and answers that are
-- given again (idempotency_records).

-- +goose Up
CREATE TABLE outbox (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind          text NOT NULL CHECK (kind IN ('start_workflow', 'event')),
    job_id        text REFERENCES jobs (id),
    batch_id      text REFERENCES batches (id),
    resource_kind text NOT NULL DEFAULT '',
    resource_id   text NOT NULL DEFAULT '',
    node_id       text,
    type          text NOT NULL DEFAULT '', -- of an event: node.active, job.progress
    payload       jsonb NOT NULL DEFAULT '{}',
    created_at    timestamptz NOT NULL DEFAULT now(),
    claimed_by    text NOT NULL DEFAULT '',
    claimed_until timestamptz,
    attempts      integer NOT NULL DEFAULT 0,
    next_at       timestamptz NOT NULL DEFAULT now(),
    last_error    text NOT NULL DEFAULT '',
    done_at       timestamptz,
    -- The outbox is the platform's: customers have no right to it, so that it needs no policy.
    event_project text NOT NULL DEFAULT '',
    event_id      text NOT NULL DEFAULT '',
    CHECK (kind <> 'start_workflow' OR job_id IS NOT NULL)
);
CREATE UNIQUE INDEX outbox_one_open_start_per_job ON outbox (job_id) WHERE kind = 'start_workflow' AND done_at IS NULL;
CREATE INDEX outbox_open_starts ON outbox (id) WHERE kind = 'start_workflow' AND done_at IS NULL;
CREATE INDEX outbox_open_events ON outbox (id) WHERE kind = 'event' AND done_at IS NULL;
CREATE INDEX outbox_done ON outbox (done_at) WHERE done_at IS NOT NULL;
-- A deleted job is looked for in each table that refers to it. Only starts in the outbox name one,
-- so that its index takes the place of theirs.
CREATE INDEX outbox_by_job ON outbox (job_id) WHERE job_id IS NOT NULL;
CREATE TRIGGER outbox_wake AFTER INSERT ON outbox FOR EACH STATEMENT EXECUTE FUNCTION outbox_wake();

-- Cursors are given by the relay under one lock, in the order of commit: whoever has read up to a
-- cursor has missed nothing before it.
CREATE TABLE events (
    cursor         bigint PRIMARY KEY,
    resource_kind  text NOT NULL,
    resource_id    text NOT NULL,
    node_id        text,
    type           text NOT NULL,
    payload        jsonb NOT NULL,
    at             timestamptz NOT NULL,
    -- An event of a project has the project's own cursor, from which no customer learns how much
    -- others do, and an id that stays when a backup is restored. There is no foreign key: an event
    -- of a project that is deleted must not stop the relay.
    project_id     text,
    project_cursor bigint,
    event_id       text,
    CHECK ((project_id IS NULL) = (project_cursor IS NULL) AND (project_id IS NULL) = (event_id IS NULL))
);
CREATE INDEX events_by_resource ON events (resource_kind, resource_id, cursor);
CREATE INDEX events_by_node ON events (node_id, cursor) WHERE node_id IS NOT NULL;
CREATE INDEX events_by_time ON events USING brin (at);
CREATE UNIQUE INDEX events_by_project ON events (project_id, project_cursor);
CREATE TRIGGER events_wake AFTER INSERT ON events FOR EACH STATEMENT EXECUTE FUNCTION events_wake();
SELECT isolate_by_project('events');

-- The last cursor given, kept apart so that pruning events never gives one out twice.
CREATE TABLE event_cursor (
    one    boolean PRIMARY KEY DEFAULT true CHECK (one),
    last   bigint NOT NULL,
    -- pruned is the greatest cursor of an event that was deleted. epoch is renewed by the operator
    -- after a restore.
    pruned bigint NOT NULL DEFAULT 0,
    epoch  text NOT NULL DEFAULT substr(md5(random()::text || clock_timestamp()::text), 1, 16)
);
INSERT INTO event_cursor (last) VALUES (0);

CREATE TABLE idempotency_records (
    principal    text NOT NULL,
    route        text NOT NULL,
    key          text NOT NULL CHECK (key <> ''),
    request_hash bytea NOT NULL,
    state        text NOT NULL CHECK (state IN ('in_flight', 'done')),
    status       integer NOT NULL DEFAULT 0,
    headers      jsonb NOT NULL DEFAULT '{}',
    body         bytea,
    created_at   timestamptz NOT NULL DEFAULT now(),
    expires_at   timestamptz NOT NULL,
    PRIMARY KEY (principal, route, key)
);
CREATE INDEX idempotency_records_expiry ON idempotency_records (expires_at);
