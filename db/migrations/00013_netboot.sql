-- Nodes that no MAAS manages: they boot from the network and report themselves.

-- +goose Up
CREATE TABLE install_workflows (
    id         text PRIMARY KEY CHECK (id LIKE 'wf\_%'),
    name       text NOT NULL CONSTRAINT install_workflows_name_unique UNIQUE CHECK (name <> ''),
    spec       jsonb NOT NULL,
    version    bigint NOT NULL DEFAULT 1,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now()
);

-- What a PXE node has beside the node record; what changes with every report stands here, so that
-- the node's version does not.
CREATE TABLE pxe_nodes (
    node_id             text PRIMARY KEY REFERENCES nodes (id) ON DELETE CASCADE,
    install_workflow_id text REFERENCES install_workflows (id),
    round               bigint NOT NULL DEFAULT 0, -- how often the node was queued for installation
    started_at          timestamptz, -- when the running attempt was reported as started
    progress            integer NOT NULL DEFAULT 0 CHECK (progress BETWEEN 0 AND 100),
    deadline_at         timestamptz, -- while installing: silent beyond it, the attempt has failed
    facts               jsonb NOT NULL DEFAULT '{}', -- as the node says, believed by nobody
    seen_at             timestamptz NOT NULL DEFAULT now(),
    seen_from           text NOT NULL DEFAULT '',
    erase_workflow_id   text REFERENCES install_workflows (id),
    -- While a job has armed a netboot, the boot script gives this workflow, whatever the state of
    -- the node.
    netboot_workflow_id text REFERENCES install_workflows (id),
    netboot_purpose     text NOT NULL DEFAULT '' CHECK (netboot_purpose IN ('', 'install', 'erase')),
    netboot_job_id      text,
    netboot_done_at     timestamptz, -- the installer said that it is complete
    planned_hardware    jsonb,
    -- What the firmware said without a token while the node migrates: which machine stands where
    -- the planned one is to stand.
    firmware            jsonb NOT NULL DEFAULT '{}',
    -- Of the round that a job boots: the errors that counted, the newest failure, and how old the
    -- token is of the boot that began last.
    warned              text[] NOT NULL DEFAULT '{}',
    warned_at           timestamptz,
    begun_by            timestamptz,
    -- When the attempt that runs last got further, and whether its deadline is that of one that
    -- gets no further.
    grown_at            timestamptz,
    stalled             boolean NOT NULL DEFAULT false,
    CONSTRAINT pxe_nodes_netboot CHECK ((netboot_purpose <> '') = (netboot_workflow_id IS NOT NULL) AND (netboot_purpose <> '') = (netboot_job_id IS NOT NULL) AND (netboot_purpose <> '' OR netboot_done_at IS NULL))
);
CREATE INDEX pxe_nodes_by_deadline ON pxe_nodes (deadline_at) WHERE deadline_at IS NOT NULL;
CREATE INDEX pxe_nodes_by_workflow ON pxe_nodes (install_workflow_id) WHERE install_workflow_id IS NOT NULL;
CREATE INDEX pxe_nodes_by_erase_workflow ON pxe_nodes (erase_workflow_id) WHERE erase_workflow_id IS NOT NULL;
CREATE INDEX pxe_nodes_by_netboot_workflow ON pxe_nodes (netboot_workflow_id) WHERE netboot_workflow_id IS NOT NULL;

-- The addresses of nodes that are not retired: one node an address.
CREATE TABLE pxe_macs (
    mac     text PRIMARY KEY CHECK (mac ~ '^[0-9a-f]{2}(:[0-9a-f]{2}){5}$'),
    node_id text NOT NULL REFERENCES nodes (id) ON DELETE CASCADE
);
CREATE INDEX pxe_macs_by_node ON pxe_macs (node_id);

-- What a boot script handed out. A token speaks for one attempt of one round and ends with it.
CREATE TABLE pxe_tokens (
    token_hash bytea PRIMARY KEY CHECK (octet_length(token_hash) = 32),
    node_id    text NOT NULL REFERENCES nodes (id) ON DELETE CASCADE,
    round      bigint NOT NULL,
    attempt    integer NOT NULL CHECK (attempt > 0),
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL,
    used_at    timestamptz,
    source     text NOT NULL DEFAULT ''
);
CREATE INDEX pxe_tokens_by_node ON pxe_tokens (node_id, created_at);

-- Nodes that carry the label device-group with this name.
CREATE TABLE device_groups (
    name              text PRIMARY KEY CHECK (name <> ''),
    auto_promote      boolean NOT NULL DEFAULT false, -- installed becomes active without an operator
    version           bigint NOT NULL DEFAULT 1,
    created_at        timestamptz NOT NULL DEFAULT now(),
    updated_at        timestamptz NOT NULL DEFAULT now(),
    erase_workflow_id text REFERENCES install_workflows (id)
);
