-- Drift: what the region, BMCs and agents of a site say, compared with the stored records. A
-- finding is opened once, is kept up to date while it lasts, and is closed.

-- +goose Up
-- One row a site: how its last pass went.
CREATE TABLE drift_passes (
    site_id     text PRIMARY KEY,
    pass        bigint NOT NULL DEFAULT 1,
    begun_at    timestamptz NOT NULL DEFAULT now(),
    -- when this pass asked for the region's list; null until it has been read whole
    listed_at   timestamptz,
    finished_at timestamptz, -- of the last pass that looked at everything
    tried_at    timestamptz, -- of the last pass of any kind that came to its end
    problem     text NOT NULL DEFAULT '', -- what kept the last pass from looking at everything
    -- a site without a whole pass for so long needs an operator
    due_seconds integer NOT NULL DEFAULT 900,
    maas_user   text NOT NULL DEFAULT '', -- as whom the region was asked
    report      jsonb NOT NULL DEFAULT '{}', -- of the last pass
    -- What is of a site still goes with it. '' is no site and refers to none.
    site_ref    text GENERATED ALWAYS AS (nullif(site_id, '')) STORED REFERENCES sites (id) ON DELETE CASCADE
);

-- The machines of the region's last whole list.
CREATE TABLE drift_machines (
    site_id       text NOT NULL REFERENCES sites (id) ON DELETE CASCADE,
    system_id     text NOT NULL,
    hostname      text NOT NULL DEFAULT '',
    serial        text NOT NULL DEFAULT '',
    macs          text[] NOT NULL DEFAULT '{}',
    facts         jsonb NOT NULL,
    power_address text NOT NULL DEFAULT '', -- of its BMC, as MAAS has it
    PRIMARY KEY (site_id, system_id)
);

-- What a BMC showed when it was last looked at.
CREATE TABLE drift_bmcs (
    bmc_id          text PRIMARY KEY REFERENCES bmcs (id) ON DELETE CASCADE,
    address         text NOT NULL,
    probed_at       timestamptz NOT NULL,
    answered_at     timestamptz,
    failures        integer NOT NULL DEFAULT 0, -- in a row
    pin_sha256      text NOT NULL DEFAULT '', -- shown to anyone
    problem         text NOT NULL DEFAULT '',
    power           text NOT NULL DEFAULT '', -- read with a login
    power_at        timestamptz,
    probes          bigint NOT NULL DEFAULT 0,
    logins          bigint NOT NULL DEFAULT 0,
    -- The worst health of every part behind a BMC, as the reconciler read it last, and the parts
    -- that are not well.
    health          text NOT NULL DEFAULT '' CHECK (health IN ('', 'OK', 'Warning', 'Critical', 'Unknown')),
    health_problems text[] NOT NULL DEFAULT '{}',
    health_at       timestamptz
);

-- What of a node is accounted for (its boot; name, cards, addresses and deployment of its machine
-- in MAAS), so that a change of it shows.
CREATE TABLE drift_marks (
    node_id   text PRIMARY KEY REFERENCES nodes (id),
    facts     jsonb NOT NULL,
    marked_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE drift_findings (
    id            text PRIMARY KEY CHECK (id LIKE 'drift\_%'),
    site_id       text NOT NULL,
    detector      text NOT NULL CHECK (detector <> ''),
    scope         text NOT NULL CHECK (scope IN ('node', 'bmc', 'machine', 'hardware', 'site')),
    -- the node's, BMC's, machine's or site's id; a MAC address, serial, address or boot id
    subject       text NOT NULL CHECK (subject <> ''),
    node_id       text REFERENCES nodes (id),
    bmc_id        text NOT NULL DEFAULT '',
    system_id     text NOT NULL DEFAULT '',
    severity      text NOT NULL CHECK (severity IN ('critical', 'warning', 'info')),
    status        text NOT NULL CHECK (status IN ('open', 'ignored', 'closed')),
    -- what makes it the same fault: another key is another fault of the same kind
    key           text NOT NULL,
    message       text NOT NULL,
    evidence      jsonb NOT NULL DEFAULT '{}',
    first_seen_at timestamptz NOT NULL DEFAULT now(),
    last_seen_at  timestamptz NOT NULL DEFAULT now(),
    seen_count    bigint NOT NULL DEFAULT 1,
    changed_at    timestamptz NOT NULL DEFAULT now(), -- of the key
    streak        bigint NOT NULL DEFAULT 1, -- passes that saw this very key
    -- the last one
    action        text NOT NULL DEFAULT '' CHECK (action IN ('', 'adopt', 'quarantine', 'ignore')),
    acted_at      timestamptz,
    acted_by      text NOT NULL DEFAULT '',
    acted_reason  text NOT NULL DEFAULT '',
    acted_key     text NOT NULL DEFAULT '',
    closed_at     timestamptz,
    outcome       text NOT NULL DEFAULT '',
    version       bigint NOT NULL DEFAULT 1,
    site_ref      text GENERATED ALWAYS AS (nullif(site_id, '')) STORED REFERENCES sites (id) ON DELETE CASCADE,
    CHECK ((status = 'closed') = (closed_at IS NOT NULL))
);
CREATE UNIQUE INDEX drift_findings_one_live ON drift_findings (site_id, detector, subject) WHERE status <> 'closed';
CREATE INDEX drift_findings_live ON drift_findings (site_id, subject) WHERE status <> 'closed';
CREATE INDEX drift_findings_open ON drift_findings (severity, first_seen_at) WHERE status = 'open';
CREATE INDEX drift_findings_by_node ON drift_findings (node_id, id) WHERE node_id IS NOT NULL;
CREATE INDEX drift_findings_closed ON drift_findings (closed_at) WHERE status = 'closed';
CREATE INDEX drift_findings_quarantined ON drift_findings (site_id, acted_at) WHERE action = 'quarantine';
CREATE TRIGGER drift_findings_edge_insert BEFORE INSERT ON drift_findings FOR EACH ROW EXECUTE FUNCTION guard_finding_status();
CREATE TRIGGER drift_findings_edge_update BEFORE UPDATE ON drift_findings FOR EACH ROW
    WHEN (OLD.status IS DISTINCT FROM NEW.status) EXECUTE FUNCTION guard_finding_status();
