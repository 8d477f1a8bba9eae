-- guard_price keeps a price as it was set, whatever writes it: it is only closed by the next one,
-- at a moment that is still to come, and valid without end again when that one is withdrawn. A
-- generated column has no value yet where it is called.
CREATE OR REPLACE FUNCTION guard_price() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    is_first boolean := NOT EXISTS (SELECT FROM prices p WHERE p.item = coalesce(NEW.sku_id, NEW.instance_type) AND p.currency = NEW.currency);
BEGIN
    IF TG_OP = 'INSERT' THEN
        IF NOT upper_inf(NEW.valid) THEN
            RAISE EXCEPTION 'a price is valid until the next one is set' USING ERRCODE = 'SW005';
        END IF;
        IF is_first AND lower(NEW.valid) >= now() - interval '1 minute' OR NOT is_first AND lower(NEW.valid) >= now() + interval '59 minutes' THEN
            RETURN NEW;
        END IF;
    ELSIF (upper_inf(OLD.valid) AND upper(NEW.valid) >= now() + interval '59 minutes' OR upper_inf(NEW.valid) AND upper(OLD.valid) >= now() + interval '4 minutes')
        AND lower(NEW.valid) = lower(OLD.valid) AND (NEW.id, NEW.sku_id, NEW.instance_type, NEW.currency, NEW.rate_minor_per_hour, NEW.set_by, NEW.created_at)
            IS NOT DISTINCT FROM (OLD.id, OLD.sku_id, OLD.instance_type, OLD.currency, OLD.rate_minor_per_hour, OLD.set_by, OLD.created_at) THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'a price starts at least an hour ahead, and one that was set does not change' USING ERRCODE = 'SW005';
END $$;

-- Where few rows of a large table are asked for, the functions below set that they are found by an
-- index: a plan is kept, and may be older than the rows. Functions with a body of standard SQL name
-- what they use when they are made, whatever the search path is then. The planner puts them into
-- the statement that calls them, which one with a setting of its own prevents.
CREATE OR REPLACE FUNCTION usage_cost(p_rate bigint, p_start timestamptz, p_end timestamptz) RETURNS bigint LANGUAGE sql IMMUTABLE
    RETURN floor(p_rate::numeric * round(extract(epoch FROM (p_end - p_start)) * 1000000) / 3600000000)::bigint;

-- least_end is the earliest end of a charge: what was active is charged for ten minutes at least,
-- since each tenancy costs an erasure.
CREATE OR REPLACE FUNCTION least_end(p_start timestamptz) RETURNS timestamptz LANGUAGE sql IMMUTABLE
    RETURN p_start + interval '600 seconds';

-- What the guards of rows compare stands in their conditions, so that a function is called only to
-- refuse.
CREATE OR REPLACE FUNCTION guard_usage_segment() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    RAISE EXCEPTION 'segment % of usage record % cannot be taken back', OLD.segment, OLD.record_id USING ERRCODE = 'SW005';
END $$;

CREATE OR REPLACE FUNCTION guard_usage_record() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    IF (NEW.project_id, NEW.allocation_id, NEW.instance_id, NEW.id, NEW.billing_account_id, NEW.sku_id, NEW.instance_type, NEW.currency)
            IS DISTINCT FROM (OLD.project_id, OLD.allocation_id, OLD.instance_id, OLD.id, OLD.billing_account_id, OLD.sku_id, OLD.instance_type, OLD.currency)
        OR OLD.start_time IS NOT NULL AND NEW.start_time IS DISTINCT FROM OLD.start_time
        OR OLD.end_time IS NOT NULL AND NEW.end_time IS DISTINCT FROM OLD.end_time
            AND (NEW.end_time < OLD.end_time AND OLD.end_time > greatest(now(), usage_least_end(OLD))) IS NOT TRUE
        OR OLD.closed_at IS NOT NULL AND NEW.closed_at IS DISTINCT FROM OLD.closed_at THEN
        RAISE EXCEPTION 'usage record % cannot be taken back', OLD.id USING ERRCODE = 'SW005';
    END IF;
    RETURN NEW;
