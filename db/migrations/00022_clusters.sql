-- Clusters that machines join, the bootstrap tokens that were made in them, and which machine is
-- which of their nodes. docs/clusters.md explains them.

-- +goose Up
-- next_look_at is when a worker looks at the cluster again; who moves it on has the look. problem
-- is why the last look gave no answer, '' for none.
CREATE TABLE clusters (
    ref          text CONSTRAINT clusters_ref_unique PRIMARY KEY CHECK (ref ~ '^[A-Za-z0-9._-]{1,128}$'),
    project_id   text REFERENCES projects (id),
    spec         jsonb NOT NULL CHECK (octet_length(spec::text) <= 65536),
    next_look_at timestamptz NOT NULL DEFAULT now(),
    looked_at    timestamptz,
    problem      text NOT NULL DEFAULT '' CHECK (char_length(problem) <= 2000),
    version      bigint NOT NULL DEFAULT 1,
    created_at   timestamptz NOT NULL DEFAULT now(),
    updated_at   timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX clusters_by_look ON clusters (next_look_at);
CREATE INDEX clusters_by_project ON clusters (project_id, ref);
SELECT isolate_by_project('clusters');

-- A row is written before its token is made in the cluster, so that no token is there of which
-- nothing is known. It has no secret. A cluster is not deleted while a token may be left in it.
CREATE TABLE cluster_tokens (
    cluster_ref text NOT NULL CONSTRAINT cluster_tokens_cluster REFERENCES clusters (ref),
    id          text NOT NULL CHECK (id ~ '^[a-z0-9]{6}$'),
    run_id      text NOT NULL REFERENCES runs (id),
    step        text NOT NULL,
    attempt     integer NOT NULL CHECK (attempt >= 1),
    expires_at  timestamptz NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (cluster_ref, id)
);
CREATE INDEX cluster_tokens_by_step ON cluster_tokens (run_id, step);

-- The node that a machine is in a cluster. system_uuid is what the machine itself says, in lower
-- case: two machines with one are refused. joined_at is when a run last had it join.
CREATE TABLE machine_clusters (
    machine_id  text PRIMARY KEY REFERENCES machines (id),
    cluster_ref text,
    node_name   text NOT NULL CHECK (node_name <> '' AND char_length(node_name) <= 253),
    system_uuid text NOT NULL CHECK (system_uuid ~ '^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$'),
    joined_at   timestamptz,
    updated_at  timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT machine_clusters_node_unique UNIQUE (cluster_ref, node_name),
    CONSTRAINT machine_clusters_cluster FOREIGN KEY (cluster_ref) REFERENCES clusters (ref) ON DELETE SET NULL,
    -- A machine says its system UUID itself. One that lies is in the way within its own cluster and
    -- in no other customer's.
    CONSTRAINT machine_clusters_uuid_unique UNIQUE (cluster_ref, system_uuid)
);
