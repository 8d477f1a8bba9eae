-- Prices, the usage that is charged by them, the balances of billing accounts, and what follows
-- from a balance: holds, states, notices, forced releases. docs/billing.md explains the rules.
-- Forced releases that stopped after a plain outage resume by themselves: each tick stores what the
-- next one compares.

-- +goose Up
-- A price is valid from a moment until the next price of the same SKU and currency. line is the SKU
-- and the currency as a point, since an exclusion constraint compares texts only with an extension.
CREATE TABLE prices (
    id                  text PRIMARY KEY CHECK (id LIKE 'prc\_%'),
    sku_id              text REFERENCES skus (id),
    currency            text NOT NULL REFERENCES currencies (code),
    rate_minor_per_hour bigint NOT NULL CHECK (rate_minor_per_hour BETWEEN 0 AND 1000000000000),
    valid               tstzrange NOT NULL CHECK (NOT isempty(valid) AND NOT lower_inf(valid) AND lower_inc(valid) AND NOT upper_inc(valid)),
    set_by              text NOT NULL CHECK (set_by <> '' AND char_length(set_by) <= 300),
    created_at          timestamptz NOT NULL DEFAULT now(),
    instance_type       text CHECK (instance_type ~ '^[a-z0-9-]{1,63}/[A-Za-z0-9_.-]{1,63}$'),
    item                text NOT NULL GENERATED ALWAYS AS (coalesce(sku_id, instance_type)) STORED,
    line                numrange NOT NULL GENERATED ALWAYS AS (numrange( ('x' || md5(coalesce(sku_id, instance_type) || '/' || currency))::bit(64)::bigint::numeric, ('x' || md5(coalesce(sku_id, instance_type) || '/' || currency))::bit(64)::bigint::numeric, '[]')) STORED,
    CONSTRAINT prices_one_item CHECK (num_nonnulls(sku_id, instance_type) = 1),
    CONSTRAINT prices_overlap EXCLUDE USING gist (line WITH &&, valid WITH &&)
);
CREATE INDEX prices_by_item ON prices (item, currency, lower(valid));
CREATE TRIGGER prices_guard BEFORE INSERT OR UPDATE ON prices FOR EACH ROW EXECUTE FUNCTION guard_price();
CREATE TRIGGER prices_no_truncate BEFORE TRUNCATE ON prices FOR EACH STATEMENT EXECUTE FUNCTION audit_refuse_edit();
CREATE TRIGGER prices_guard_withdrawal BEFORE DELETE ON prices FOR EACH ROW EXECUTE FUNCTION guard_price_withdrawal();
CREATE TRIGGER prices_reopen AFTER DELETE ON prices FOR EACH ROW EXECUTE FUNCTION reopen_price();

-- What an allocation uses, from its creation on. It is charged from start_time to end_time, and at
-- most to end_cap.
CREATE TABLE usage_records (
    project_id         text NOT NULL,
    allocation_id      text,
    id                 text NOT NULL CHECK (id LIKE 'usg\_%'),
    billing_account_id text NOT NULL,
    sku_id             text REFERENCES skus (id),
    currency           text NOT NULL,
    max_spend_minor    bigint CHECK (max_spend_minor > 0),
    start_time         timestamptz,
    end_cap            timestamptz,
    end_time           timestamptz,
    closed_at          timestamptz,
    created_at         timestamptz NOT NULL DEFAULT now(),
    instance_id        text REFERENCES instances (id),
    instance_type      text,
    item               text NOT NULL GENERATED ALWAYS AS (coalesce(sku_id, instance_type)) STORED,
    CONSTRAINT usage_records_id_unique UNIQUE (project_id, id),
    CHECK (end_time >= start_time),
    CHECK (closed_at IS NULL OR end_time IS NOT NULL OR start_time IS NULL),
    FOREIGN KEY (project_id, allocation_id) REFERENCES allocations (project_id, id),
    FOREIGN KEY (billing_account_id, currency) REFERENCES billing_accounts (id, currency),
    CONSTRAINT usage_records_allocation_unique UNIQUE (project_id, allocation_id),
    CONSTRAINT usage_records_one_subject CHECK (num_nonnulls(allocation_id, instance_id) = 1 AND (allocation_id IS NULL) = (sku_id IS NULL) AND (instance_id IS NULL) = (instance_type IS NULL) AND (instance_id IS NULL) = (id NOT LIKE '%-i'))
);
CREATE INDEX usage_records_open ON usage_records (billing_account_id, id) WHERE closed_at IS NULL;
CREATE INDEX usage_records_by_allocation ON usage_records (allocation_id);
CREATE INDEX usage_records_by_account ON usage_records (billing_account_id);
CREATE UNIQUE INDEX usage_records_instance_unique ON usage_records (instance_id) WHERE instance_id IS NOT NULL;
CREATE TRIGGER usage_records_no_delete BEFORE DELETE OR TRUNCATE ON usage_records FOR EACH STATEMENT EXECUTE FUNCTION audit_refuse_edit();
CREATE TRIGGER usage_records_guard BEFORE UPDATE ON usage_records FOR EACH ROW EXECUTE FUNCTION guard_usage_record();
CREATE TRIGGER usage_records_hold AFTER UPDATE ON usage_records FOR EACH ROW
    WHEN (NEW.end_time IS NOT NULL AND OLD.end_time IS NULL OR NEW.closed_at IS NOT NULL AND OLD.closed_at IS NULL) EXECUTE FUNCTION free_hold();