END $$;

-- follow_allocation keeps the usage record with its allocation, whatever moves it: the charge
-- begins when the keys went in, once that is known to be used (start_time), and ends when the
-- access is proven to have ended, when the release fails, when the allocation ends, and at most
-- five minutes after a release was accepted, but not before least_end. An end that is known late,
-- after a minute was charged, is the end of that minute. A start before the request is that of a
-- clock that was behind.
CREATE OR REPLACE FUNCTION follow_allocation() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    r usage_records;
    billed timestamptz;
    ends timestamptz;
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO usage_records (project_id, allocation_id, id, billing_account_id, sku_id, currency, created_at)
        SELECT NEW.project_id, NEW.id, 'usg_' || substr(NEW.id, 5), b.id, NEW.sku_id, b.currency, now()
        FROM projects p JOIN billing_accounts b ON b.id = p.billing_account_id WHERE p.id = NEW.project_id;
        RETURN NULL;
    END IF;
    IF (NEW.status, NEW.start_time, NEW.charge_capped_at, NEW.access_ended_at) IS NOT DISTINCT FROM
        (OLD.status, OLD.start_time, OLD.charge_capped_at, OLD.access_ended_at) THEN
        RETURN NULL;
    END IF;
    SELECT * INTO r FROM usage_records u WHERE u.project_id = NEW.project_id AND u.allocation_id = NEW.id FOR NO KEY UPDATE;
    IF NOT FOUND OR r.closed_at IS NOT NULL OR r.end_time IS NOT NULL THEN
        RETURN NULL;
    END IF;
    IF r.start_time IS NULL AND NEW.start_time IS NOT NULL THEN
        r.start_time := greatest(NEW.start_time, r.created_at);
        UPDATE usage_records u SET start_time = r.start_time WHERE u.project_id = r.project_id AND u.id = r.id;
        INSERT INTO usage_segments (project_id, record_id, segment, billing_account_id, currency, rate_minor_per_hour, started_at, billed_through)
        VALUES (r.project_id, r.id, 0, r.billing_account_id, r.currency, coalesce(rate_at(r.sku_id, r.currency, r.start_time, r.start_time), 0),
            r.start_time, r.start_time);
    END IF;
    IF NEW.charge_capped_at IS NOT NULL AND r.end_cap IS NULL THEN
        UPDATE usage_records u SET end_cap = NEW.charge_capped_at + interval '300 seconds' WHERE u.project_id = r.project_id AND u.id = r.id
        RETURNING u.end_cap INTO r.end_cap;
    END IF;
    ends := least(NEW.access_ended_at, CASE WHEN NEW.status IN ('release_failed', 'released', 'failed') THEN now() END, r.end_cap);
    IF ends IS NULL OR ends > now() THEN
        RETURN NULL;
    END IF;
    IF r.start_time IS NULL THEN
        UPDATE usage_records u SET closed_at = now() WHERE u.project_id = r.project_id AND u.id = r.id AND NEW.status IN ('released', 'failed', 'release_failed');
        RETURN NULL;
    END IF;
    SELECT max(s.billed_through) INTO billed FROM usage_segments s WHERE s.project_id = r.project_id AND s.record_id = r.id;
    UPDATE usage_records u SET end_time = greatest(ends, billed, least_end(r.start_time)) WHERE u.project_id = r.project_id AND u.id = r.id;
    RETURN NULL;
END $$;

-- split_usage ends the segments of some accounts at each change of their rate up to a moment, and
-- begins the next ones.
CREATE OR REPLACE FUNCTION split_usage(p_accounts text[], p_boundary timestamp with time zone) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp SET enable_seqscan = off AS $$
DECLARE
    changed bigint;
