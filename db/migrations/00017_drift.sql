-- Drift: what a site's region, BMCs and agents say, compared with what stands here. A finding is opened once, kept up to date while it lasts, and closed.

-- +goose Up
-- One row a site: how its last pass went.
CREATE TABLE drift_passes (
    site_id     text PRIMARY KEY REFERENCES sites (id) ON DELETE CASCADE,
    pass        bigint NOT NULL DEFAULT 1,
    begun_at    timestamptz NOT NULL DEFAULT now(),
    listed_at   timestamptz,                      -- when this pass asked for the region's list; null until it has been read whole
    finished_at timestamptz,                      -- of the last pass that looked at everything
    tried_at    timestamptz,                      -- of the last pass of any kind that came to its end
    problem     text NOT NULL DEFAULT '',         -- what kept the last pass from looking at everything
    due_seconds integer NOT NULL DEFAULT 900,     -- a site without a whole pass for so long needs a person
    maas_user   text NOT NULL DEFAULT '',         -- as whom the region was asked
    report      jsonb NOT NULL DEFAULT '{}'       -- of the last pass
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
    bmc_id      text PRIMARY KEY REFERENCES bmcs (id) ON DELETE CASCADE,
    address     text NOT NULL,
    probed_at   timestamptz NOT NULL,
    answered_at timestamptz,
    failures    integer NOT NULL DEFAULT 0, -- in a row
    pin_sha256  text NOT NULL DEFAULT '',   -- shown to anyone
    problem     text NOT NULL DEFAULT '',
    power       text NOT NULL DEFAULT '',   -- read with a login
    power_at    timestamptz,
    probes      bigint NOT NULL DEFAULT 0,
    logins      bigint NOT NULL DEFAULT 0
);

-- What of a node is accounted for (its boot; name, cards, addresses and deployment of its machine in MAAS), so that a change of it shows.
CREATE TABLE drift_marks (
    node_id   text PRIMARY KEY REFERENCES nodes (id),
    facts     jsonb NOT NULL,
    marked_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE drift_findings (
    id            text PRIMARY KEY CHECK (id LIKE 'drift\_%'),
    site_id       text NOT NULL REFERENCES sites (id) ON DELETE CASCADE,
    detector      text NOT NULL CHECK (detector <> ''),
    scope         text NOT NULL CHECK (scope IN ('node', 'bmc', 'machine', 'hardware', 'site')),
    subject       text NOT NULL CHECK (subject <> ''), -- the node's, BMC's, machine's or site's id; a MAC address, serial, address or boot id
    node_id       text REFERENCES nodes (id),
    bmc_id        text NOT NULL DEFAULT '',
    system_id     text NOT NULL DEFAULT '',
    severity      text NOT NULL CHECK (severity IN ('critical', 'warning', 'info')),
    status        text NOT NULL CHECK (status IN ('open', 'ignored', 'closed')),
    key           text NOT NULL,          -- what makes it the same fault: another key is another fault of the same kind
    message       text NOT NULL,
    evidence      jsonb NOT NULL DEFAULT '{}',
    first_seen_at timestamptz NOT NULL DEFAULT now(),
    last_seen_at  timestamptz NOT NULL DEFAULT now(),
    seen_count    bigint NOT NULL DEFAULT 1,
    changed_at    timestamptz NOT NULL DEFAULT now(), -- of the key
    streak        bigint NOT NULL DEFAULT 1,          -- passes that saw this very key
    action        text NOT NULL DEFAULT '' CHECK (action IN ('', 'adopt', 'quarantine', 'ignore')), -- the last one
    acted_at      timestamptz,
    acted_by      text NOT NULL DEFAULT '',
    acted_reason  text NOT NULL DEFAULT '',
    acted_key     text NOT NULL DEFAULT '',
    closed_at     timestamptz,
    outcome       text NOT NULL DEFAULT '',
    version       bigint NOT NULL DEFAULT 1,
    CHECK ((status = 'closed') = (closed_at IS NOT NULL))
);
CREATE UNIQUE INDEX drift_findings_one_live ON drift_findings (site_id, detector, subject) WHERE status <> 'closed';
CREATE INDEX drift_findings_live ON drift_findings (site_id, subject) WHERE status <> 'closed';
CREATE INDEX drift_findings_open ON drift_findings (severity, first_seen_at) WHERE status = 'open';
CREATE INDEX drift_findings_by_node ON drift_findings (node_id, id) WHERE node_id IS NOT NULL;
CREATE INDEX drift_findings_closed ON drift_findings (closed_at) WHERE status = 'closed';
CREATE INDEX drift_findings_quarantined ON drift_findings (site_id, acted_at) WHERE action = 'quarantine';
-- Whether a machine that enlists anew was a node that is deleted.
CREATE INDEX nodes_deleted_by_mac ON nodes USING gin (macs) WHERE status = 'deleted';

-- What of it needs a person, in the columns of the view attention; both are read together.
CREATE VIEW drift_attention AS
SELECT 'drift'::text AS kind, ('drift:' || f.id)::text AS id, f.first_seen_at::timestamptz AS since, f.site_id::text AS site_id,
    coalesce(f.node_id, '')::text AS node_id, coalesce(n.hostname, '')::text AS hostname, f.bmc_id::text AS bmc_id, ''::text AS job_id,
    ''::text AS job_kind, ''::text AS workflow_id, coalesce(n.status, '')::text AS status, f.detector::text AS stage, ''::text AS failure_class,
    f.message::text AS message, ''::text AS next_step, ''::text AS recommended_action, false AS waiting_outside, false AS workflow_gone
FROM drift_findings f LEFT JOIN nodes n ON n.id = f.node_id
WHERE f.status = 'open' AND f.severity = 'critical'
UNION ALL
-- Sites whose passes do not come to their end.
SELECT 'reconcile', 'reconcile:' || s.id, coalesce(p.finished_at, s.created_at), s.id, '', '', '', '', '', '', '', '', '', coalesce(p.problem, ''), '', '',
    false, false
FROM sites s LEFT JOIN drift_passes p ON p.site_id = s.id
WHERE coalesce(p.finished_at, s.created_at) < now() - make_interval(secs => coalesce(p.due_seconds, 900));

-- +goose Down
DROP VIEW drift_attention;
DROP INDEX nodes_deleted_by_mac;
DROP TABLE drift_findings, drift_marks, drift_bmcs, drift_machines, drift_passes;
