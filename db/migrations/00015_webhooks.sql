-- Events of projects, their delivery to webhooks, and notices.

-- +goose Up
CREATE TABLE project_event_cursors (
    project_id text PRIMARY KEY,
    last       bigint NOT NULL,
    pruned     bigint NOT NULL DEFAULT 0
);
SELECT isolate_by_project('project_event_cursors');

-- How far events have been queued for webhooks.
CREATE TABLE webhook_cursor (
    one  boolean PRIMARY KEY DEFAULT true CHECK (one),
    last bigint NOT NULL DEFAULT 0
);
INSERT INTO webhook_cursor (last) VALUES (0);

-- due_at is when the queue of the webhook is looked at next, claimed_until how long one process has
-- it. failures counts failed attempts since the last success. slow is false once the webhook has
-- answered quickly: slow ones have workers of their own.
CREATE TABLE webhooks (
    project_id          text NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    id                  text NOT NULL CHECK (id LIKE 'whk\_%'),
    name                text NOT NULL CHECK (name <> '' AND char_length(name) <= 100),
    url                 text NOT NULL CHECK (url LIKE 'https://_%' AND octet_length(url) <= 2000),
    event_types         text[] NOT NULL DEFAULT '{}' CHECK (cardinality(event_types) <= 50),
    status              text NOT NULL DEFAULT 'enabled' CHECK (status IN ('enabled', 'disabled')),
    disabled_reason     text NOT NULL DEFAULT '' CHECK (disabled_reason IN ('', 'by_request', 'gone')),
    secret_ref          text NOT NULL CHECK (secret_ref <> ''),
    previous_secret_ref text NOT NULL DEFAULT '',
    previous_until      timestamptz,
    failures            integer NOT NULL DEFAULT 0 CHECK (failures >= 0),
    last_reason         text NOT NULL DEFAULT '',
    last_success_at     timestamptz,
    last_failure_at     timestamptz,
    slow                boolean NOT NULL DEFAULT true,
    due_at              timestamptz,
    claimed_by          text NOT NULL DEFAULT '',
    claimed_until       timestamptz,
    version             bigint NOT NULL DEFAULT 1,
    created_at          timestamptz NOT NULL DEFAULT now(),
    updated_at          timestamptz NOT NULL DEFAULT now(),
    -- tried says whether the URL has been tried. Webhooks of one lane have workers of their own, so
    -- that one that is slow, or that fails, delays no other.
    tried               boolean NOT NULL DEFAULT false,
    lane                text NOT NULL GENERATED ALWAYS AS (CASE WHEN NOT slow THEN 'fast' WHEN tried THEN 'slow' ELSE 'new' END) STORED,
    PRIMARY KEY (project_id, id),
    CONSTRAINT webhooks_name_unique UNIQUE (project_id, name),
    CHECK ((status = 'enabled') = (disabled_reason = ''))
);
CREATE INDEX webhooks_due ON webhooks (lane, due_at) WHERE status = 'enabled' AND due_at IS NOT NULL;
CREATE INDEX webhooks_claimed ON webhooks (claimed_until) WHERE claimed_until IS NOT NULL;
SELECT isolate_by_project('webhooks');

-- One row for each event and webhook. It holds what is sent, so that it can be sent again after the
-- event is pruned.
CREATE TABLE webhook_deliveries (
    project_id    text NOT NULL,
    webhook_id    text NOT NULL,
    event_id      text NOT NULL CHECK (event_id LIKE 'evt\_%'),
    event_cursor  bigint NOT NULL, -- 0 of a test
    type          text NOT NULL,
    subject       text NOT NULL,
    data          jsonb NOT NULL,
    occurred_at   timestamptz NOT NULL,
    status        text NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'delivered', 'dead')),
    attempts      integer NOT NULL DEFAULT 0,
    next_at       timestamptz NOT NULL DEFAULT now(),
    answer_status integer NOT NULL DEFAULT 0,
    reason        text NOT NULL DEFAULT '',
    queued_at     timestamptz NOT NULL DEFAULT now(),
    ended_at      timestamptz,
    PRIMARY KEY (project_id, webhook_id, event_id),
    FOREIGN KEY (project_id, webhook_id) REFERENCES webhooks (project_id, id) ON DELETE CASCADE,
    CHECK ((status = 'pending') = (ended_at IS NULL))
);
CREATE INDEX webhook_deliveries_pending ON webhook_deliveries (project_id, webhook_id, next_at, event_id) WHERE status = 'pending';
CREATE INDEX webhook_deliveries_dead ON webhook_deliveries (project_id, webhook_id, event_id) WHERE status = 'dead';
CREATE INDEX webhook_deliveries_of_subject ON webhook_deliveries (project_id, subject) WHERE type LIKE 'notice.%';
CREATE INDEX webhook_deliveries_queued ON webhook_deliveries (queued_at) WHERE status = 'pending';
CREATE INDEX webhook_deliveries_ended ON webhook_deliveries (ended_at) WHERE ended_at IS NOT NULL;
SELECT isolate_by_project('webhook_deliveries');

-- A notice is written once for each episode of its kind.
CREATE TABLE notices (
    project_id text NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    id         text NOT NULL CHECK (id LIKE 'ntc\_%'),
    kind       text NOT NULL CHECK (kind <> ''),
    episode    text NOT NULL CHECK (episode <> ''),
    node       text NOT NULL DEFAULT '',
    message    text NOT NULL CHECK (message <> '' AND char_length(message) <= 2000),
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (project_id, id),
    UNIQUE (project_id, kind, episode)
);
CREATE INDEX notices_by_time ON notices (created_at);
SELECT isolate_by_project('notices');

-- One row for each recipient; message_id is the same at every attempt.
CREATE TABLE notice_emails (
    project_id    text NOT NULL,
    notice_id     text NOT NULL,
    recipient     text NOT NULL CHECK (recipient <> '' AND char_length(recipient) <= 254),
    message_id    text NOT NULL CHECK (message_id <> ''),
    status        text NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'delivered', 'dead')),
    attempts      integer NOT NULL DEFAULT 0,
    next_at       timestamptz NOT NULL DEFAULT now(),
    claimed_until timestamptz,
    reason        text NOT NULL DEFAULT '',
    delivered_at  timestamptz,
    PRIMARY KEY (project_id, notice_id, recipient),
    FOREIGN KEY (project_id, notice_id) REFERENCES notices (project_id, id) ON DELETE CASCADE,
    CHECK ((status = 'delivered') = (delivered_at IS NOT NULL))
);
CREATE INDEX notice_emails_due ON notice_emails (next_at) WHERE status = 'pending';
SELECT isolate_by_project('notice_emails');
