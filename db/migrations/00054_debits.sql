-- What a project uses in a tick is one debit in the ledger, and not one for each allocation. docs/billing-rules.md explains the rules.

-- +goose Up
-- Where few rows of a large table are asked for, the functions below set that they are found by an index: a plan is kept, and may be older than the rows.

-- Functions with a body of standard SQL name what they use when they are made, whatever the search path is then. The planner puts them into the statement
-- that calls them, which one with a setting of its own prevents.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION usage_cost(p_rate bigint, p_start timestamptz, p_end timestamptz) RETURNS bigint LANGUAGE sql IMMUTABLE
    RETURN floor(p_rate::numeric * round(extract(epoch FROM (p_end - p_start)) * 1000000) / 3600000000)::bigint;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION least_end(p_start timestamptz) RETURNS timestamptz LANGUAGE sql IMMUTABLE
    RETURN p_start + interval '600 seconds';
-- +goose StatementEnd
-- usage_window_bytes is what the hash of a debit covers of each of its windows.
-- +goose StatementBegin
CREATE FUNCTION usage_window_bytes(p_record text, p_segment integer, p_start timestamptz, p_end timestamptz, p_amount bigint) RETURNS bytea LANGUAGE sql STABLE
    RETURN int4send(octet_length(p_record)) || convert_to(p_record, 'UTF8') || int4send(p_segment) || timestamptz_send(p_start) || timestamptz_send(p_end)
        || int8send(p_amount);
-- +goose StatementEnd
-- usage_windows_hash is the hash over the windows of a debit, in the order of their records and times.
-- +goose StatementBegin
CREATE FUNCTION usage_windows_hash(p_transaction bigint) RETURNS bytea LANGUAGE sql STABLE
    RETURN (SELECT sha256(string_agg(usage_window_bytes(w.record_id, w.segment, w.window_start, w.window_end, w.amount_minor), ''
        ORDER BY w.record_id COLLATE "C", w.window_start)) FROM usage_windows w WHERE w.transaction_id = p_transaction);
-- +goose StatementEnd

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION ledger_entry_text(e ledger_entries, t ledger_transactions) RETURNS text LANGUAGE sql STABLE
    RETURN jsonb_build_array(e.transaction_id, e.line, e.ledger_account_id, e.currency, e.amount_minor, e.account_seq, e.balance_after_minor, t.key, t.kind,
        t.billing_account_id, t.of_project, t.of_allocation, extract(epoch FROM t.effective_at)::text, extract(epoch FROM t.posted_at)::text, t.reason,
        t.actor, encode(t.request_hash, 'hex'))::text;
-- +goose StatementEnd

-- ledger_head is the hash over entries in their order: that of the first is over the head of the account before it.
-- +goose StatementBegin
CREATE FUNCTION next_ledger_head(state bytea, before bytea, entry text) RETURNS bytea LANGUAGE sql IMMUTABLE
    RETURN sha256(coalesce(state, before) || convert_to(entry, 'UTF8'));
-- +goose StatementEnd
CREATE AGGREGATE ledger_head(before bytea, entry text) (SFUNC = next_ledger_head, STYPE = bytea);

-- post_ledger_entries moves the balances with the entries of one statement. Each transaction must be whole and balanced in it, and each account's numbers
-- must follow the last one. It runs as the owner: nobody else may move a balance.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION post_ledger_entries() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
    SET enable_seqscan = off AS $$
DECLARE
    wrong record;
