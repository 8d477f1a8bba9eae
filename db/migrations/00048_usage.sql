-- Prices, and the usage that is charged by them. docs/billing.md explains the rules.

-- +goose Up
-- A price is valid from a moment until the next price of the same SKU and currency. line is the SKU and the currency as a point, since an exclusion
-- constraint compares texts only with an extension.
CREATE TABLE prices (
    id                  text PRIMARY KEY CHECK (id LIKE 'prc\_%'),
    sku_id              text NOT NULL REFERENCES skus (id),
    currency            text NOT NULL REFERENCES currencies (code),
    rate_minor_per_hour bigint NOT NULL CHECK (rate_minor_per_hour BETWEEN 0 AND 1000000000000),
    valid               tstzrange NOT NULL CHECK (NOT isempty(valid) AND NOT lower_inf(valid) AND lower_inc(valid) AND NOT upper_inc(valid)),
    set_by              text NOT NULL CHECK (set_by <> '' AND char_length(set_by) <= 300),
    created_at          timestamptz NOT NULL DEFAULT now(),
    line                numrange NOT NULL GENERATED ALWAYS AS (numrange(
        ('x' || md5(sku_id || '/' || currency))::bit(64)::bigint::numeric, ('x' || md5(sku_id || '/' || currency))::bit(64)::bigint::numeric, '[]')) STORED,
    CONSTRAINT prices_overlap EXCLUDE USING gist (line WITH &&, valid WITH &&)
);
CREATE INDEX prices_by_sku ON prices (sku_id, currency, lower(valid));

-- Whatever writes it: a price that was set is only closed by the next one, and at a moment that is still to come.
-- +goose StatementBegin
CREATE FUNCTION guard_price() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    is_first boolean := NOT EXISTS (SELECT FROM prices p WHERE p.sku_id = NEW.sku_id AND p.currency = NEW.currency);
BEGIN
    IF TG_OP = 'INSERT' THEN
        IF NOT upper_inf(NEW.valid) THEN
            RAISE EXCEPTION 'a price is valid until the next one is set' USING ERRCODE = 'SW005';
        END IF;
        IF is_first AND lower(NEW.valid) >= now() - interval '1 minute' OR NOT is_first AND lower(NEW.valid) >= now() + interval '59 minutes' THEN
            RETURN NEW;
        END IF;
    ELSIF upper_inf(OLD.valid) AND upper(NEW.valid) >= now() + interval '59 minutes' AND lower(NEW.valid) = lower(OLD.valid)
        AND (NEW.id, NEW.sku_id, NEW.currency, NEW.rate_minor_per_hour, NEW.set_by, NEW.created_at)
            = (OLD.id, OLD.sku_id, OLD.currency, OLD.rate_minor_per_hour, OLD.set_by, OLD.created_at) THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'a price starts at least an hour ahead, and one that was set does not change' USING ERRCODE = 'SW005';
END $$;
-- +goose StatementEnd
CREATE TRIGGER prices_guard BEFORE INSERT OR UPDATE ON prices FOR EACH ROW EXECUTE FUNCTION guard_price();
CREATE TRIGGER prices_no_delete BEFORE DELETE OR TRUNCATE ON prices FOR EACH STATEMENT EXECUTE FUNCTION audit_refuse_edit();

-- rate_at is the rate at a moment of what runs since p_start: the lowest price of the seven days before it, since p_start. A time before the first price
-- has the rate 0. So a lower price counts at once, and a higher one seven days after it began.
-- +goose StatementBegin
CREATE FUNCTION rate_at(p_sku text, p_currency text, p_start timestamptz, p_at timestamptz) RETURNS bigint LANGUAGE sql STABLE
    SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT CASE WHEN bool_or(lower(p.valid) <= greatest(p_start, p_at - interval '168 hours')) THEN min(p.rate_minor_per_hour) ELSE 0 END
    FROM prices p WHERE p.sku_id = p_sku AND p.currency = p_currency
        AND p.valid && tstzrange(greatest(p_start, p_at - interval '168 hours'), p_at,
            CASE WHEN p_start >= p_at - interval '168 hours' THEN '[]' ELSE '(]' END)
$$;
-- +goose StatementEnd

-- usage_cost is what a time costs: whole minor units, rounded down. What a window costs is the cost of the whole segment less what was charged before, so
-- that nothing is lost or gained by rounding.
-- +goose StatementBegin
CREATE FUNCTION usage_cost(p_rate bigint, p_start timestamptz, p_end timestamptz) RETURNS bigint LANGUAGE sql IMMUTABLE
    SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT floor(p_rate::numeric * round(extract(epoch FROM (p_end - p_start)) * 1000000) / 3600000000)::bigint
$$;
-- +goose StatementEnd

-- least_end is the earliest end of a charge: what was active is charged for ten minutes at least, since each tenancy costs an erasure.
-- +goose StatementBegin
CREATE FUNCTION least_end(p_start timestamptz) RETURNS timestamptz LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT p_start + interval '600 seconds'
$$;
-- +goose StatementEnd

