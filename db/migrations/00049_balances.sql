-- The balances of billing accounts and what follows from them: holds, states, notices, forced releases. docs/billing.md explains the rules.

-- +goose Up
-- A row for each account. A threshold that is null is that of the policy: 10, 0 and 12 whole units. state follows the posted balance of prepaid; holds do
-- not count. episode grows when the balance is above rearm again, and each kind of notice is written once in it. depletions counts the postings that took
-- the account to depleted; the last reviewed one is that after which allocations may be released. short_since is since when what is available does not
-- cover what the allocations cost until they could be released; short_episode counts these times.
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

-- One notice of a kind in an episode. It is passed on to the projects of the account; told_at says that it was.
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

-- +goose StatementBegin
CREATE FUNCTION make_account_balance() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    INSERT INTO account_balances (billing_account_id) VALUES (NEW.id);
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER billing_accounts_balance AFTER INSERT ON billing_accounts FOR EACH ROW EXECUTE FUNCTION make_account_balance();
INSERT INTO account_balances (billing_account_id) SELECT id FROM billing_accounts;

-- balance_thresholds are the thresholds of each account in minor units.
CREATE VIEW balance_thresholds WITH (security_invoker = true) AS
SELECT b.id AS billing_account_id, b.currency, c.exponent, coalesce(s.low_minor, 10 * (10 ^ c.exponent)::bigint)::bigint AS low_minor,
    coalesce(s.depleted_minor, 0)::bigint AS depleted_minor, coalesce(s.rearm_minor, 12 * (10 ^ c.exponent)::bigint)::bigint AS rearm_minor
FROM billing_accounts b JOIN currencies c ON c.code = b.currency JOIN account_balances s ON s.billing_account_id = b.id;

-- follow_balance decides the state in the transaction that moves the balance or a threshold: a credit line counts at once, and not after the release that
-- it is to prevent. An account to which nothing was posted has no state yet.
-- +goose StatementBegin
CREATE FUNCTION follow_balance() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    t balance_thresholds;
    s account_balances;
    balance bigint;
    next_state text;
BEGIN
    SELECT a.balance_minor INTO balance FROM ledger_accounts a WHERE a.billing_account_id = NEW.billing_account_id AND a.code = 'prepaid' AND a.last_seq > 0;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    SELECT * INTO s FROM account_balances a WHERE a.billing_account_id = NEW.billing_account_id FOR NO KEY UPDATE;
    SELECT * INTO t FROM balance_thresholds v WHERE v.billing_account_id = NEW.billing_account_id;
    next_state := CASE WHEN balance <= t.depleted_minor THEN 'depleted' WHEN balance <= t.low_minor THEN 'low_balance' ELSE 'healthy' END;
    IF balance > t.rearm_minor AND EXISTS (SELECT FROM balance_notices n
        WHERE n.billing_account_id = s.billing_account_id AND n.episode = s.episode AND n.kind <> 'balance_short') THEN
        s.episode := s.episode + 1;
    END IF;
    IF next_state <> 'healthy' THEN
        INSERT INTO balance_notices (billing_account_id, episode, kind, balance_minor) VALUES (s.billing_account_id, s.episode, next_state, balance)
        ON CONFLICT DO NOTHING;
    END IF;
    IF next_state = 'depleted' AND (s.state <> 'depleted' OR s.depletions = 0) THEN
        s.depletions := s.depletions + 1;
        s.since := clock_timestamp();
    ELSIF next_state <> s.state THEN
        s.since := clock_timestamp();
    END IF;
    IF (next_state, s.episode, s.depletions) IS DISTINCT FROM
        (SELECT (a.state, a.episode, a.depletions) FROM account_balances a WHERE a.billing_account_id = s.billing_account_id) THEN
        UPDATE account_balances a SET state = next_state, since = s.since, episode = s.episode, depletions = s.depletions, version = a.version + 1
        WHERE a.billing_account_id = s.billing_account_id;
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER account_balances_thresholds AFTER UPDATE OF low_minor, depleted_minor, rearm_minor ON account_balances FOR EACH ROW
    WHEN ((OLD.low_minor, OLD.depleted_minor, OLD.rearm_minor) IS DISTINCT FROM (NEW.low_minor, NEW.depleted_minor, NEW.rearm_minor))
    EXECUTE FUNCTION follow_balance();
CREATE TRIGGER ledger_accounts_state AFTER UPDATE OF balance_minor ON ledger_accounts FOR EACH ROW
    WHEN (NEW.code = 'prepaid' AND NEW.balance_minor <> OLD.balance_minor) EXECUTE FUNCTION follow_balance();