BEGIN
    SELECT a.transaction_id, a.total, a.lines INTO wrong
        FROM (SELECT b.transaction_id, sum(b.amount_minor) AS total, count(*) AS lines FROM added b GROUP BY b.transaction_id) a
        WHERE a.total <> 0 OR a.lines < 2 OR a.lines < (SELECT count(*) FROM ledger_entries e WHERE e.transaction_id = a.transaction_id) LIMIT 1;
    IF FOUND AND (wrong.total <> 0 OR wrong.lines < 2) THEN
        RAISE EXCEPTION 'ledger transaction % has % lines with the sum %', wrong.transaction_id, wrong.lines, wrong.total USING ERRCODE = 'SW005';
    ELSIF FOUND THEN
        RAISE EXCEPTION 'a ledger transaction gets its lines at once' USING ERRCODE = 'SW005';
    END IF;
    PERFORM FROM ledger_accounts l WHERE l.id IN (SELECT a.ledger_account_id FROM added a) ORDER BY l.id FOR NO KEY UPDATE;
    WITH chained AS MATERIALIZED (
        SELECT l.id, l.last_seq, a.account_seq, a.balance_after_minor, t.billing_account_id = l.billing_account_id AS is_own,
            a.account_seq = l.last_seq + row_number() OVER places AND a.balance_after_minor = l.balance_minor + sum(a.amount_minor) OVER places AS follows,
            lead(a.account_seq) OVER places IS NULL AS is_last,
            ledger_head(l.head, ledger_entry_text(ROW (a.transaction_id, a.line, a.ledger_account_id, a.currency, a.amount_minor, a.account_seq,
                a.balance_after_minor)::ledger_entries, t)) OVER places AS head
        FROM added a JOIN ledger_transactions t ON t.id = a.transaction_id JOIN ledger_accounts l ON l.id = a.ledger_account_id
        WINDOW places AS (PARTITION BY l.id ORDER BY a.account_seq ROWS UNBOUNDED PRECEDING)
    ), anchored AS (
        INSERT INTO ledger_anchors (ledger_account_id, seq, balance_minor, head)
        SELECT c.id, c.account_seq, c.balance_after_minor, c.head FROM chained c WHERE c.account_seq % 10000 = 0
    ), moved AS (
        UPDATE ledger_accounts l SET balance_minor = c.balance_after_minor, last_seq = c.account_seq, head = c.head FROM chained c WHERE c.is_last AND l.id = c.id
    )
    SELECT c.* INTO wrong FROM chained c WHERE NOT c.follows OR NOT c.is_own ORDER BY c.id, c.account_seq LIMIT 1;
    IF FOUND AND NOT wrong.follows THEN
        RAISE EXCEPTION 'entry % of ledger account % does not follow entry %', wrong.account_seq, wrong.id, wrong.last_seq USING ERRCODE = '40001';
    ELSIF FOUND THEN
        RAISE EXCEPTION 'a ledger transaction has lines of one billing account' USING ERRCODE = 'SW005';
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd

-- follow_balance decides the state in the transaction that moves the balance or a threshold: a credit line counts at once, and not after the release that
-- it is to prevent. An account to which nothing was posted has no state yet.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION follow_balance() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
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
    IF balance > t.rearm_minor AND EXISTS (SELECT FROM balance_notices n
        WHERE n.billing_account_id = s.billing_account_id AND n.episode = s.episode AND n.kind <> 'balance_short') THEN
        s.episode := s.episode + 1;
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
-- +goose StatementEnd

-- What the guards of rows compare stands in their conditions, so that a function is called only to refuse.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION guard_usage_segment() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    RAISE EXCEPTION 'segment % of usage record % cannot be taken back', OLD.segment, OLD.record_id USING ERRCODE = 'SW005';
END $$;
-- +goose StatementEnd
DROP TRIGGER usage_segments_guard ON usage_segments;
CREATE TRIGGER usage_segments_guard BEFORE UPDATE ON usage_segments FOR EACH ROW
    WHEN ((NEW.project_id, NEW.record_id, NEW.segment, NEW.billing_account_id, NEW.currency, NEW.rate_minor_per_hour, NEW.started_at)
            IS DISTINCT FROM (OLD.project_id, OLD.record_id, OLD.segment, OLD.billing_account_id, OLD.currency, OLD.rate_minor_per_hour, OLD.started_at)
        OR NEW.billed_through < OLD.billed_through OR NEW.charged_minor < OLD.charged_minor
        OR OLD.ended_at IS NOT NULL AND NEW.ended_at IS DISTINCT FROM OLD.ended_at)
    EXECUTE FUNCTION guard_usage_segment();
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION guard_ledger_time() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    RAISE EXCEPTION 'a ledger transaction carries the time of its own transaction' USING ERRCODE = 'SW003';
END $$;
-- +goose StatementEnd
DROP TRIGGER ledger_transactions_time ON ledger_transactions;
CREATE TRIGGER ledger_transactions_time BEFORE INSERT ON ledger_transactions FOR EACH ROW WHEN (NEW.posted_at IS DISTINCT FROM now())
    EXECUTE FUNCTION guard_ledger_time();