-- What an allocation uses, from its creation on. It is charged from start_time to end_time, and at most to end_cap.
CREATE TABLE usage_records (
    project_id         text NOT NULL,
    allocation_id      text NOT NULL,
    id                 text NOT NULL CHECK (id LIKE 'usg\_%'),
    billing_account_id text NOT NULL,
    sku_id             text NOT NULL REFERENCES skus (id),
    currency           text NOT NULL,
    max_spend_minor    bigint CHECK (max_spend_minor > 0),
    start_time         timestamptz,
    end_cap            timestamptz,
    end_time           timestamptz,
    closed_at          timestamptz,
    created_at         timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (project_id, allocation_id),
    CONSTRAINT usage_records_id_unique UNIQUE (project_id, id),
    CHECK (end_time >= start_time),
    CHECK (closed_at IS NULL OR end_time IS NOT NULL OR start_time IS NULL),
    FOREIGN KEY (project_id, allocation_id) REFERENCES allocations (project_id, id),
    FOREIGN KEY (billing_account_id, currency) REFERENCES billing_accounts (id, currency)
);
CREATE INDEX usage_records_open ON usage_records (billing_account_id, id) WHERE closed_at IS NULL;
CREATE INDEX usage_records_by_allocation ON usage_records (allocation_id);
CREATE INDEX usage_records_by_account ON usage_records (billing_account_id);
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
    PRIMARY KEY (project_id, record_id, segment),
    FOREIGN KEY (project_id, record_id) REFERENCES usage_records (project_id, id),
    CHECK (ended_at >= started_at),
    CHECK (billed_through >= started_at AND (ended_at IS NULL OR billed_through <= ended_at))
) WITH (fillfactor = 70);
CREATE UNIQUE INDEX usage_segments_one_open ON usage_segments (project_id, record_id) WHERE ended_at IS NULL;
CREATE INDEX usage_segments_due ON usage_segments (billing_account_id) WHERE ended_at IS NULL OR billed_through < ended_at;
SELECT isolate_by_project('usage_segments');

-- What was charged. A window begins where the one before ended, which the key and the guard of billed_through prove; its ledger transaction has the key
-- usage:RECORD:WINDOW_START. A window that cost less than one minor unit has none.
CREATE TABLE usage_windows (
    project_id     text NOT NULL,
    record_id      text NOT NULL,
    window_start   timestamptz NOT NULL,
    window_end     timestamptz NOT NULL,
    segment        integer NOT NULL,
    amount_minor   bigint NOT NULL CHECK (amount_minor >= 0),
    transaction_id bigint REFERENCES ledger_transactions (id),
    PRIMARY KEY (project_id, record_id, window_start),
    UNIQUE (project_id, record_id, window_end),
    FOREIGN KEY (project_id, record_id, segment) REFERENCES usage_segments (project_id, record_id, segment),
    CHECK (window_end > window_start),
    CHECK ((amount_minor = 0) = (transaction_id IS NULL))
);
CREATE INDEX usage_windows_by_time ON usage_windows (project_id, window_start);
SELECT isolate_by_project('usage_windows');
CREATE TRIGGER usage_windows_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON usage_windows FOR EACH STATEMENT EXECUTE FUNCTION audit_refuse_edit();
CREATE TRIGGER usage_records_no_delete BEFORE DELETE OR TRUNCATE ON usage_records FOR EACH STATEMENT EXECUTE FUNCTION audit_refuse_edit();
CREATE TRIGGER usage_segments_no_delete BEFORE DELETE OR TRUNCATE ON usage_segments FOR EACH STATEMENT EXECUTE FUNCTION audit_refuse_edit();

-- A segment keeps its rate, and what was charged or ended stays so.
-- +goose StatementBegin
CREATE FUNCTION guard_usage_segment() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
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
CREATE TRIGGER usage_segments_guard BEFORE UPDATE ON usage_segments FOR EACH ROW EXECUTE FUNCTION guard_usage_segment();
-- +goose StatementBegin
CREATE FUNCTION guard_usage_record() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    IF (NEW.project_id, NEW.allocation_id, NEW.id, NEW.billing_account_id, NEW.sku_id, NEW.currency)
            IS DISTINCT FROM (OLD.project_id, OLD.allocation_id, OLD.id, OLD.billing_account_id, OLD.sku_id, OLD.currency)
        OR OLD.start_time IS NOT NULL AND NEW.start_time IS DISTINCT FROM OLD.start_time
        OR OLD.end_time IS NOT NULL AND NEW.end_time IS DISTINCT FROM OLD.end_time
            AND (NEW.end_time < OLD.end_time AND OLD.end_time > greatest(now(), least_end(OLD.start_time))) IS NOT TRUE
        OR OLD.closed_at IS NOT NULL AND NEW.closed_at IS DISTINCT FROM OLD.closed_at THEN
        RAISE EXCEPTION 'usage record % cannot be taken back', OLD.id USING ERRCODE = 'SW005';
    END IF;
    RETURN NEW;