SELECT isolate_by_project('usage_records');

-- A part of a usage record with one rate.
CREATE TABLE usage_segments (
    project_id          text NOT NULL,
    record_id           text NOT NULL,
    segment             integer NOT NULL CHECK (segment >= 0),
    billing_account_id  text NOT NULL,
    currency            text NOT NULL,
    rate_minor_per_hour bigint NOT NULL CHECK (rate_minor_per_hour >= 0),
    started_at          timestamptz NOT NULL,
    ended_at            timestamptz,
    billed_through      timestamptz NOT NULL,
    charged_minor       bigint NOT NULL DEFAULT 0 CHECK (charged_minor >= 0),
    -- A segment is settled when it has ended and is charged to its end.
    settled             boolean NOT NULL GENERATED ALWAYS AS (ended_at IS NOT NULL AND billed_through >= ended_at) STORED,
    PRIMARY KEY (project_id, record_id, segment),
    FOREIGN KEY (project_id, record_id) REFERENCES usage_records (project_id, id),
    CHECK (ended_at >= started_at),
    CHECK (billed_through >= started_at AND (ended_at IS NULL OR billed_through <= ended_at))
) WITH (fillfactor = 50);
CREATE UNIQUE INDEX usage_segments_one_open ON usage_segments (project_id, record_id) WHERE ended_at IS NULL;
CREATE INDEX usage_segments_due ON usage_segments (billing_account_id) WHERE NOT settled;
CREATE TRIGGER usage_segments_no_delete BEFORE DELETE OR TRUNCATE ON usage_segments FOR EACH STATEMENT EXECUTE FUNCTION audit_refuse_edit();
CREATE TRIGGER usage_segments_guard BEFORE UPDATE ON usage_segments FOR EACH ROW
    WHEN ((NEW.project_id, NEW.record_id, NEW.segment, NEW.billing_account_id, NEW.currency, NEW.rate_minor_per_hour, NEW.started_at)
            IS DISTINCT FROM (OLD.project_id, OLD.record_id, OLD.segment, OLD.billing_account_id, OLD.currency, OLD.rate_minor_per_hour, OLD.started_at)
        OR NEW.billed_through < OLD.billed_through OR NEW.charged_minor < OLD.charged_minor
        OR OLD.ended_at IS NOT NULL AND NEW.ended_at IS DISTINCT FROM OLD.ended_at)
    EXECUTE FUNCTION guard_usage_segment();
SELECT isolate_by_project('usage_segments');

-- What was charged. A window begins where the one before ended, which the key and the guard of
-- billed_through prove; its ledger transaction has the key usage:RECORD:WINDOW_START. A window that
-- cost less than one minor unit has none.
CREATE TABLE usage_windows (
    project_id     text NOT NULL,
    record_id      text NOT NULL,
    window_start   timestamptz NOT NULL,
    window_end     timestamptz NOT NULL,
    segment        integer NOT NULL,
    amount_minor   bigint NOT NULL CHECK (amount_minor >= 0),
    transaction_id bigint,
    PRIMARY KEY (project_id, record_id, window_start),
    UNIQUE (project_id, record_id, window_end),
    CHECK (window_end > window_start),
    CHECK ((amount_minor = 0) = (transaction_id IS NULL))
);
CREATE INDEX usage_windows_by_transaction ON usage_windows (transaction_id) WHERE transaction_id IS NOT NULL;
CREATE TRIGGER usage_windows_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON usage_windows FOR EACH STATEMENT EXECUTE FUNCTION audit_refuse_edit();
CREATE TRIGGER usage_windows_guard AFTER INSERT ON usage_windows REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION guard_usage_windows();
SELECT isolate_by_project('usage_windows');

