-- The action log: one row for each try of a stage, written by the projection when it starts and completed when it ends. Rows are pruned; the
-- audit log is what stays.

-- +goose Up
CREATE TABLE action_logs (
    id            text PRIMARY KEY CHECK (id LIKE 'act\_%'),
    job_id        text NOT NULL REFERENCES jobs (id),
    node_id       text,
    seq           bigint NOT NULL, -- of the projection that began it
    stage         text NOT NULL CHECK (stage <> ''),
    attempt       integer NOT NULL,
    action_type   text NOT NULL CHECK (action_type <> ''),
    component     text NOT NULL CHECK (component IN ('api', 'orchestrator')),
    status        text NOT NULL DEFAULT 'in_progress' CHECK (status IN ('in_progress', 'success', 'failed')),
    started_at    timestamptz NOT NULL,
    finished_at   timestamptz CHECK (finished_at >= started_at),
    duration_ms   bigint CHECK (duration_ms >= 0),
    failure_class text NOT NULL DEFAULT '',
    error_message text NOT NULL DEFAULT '' CHECK (char_length(error_message) <= 4001),
    metadata      jsonb NOT NULL DEFAULT '{}' CHECK (octet_length(metadata::text) <= 16384),
    CHECK ((status = 'in_progress') = (finished_at IS NULL)),
    CHECK ((finished_at IS NULL) = (duration_ms IS NULL)),
    CONSTRAINT action_logs_once UNIQUE (job_id, seq)
);
CREATE INDEX action_logs_by_job ON action_logs (job_id, id);
CREATE INDEX action_logs_by_node ON action_logs (node_id, id) WHERE node_id IS NOT NULL;
CREATE INDEX action_logs_open ON action_logs (job_id) WHERE status = 'in_progress';
CREATE INDEX action_logs_ended ON action_logs (finished_at) WHERE finished_at IS NOT NULL;

-- worked_ms is the time of all tries of the stage that have ended; it outlives the action log. failure_class is of the last try that failed.
ALTER TABLE job_stages ADD COLUMN worked_ms bigint NOT NULL DEFAULT 0 CHECK (worked_ms >= 0), ADD COLUMN failure_class text NOT NULL DEFAULT '';

-- Past jobs of the same kind and path, newest first: what an estimate is made from. jobs.eta is no longer written.
CREATE INDEX jobs_succeeded_by_path ON jobs (kind, (coalesce(input ->> 'mode', input ->> 'manual', '')), finished_at DESC)
    WHERE status IN ('completed', 'reconciled');

-- +goose Down
DROP INDEX jobs_succeeded_by_path;
ALTER TABLE job_stages DROP COLUMN worked_ms, DROP COLUMN failure_class;
DROP TABLE action_logs;