END $$;
-- +goose StatementEnd
CREATE TRIGGER usage_records_guard BEFORE UPDATE ON usage_records FOR EACH ROW EXECUTE FUNCTION guard_usage_record();

-- follow_allocation keeps the usage record with its allocation, whatever moves it: the charge begins when the keys went in, once that is known to be
-- used (start_time), and ends when the access is proven to have ended, when the release fails, when the allocation ends, and at most five minutes after a release was accepted, but not before least_end. An end
-- that is known late, after a minute was charged, is the end of that minute. A start before the request is that of a clock that was behind.
-- +goose StatementBegin
CREATE FUNCTION follow_allocation() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
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
-- +goose StatementEnd
CREATE TRIGGER allocations_usage_insert AFTER INSERT ON allocations FOR EACH ROW EXECUTE FUNCTION follow_allocation();
CREATE TRIGGER allocations_usage_update AFTER UPDATE ON allocations FOR EACH ROW EXECUTE FUNCTION follow_allocation();

-- Allocations of before this migration: those that run are free until a price is set. Row-level security binds the owner too, while it is forced.
ALTER TABLE allocations NO FORCE ROW LEVEL SECURITY;
ALTER TABLE projects NO FORCE ROW LEVEL SECURITY;
ALTER TABLE usage_records NO FORCE ROW LEVEL SECURITY;
ALTER TABLE usage_segments NO FORCE ROW LEVEL SECURITY;
INSERT INTO usage_records (project_id, allocation_id, id, billing_account_id, sku_id, currency, start_time, end_cap, end_time, closed_at)
SELECT a.project_id, a.id, 'usg_' || substr(a.id, 5), b.id, a.sku_id, b.currency, a.start_time, a.charge_capped_at + interval '300 seconds',
    CASE WHEN a.start_time IS NOT NULL AND a.status NOT IN ('active', 'releasing') THEN greatest(a.start_time, coalesce(a.access_ended_at, now())) END,
    CASE WHEN a.status IN ('released', 'failed') OR a.start_time IS NOT NULL AND a.status NOT IN ('active', 'releasing') THEN now() END
FROM allocations a JOIN projects p ON p.id = a.project_id JOIN billing_accounts b ON b.id = p.billing_account_id;
INSERT INTO usage_segments (project_id, record_id, segment, billing_account_id, currency, rate_minor_per_hour, started_at, ended_at, billed_through)
SELECT r.project_id, r.id, 0, r.billing_account_id, r.currency, 0, r.start_time, r.end_time, coalesce(r.end_time, r.start_time)
FROM usage_records r WHERE r.start_time IS NOT NULL;
ALTER TABLE allocations FORCE ROW LEVEL SECURITY;
ALTER TABLE projects FORCE ROW LEVEL SECURITY;
ALTER TABLE usage_records FORCE ROW LEVEL SECURITY;
ALTER TABLE usage_segments FORCE ROW LEVEL SECURITY;

-- split_usage ends the segments of some accounts at each change of their rate up to a moment, and begins the next ones.
-- +goose StatementBegin
CREATE FUNCTION split_usage(p_accounts text[], p_boundary timestamptz) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    changed bigint;
BEGIN
    LOOP
        WITH due AS (
            SELECT DISTINCT ON (s.project_id, s.record_id) s.*, c.at, c.rate
            FROM usage_segments s JOIN usage_records r ON r.project_id = s.project_id AND r.id = s.record_id
            JOIN prices p ON p.sku_id = r.sku_id AND p.currency = r.currency
            CROSS JOIN LATERAL (VALUES (lower(p.valid)), (lower(p.valid) + interval '168 hours')) AS m (at)
            CROSS JOIN LATERAL (SELECT m.at, rate_at(r.sku_id, r.currency, r.start_time, m.at) AS rate
                WHERE m.at > s.started_at AND m.at >= s.billed_through AND m.at <= p_boundary AND (r.end_time IS NULL OR m.at < r.end_time)) AS c
            WHERE s.billing_account_id = ANY (p_accounts) AND s.ended_at IS NULL AND c.rate <> s.rate_minor_per_hour
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
-- +goose StatementEnd

-- bill_accounts charges some accounts up to a moment: one window for each segment, one ledger transaction for each window that costs something. A second
-- call for the same moment, or an earlier one, changes nothing. The locks are taken in the order of the accounts' ids.
-- +goose StatementBegin
CREATE FUNCTION bill_accounts(p_accounts text[], p_boundary timestamptz, OUT billed_windows integer, OUT billed_minor numeric) LANGUAGE plpgsql
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

-- +goose Down
DROP FUNCTION bill_accounts, split_usage;
DROP TRIGGER allocations_usage_insert ON allocations;
DROP TRIGGER allocations_usage_update ON allocations;
DROP FUNCTION follow_allocation;
DROP TABLE usage_windows, usage_segments, usage_records, prices;
DROP FUNCTION least_end, guard_usage_record, guard_usage_segment, usage_cost, rate_at, guard_price;