-- A window needs its segment, and the debit of its own project that is booked in the same transaction: nothing is added to one that was booked before. Both
-- were foreign keys, which ask for each row by itself. No segment and no debit is ever deleted.
ALTER TABLE usage_windows DROP CONSTRAINT usage_windows_project_id_record_id_segment_fkey, DROP CONSTRAINT usage_windows_transaction_id_fkey;
-- +goose StatementBegin
CREATE FUNCTION guard_usage_windows() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp SET enable_seqscan = off AS $$
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
-- +goose StatementEnd
CREATE TRIGGER usage_windows_guard AFTER INSERT ON usage_windows REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION guard_usage_windows();

-- The statement reads the windows of the debits of a month. By their time nothing reads them.
DROP INDEX usage_windows_by_time;
CREATE INDEX usage_windows_by_transaction ON usage_windows (transaction_id) WHERE transaction_id IS NOT NULL;

-- A transaction has lines when it is committed, and a debit for usage is the sum of its windows and has their hash.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION guard_ledger_lines() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp SET enable_seqscan = off AS $$
DECLARE
    charged bigint;
BEGIN
    IF NOT EXISTS (SELECT FROM ledger_entries e WHERE e.transaction_id = NEW.id) THEN
        RAISE EXCEPTION 'ledger transaction % has no lines', NEW.key USING ERRCODE = 'SW005';
    END IF;
    IF NEW.kind = 'usage' THEN
        SELECT sum(w.amount_minor) INTO charged FROM usage_windows w WHERE w.transaction_id = NEW.id;
        IF charged IS DISTINCT FROM (SELECT -e.amount_minor FROM ledger_entries e
            WHERE e.transaction_id = NEW.id AND (SELECT a.code FROM ledger_accounts a WHERE a.id = e.ledger_account_id) = 'prepaid') THEN
            RAISE EXCEPTION 'ledger transaction % is not the sum of its windows, which is %', NEW.key, charged USING ERRCODE = 'SW005';
        END IF;
        IF NEW.request_hash IS DISTINCT FROM usage_windows_hash(NEW.id) THEN
            RAISE EXCEPTION 'ledger transaction % has not the hash of its windows', NEW.key USING ERRCODE = 'SW005';
        END IF;
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd

-- ledger_verify also compares the windows of each debit with the hash that the debit has of them. A debit of before this migration has none.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION ledger_verify(p_account bigint, p_after bigint DEFAULT 0, p_most bigint DEFAULT 1000000000000) RETURNS bigint LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    entry record;
    account ledger_accounts;
    anchor ledger_anchors;
    expected bigint := p_after + 1;
    balance bigint := 0;
    hash bytea := '';
BEGIN
    IF p_after > 0 THEN
        SELECT * INTO anchor FROM ledger_anchors a WHERE a.ledger_account_id = p_account AND a.seq = p_after;
        IF NOT FOUND THEN
            RETURN p_after;
        END IF;
        balance := anchor.balance_minor;
        hash := anchor.head;
    END IF;
    FOR entry IN SELECT e.transaction_id, e.account_seq, e.amount_minor, e.balance_after_minor, ledger_entry_text(e, t) AS text,
            CASE WHEN t.kind = 'usage' AND e.line = 1 THEN t.request_hash ELSE '' END AS windows_hash
        FROM ledger_entries e JOIN ledger_transactions t ON t.id = e.transaction_id WHERE e.ledger_account_id = p_account
            AND e.account_seq > p_after AND e.account_seq <= p_after + p_most ORDER BY e.account_seq LOOP
        balance := balance + entry.amount_minor;
        IF entry.account_seq <> expected OR entry.balance_after_minor <> balance OR entry.windows_hash <> '' AND entry.windows_hash IS DISTINCT FROM usage_windows_hash(entry.transaction_id) THEN
            RETURN expected;
        END IF;
        hash := sha256(hash || convert_to(entry.text, 'UTF8'));
        expected := expected + 1;
        IF entry.account_seq % 10000 = 0 THEN
            SELECT * INTO anchor FROM ledger_anchors a WHERE a.ledger_account_id = p_account AND a.seq = entry.account_seq;
            IF (anchor.balance_minor, anchor.head) IS DISTINCT FROM (balance, hash) THEN
                RETURN expected;
            END IF;
        END IF;
    END LOOP;
    IF expected = p_after + p_most + 1 THEN
        RETURN NULL;
    END IF;
    SELECT * INTO account FROM ledger_accounts a WHERE a.id = p_account;
    IF account.last_seq <> expected - 1 OR account.balance_minor <> balance OR account.head <> hash THEN
        RETURN expected;
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd

-- bill_accounts charges some accounts up to a moment: one window for each segment, one ledger transaction for all windows of a project that cost something.
-- Its key is that of the first of them, so that no other debit has it, and its request_hash covers them. A second call for the same moment, or an earlier
-- one, changes nothing. The locks are taken in the order of the accounts' ids. What few accounts have in large tables is read by the indexes.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION bill_accounts(p_accounts text[], p_boundary timestamptz, OUT billed_windows integer, OUT billed_minor numeric) LANGUAGE plpgsql
    SET search_path = pg_catalog, public, pg_temp SET random_page_cost = 1.1 AS $$
DECLARE
    ending boolean;
BEGIN
    PERFORM FROM billing_accounts b WHERE b.id = ANY (p_accounts) ORDER BY b.id FOR NO KEY UPDATE;
    SELECT coalesce(bool_or(r.end_time IS NOT NULL OR r.end_cap IS NOT NULL), false) INTO ending FROM (SELECT u.end_time, u.end_cap FROM usage_records u
        WHERE u.billing_account_id = ANY (p_accounts) AND u.closed_at IS NULL ORDER BY u.id FOR NO KEY UPDATE) r;
    IF ending THEN
        -- An end that is still to come was written by a clock that was ahead: the tenant is gone, so that the charge ends with this tick.
        UPDATE usage_records r SET end_time = greatest(p_boundary, least_end(r.start_time), (SELECT max(s.billed_through) FROM usage_segments s
            WHERE s.project_id = r.project_id AND s.record_id = r.id))
        WHERE r.billing_account_id = ANY (p_accounts) AND r.closed_at IS NULL AND r.end_time > greatest(now(), least_end(r.start_time));
        UPDATE usage_records r SET end_cap = now() + interval '300 seconds'
        WHERE r.billing_account_id = ANY (p_accounts) AND r.closed_at IS NULL AND r.end_cap > now() + interval '300 seconds';
        UPDATE usage_records r SET end_time = greatest(r.end_cap, least_end(r.start_time), (SELECT max(s.billed_through) FROM usage_segments s
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
        WHERE s.billing_account_id = ANY (p_accounts) AND (s.ended_at IS NULL OR s.billed_through < s.ended_at)
            AND s.billed_through < least(p_boundary, s.ended_at)
    ), ranked AS (
        SELECT d.*, row_number() OVER (PARTITION BY d.billing_account_id, d.project_id ORDER BY d.record_id COLLATE "C", d.window_start) AS place
        FROM due d WHERE d.amount_minor > 0
    ), debits AS MATERIALIZED (
        SELECT d.billing_account_id, d.project_id, d.currency, sum(d.amount_minor)::bigint AS amount_minor, max(d.window_end) AS effective_at,
            max(d.record_id || ':' || to_char(d.window_start AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')) FILTER (WHERE d.place = 1) AS first,
            CASE WHEN min(d.record_id) = max(d.record_id) THEN 'alc_' || substr(min(d.record_id), 5) END AS of_allocation,
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
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION bill_accounts(p_accounts text[], p_boundary timestamptz, OUT billed_windows integer, OUT billed_minor numeric) LANGUAGE plpgsql
    SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    PERFORM FROM billing_accounts b WHERE b.id = ANY (p_accounts) ORDER BY b.id FOR NO KEY UPDATE;
    PERFORM FROM usage_records r WHERE r.billing_account_id = ANY (p_accounts) AND r.closed_at IS NULL ORDER BY r.id FOR NO KEY UPDATE;
    -- An end that is still to come was written by a clock that was ahead: the tenant is gone, so that the charge ends with this tick.
    UPDATE usage_records r SET end_time = greatest(p_boundary, least_end(r.start_time), (SELECT max(s.billed_through) FROM usage_segments s
        WHERE s.project_id = r.project_id AND s.record_id = r.id))
    WHERE r.billing_account_id = ANY (p_accounts) AND r.closed_at IS NULL AND r.end_time > greatest(now(), least_end(r.start_time));
    UPDATE usage_records r SET end_cap = now() + interval '300 seconds'
    WHERE r.billing_account_id = ANY (p_accounts) AND r.closed_at IS NULL AND r.end_cap > now() + interval '300 seconds';
    UPDATE usage_records r SET end_time = greatest(r.end_cap, least_end(r.start_time), (SELECT max(s.billed_through) FROM usage_segments s
        WHERE s.project_id = r.project_id AND s.record_id = r.id))
    WHERE r.billing_account_id = ANY (p_accounts) AND r.closed_at IS NULL AND r.end_time IS NULL AND r.start_time IS NOT NULL AND r.end_cap <= p_boundary;
    PERFORM split_usage(p_accounts, p_boundary);
    UPDATE usage_segments s SET ended_at = greatest(r.end_time, s.billed_through) FROM usage_records r
    WHERE s.billing_account_id = ANY (p_accounts) AND s.ended_at IS NULL AND r.project_id = s.project_id AND r.id = s.record_id AND r.end_time <= p_boundary;
    INSERT INTO ledger_accounts (billing_account_id, code, currency)
    SELECT b.id, c.code, b.currency FROM billing_accounts b, (VALUES ('prepaid'), ('revenue')) AS c (code)
    WHERE b.id = ANY (p_accounts) AND NOT EXISTS (SELECT FROM ledger_accounts a WHERE a.billing_account_id = b.id AND a.code = c.code)
    ORDER BY b.id, c.code ON CONFLICT DO NOTHING;

    WITH due AS MATERIALIZED (
        SELECT s.project_id, s.record_id, s.segment, s.billing_account_id, s.currency, s.billed_through AS window_start,
            least(p_boundary, s.ended_at) AS window_end,
            usage_cost(s.rate_minor_per_hour, s.started_at, least(p_boundary, s.ended_at)) - s.charged_minor AS amount_minor
        FROM usage_segments s
        WHERE s.billing_account_id = ANY (p_accounts) AND (s.ended_at IS NULL OR s.billed_through < s.ended_at)
            AND s.billed_through < least(p_boundary, s.ended_at)
    ), booked AS (
        INSERT INTO ledger_transactions (key, kind, billing_account_id, currency, of_project, of_allocation, effective_at)
        SELECT 'usage:' || d.record_id || ':' || to_char(d.window_start AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), 'usage', d.billing_account_id,
            d.currency, d.project_id, 'alc_' || substr(d.record_id, 5), d.window_end
        FROM due d WHERE d.amount_minor > 0 ORDER BY d.billing_account_id, d.record_id, d.window_start
        RETURNING id, key, billing_account_id, currency, of_allocation, effective_at
    ), posted AS (
        SELECT b.id, b.billing_account_id, b.currency, d.project_id, d.record_id, d.window_start, d.amount_minor,
            row_number() OVER places AS place, sum(d.amount_minor) OVER places AS running
        FROM booked b JOIN due d ON 'alc_' || substr(d.record_id, 5) = b.of_allocation AND d.window_end = b.effective_at
        WINDOW places AS (PARTITION BY b.billing_account_id ORDER BY b.id)
    ), lines AS (
        INSERT INTO ledger_entries (transaction_id, line, ledger_account_id, currency, amount_minor, account_seq, balance_after_minor)
        SELECT p.id, c.line, a.id, p.currency, c.sign * p.amount_minor, a.last_seq + p.place, a.balance_minor + c.sign * p.running
        FROM posted p CROSS JOIN (VALUES (1, 'prepaid', -1), (2, 'revenue', 1)) AS c (line, code, sign)
        JOIN ledger_accounts a ON a.billing_account_id = p.billing_account_id AND a.code = c.code
        RETURNING transaction_id
    ), charged AS (
        UPDATE usage_segments s SET billed_through = d.window_end, charged_minor = s.charged_minor + d.amount_minor FROM due d
        WHERE s.project_id = d.project_id AND s.record_id = d.record_id AND s.segment = d.segment
        RETURNING s.segment
    ), written AS (
        INSERT INTO usage_windows (project_id, record_id, window_start, window_end, segment, amount_minor, transaction_id)
        SELECT d.project_id, d.record_id, d.window_start, d.window_end, d.segment, d.amount_minor, p.id
        FROM due d LEFT JOIN posted p ON p.record_id = d.record_id AND p.window_start = d.window_start
        RETURNING usage_windows.amount_minor
    )
    SELECT count(*), coalesce(sum(w.amount_minor), 0) INTO billed_windows, billed_minor FROM written w, (SELECT count(*) FROM lines) l, (SELECT count(*) FROM charged) c;

    UPDATE usage_records r SET closed_at = now()
    WHERE r.billing_account_id = ANY (p_accounts) AND r.closed_at IS NULL AND r.end_time <= p_boundary;
END $$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION ledger_verify(p_account bigint, p_after bigint DEFAULT 0, p_most bigint DEFAULT 1000000000000) RETURNS bigint LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    entry record;
    account ledger_accounts;
    anchor ledger_anchors;
    expected bigint := p_after + 1;
    balance bigint := 0;
    hash bytea := '';
BEGIN
    IF p_after > 0 THEN
        SELECT * INTO anchor FROM ledger_anchors a WHERE a.ledger_account_id = p_account AND a.seq = p_after;
        IF NOT FOUND THEN
            RETURN p_after;
        END IF;
        balance := anchor.balance_minor;
        hash := anchor.head;
    END IF;
    FOR entry IN SELECT e.account_seq, e.amount_minor, e.balance_after_minor, ledger_entry_text(e, t) AS text
        FROM ledger_entries e JOIN ledger_transactions t ON t.id = e.transaction_id WHERE e.ledger_account_id = p_account
            AND e.account_seq > p_after AND e.account_seq <= p_after + p_most ORDER BY e.account_seq LOOP
        balance := balance + entry.amount_minor;
        IF entry.account_seq <> expected OR entry.balance_after_minor <> balance THEN
            RETURN expected;
        END IF;
        hash := sha256(hash || convert_to(entry.text, 'UTF8'));
        expected := expected + 1;
        IF entry.account_seq % 10000 = 0 THEN
            SELECT * INTO anchor FROM ledger_anchors a WHERE a.ledger_account_id = p_account AND a.seq = entry.account_seq;
            IF (anchor.balance_minor, anchor.head) IS DISTINCT FROM (balance, hash) THEN
                RETURN expected;
            END IF;
        END IF;
    END LOOP;
    IF expected = p_after + p_most + 1 THEN
        RETURN NULL;
    END IF;
    SELECT * INTO account FROM ledger_accounts a WHERE a.id = p_account;
    IF account.last_seq <> expected - 1 OR account.balance_minor <> balance OR account.head <> hash THEN
        RETURN expected;
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION guard_ledger_lines() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM ledger_entries e WHERE e.transaction_id = NEW.id) THEN
        RAISE EXCEPTION 'ledger transaction % has no lines', NEW.key USING ERRCODE = 'SW005';
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION post_ledger_entries() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    entry record;
    account ledger_accounts;
BEGIN
    SELECT a.transaction_id, sum(a.amount_minor) AS total, count(*) AS lines INTO entry FROM added a GROUP BY a.transaction_id
        HAVING sum(a.amount_minor) <> 0 OR count(*) < 2 LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'ledger transaction % has % lines with the sum %', entry.transaction_id, entry.lines, entry.total USING ERRCODE = 'SW005';
    END IF;
    IF EXISTS (SELECT FROM (SELECT b.transaction_id, count(*) AS lines FROM added b GROUP BY b.transaction_id) a
        WHERE a.lines < (SELECT count(*) FROM ledger_entries e WHERE e.transaction_id = a.transaction_id)) THEN
        RAISE EXCEPTION 'a ledger transaction gets its lines at once' USING ERRCODE = 'SW005';
    END IF;
    FOR entry IN SELECT a.ledger_account_id, a.amount_minor, a.account_seq, a.balance_after_minor, t.billing_account_id,
            ledger_entry_text(e, t) AS text, lead(a.ledger_account_id) OVER places AS following
        FROM added a JOIN ledger_entries e USING (transaction_id, line) JOIN ledger_transactions t ON t.id = a.transaction_id
        WINDOW places AS (ORDER BY a.ledger_account_id, a.account_seq) ORDER BY a.ledger_account_id, a.account_seq LOOP
        IF account.id IS DISTINCT FROM entry.ledger_account_id THEN
            SELECT * INTO account FROM ledger_accounts l WHERE l.id = entry.ledger_account_id FOR NO KEY UPDATE;
        END IF;
        IF entry.account_seq <> account.last_seq + 1 OR entry.balance_after_minor <> account.balance_minor + entry.amount_minor THEN
            RAISE EXCEPTION 'entry % of ledger account % does not follow entry %', entry.account_seq, account.id, account.last_seq USING ERRCODE = '40001';
        END IF;
        IF entry.billing_account_id <> account.billing_account_id THEN
            RAISE EXCEPTION 'a ledger transaction has lines of one billing account' USING ERRCODE = 'SW005';
        END IF;
        account.last_seq := entry.account_seq;
        account.balance_minor := entry.balance_after_minor;
        account.head := sha256(account.head || convert_to(entry.text, 'UTF8'));
        IF account.last_seq % 10000 = 0 THEN
            INSERT INTO ledger_anchors (ledger_account_id, seq, balance_minor, head) VALUES (account.id, account.last_seq, account.balance_minor, account.head);
        END IF;
        IF entry.following IS DISTINCT FROM account.id THEN
            UPDATE ledger_accounts l SET balance_minor = account.balance_minor, last_seq = account.last_seq, head = account.head WHERE l.id = account.id;
        END IF;
    END LOOP;
    RETURN NULL;
END $$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION follow_balance() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
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
DROP AGGREGATE ledger_head (bytea, text);
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION guard_usage_segment() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    IF (NEW.project_id, NEW.record_id, NEW.segment, NEW.billing_account_id, NEW.currency, NEW.rate_minor_per_hour, NEW.started_at)
            IS DISTINCT FROM (OLD.project_id, OLD.record_id, OLD.segment, OLD.billing_account_id, OLD.currency, OLD.rate_minor_per_hour, OLD.started_at)
        OR NEW.billed_through < OLD.billed_through OR NEW.charged_minor < OLD.charged_minor
        OR OLD.ended_at IS NOT NULL AND NEW.ended_at IS DISTINCT FROM OLD.ended_at THEN
        RAISE EXCEPTION 'segment % of usage record % cannot be taken back', OLD.segment, OLD.record_id USING ERRCODE = 'SW005';
    END IF;
    RETURN NEW;
END $$;
-- +goose StatementEnd
DROP TRIGGER usage_segments_guard ON usage_segments;
CREATE TRIGGER usage_segments_guard BEFORE UPDATE ON usage_segments FOR EACH ROW EXECUTE FUNCTION guard_usage_segment();
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION guard_ledger_time() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    IF NEW.posted_at IS DISTINCT FROM now() THEN
        RAISE EXCEPTION 'a ledger transaction carries the time of its own transaction' USING ERRCODE = 'SW003';
    END IF;
    RETURN NEW;
END $$;
-- +goose StatementEnd
DROP TRIGGER ledger_transactions_time ON ledger_transactions;
CREATE TRIGGER ledger_transactions_time BEFORE INSERT ON ledger_transactions FOR EACH ROW EXECUTE FUNCTION guard_ledger_time();
DROP TRIGGER usage_windows_guard ON usage_windows;
DROP FUNCTION guard_usage_windows, usage_windows_hash, usage_window_bytes, next_ledger_head;
DROP INDEX usage_windows_by_transaction;
CREATE INDEX usage_windows_by_time ON usage_windows (project_id, window_start);
ALTER TABLE usage_windows ADD FOREIGN KEY (project_id, record_id, segment) REFERENCES usage_segments (project_id, record_id, segment),
    ADD FOREIGN KEY (transaction_id) REFERENCES ledger_transactions (id);
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION usage_cost(p_rate bigint, p_start timestamptz, p_end timestamptz) RETURNS bigint LANGUAGE sql IMMUTABLE
    SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT floor(p_rate::numeric * round(extract(epoch FROM (p_end - p_start)) * 1000000) / 3600000000)::bigint
$$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION least_end(p_start timestamptz) RETURNS timestamptz LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT p_start + interval '600 seconds'
$$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION ledger_entry_text(e ledger_entries, t ledger_transactions) RETURNS text LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    RETURN jsonb_build_array(e.transaction_id, e.line, e.ledger_account_id, e.currency, e.amount_minor, e.account_seq, e.balance_after_minor, t.key, t.kind,
        t.billing_account_id, t.of_project, t.of_allocation, extract(epoch FROM t.effective_at)::text, extract(epoch FROM t.posted_at)::text, t.reason,
        t.actor, encode(t.request_hash, 'hex'))::text;
END $$;
-- +goose StatementEnd