-- A row for each account. A threshold that is null is that of the policy: 10, 0 and 12 whole units.
-- state follows the posted balance of prepaid; holds do not count. episode grows when the balance
-- is above rearm again, and each kind of notice is written once in it. depletions counts the
-- postings that took the account to depleted; the last reviewed one is that after which allocations
-- may be released. short_since is since when what is available does not cover what the allocations
-- cost until they could be released; short_episode counts these times.
CREATE TABLE account_balances (
    billing_account_id text PRIMARY KEY REFERENCES billing_accounts (id) ON DELETE CASCADE,
    low_minor          bigint,
    depleted_minor     bigint,
    rearm_minor        bigint,
    grace_seconds      integer NOT NULL DEFAULT 0 CHECK (grace_seconds BETWEEN 0 AND 3600),
    state              text NOT NULL DEFAULT 'depleted' CHECK (state IN ('healthy', 'low_balance', 'depleted')),
    since              timestamptz NOT NULL DEFAULT now(),
    episode            integer NOT NULL DEFAULT 1,
    depletions         integer NOT NULL DEFAULT 0,
    reviewed_depletion integer NOT NULL DEFAULT 0,
    short_since        timestamptz,
    short_episode      integer NOT NULL DEFAULT 0,
    set_aside_at       timestamptz,
    set_aside_reason   text NOT NULL DEFAULT '' CHECK (char_length(set_aside_reason) <= 500),
    version            bigint NOT NULL DEFAULT 1,
    CHECK (depleted_minor <= low_minor AND low_minor <= rearm_minor),
    CHECK ((set_aside_at IS NULL) = (set_aside_reason = ''))
);
CREATE INDEX account_balances_depleted ON account_balances (billing_account_id) WHERE state = 'depleted' AND depletions > 0;
CREATE INDEX account_balances_set_aside ON account_balances (billing_account_id) WHERE set_aside_at IS NOT NULL;
CREATE TRIGGER account_balances_thresholds AFTER UPDATE OF low_minor, depleted_minor, rearm_minor ON account_balances FOR EACH ROW
    WHEN ((OLD.low_minor, OLD.depleted_minor, OLD.rearm_minor) IS DISTINCT FROM (NEW.low_minor, NEW.depleted_minor, NEW.rearm_minor))
    EXECUTE FUNCTION follow_balance();

-- One notice of a kind in an episode. It is passed on to the projects of the account; told_at says
-- that it was.
CREATE TABLE balance_notices (
    billing_account_id text NOT NULL REFERENCES billing_accounts (id) ON DELETE CASCADE,
    episode            integer NOT NULL,
    kind               text NOT NULL CHECK (kind IN ('low_balance', 'depleted', 'balance_short')),
    balance_minor      bigint NOT NULL,
    at                 timestamptz NOT NULL DEFAULT now(),
    told_at            timestamptz,
    PRIMARY KEY (billing_account_id, episode, kind)
);
CREATE INDEX balance_notices_untold ON balance_notices (at) WHERE told_at IS NULL;

-- What is held back of a balance for an allocation from its claim until its charge ends.
CREATE TABLE balance_holds (
    project_id         text NOT NULL,
    allocation_id      text,
    billing_account_id text NOT NULL,
    currency           text NOT NULL,
    amount_minor       bigint NOT NULL CHECK (amount_minor >= 0),
    created_at         timestamptz NOT NULL DEFAULT now(),
    freed_at           timestamptz,
    instance_id        text REFERENCES instances (id),
    FOREIGN KEY (project_id, allocation_id) REFERENCES allocations (project_id, id),
    FOREIGN KEY (billing_account_id, currency) REFERENCES billing_accounts (id, currency),
    CONSTRAINT balance_holds_allocation_unique UNIQUE (project_id, allocation_id),
    CONSTRAINT balance_holds_one_subject CHECK (num_nonnulls(allocation_id, instance_id) = 1)
);
CREATE INDEX balance_holds_active ON balance_holds (billing_account_id) WHERE freed_at IS NULL;
CREATE UNIQUE INDEX balance_holds_instance_unique ON balance_holds (instance_id) WHERE instance_id IS NOT NULL;
SELECT isolate_by_project('balance_holds');

-- What a project may cost in a calendar month (UTC) until its owners are told. It stops nothing.
CREATE TABLE project_budgets (
    project_id   text PRIMARY KEY REFERENCES projects (id) ON DELETE CASCADE,
    limit_minor  bigint NOT NULL CHECK (limit_minor BETWEEN 1 AND 1000000000000000),
    warn_percent integer NOT NULL DEFAULT 80 CHECK (warn_percent BETWEEN 1 AND 99),
    version      bigint NOT NULL DEFAULT 1,
    updated_at   timestamptz NOT NULL DEFAULT now()
);
SELECT isolate_by_project('project_budgets');

-- The last tick, and what keeps the next one or the forced releases from being done. One row.
CREATE TABLE billing_control (
    one                    boolean PRIMARY KEY DEFAULT true CHECK (one),
    boundary               timestamptz,
    ticked_at              timestamptz,
    clock_disagrees_since  timestamptz,
    clock_disagrees        text NOT NULL DEFAULT '' CHECK (char_length(clock_disagrees) <= 500),
    enforcement_stopped_at timestamptz,
    enforcement_stopped    text NOT NULL DEFAULT '' CHECK (char_length(enforcement_stopped) <= 500),
    ticks                  bigint NOT NULL DEFAULT 0,
    windows                bigint NOT NULL DEFAULT 0,
    -- what stopped the releases was a plain outage
    resumes_itself         boolean NOT NULL DEFAULT false,
    agreed_ticks           integer NOT NULL DEFAULT 0 CHECK (agreed_ticks >= 0), -- since then
    epoch                  text NOT NULL DEFAULT '' CHECK (char_length(epoch) <= 100),
    worker_boot            text NOT NULL DEFAULT '' CHECK (char_length(worker_boot) <= 100),
    worker_uptime_ms       bigint NOT NULL DEFAULT 0,
    worker_at              timestamptz
);
INSERT INTO billing_control DEFAULT VALUES;
