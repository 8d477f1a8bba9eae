-- Who listens for heartbeats. A node is silent only if somebody has listened for as long as its silence: while no agent API runs, every node seems to be.

-- +goose Up
CREATE TABLE agent_listeners (
    id      text PRIMARY KEY CHECK (id <> ''), -- a process
    since   timestamptz NOT NULL,
    seen_at timestamptz NOT NULL
);

-- +goose Down
DROP TABLE agent_listeners;