BEGIN
    LOOP
        WITH due AS (
            SELECT DISTINCT ON (s.project_id, s.record_id) s.*, c.at, c.rate
            FROM usage_segments s JOIN usage_records r ON r.project_id = s.project_id AND r.id = s.record_id
            JOIN prices p ON p.item = r.item AND p.currency = r.currency
            CROSS JOIN LATERAL (VALUES (lower(p.valid)), (lower(p.valid) + interval '168 hours')) AS m (at)
            CROSS JOIN LATERAL (SELECT m.at, rate_at(r.item, r.currency, r.start_time, m.at) AS rate
                WHERE m.at > s.started_at AND m.at >= s.billed_through AND m.at <= p_boundary AND (r.end_time IS NULL OR m.at < r.end_time)) AS c
            WHERE s.billing_account_id = ANY (p_accounts) AND NOT s.settled AND s.ended_at IS NULL AND c.rate <> s.rate_minor_per_hour
            ORDER BY s.project_id, s.record_id, c.at
        ), ended AS (
            UPDATE usage_segments s SET ended_at = d.at FROM due d
            WHERE s.project_id = d.project_id AND s.record_id = d.record_id AND s.segment = d.segment RETURNING s.segment
        )
        INSERT INTO usage_segments (project_id, record_id, segment, billing_account_id, currency, rate_minor_per_hour, started_at, billed_through)
        SELECT d.project_id, d.record_id, d.segment + 1, d.billing_account_id, d.currency, d.rate, d.at, d.at FROM due d, (SELECT count(*) FROM ended) e;
        GET DIAGNOSTICS changed = ROW_COUNT;
        EXIT WHEN changed = 0;
    END LOOP;
END $$;

-- bill_accounts charges some accounts up to a moment: one window for each segment, one ledger
-- transaction for all windows of a project that cost something. Its key is that of the first of
-- them, so that no other debit has it, and its request_hash covers them. A second call for the same
-- moment, or an earlier one, changes nothing. The locks are taken in the order of the accounts'
-- ids. What few accounts have in large tables is read by the indexes.
CREATE OR REPLACE FUNCTION bill_accounts(p_accounts text[], p_boundary timestamp with time zone, OUT billed_windows integer, OUT billed_minor numeric) RETURNS record
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp SET random_page_cost = 1.1 SET enable_seqscan = off AS $$
DECLARE
    ending boolean;
