-- Events of projects, their delivery to webhooks, and notices.

-- +goose Up
-- The outbox is the platform's: customers have no right to it, so that it needs no policy.
ALTER TABLE outbox ADD COLUMN event_project text NOT NULL DEFAULT '', ADD COLUMN event_id text NOT NULL DEFAULT '';

-- An event of a project has the project's own cursor, from which no customer learns how much others do, and an id that stays when a backup is restored.
-- There is no foreign key: an event of a project that is deleted must not stop the relay.
ALTER TABLE events ADD COLUMN project_id text, ADD COLUMN project_cursor bigint, ADD COLUMN event_id text,
    ADD CHECK ((project_id IS NULL) = (project_cursor IS NULL) AND (project_id IS NULL) = (event_id IS NULL));
CREATE UNIQUE INDEX events_by_project ON events (project_id, project_cursor);
SELECT isolate_by_project('events');

CREATE TABLE project_event_cursors (
    project_id text PRIMARY KEY,
    last       bigint NOT NULL
);
SELECT isolate_by_project('project_event_cursors');

-- How far events have been queued for webhooks.
CREATE TABLE webhook_cursor (
    one  boolean PRIMARY KEY DEFAULT true CHECK (one),
    last bigint NOT NULL DEFAULT 0
);
INSERT INTO webhook_cursor (last) SELECT last FROM event_cursor;

-- due_at is when the queue of the webhook is looked at next, claimed_until how long one process has it. failures counts failed attempts since the last
-- success. slow is false once the webhook has answered quickly: slow ones have workers of their own.
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
    PRIMARY KEY (project_id, id),
    CONSTRAINT webhooks_name_unique UNIQUE (project_id, name),
    CHECK ((status = 'enabled') = (disabled_reason = ''))
);
CREATE INDEX webhooks_due ON webhooks (slow, due_at) WHERE status = 'enabled' AND due_at IS NOT NULL;
SELECT isolate_by_project('webhooks');

-- One row for each event and webhook. It holds what is sent, so that it can be sent again after the event is pruned.
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

-- Every audit row of a project that its members may know of is an event too: no path that changes a project can forget it. The event has the id of the
-- row, and of its metadata only what every member may read.
-- +goose StatementBegin
CREATE FUNCTION audit_project_event() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    event_type text := CASE NEW.name
        WHEN 'create' THEN 'project.created' WHEN 'update' THEN 'project.updated' WHEN 'close' THEN 'project.closing' WHEN 'finish' THEN 'project.closed'
        WHEN 'delete' THEN 'project.deleted' WHEN 'invite' THEN 'invitation.created' WHEN 'revoke_invitation' THEN 'invitation.revoked'
        WHEN 'accept_invitation' THEN 'member.added' WHEN 'change_role' THEN 'member.role_changed' WHEN 'remove_member' THEN 'member.removed'
        WHEN 'put_group_role' THEN 'member.group_role_set' WHEN 'delete_group_role' THEN 'member.group_role_deleted'
        WHEN 'add_ssh_key' THEN 'key.added' WHEN 'delete_ssh_key' THEN 'key.deleted' WHEN 'create_token' THEN 'token.created'
        WHEN 'delete_token' THEN 'token.deleted' WHEN 'set_quota' THEN 'quota.set' WHEN 'delete_quota' THEN 'quota.deleted'
        WHEN 'create_webhook' THEN 'webhook.created' WHEN 'update_webhook' THEN 'webhook.updated' WHEN 'delete_webhook' THEN 'webhook.deleted'
        WHEN 'rotate_webhook_secret' THEN 'webhook.secret_rotated' END;
    shown jsonb;
BEGIN
    IF event_type IS NOT NULL THEN
        SELECT coalesce(jsonb_object_agg(m.key, m.value), '{}') INTO shown FROM jsonb_each(coalesce(NEW.metadata, '{}')) m
        WHERE m.key IN ('member', 'invitation', 'ssh_key', 'token', 'webhook', 'name', 'role', 'from', 'to', 'sku', 'max_nodes', 'fingerprint');
        INSERT INTO outbox (kind, event_project, event_id, resource_kind, resource_id, type, payload)
        VALUES ('event', NEW.resource_id, 'evt_' || split_part(NEW.id, '_', 2), 'project', NEW.resource_id, event_type, shown);
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER audit_project_event AFTER INSERT ON audit_log FOR EACH ROW WHEN (NEW.resource_kind = 'project') EXECUTE FUNCTION audit_project_event();

-- +goose Down
DROP TRIGGER audit_project_event ON audit_log;
DROP FUNCTION audit_project_event;
DROP TABLE notice_emails, notices, webhook_deliveries, webhooks, webhook_cursor, project_event_cursors;
DROP POLICY customer ON events;
DROP POLICY platform ON events;
DROP POLICY reader ON events;
ALTER TABLE events NO FORCE ROW LEVEL SECURITY, DISABLE ROW LEVEL SECURITY, DROP COLUMN project_id, DROP COLUMN project_cursor, DROP COLUMN event_id;
ALTER TABLE outbox DROP COLUMN event_project, DROP COLUMN event_id;