-- What is held back of a balance for an allocation from its claim until its charge ends.
CREATE TABLE balance_holds (
    project_id         text NOT NULL,
    allocation_id      text NOT NULL,
    billing_account_id text NOT NULL,
    currency           text NOT NULL,
    amount_minor       bigint NOT NULL CHECK (amount_minor >= 0),
    created_at         timestamptz NOT NULL DEFAULT now(),
    freed_at           timestamptz,
    PRIMARY KEY (project_id, allocation_id),
    FOREIGN KEY (project_id, allocation_id) REFERENCES allocations (project_id, id),
    FOREIGN KEY (billing_account_id, currency) REFERENCES billing_accounts (id, currency)
);
CREATE INDEX balance_holds_active ON balance_holds (billing_account_id) WHERE freed_at IS NULL;
SELECT isolate_by_project('balance_holds');

-- +goose StatementBegin
CREATE FUNCTION free_hold() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    UPDATE balance_holds h SET freed_at = now() WHERE h.project_id = NEW.project_id AND h.allocation_id = NEW.allocation_id AND h.freed_at IS NULL;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER usage_records_hold AFTER UPDATE ON usage_records FOR EACH ROW
    WHEN (NEW.end_time IS NOT NULL AND OLD.end_time IS NULL OR NEW.closed_at IS NOT NULL AND OLD.closed_at IS NULL) EXECUTE FUNCTION free_hold();

-- What a project may cost in a calendar month (UTC) until its owners are told. It stops nothing.
CREATE TABLE project_budgets (
    project_id   text PRIMARY KEY REFERENCES projects (id) ON DELETE CASCADE,
    limit_minor  bigint NOT NULL CHECK (limit_minor BETWEEN 1 AND 1000000000000000),
    warn_percent integer NOT NULL DEFAULT 80 CHECK (warn_percent BETWEEN 1 AND 99),
    version      bigint NOT NULL DEFAULT 1,
    updated_at   timestamptz NOT NULL DEFAULT now()
);
SELECT isolate_by_project('project_budgets');

-- budget_spend is what the projects with a budget have cost in this month. It is computed from the segments: their windows are many.
CREATE VIEW budget_spend WITH (security_invoker = true) AS
SELECT b.project_id, to_char(m.start AT TIME ZONE 'UTC', 'YYYY-MM')::text AS month,
    (SELECT coalesce(sum(s.charged_minor - usage_cost(s.rate_minor_per_hour, s.started_at, greatest(s.started_at, m.start))), 0)
        FROM usage_segments s WHERE s.project_id = b.project_id AND s.billed_through > m.start)::bigint AS spent_minor
FROM project_budgets b CROSS JOIN (SELECT date_trunc('month', now(), 'UTC') AS start) m;

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
    windows                bigint NOT NULL DEFAULT 0
);
INSERT INTO billing_control DEFAULT VALUES;

-- What of money needs an operator.
CREATE VIEW billing_attention AS
SELECT 'clock_disagrees'::text AS kind, 'clock_disagrees:'::text AS id, b.clock_disagrees_since::timestamptz AS since, ''::text AS site_id,
    ''::text AS node_id, ''::text AS hostname, ''::text AS bmc_id, ''::text AS job_id, ''::text AS job_kind, ''::text AS workflow_id, ''::text AS status,
    ''::text AS stage, ''::text AS failure_class, b.clock_disagrees::text AS message, ''::text AS next_step, ''::text AS recommended_action,
    false AS waiting_outside, false AS workflow_gone
FROM billing_control b WHERE b.clock_disagrees_since IS NOT NULL
UNION ALL
SELECT 'enforcement_stopped', 'enforcement_stopped:', b.enforcement_stopped_at, '', '', '', '', '', '', '', '', '', '', b.enforcement_stopped, '', '', false, false
FROM billing_control b WHERE b.enforcement_stopped_at IS NOT NULL
UNION ALL
SELECT 'account_set_aside', 'account_set_aside:' || a.billing_account_id, a.set_aside_at, '', '', '', '', '', '', '', '', '', '',
    'billing account ' || a.billing_account_id || ' is not charged: ' || a.set_aside_reason, '', '', false, false
FROM account_balances a WHERE a.set_aside_at IS NOT NULL
UNION ALL
-- Something is to be charged and no tick was finished for ten minutes, or none at all since the first price was set.
SELECT 'billing_silent', 'billing_silent:', coalesce(b.ticked_at, p.first_at), '', '', '', '', '', '', '', '', '', '',
    'no allocation was charged for ten minutes; the next tick charges the whole time', '', '', false, false
FROM billing_control b CROSS JOIN (SELECT min(created_at) AS first_at FROM prices) p
WHERE p.first_at IS NOT NULL AND coalesce(b.ticked_at, p.first_at) < now() - interval '10 minutes';

-- +goose Down
DROP VIEW billing_attention, budget_spend;
DROP TABLE billing_control, project_budgets, balance_holds;
DROP TRIGGER usage_records_hold ON usage_records;
DROP TRIGGER ledger_accounts_state ON ledger_accounts;
DROP TRIGGER account_balances_thresholds ON account_balances;
DROP FUNCTION free_hold, follow_balance;
DROP VIEW balance_thresholds;
DROP TRIGGER billing_accounts_balance ON billing_accounts;
DROP FUNCTION make_account_balance;
DROP TABLE balance_notices, account_balances;