BEGIN
    PERFORM FROM billing_accounts b WHERE b.id = ANY (p_accounts) ORDER BY b.id FOR NO KEY UPDATE;
    SELECT coalesce(bool_or(r.end_time IS NOT NULL OR r.end_cap IS NOT NULL), false) INTO ending FROM (SELECT u.end_time, u.end_cap FROM usage_records u
        WHERE u.billing_account_id = ANY (p_accounts) AND u.closed_at IS NULL ORDER BY u.id FOR NO KEY UPDATE) r;
    IF ending THEN
        -- An end that is still to come was written by a clock that was ahead: the tenant is gone, so that the charge ends with this tick.
        UPDATE usage_records r SET end_time = greatest(p_boundary, usage_least_end(r), (SELECT max(s.billed_through) FROM usage_segments s
            WHERE s.project_id = r.project_id AND s.record_id = r.id))
        WHERE r.billing_account_id = ANY (p_accounts) AND r.closed_at IS NULL AND r.end_time > greatest(now(), usage_least_end(r));
        UPDATE usage_records r SET end_cap = now() + interval '300 seconds'
        WHERE r.billing_account_id = ANY (p_accounts) AND r.closed_at IS NULL AND r.end_cap > now() + interval '300 seconds' AND r.allocation_id IS NOT NULL;
        UPDATE usage_records r SET end_time = greatest(r.end_cap, usage_least_end(r), (SELECT max(s.billed_through) FROM usage_segments s
            WHERE s.project_id = r.project_id AND s.record_id = r.id))
        WHERE r.billing_account_id = ANY (p_accounts) AND r.closed_at IS NULL AND r.end_time IS NULL AND r.start_time IS NOT NULL AND r.end_cap <= p_boundary;
    END IF;
    PERFORM split_usage(p_accounts, p_boundary);
    IF ending THEN
        UPDATE usage_segments s SET ended_at = greatest(r.end_time, s.billed_through) FROM usage_records r
        WHERE s.billing_account_id = ANY (p_accounts) AND s.ended_at IS NULL AND r.project_id = s.project_id AND r.id = s.record_id AND r.end_time <= p_boundary;
    END IF;
    INSERT INTO ledger_accounts (billing_account_id, code, currency)
    SELECT b.id, c.code, b.currency FROM billing_accounts b, (VALUES ('prepaid'), ('revenue')) AS c (code)
    WHERE b.id = ANY (p_accounts) AND NOT EXISTS (SELECT FROM ledger_accounts a WHERE a.billing_account_id = b.id AND a.code = c.code)
    ORDER BY b.id, c.code ON CONFLICT DO NOTHING;

    WITH due AS MATERIALIZED (
        SELECT s.project_id, s.record_id, s.segment, s.billing_account_id, s.currency, s.billed_through AS window_start,
            least(p_boundary, s.ended_at) AS window_end,
            usage_cost(s.rate_minor_per_hour, s.started_at, least(p_boundary, s.ended_at)) - s.charged_minor AS amount_minor
        FROM usage_segments s
        WHERE s.billing_account_id = ANY (p_accounts) AND NOT s.settled
            AND s.billed_through < least(p_boundary, s.ended_at)
    ), ranked AS (
        SELECT d.*, row_number() OVER (PARTITION BY d.billing_account_id, d.project_id ORDER BY d.record_id COLLATE "C", d.window_start) AS place
        FROM due d WHERE d.amount_minor > 0
    ), debits AS MATERIALIZED (
        SELECT d.billing_account_id, d.project_id, d.currency, sum(d.amount_minor)::bigint AS amount_minor, max(d.window_end) AS effective_at,
            max(d.record_id || ':' || to_char(d.window_start AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')) FILTER (WHERE d.place = 1) AS first,
            CASE WHEN min(d.record_id) = max(d.record_id) AND right(min(d.record_id), 2) <> '-i' THEN usage_subject(min(d.record_id)) END AS of_allocation,
            sha256(string_agg(usage_window_bytes(d.record_id, d.segment, d.window_start, d.window_end, d.amount_minor), '' ORDER BY d.place)) AS windows_hash
        FROM ranked d GROUP BY d.billing_account_id, d.project_id, d.currency
    ), booked AS (
        INSERT INTO ledger_transactions (key, kind, billing_account_id, currency, of_project, of_allocation, effective_at, request_hash)
        SELECT 'usage:' || d.first, 'usage', d.billing_account_id, d.currency, d.project_id, d.of_allocation, d.effective_at, d.windows_hash
        FROM debits d ORDER BY d.billing_account_id, d.project_id
        RETURNING id, billing_account_id, currency, of_project
    ), posted AS MATERIALIZED (
        SELECT b.id, b.billing_account_id, b.currency, d.project_id, d.amount_minor,
            row_number() OVER places AS place, sum(d.amount_minor) OVER places AS running
        FROM booked b JOIN debits d ON d.billing_account_id = b.billing_account_id AND d.project_id = b.of_project
        WINDOW places AS (PARTITION BY b.billing_account_id ORDER BY b.id)
    ), lines AS (
        INSERT INTO ledger_entries (transaction_id, line, ledger_account_id, currency, amount_minor, account_seq, balance_after_minor)
        SELECT p.id, c.line, a.id, p.currency, c.sign * p.amount_minor, a.last_seq + p.place, a.balance_minor + c.sign * p.running
        FROM posted p CROSS JOIN (VALUES (1, 'prepaid', -1), (2, 'revenue', 1)) AS c (line, code, sign)
        JOIN ledger_accounts a ON a.billing_account_id = p.billing_account_id AND a.code = c.code
        RETURNING transaction_id
    ), charged AS (
        UPDATE usage_segments s SET billed_through = d.window_end, charged_minor = s.charged_minor + d.amount_minor FROM due d
        WHERE s.project_id = d.project_id AND s.record_id = d.record_id AND s.segment = d.segment AND s.billing_account_id = ANY (p_accounts)
        RETURNING s.segment
    ), written AS (
        INSERT INTO usage_windows (project_id, record_id, window_start, window_end, segment, amount_minor, transaction_id)
        SELECT d.project_id, d.record_id, d.window_start, d.window_end, d.segment, d.amount_minor, p.id
        FROM due d LEFT JOIN posted p ON p.billing_account_id = d.billing_account_id AND p.project_id = d.project_id AND d.amount_minor > 0
        RETURNING usage_windows.amount_minor
    )
    SELECT count(*), coalesce(sum(w.amount_minor), 0) INTO billed_windows, billed_minor FROM written w, (SELECT count(*) FROM lines) l, (SELECT count(*) FROM charged) c;

    IF ending THEN
        UPDATE usage_records r SET closed_at = now()
        WHERE r.billing_account_id = ANY (p_accounts) AND r.closed_at IS NULL AND r.end_time <= p_boundary;
    END IF;
END $$;

CREATE OR REPLACE FUNCTION make_account_balance() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    INSERT INTO account_balances (billing_account_id) VALUES (NEW.id);
    RETURN NULL;
END $$;

-- follow_balance decides the state in the transaction that moves the balance or a threshold: a
-- credit line counts at once, and not after the release that it is to prevent. An account to which
-- nothing was posted has no state yet.
CREATE OR REPLACE FUNCTION follow_balance() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    t record;
    s account_balances;
    was account_balances;
    balance bigint;
    next_state text;
BEGIN
    SELECT * INTO was FROM account_balances a WHERE a.billing_account_id = NEW.billing_account_id FOR NO KEY UPDATE;
    SELECT a.balance_minor, v.low_minor, v.depleted_minor, v.rearm_minor INTO t FROM ledger_accounts a JOIN balance_thresholds v ON v.billing_account_id = a.billing_account_id
    WHERE a.billing_account_id = NEW.billing_account_id AND a.code = 'prepaid' AND a.last_seq > 0;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    s := was;
    balance := t.balance_minor;
    next_state := CASE WHEN balance <= t.depleted_minor THEN 'depleted' WHEN balance <= t.low_minor THEN 'low_balance' ELSE 'healthy' END;
    -- Nested: in one condition, PostgreSQL plans the query again each time the first half is false.
    IF balance > t.rearm_minor THEN
        IF EXISTS (SELECT FROM balance_notices n
            WHERE n.billing_account_id = s.billing_account_id AND n.episode = s.episode AND n.kind <> 'balance_short') THEN
            s.episode := s.episode + 1;
        END IF;
    END IF;
    IF next_state <> 'healthy' AND NOT EXISTS (SELECT FROM balance_notices n
        WHERE n.billing_account_id = s.billing_account_id AND n.episode = s.episode AND n.kind = next_state) THEN
        INSERT INTO balance_notices (billing_account_id, episode, kind, balance_minor) VALUES (s.billing_account_id, s.episode, next_state, balance)
        ON CONFLICT DO NOTHING;
    END IF;
    IF next_state = 'depleted' AND (s.state <> 'depleted' OR s.depletions = 0) THEN
        s.depletions := s.depletions + 1;
        s.since := clock_timestamp();
    ELSIF next_state <> s.state THEN
        s.since := clock_timestamp();
    END IF;
    IF (next_state, s.episode, s.depletions) IS DISTINCT FROM (was.state, was.episode, was.depletions) THEN
        UPDATE account_balances a SET state = next_state, since = s.since, episode = s.episode, depletions = s.depletions, version = a.version + 1
        WHERE a.billing_account_id = s.billing_account_id;
    END IF;
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION free_hold() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    IF NEW.instance_id IS NOT NULL THEN
        UPDATE balance_holds h SET freed_at = now() WHERE h.instance_id = NEW.instance_id AND h.freed_at IS NULL;
        RETURN NULL;
    END IF;
    UPDATE balance_holds h SET freed_at = now() WHERE h.project_id = NEW.project_id AND h.allocation_id = NEW.allocation_id AND h.freed_at IS NULL;
    RETURN NULL;
END $$;

-- usage_window_bytes is what the hash of a debit covers of each of its windows.
CREATE OR REPLACE FUNCTION usage_window_bytes(p_record text, p_segment integer, p_start timestamptz, p_end timestamptz, p_amount bigint) RETURNS bytea LANGUAGE sql STABLE
    RETURN int4send(octet_length(p_record)) || convert_to(p_record, 'UTF8') || int4send(p_segment) || timestamptz_send(p_start) || timestamptz_send(p_end)
        || int8send(p_amount);

CREATE OR REPLACE FUNCTION guard_usage_windows() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp SET enable_seqscan = off AS $$
DECLARE
    wrong record;
BEGIN
    SELECT w.record_id, w.window_start INTO wrong FROM added w
        LEFT JOIN usage_segments s ON s.project_id = w.project_id AND s.record_id = w.record_id AND s.segment = w.segment
        LEFT JOIN ledger_transactions t ON t.id = w.transaction_id
        WHERE s.record_id IS NULL OR w.transaction_id IS NOT NULL AND (t.kind, t.billing_account_id, t.of_project, t.posted_at)
            IS DISTINCT FROM ('usage', s.billing_account_id, w.project_id, now()) LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'the window of usage record % from % is of no segment or no debit of its project', wrong.record_id, wrong.window_start
            USING ERRCODE = 'SW005';
    END IF;
    RETURN NULL;
END $$;

-- guard_price_withdrawal lets only the last price of a SKU in a currency go, long enough before it
-- begins that no tick has seen it in force.
CREATE OR REPLACE FUNCTION guard_price_withdrawal() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    IF upper_inf(OLD.valid) AND lower(OLD.valid) >= now() + interval '4 minutes' THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'only the last price of a SKU is withdrawn, and only before it begins' USING ERRCODE = 'SW005';
END $$;

-- reopen_price has the price before valid without end again: no moment is left without a price.
CREATE OR REPLACE FUNCTION reopen_price() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    UPDATE prices SET valid = tstzrange(lower(valid), NULL)
    WHERE item = OLD.item AND currency = OLD.currency AND upper(valid) = lower(OLD.valid);
    RETURN NULL;
END $$;

-- rate_at is the rate at a moment of what runs since p_start: the lowest price of the seven days
-- before it, since p_start. A time before the first price has the rate 0. So a lower price counts
-- at once, and a higher one seven days after it began.
CREATE OR REPLACE FUNCTION rate_at(p_item text, p_currency text, p_start timestamp with time zone, p_at timestamp with time zone) RETURNS bigint
LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT CASE WHEN bool_or(lower(p.valid) <= greatest(p_start, p_at - interval '168 hours')) THEN min(p.rate_minor_per_hour) ELSE 0 END
    FROM prices p WHERE p.item = p_item AND p.currency = p_currency
        AND p.valid && tstzrange(greatest(p_start, p_at - interval '168 hours'), p_at,
            CASE WHEN p_start >= p_at - interval '168 hours' THEN '[]' ELSE '(]' END)
$$;

-- usage_subject is the allocation or instance of a usage record, by its id.
CREATE OR REPLACE FUNCTION usage_subject(p_record text) RETURNS text LANGUAGE sql IMMUTABLE
    RETURN CASE WHEN right(p_record, 2) = '-i' THEN 'inst_' || substr(p_record, 5, length(p_record) - 6) ELSE 'alc_' || substr(p_record, 5) END;
